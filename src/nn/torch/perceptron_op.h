// A perceptron as one operation of torch: its passes are nn/perceptron.h's, its parameters torch's.
#pragma once

#include <memory>
#include <vector>

#include "core/mutex.h"
#include "nn/perceptron.h"
#include "nn/torch/torch.h"

namespace samara {

// Thread safety: any thread.
class PerceptronOp {
 public:
  // The last layer is made of heads, whose outputs stand side by side. Behind a head's own there
  // may be outputs that do not depend on the input.
  struct Head {
    int64_t outputs, free = 0;
  };
  PerceptronOp(Perceptron net, std::vector<Head> heads);

  // x [N][inputs] float32, without a gradient; parameters: weight [out][in] and bias [out] of each
  // hidden layer, then of each head, here followed by its free outputs, if it has some. Returns
  // [N][its outputs] of each head.
  std::vector<torch::Tensor> Apply(const torch::Tensor& x,
                                   const std::vector<torch::Tensor>& parameters) const;
  // The same of parameters that Pack has made ready, without a gradient.
  std::vector<torch::Tensor> Apply(const torch::Tensor& x, std::span<const float> packed) const;
  std::vector<float> Pack(const std::vector<torch::Tensor>& parameters) const;
  // The same into `packed`, of net().size(), which was Pack's before or is zero.
  void Pack(const std::vector<torch::Tensor>& parameters, std::span<float> packed) const;
  // Writes what is packed as torch has it: of parameter i from to[offsets[i]] on.
  void Unpack(std::span<const float> packed, std::span<const size_t> offsets,
              std::span<float> to) const;
  const Perceptron& net() const { return *net_; }

 private:
  // Where a parameter is among the packed ones: `rows` of `columns`, one each `stride`. A weight is
  // there transposed.
  struct Place {
    size_t offset, rows, columns, stride;
    bool weight;
    // Writes it as torch has it.
    void Unpack(std::span<const float> packed, float* to) const;
  };
  void AddLayer(size_t offset, size_t inputs, size_t outputs, size_t row, size_t free);
  class Backward;
  using Pass = std::shared_ptr<PerceptronPass>;
  Pass TakePass(size_t rows) const;
  std::vector<torch::Tensor> Run(const torch::Tensor& x, std::span<const float> packed,
                                 PerceptronPass& pass) const;

  std::shared_ptr<const Perceptron> net_;
  std::vector<Head> heads_;
  std::vector<Place> places_;
  struct Spare {
    Mutex mu;
    std::vector<std::unique_ptr<PerceptronPass>> passes GUARDED_BY(mu);
  };
  std::shared_ptr<Spare> spare_ = std::make_shared<Spare>();
};

}  // namespace samara
