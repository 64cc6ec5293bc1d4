#include "rl/learner/actor_critic.h"

#include <algorithm>

namespace samara {
namespace {

using torch::Tensor;

// V of the final observations of truncated episodes, at their transitions: [T][B].
Tensor FinalValues(const LearnerBatch& batch, AgentNetworkImpl& network,
                   const AgentNetworkImpl::Output& out) {
  const torch::NoGradGuard no_gradient;
  Tensor values = torch::zeros_like(batch.reward.slice(0, 1));
  if (batch.final_entry.numel() == 0) return values;
  const Tensor final = EvaluateFinals(batch, network, out.states).value[0];
  values.index_put_({batch.final_entry - 1, batch.final_unroll}, final);
  return values;
}

}  // namespace

Tensor Uniforms(const CounterRng& rng, at::IntArrayRef sizes) {
  Tensor uniforms = torch::empty(sizes);
  for (int64_t i = 0; i < uniforms.numel(); ++i)
    uniforms.data_ptr<float>()[i] =
        static_cast<float>(std::clamp(rng.Uniform(static_cast<uint64_t>(i)), 1e-7, 1 - 1e-7));
  return uniforms;
}

ActorCriticSteps EvaluateSteps(const Shard& shard) {
  const LearnerBatch& batch = shard.batch;
  const ActionDistribution& distribution = shard.distribution;
  const int64_t length = batch.reward.size(0) - 1;
  const auto acted = [length](const Tensor& x) { return x.slice(0, 0, length); };  // t = 0 ... T-1
  const auto followed = [](const Tensor& x) { return x.slice(0, 1); };             // t + 1
  const auto entries = [&](int64_t from, int64_t to) {
    const auto part = [from, to](const Tensor& x) { return x.slice(0, from, to); };
    return AgentNetworkImpl::Input{part(batch.observation), part(batch.reward),
                                   part(batch.previous_action), part(batch.first)};
  };
  ActorCriticSteps steps;
  // the last entry has a value and no loss
  const auto out = shard.network.forward(entries(0, length), batch.state);
  {
    const torch::NoGradGuard no_gradient;
    steps.bootstrap = shard.network.forward(entries(length, length + 1), out.state).value[0];
  }
  steps.value = out.value;
  const Tensor action =
      distribution.continuous() ? acted(batch.action) : distribution.Split(acted(batch.action));
  steps.log_pi = distribution.LogProb(out.policy, action);
  steps.entropy =
      distribution.Entropy(out.policy, distribution.continuous()
                                           ? Uniforms(shard.rng, action.sizes()).to(action.device())
                                           : Tensor());
  steps.log_mu = distribution.LogProb(acted(batch.behaviour), action);
  steps.reward = followed(batch.reward);
  steps.terminated = followed(batch.terminated);
  steps.truncated = followed(batch.truncated);
  steps.final_value = FinalValues(batch, shard.network, out);
  return steps;
}

ActorCriticSteps OnCpu(ActorCriticSteps steps) {
  for (Tensor* tensor :
       {&steps.reward, &steps.terminated, &steps.truncated, &steps.log_mu, &steps.final_value,
        &steps.bootstrap, &steps.log_pi, &steps.entropy, &steps.value})
    *tensor = tensor->cpu();
  return steps;
}

Tensor GeneralizedAdvantages(const ActorCriticSteps& steps, double gamma, double lambda) {
  const torch::NoGradGuard no_gradient;
  const Tensor goes_on = steps.terminated.logical_not();
  const Tensor carried = gamma * lambda * (goes_on & steps.truncated.logical_not());
  const Tensor next = torch::cat({steps.value.slice(0, 1), steps.bootstrap.unsqueeze(0)});
  const Tensor after = torch::where(steps.truncated, steps.final_value, next);
  const Tensor delta = steps.reward + gamma * goes_on * after - steps.value;
  Tensor advantages = torch::empty_like(delta);
  Tensor advantage = torch::zeros_like(steps.bootstrap);
  for (int64_t t = delta.size(0); t-- > 0;) {
    advantage = delta[t] + carried[t] * advantage;
    advantages[t] = advantage;
  }
  return advantages;
}

std::map<std::string, Tensor> ActorCritic::parameters() const {
  if (!entropy_cost_.parameter().defined()) return {};
  return {{"entropy_cost", entropy_cost_.parameter()}};
}

std::map<std::string, double> ActorCritic::coefficients() const {
  return {{"entropy_cost", entropy_cost_.coefficient().item<double>()}};
}

double ExplainedVariance(const Tensor& target, const Tensor& value) {
  const torch::NoGradGuard no_gradient;
  const double spread = target.var().item<double>();
  return spread > 0 ? 1 - (target - value).var().item<double>() / spread : 0;
}

}  // namespace samara
