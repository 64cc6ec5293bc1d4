// Gradient descent as the reinforcement-learning literature defines it, which is TensorFlow's way
// where TensorFlow and PyTorch differ; both are here under their names.
//
// rmsprop:       TensorFlow 1 (IMPALA): s <- d s + (1 - d) g^2 from s = 1;
//                theta -= lr g / sqrt(s + eps)
// rmsprop_torch: PyTorch (TorchBeast): the same from s = 0; theta -= lr g / (sqrt(s) + eps)
// adam:          TensorFlow (SEED RL): lr_t = lr sqrt(1 - b2^t) / (1 - b1^t);
//                theta -= lr_t m / (sqrt(v) + eps)
// adam_torch:    PyTorch: theta -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// adam with eps equals adam_torch with eps / sqrt(1 - b2^t). One thread at a time.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "nn/torch/torch.h"
#include "rl/learner/gradient_step.h"

namespace samara {

class Optimizer {
 public:
  // Parameters by name, float32, dense in memory; they live as long as this object. Those of the
  // CPU are stepped by samara's own loops, those of a device by torch's operations.
  Optimizer(OptimizerConfig config, const std::map<std::string, torch::Tensor>& parameters);

  struct StepResult {
    double gradient_norm = 0;  // of all, before clipping
    bool applied = false;      // false: the norm was not finite, nothing was touched
  };
  // Uses and clears the parameters' gradients; a parameter without one stays as it is.
  StepResult Step(double frames);
  // The same of given gradients: of all parameters, one behind the other in the order of their
  // names. REQUIRES: parameters are on the CPU, and dense in the order of their sizes.
  StepResult Step(std::span<const float> gradients, double frames);
  uint64_t steps() const { return steps_; }  // applied so far

  // State for a checkpoint: "NAME/PART" for every slot, and the step count.
  std::map<std::string, torch::Tensor> State() const;
  // kBadData when a tensor is missing, or its shape is another one.
  Status Restore(const std::map<std::string, torch::Tensor>& state);

 private:
  struct Slot {
    torch::Tensor parameter;
    torch::Tensor mean, square;  // of the gradients
  };
  double GradientNorm();
  // One pass over the slot; gradients are multiplied by `scale` first.
  void StepSlot(Slot& slot, std::span<const float> gradient, double scale,
                double learning_rate) const;
  // Counts the step, if there is one, and says what gradients are multiplied by.
  double Begin(StepResult& result);

  OptimizerConfig config_;
  std::map<std::string, Slot> slots_;  // in the order of names, whatever order they came in
  uint64_t steps_ = 0;
};

}  // namespace samara
