// Networks of learning agents: a torso, an optional LSTM, heads for the policy and the value.
//
// The torso is a line of layers; the tests count the published parameters. Residual stacks pad as
// TensorFlow's SAME does, the smaller half before; an LSTM has one bias vector, 1 for the forget
// gate at first, and its gates in the order i, f, g, o; biases start at 0, recurrent kernels
// orthogonal. Thread safety: that of torch::nn::Module.
#pragma once

#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "core/status.h"
#include "nn/network.h"
#include "nn/torch/torch.h"

namespace samara {

struct AgentNetworkConfig {
  // a name or a line of layers (nn/layer_line.h)
  std::string torso = "impala_deep";
  int64_t height = 84, width = 84, channels = 4;  // of an image; a vector is 1 x 1 x n
  int64_t outputs = 18;                           // of the policy head
  int64_t lstm = 0;                               // units; 0 = no core
  bool reward_input = false;                      // the last reward, clipped to [-1, 1]
  int64_t action_input = 0;                       // one-hot of the last action: how many; 0 = none
  // kernels at first. "glorot": uniform (Glorot and Bengio 2010, 16), SEED RL's; "orthogonal": with
  // gain sqrt 2, 0.01 of the policy's and 1 of the value's head (PPO's)
  std::string initializer = "glorot";
  // of the torso's products; its parameters and their gradients, the core and the heads stay
  // float32. "float32", or "bfloat16": mixed precision (Micikevicius et al. 2018, 3.1)
  std::string precision = "float32";
};

class AgentNetworkImpl : public torch::nn::Module {
 public:
  // kConfig on an unknown torso or an image that it does not fit.
  static Result<std::shared_ptr<AgentNetworkImpl>> Make(const AgentNetworkConfig& config);
  explicit AgentNetworkImpl(const AgentNetworkConfig& config);

  struct Input {
    torch::Tensor observation;  // [T][B][height][width][channels] uint8 (divided by 255) or float32
    torch::Tensor reward;       // [T][B] float32
    torch::Tensor action;       // [T][B] int64, the one before
    torch::Tensor first;        // [T][B] bool: an episode begins; the state is zeroed before it
  };
  struct Output {
    torch::Tensor policy;  // [T][B][outputs]
    torch::Tensor value;   // [T][B]
    torch::Tensor state;   // [B][state_size()]: after the last entry
    torch::Tensor states;  // [T][B][state_size()]: after each; undefined without a core
  };
  // Entries t = 0 ... T-1 in order, from `state` [B][state_size()], which entered entry 0.
  Output forward(const Input& input, const torch::Tensor& state);

  // From now on forward uses the torso's parameters as they are now, made ready for products once,
  // until the next Freeze. REQUIRES: no gradient is asked for.
  void Freeze();

  int64_t state_size() const { return 2 * config_.lstm; }  // h, then c
  int64_t parameter_count() const;

 private:
  // A parameter, and what Freeze has made of it for products.
  struct Parameter {
    torch::Tensor value, frozen;
  };
  struct Convolution {
    Parameter weight, bias;  // [out][in][k][k]
    int64_t stride;
    bool same;
    Activation activation = Activation::kNone;
  };
  struct Dense {
    Parameter weight, bias;  // [out][in]
    Activation activation = Activation::kNone;
  };
  Convolution AddConvolution(const std::string& name, int64_t out, int64_t kernel, int64_t stride,
                             bool same);
  Dense AddDense(const std::string& name, int64_t out, double gain = std::numbers::sqrt2);
  void AddResidualStack(const std::string& name, int64_t out);
  void AddLstm();
  void Initialize(torch::Tensor kernel, double gain) const;
  template <typename F>
  void EachOfTorso(const F& f);                // f(layer), of its convolutions and dense layers
  torch::Tensor Of(const Parameter& p) const;  // for products of the torso
  torch::Tensor Apply(const Convolution& convolution, torch::Tensor x) const;
  torch::Tensor Torso(torch::Tensor x) const;  // [N][h][w][c] -> [N][features]
  // One step: x [B][features], state -> state.
  torch::Tensor Step(const torch::Tensor& x, const torch::Tensor& state) const;

  AgentNetworkConfig config_;
  const bool bfloat16_;
  // what the layers so far give: the next one's input
  int64_t height_, width_, channels_;
  struct Stack {
    Convolution first;
    std::vector<Convolution> residual;  // two by two
  };
  std::vector<Stack> stacks_;
  std::vector<Convolution> convolutions_;
  std::vector<Dense> dense_;
  torch::Tensor lstm_input_, lstm_recurrent_, lstm_bias_;
  Dense policy_, value_;
};
using AgentNetwork = std::shared_ptr<AgentNetworkImpl>;

}  // namespace samara
