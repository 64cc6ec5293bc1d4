#include "rl/learner/optimizer.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "rl/learner/tensor_step.h"

namespace samara {

using torch::Tensor;

namespace {

std::span<float> Floats(const Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// `tensor` so that equal places in memory are equal elements.
Tensor LaidOutAs(const Tensor& parameter, const Tensor& tensor) {
  return tensor.strides() == parameter.strides() ? tensor
                                                 : torch::empty_like(parameter).copy_(tensor);
}

}  // namespace

Optimizer::Optimizer(OptimizerConfig config, const std::map<std::string, Tensor>& parameters)
    : config_(std::move(config)) {
  const float square = config_.kind == OptimizerKind::kRmsprop ? 1 : 0;
  for (const auto& [name, parameter] : parameters)
    slots_[name] = {parameter, torch::zeros_like(parameter), torch::full_like(parameter, square)};
}

// Sums in the order of names, the same on every run. Gradients are laid out as their parameters.
double Optimizer::GradientNorm() {
  double squares = 0;
  std::vector<Tensor> of_device;
  for (auto& [name, slot] : slots_) {
    Tensor& gradient = slot.parameter.mutable_grad();
    if (!gradient.defined()) continue;
    gradient = LaidOutAs(slot.parameter, gradient);
    if (gradient.is_cpu())
      squares += SumOfSquares(Floats(gradient));
    else
      of_device.push_back(gradient);
  }
  return std::sqrt(squares + SumOfSquares(of_device));
}

double Optimizer::Begin(StepResult& result) {
  result.applied = std::isfinite(result.gradient_norm);
  steps_ += result.applied ? 1 : 0;
  const bool clip = config_.clip_norm > 0 && result.gradient_norm > config_.clip_norm;
  return clip ? config_.clip_norm / result.gradient_norm : 1;
}

Optimizer::StepResult Optimizer::Step(double frames) {
  const torch::NoGradGuard no_gradient;
  StepResult result{.gradient_norm = GradientNorm()};
  const double scale = Begin(result), rate = LearningRateAt(config_, frames);
  TensorStep of_device{.scale = scale, .learning_rate = rate};
  for (auto& [name, slot] : slots_) {
    Tensor& gradient = slot.parameter.mutable_grad();
    if (gradient.defined() && result.applied) {
      if (gradient.is_cpu())
        StepSlot(slot, Floats(gradient), scale, rate);
      else
        of_device.Add(slot.parameter, slot.mean, slot.square, gradient);
    }
    gradient = Tensor();
  }
  Apply(config_, of_device, steps_);
  return result;
}

Optimizer::StepResult Optimizer::Step(std::span<const float> gradients, double frames) {
  const auto each = [&](const auto& use) {
    size_t at = 0;
    for (auto& [name, slot] : slots_) {
      const auto size = static_cast<size_t>(slot.parameter.numel());
      use(slot, gradients.subspan(at, size));
      at += size;
    }
  };
  double squares = 0;
  each([&](Slot&, std::span<const float> gradient) { squares += SumOfSquares(gradient); });
  StepResult result{.gradient_norm = std::sqrt(squares)};
  const double scale = Begin(result), rate = LearningRateAt(config_, frames);
  if (result.applied)
    each([&](Slot& slot, std::span<const float> gradient) {
      StepSlot(slot, gradient, scale, rate);
    });
  return result;
}

void Optimizer::StepSlot(Slot& slot, std::span<const float> gradient, double scale,
                         double rate) const {
  const GradientStep step{.parameter = Floats(slot.parameter),
                          .mean = Floats(slot.mean),
                          .square = Floats(slot.square),
                          .gradient = gradient,
                          .scale = scale,
                          .learning_rate = rate};
  Apply(config_, step, steps_);
}

std::map<std::string, Tensor> Optimizer::State() const {
  std::map<std::string, Tensor> state;
  for (const auto& [name, slot] : slots_) {
    state[name + "/mean"] = slot.mean.clone();
    state[name + "/square"] = slot.square.clone();
  }
  state["steps"] = torch::tensor(static_cast<int64_t>(steps_));
  return state;
}

Status Optimizer::Restore(const std::map<std::string, Tensor>& state) {
  const torch::NoGradGuard no_gradient;
  const auto find = [&](const std::string& name, const Tensor& like) -> Result<Tensor> {
    const auto found = state.find(name);
    if (found == state.end()) return Status(Code::kBadData, "optimizer: no tensor '" + name + "'");
    if (found->second.sizes() != like.sizes())
      return Status(Code::kBadData, "optimizer: '" + name + "' has another shape");
    return found->second;
  };
  ASSIGN_OR_RETURN(const Tensor steps, find("steps", torch::tensor(int64_t{0})));
  std::map<std::string, Slot> slots = slots_;
  for (auto& [name, slot] : slots) {
    ASSIGN_OR_RETURN(const Tensor mean, find(name + "/mean", slot.mean));
    ASSIGN_OR_RETURN(const Tensor square, find(name + "/square", slot.square));
    slot.mean = torch::empty_like(slot.parameter).copy_(mean);
    slot.square = torch::empty_like(slot.parameter).copy_(square);
  }
  slots_ = std::move(slots);
  steps_ = static_cast<uint64_t>(steps.item<int64_t>());
  return Status::Ok();
}

}  // namespace samara
