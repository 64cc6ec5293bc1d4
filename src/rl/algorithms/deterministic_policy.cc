#include "rl/algorithms/deterministic_policy.h"

#include <algorithm>
#include <cmath>

#include "rl/learner/gradient_step.h"

namespace samara {

void DeterministicPolicyKeys::Bind(ConfigTable& table, const std::string& algorithm) {
  table.Add(algorithm + ".gamma", &gamma, {0, 1}, "", "discount per agent step");
  table.Add(algorithm + ".steps", &steps, {1, 1000}, "steps",
            "number of rewards before a value is taken, fewer at the end of an unroll");
  table.Add(algorithm + ".noise", &noise, {0, 10}, "half ranges of the action",
            "standard deviation of the noise on actions that are played to learn from");
  table.Add(algorithm + ".random_start", &random_start,
            "actions are drawn uniformly until the first step of the learner (replay.start)");
  table.Add(algorithm + ".policy_rate", &policy_rate, {0, 1e6}, "",
            "learning rate of the policy, as a factor of optimizer.learning_rate");
}

Result<DeterministicActorCritic::Networks> DeterministicActorCritic::MakeNetworks(
    const AgentSetup& setup, int64_t critic_outputs) {
  if (setup.environment.action.discrete)
    return Status(Code::kConfig, "run.algorithm=" + setup.config.algorithm +
                                     ": the environment's actions are discrete; expected "
                                     "continuous ones");
  RETURN_IF_ERROR(CheckNoTargetEntropy(setup.config));
  const int64_t observations = setup.environment.observation.elements();
  const int64_t actions = setup.environment.action.n;
  const std::string line = setup.config.network.text();
  const kernel::Ops& ops = OpsOf(setup.config.network);
  ASSIGN_OR_RETURN(NetworkDescription network, MakeLearnedNetwork(line, observations, actions));
  network.layers.back().activation = Activation::kTanh;
  ASSIGN_OR_RETURN(Perceptron policy, Perceptron::Make(std::move(network), ops));
  ASSIGN_OR_RETURN(Perceptron critic,
                   Perceptron::Make(line, static_cast<size_t>(observations + actions),
                                    static_cast<size_t>(critic_outputs), ops));
  return Networks{std::make_shared<const Perceptron>(std::move(policy)),
                  std::make_shared<const Perceptron>(std::move(critic))};
}

DeterministicActorCritic::DeterministicActorCritic(const LearningConfig& config,
                                                   const DeterministicPolicyKeys& keys,
                                                   const Networks& networks, int64_t critics,
                                                   int64_t every)
    : actions_(networks.policy->outputs()),
      policy_(networks.policy),
      critics_(networks.critic, static_cast<size_t>(critics), actions_),
      policy_group_{.name = "policy",
                    .first = 0,
                    .size = policy_->size(),
                    .every = every,
                    .rate = keys.policy_rate},
      critics_group_{.name = "critics",
                     .first = policy_->size(),
                     .size = critics_.count() * networks.critic->size()},
      keys_(keys),
      replay_(ReplayAlgorithmConfig::Of(config).replay),
      learn_(config.learn) {
  for (ParameterBlocks* blocks : {&learned_, &targets_}) {
    blocks->Add("", "policy", policy_);
    for (int64_t j = 1; j <= critics; ++j)
      blocks->Add("critic" + std::to_string(j) + "_", "value", networks.critic);
  }
}

ModelShape DeterministicActorCritic::shape() const {
  return {.observation_bytes = policy_->inputs() * sizeof(float),
          .actions = actions_,
          .action_values = actions_,
          .values = 0};
}

void DeterministicActorCritic::Prepare(Scratch& scratch, size_t rows_max) const {
  scratch.policy = policy_->MakePass(rows_max);
  scratch.critics = critics_.MakeScratch(rows_max);
  scratch.action.resize(rows_max * actions_);
  scratch.by_output.resize(rows_max * critics_.net().outputs());
}

void DeterministicActorCritic::Act(std::span<const float> acting, ReplayScratch& scratch,
                                   InferenceBatch& batch) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  if (batch.rows.empty()) return;
  EvaluatePolicy(
      acting, batch.rows.size(), [&](size_t i) { return batch.rows[i].observation; }, s);
  const bool random = keys_.random_start && replay_.Due(learn_, batch.version) == 0;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    const InferenceRow& row = batch.rows[i];
    const CounterRng rng(row.key);
    const auto chosen = policy_->Output(s.policy, i);
    bool finite = true;
    for (size_t d = 0; d < actions_; ++d) {
      const uint64_t draw = uint64_t{row.step} * actions_ + d;
      double action = chosen[d];
      if (!row.greedy)
        action = random ? 2 * rng.Uniform(draw) - 1
                        : std::clamp(action + keys_.noise * rng.Normal(draw), -1.0, 1.0);
      const size_t at = i * actions_ + d;
      batch.action_values[at] = batch.actions[at] = static_cast<float>(action);
      finite = finite && std::isfinite(chosen[d]);
    }
    batch.status[i] =
        finite ? InferenceBatch::RowStatus::kOk : InferenceBatch::RowStatus::kNotFinite;
  }
}

void DeterministicActorCritic::EvaluatePolicysActions(const ReplayMinibatch& minibatch,
                                                      Scratch& s) const {
  const auto steps = minibatch.steps;
  const auto observation = [&](size_t i) { return steps[i].observation; };
  EvaluatePolicy(minibatch.learned, steps.size(), observation, s);
  critics_.EvaluateOne(
      0, critics_group_.Of(minibatch.learned), steps.size(), observation,
      [&](size_t i, size_t d) { return policy_->Output(s.policy, i)[d]; }, s.critics);
}

void DeterministicActorCritic::PolicyGradient(const ReplayMinibatch& minibatch, double norm_max,
                                              Scratch& s, std::span<float> gradient) const {
  const size_t n = minibatch.steps.size();
  const Perceptron& critic = critics_.net();
  critic.Backward(critics_.Of(critics_group_.Of(minibatch.learned), 0),
                  std::span(s.by_output).first(n * critic.outputs()), /*by_input=*/true,
                  s.critics.passes[0], {});
  for (size_t i = 0; i < n; ++i) {
    const auto by_action = critics_.ByAction(s.critics, 0, i);
    double scale = -1 / static_cast<double>(n);
    if (const double norm = std::sqrt(SumOfSquares(by_action)); norm_max > 0 && norm > norm_max)
      scale *= norm_max / norm;
    for (size_t d = 0; d < actions_; ++d)
      s.action[i * actions_ + d] = static_cast<float>(scale * by_action[d]);
  }
  policy_->Backward(policy_group_.Of(minibatch.learned), std::span(s.action).first(n * actions_),
                    /*by_input=*/false, s.policy, policy_group_.Of(gradient));
}

}  // namespace samara
