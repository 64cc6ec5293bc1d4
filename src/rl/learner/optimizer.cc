#include "rl/learner/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

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

double SumOfSquares(std::span<const float> values) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  for (; i < values.size(); ++i) lanes[0] += static_cast<double>(values[i]) * values[i];
  return std::accumulate(std::begin(lanes), std::end(lanes), 0.0);
}

}  // namespace

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

Optimizer::StepResult Optimizer::Step(double frames) {
  const torch::NoGradGuard no_gradient;
  // in the order of names: the same sum on every run
  double squares = 0;
  for (auto& [name, slot] : slots_) {
    Tensor& gradient = slot.parameter.mutable_grad();
    if (!gradient.defined()) continue;
    gradient = LaidOutAs(slot.parameter, gradient);
    squares += SumOfSquares(Floats(gradient));
  }
  StepResult result{.gradient_norm = std::sqrt(squares)};
  result.applied = std::isfinite(result.gradient_norm);
  steps_ += result.applied ? 1 : 0;
  const bool clip = config_.clip_norm > 0 && result.gradient_norm > config_.clip_norm;
  const double scale = clip ? config_.clip_norm / result.gradient_norm : 1;
  for (auto& [name, slot] : slots_) {
    Tensor& gradient = slot.parameter.mutable_grad();
    if (gradient.defined() && result.applied)
      Apply(slot, gradient, scale, LearningRateAt(config_, frames));
    gradient = Tensor();
  }
  return result;
}

void Optimizer::Apply(Slot& slot, const Tensor& gradient, double scale, double rate) const {
  const size_t n = Floats(gradient).size();
  // four arrays that do not overlap, so that the loops become vector instructions
  float* __restrict const theta = slot.parameter.data_ptr<float>();
  float* __restrict const mean = slot.mean.data_ptr<float>();
  float* __restrict const square = slot.square.data_ptr<float>();
  const float* __restrict const g = gradient.data_ptr<float>();
  const auto clip = static_cast<float>(scale), eps = static_cast<float>(config_.epsilon);
  if (config_.kind == "rmsprop" || config_.kind == "rmsprop_torch") {
    const auto lr = static_cast<float>(rate), d = static_cast<float>(config_.decay),
               d1 = static_cast<float>(1 - config_.decay);
    const float inside = config_.kind == "rmsprop" ? eps : 0, outside = eps - inside;
    for (size_t i = 0; i < n; ++i) {
      const float gi = g[i] * clip;
      const float s = d * square[i] + d1 * gi * gi;
      square[i] = s;
      theta[i] -= lr * gi / (std::sqrt(s + inside) + outside);
    }
    return;
  }
  const auto t = static_cast<double>(steps_);
  const double bias1 = 1 - std::pow(config_.beta1, t);
  const double root2 = std::sqrt(1 - std::pow(config_.beta2, t));
  const bool torchs = config_.kind == "adam_torch";
  const auto b1 = static_cast<float>(config_.beta1), c1 = static_cast<float>(1 - config_.beta1),
             b2 = static_cast<float>(config_.beta2), c2 = static_cast<float>(1 - config_.beta2),
             lr = static_cast<float>(rate * (torchs ? 1 : root2) / bias1),
             spread = static_cast<float>(torchs ? 1 / root2 : 1);
  for (size_t i = 0; i < n; ++i) {
    const float gi = g[i] * clip;
    const float m = b1 * mean[i] + c1 * gi, v = b2 * square[i] + c2 * gi * gi;
    mean[i] = m, square[i] = v;
    theta[i] -= lr * m / (std::sqrt(v) * spread + eps);
  }
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
