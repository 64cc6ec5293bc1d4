#include "rl/optimizer.h"

#include <algorithm>
#include <cmath>

namespace samara {

using torch::Tensor;

double LearningRateAt(const OptimizerConfig& config, double frames) {
  if (config.schedule == "constant") return config.learning_rate;
  return config.learning_rate * std::max(0.0, 1 - frames / config.schedule_frames);
}

Result<Optimizer> Optimizer::Make(const OptimizerConfig& config,
                                  std::map<std::string, Tensor> parameters) {
  const auto one_of = [](const std::string& value, std::initializer_list<const char*> all) {
    return std::find(all.begin(), all.end(), value) != all.end();
  };
  if (!one_of(config.kind, {"rmsprop", "rmsprop_torch", "adam", "adam_torch"}))
    return Status(Code::kConfig, "optimizer.kind=" + config.kind +
                                     ": expected adam, adam_torch, rmsprop or rmsprop_torch");
  if (!one_of(config.schedule, {"constant", "linear"}))
    return Status(Code::kConfig,
                  "optimizer.schedule=" + config.schedule + ": expected constant or linear");
  std::map<std::string, Slot> slots;
  for (auto& [name, parameter] : parameters) {
    const Tensor zeros = torch::zeros_like(parameter);
    const Tensor square = config.kind == "rmsprop" ? torch::ones_like(parameter) : zeros.clone();
    slots[name] = {parameter, zeros, square};
  }
  return Optimizer(config, std::move(slots));
}

double Optimizer::GradientNorm() const {
  // in float64 and in the order of names: the same sum on every run
  double sum = 0;
  for (const auto& [name, slot] : slots_) {
    const Tensor& gradient = slot.parameter.grad();
    if (gradient.defined()) sum += gradient.to(torch::kFloat64).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

Optimizer::StepResult Optimizer::Step(double frames) {
  const torch::NoGradGuard no_gradient;
  StepResult result{.gradient_norm = GradientNorm()};
  result.applied = std::isfinite(result.gradient_norm);
  steps_ += result.applied ? 1 : 0;
  const bool clip = config_.clip_norm > 0 && result.gradient_norm > config_.clip_norm;
  for (auto& [name, slot] : slots_) {
    Tensor& gradient = slot.parameter.mutable_grad();
    if (gradient.defined() && result.applied) {
      if (clip) gradient.mul_(config_.clip_norm / result.gradient_norm);
      Apply(slot, gradient, LearningRateAt(config_, frames));
    }
    gradient = Tensor();
  }
  return result;
}

void Optimizer::Apply(Slot& slot, const Tensor& gradient, double learning_rate) const {
  const double eps = config_.epsilon;
  if (config_.kind == "rmsprop" || config_.kind == "rmsprop_torch") {
    slot.square.mul_(config_.decay).add_(gradient.square(), 1 - config_.decay);
    const Tensor scale =
        config_.kind == "rmsprop" ? (slot.square + eps).sqrt() : slot.square.sqrt() + eps;
    slot.parameter.sub_(learning_rate * gradient / scale);
    return;
  }
  slot.mean.mul_(config_.beta1).add_(gradient, 1 - config_.beta1);
  slot.square.mul_(config_.beta2).add_(gradient.square(), 1 - config_.beta2);
  const auto t = static_cast<double>(steps_);
  const double bias1 = 1 - std::pow(config_.beta1, t);
  const double root2 = std::sqrt(1 - std::pow(config_.beta2, t));
  const Tensor scale =
      config_.kind == "adam" ? slot.square.sqrt() + eps : slot.square.sqrt() / root2 + eps;
  const double rate = learning_rate * (config_.kind == "adam" ? root2 : 1) / bias1;
  slot.parameter.sub_(rate * slot.mean / scale);
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
    slot.mean = mean.clone(), slot.square = square.clone();
  }
  slots_ = std::move(slots);
  steps_ = static_cast<uint64_t>(steps.item<int64_t>());
  return Status::Ok();
}

}  // namespace samara
