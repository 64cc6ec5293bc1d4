// Networks of learning agents: a torso, an optional recurrent core, heads for the policy and the
// value.
//
// Statistics of observations and values, where a network has them, are parameters without a
// gradient: the learner sets them. Outputs of a network are not normalized.
//
// The torso is a line of layers, or a module of the user; the tests count the published parameters.
// Residual stacks pad as TensorFlow's SAME does, the smaller half before; biases start at 0,
// recurrent kernels orthogonal. A core has PyTorch's gates without its redundant biases:
//
//   parameters of an LSTM                 of a GRU
//   lstm_input [4 units][in]              gru_input [3 units][in]
//   lstm_recurrent [4 units][units]       gru_recurrent [3 units][units]
//   lstm_bias [4 units]: i, f, g, o; f's  gru_bias [4 units]: r, z, n of the input, n of the
//   starts at 1                           recurrent part, which r multiplies
//
// Thread safety: that of torch::nn::Module.
#pragma once

#include <cstdint>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "nn/agent_core.h"
#include "nn/initializer.h"
#include "nn/network.h"
#include "nn/torch/perceptron_op.h"
#include "nn/torch/script_torso.h"
#include "nn/torch/torch.h"

namespace samara {

struct AgentNetworkConfig {
  // a name or a line of layers (nn/layer_line.h)
  std::string torso = "impala_deep";
  int64_t height = 84, width = 84, channels = 4;  // of an image; a vector is 1 x 1 x n
  int64_t outputs = 18;                           // of the policy head
  AgentCore core = {};                            // none
  bool reward_input = false;                      // the last reward
  int64_t action_input = 0;                       // one-hot of the last action: how many; 0 = none
  Initializer initializer = Initializer::kGlorot;
  // the torso's products in bfloat16; its parameters and their gradients, the core and the heads
  // stay float32: mixed precision (Micikevicius et al. 2018, 3.1)
  bool bfloat16 = false;
  // a torso for the value alone; of vectors, without a core
  bool separate_value = false;
  // the second half of the policy's outputs: parameters that do not depend on the observation, at
  // first this one. Nothing: the network's
  std::optional<double> free_half = std::nullopt;
  // the value's head gives (V - mean) / deviation
  bool normalize_value = false;
  int64_t head = 0;         // units of a relu layer in front of each head; 0 = none
  bool policy_bias = true;  // of the policy's last layer
  bool reward_clip = true;  // of reward_input, to [-1, 1]
  // in place of the torso's layers but `normalize`; null: none
  std::shared_ptr<const TorsoFile> module = nullptr;
  torch::Device device = torch::kCPU;  // of the parameters, and of what forward gets and returns
  // samara's own loops where they are quicker than torch's operations; false: none, as on a GPU
  bool native = true;

  // Shape of an observation as a module receives it: [channels][height][width], or [channels].
  std::vector<int64_t> module_input() const;
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

  // From now on, until the next Freeze, forward uses the torso's parameters, and the heads' where
  // all layers are dense, as they are now, made ready for products once. REQUIRES: no gradient is
  // wanted.
  void Freeze();
  // Takes the parameters of `other`, a network of the same configuration.
  void Follow(const AgentNetworkImpl& other);

  // Whether a DensePass (dense_pass.h) can evaluate it: all layers are dense, on the CPU.
  bool dense() const { return native_policy_.has_value(); }

  int64_t state_size() const { return config_.core.state_size(); }
  int64_t parameter_count() const;  // without statistics

  // Statistics, float32; undefined where the network has none.
  struct Statistics {
    torch::Tensor mean, deviation;
  };
  // Returns those of each number of an observation, bytes as value / 255: [height * width *
  // channels] each.
  Statistics observations() const { return observations_; }
  // Takes those of `other`, a network of the same configuration.
  void SetStatistics(const AgentNetworkImpl& other);
  // Sets the mean and deviation of values, [1] each, without changing any value that the network
  // gives (PopArt: van Hasselt et al. 2016, arXiv 1602.07714, equations 4 and 5).
  void SetValueStatistics(double mean, double deviation);
  Statistics values() const { return values_; }

 private:
  friend class DensePass;
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
    Parameter scale = {}, shift = {};  // of layer normalization, [out]; undefined without
    bool normalized() const { return scale.value.defined(); }
  };
  struct Stack {
    Convolution first;
    std::vector<Convolution> residual;  // two by two
  };
  struct Torso {
    std::vector<Stack> stacks;
    std::vector<Convolution> convolutions;
    std::vector<Dense> dense;
    std::shared_ptr<ScriptTorso> module;  // instead of all these
  };
  Convolution AddConvolution(const std::string& name, int64_t out, int64_t kernel, int64_t stride,
                             bool same);
  Dense AddDense(const std::string& name, int64_t out, double gain = std::numbers::sqrt2,
                 bool bias = true);
  Stack AddResidualStack(const std::string& name, int64_t out);
  void AddCore();
  void Initialize(torch::Tensor kernel, double gain) const;
  Torso AddTorso(const NetworkDescription& description, const std::string& prefix);
  Statistics AddStatistics(const std::string& name, int64_t numbers);
  template <typename F>
  static void EachParameter(Torso& torso, const F& f);  // f(parameter)
  torch::Tensor Of(const Parameter& p) const;           // for products of a torso
  torch::Tensor Apply(const Convolution& convolution, torch::Tensor x) const;
  torch::Tensor Apply(const Dense& dense, const torch::Tensor& x) const;  // activated
  torch::Tensor Apply(const Torso& torso, torch::Tensor x) const;  // [N][h][w][c] -> [N][features]
  // Gives what a head reads: x, or its hidden layer of x.
  torch::Tensor Hidden(const Dense& hidden, const torch::Tensor& x) const;
  // Observations [N][...] as the first layer gets them: bytes are value / 255, then normalized.
  torch::Tensor Numbers(const torch::Tensor& x) const;
  // One of numbers; `to` may be it.
  void Normalize(const float* observation, std::span<float> to) const;
  struct MeanAndDeviation {
    float mean, deviation;
  };
  MeanAndDeviation ValueStatistics() const;  // 0 and 1 without
  void PlaceNative();
  void MakeNative(const NetworkDescription& torso);
  std::pair<torch::Tensor, torch::Tensor> PolicyAndValue(const Input& input, torch::Tensor x,
                                                         Output& output) const;
  // One step of the core: x [B][features], state -> state.
  torch::Tensor Step(const torch::Tensor& x, const torch::Tensor& state) const;

  AgentNetworkConfig config_;
  const bool native_;
  // what the layers so far give: the next one's input
  int64_t height_, width_, channels_;
  Torso torso_, value_torso_;  // the latter empty where the value has none of its own
  Statistics observations_, values_;
  torch::Tensor free_half_;
  torch::Tensor core_input_, core_recurrent_, core_bias_;
  Dense policy_hidden_, policy_, value_hidden_, value_;  // hidden ones where config_.head > 0
  // Where all layers are dense: the same network as one operation, or as two where the value has a
  // torso of its own; and what Freeze has made of the parameters.
  struct Native {
    PerceptronOp op;
    std::vector<torch::Tensor> parameters;
    std::vector<float> frozen;
    std::vector<size_t> places;  // where each parameter begins among the learned ones, by name
    std::vector<torch::Tensor> operator()(const torch::Tensor& x) const;  // of each head
  };
  std::optional<Native> native_policy_, native_value_;
};
using AgentNetwork = std::shared_ptr<AgentNetworkImpl>;

}  // namespace samara
