#include "rl/learner/actor_critic.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "nn/torch/normal_quantile.h"

namespace samara {
namespace {

using torch::Tensor;

// V of the final observations of truncated episodes, at their transitions: [T][B].
Tensor FinalValues(const LearnerBatch& batch, AgentNetworkImpl& network, const Tensor& states) {
  const torch::NoGradGuard no_gradient;
  Tensor values = torch::zeros_like(batch.reward.slice(0, 1));
  if (batch.final_entry.numel() == 0) return values;
  const Tensor final = EvaluateFinals(batch, network, states).value[0];
  values.index_put_({batch.final_entry - 1, batch.final_unroll}, final);
  return values;
}

// Sets what the transitions of the batch led to.
void SetOutcomes(const LearnerBatch& batch, ActorCriticSteps& steps) {
  const auto followed = [](const Tensor& x) { return x.slice(0, 1); };  // t + 1
  steps.reward = followed(batch.reward);
  steps.terminated = followed(batch.terminated);
  steps.truncated = followed(batch.truncated);
}

float UniformOf(const CounterRng& rng, uint64_t i) {
  return static_cast<float>(std::clamp(rng.Uniform(i), 1e-7, 1 - 1e-7));
}

}  // namespace

Tensor Uniforms(const CounterRng& rng, at::IntArrayRef sizes) {
  Tensor uniforms = torch::empty(sizes);
  for (int64_t i = 0; i < uniforms.numel(); ++i)
    uniforms.data_ptr<float>()[i] = UniformOf(rng, static_cast<uint64_t>(i));
  return uniforms;
}

ActorCriticSteps EvaluateSteps(const Shard& shard) {
  const LearnerBatch& batch = shard.batch;
  const ActionDistribution& distribution = shard.distribution;
  const int64_t length = batch.reward.size(0) - 1;
  const auto acted = [length](const Tensor& x) { return x.slice(0, 0, length); };  // t = 0 ... T-1
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
  SetOutcomes(batch, steps);
  steps.final_value = FinalValues(batch, shard.network, out.states);
  return steps;
}

DenseSteps::DenseSteps(const Shard& shard, DensePass& pass) : pass_(pass) {
  const torch::NoGradGuard no_gradient;
  const LearnerBatch& batch = shard.batch;
  const ActionDistribution& distribution = shard.distribution;
  const int64_t length = batch.reward.size(0) - 1, unrolls = batch.reward.size(1);
  std::vector<int64_t> entries(static_cast<size_t>((length + 1) * unrolls));
  std::iota(entries.begin(), entries.end(), 0);
  pass.Forward(shard.network, batch.observation.data_ptr<float>(), entries);
  const Tensor values = torch::tensor(at::ArrayRef<float>(pass.value().data(), entries.size()))
                            .view({length + 1, unrolls});
  steps_.value = values.slice(0, 0, length);
  steps_.bootstrap = values[length];
  SetOutcomes(batch, steps_);
  steps_.final_value = FinalValues(batch, shard.network, {});

  const auto outputs = static_cast<size_t>(distribution.parameters()),
             components = static_cast<size_t>(batch.action.size(-1)),
             n = static_cast<size_t>(length * unrolls);
  const bool continuous = distribution.continuous();
  const Tensor action = batch.action.contiguous(), behaviour = batch.behaviour.contiguous();
  const auto* samples = continuous ? action.data_ptr<float>() : nullptr;
  const auto* indices = continuous ? nullptr : action.data_ptr<int64_t>();
  const float* behaviour_row = behaviour.data_ptr<float>();
  const auto make = [&](Tensor& tensor) {
    return (tensor = torch::empty({length, unrolls})).data_ptr<float>();
  };
  float *const log_pi = make(steps_.log_pi), *const log_mu = make(steps_.log_mu),
               *const entropy = make(steps_.entropy);
  log_pi_slopes_.resize(n * outputs);
  entropy_slopes_.resize(n * outputs);
  std::vector<float> normal(components), unused(outputs);
  DistributionRow now(distribution), then(distribution);
  for (size_t i = 0; i < n; ++i) {
    for (size_t d = 0; continuous && d < components; ++d)
      normal[d] = NormalQuantile(UniformOf(shard.rng, i * components + d));
    const int64_t index = continuous ? 0 : indices[i];
    const float* sample = continuous ? samples + i * components : nullptr;
    const auto values_now =
        now.Evaluate(pass.policy().data() + i * outputs, index, sample, normal.data(),
                     log_pi_slopes_.data() + i * outputs, entropy_slopes_.data() + i * outputs);
    log_pi[i] = values_now.log_prob;
    entropy[i] = values_now.entropy;
    log_mu[i] =
        then.Evaluate(behaviour_row + i * outputs, index, sample, nullptr, unused.data(), nullptr)
            .log_prob;
  }
}

void DenseSteps::Differentiate(const Tensor& by_log_pi, double by_entropy, const Tensor& by_value) {
  const Tensor log_pi = by_log_pi.contiguous(), value = by_value.contiguous();
  const auto n = static_cast<size_t>(log_pi.numel()), outputs = log_pi_slopes_.size() / n;
  const std::span<float> to_policy = pass_.by_policy(), to_value = pass_.by_value();
  // the last entries have a value and no loss
  std::ranges::fill(to_policy, 0.0F);
  std::ranges::fill(to_value, 0.0F);
  std::copy_n(value.data_ptr<float>(), n, to_value.data());
  const float* slope = log_pi.data_ptr<float>();
  const auto entropy = static_cast<float>(by_entropy);
  for (size_t i = 0, at = 0; i < n; ++i)
    for (size_t k = 0; k < outputs; ++k, ++at)
      to_policy[at] = slope[i] * log_pi_slopes_[at] + entropy * entropy_slopes_[at];
}

ActorCriticSteps OnCpu(ActorCriticSteps steps) {
  for (Tensor* tensor :
       {&steps.reward, &steps.terminated, &steps.truncated, &steps.log_mu, &steps.final_value,
        &steps.bootstrap, &steps.log_pi, &steps.entropy, &steps.value})
    *tensor = tensor->cpu();
  return steps;
}

Tensor SumBackwards(const Tensor& x, const Tensor& decay) {
  const Tensor terms = x.cpu().contiguous(), factors = decay.cpu().contiguous();
  CHECK(terms.sizes() == factors.sizes());
  Tensor sums = torch::empty_like(terms);
  const auto n = static_cast<size_t>(terms.numel()), columns = static_cast<size_t>(x.size(1));
  const float *term = terms.data_ptr<float>(), *factor = factors.data_ptr<float>();
  float* const sum = sums.data_ptr<float>();
  for (size_t i = n; i-- > 0;)
    sum[i] = i + columns < n ? term[i] + factor[i] * sum[i + columns] : term[i];
  return sums.to(x.device());
}

Tensor GeneralizedAdvantages(const ActorCriticSteps& steps, double gamma, double lambda) {
  const torch::NoGradGuard no_gradient;
  const Tensor goes_on = steps.terminated.logical_not();
  const Tensor carried = gamma * lambda * (goes_on & steps.truncated.logical_not());
  const Tensor next = torch::cat({steps.value.slice(0, 1), steps.bootstrap.unsqueeze(0)});
  const Tensor after = torch::where(steps.truncated, steps.final_value, next);
  return SumBackwards(steps.reward + gamma * goes_on * after - steps.value, carried);
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
