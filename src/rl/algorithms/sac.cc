// SAC: soft actor-critic. Haarnoja et al. 2018 (arXiv 1801.01290) with the twin critics, the
// targets and the adjusted temperature of Haarnoja et al. 2018 (arXiv 1812.05905): equations 5, 7,
// 9 and 18 of the latter, without the half in 5. Its networks are perceptrons, without torch.
#include "rl/algorithms/sac.h"

#include <algorithm>
#include <cmath>

#include "rl/algorithms/registry.h"
#include "rl/learner/critics.h"
#include "rl/learner/replay_learner.h"
#include "rl/learner/squashed_normal.h"

namespace samara {

// ---- parameters

void SacParameters::Bind(ConfigTable& table) {
  BindSteps(table);
  table.Add("sac.gamma", &gamma, {0, 1}, "", "discount per agent step");
  table.Add("sac.critics", &critics, {1, 100}, "critics",
            "number of critics, whose least value counts");
  table.Add("sac.polyak", &polyak, {0, 1}, "",
            "share of a target critic that a step keeps; 0 = it is the critic");
}

SacTemperature::SacTemperature(const LearnConfig& learn)
    : speed_(learn.entropy_speed), cost_(learn.entropy_cost), target_(learn.entropy_target) {}

float SacTemperature::first() const {
  return target_ ? static_cast<float>(std::log(cost_) / speed_) : 0;
}

double SacTemperature::At(float p) const { return target_ ? std::exp(speed_ * p) : cost_; }

SacTemperature::Loss SacTemperature::LossAt(float p, double entropy) const {
  if (!target_) return {};
  // as the losses have it, in single precision
  const auto alpha = static_cast<float>(At(p));
  const double loss = alpha * (entropy - *target_);
  return {loss, static_cast<float>(speed_ * loss)};
}

float SacTemperature::Bounded(float p) const {
  const auto most = static_cast<float>(20 / speed_);
  return target_ ? std::clamp(p, -most, most) : p;
}

// ---- networks

SacNetworks::SacNetworks(const LearningConfig& config, std::shared_ptr<const Perceptron> policy,
                         std::shared_ptr<const Perceptron> critic)
    : config_(dynamic_cast<const SacParameters&>(*config.own)),
      temperature_(config.learn),
      policy_(std::move(policy)),
      critic_(std::move(critic)) {
  learned_.Add("", "policy", policy_);
  for (int64_t j = 1; j <= config_.critics; ++j) {
    learned_.Add("critic" + std::to_string(j) + "_", "value", critic_);
    targets_.Add("critic" + std::to_string(j) + "_", "value", critic_);
  }
  temperature_at_ = learned_.AddNumber("entropy_cost");
}

void SacNetworks::InitializeLearned(uint64_t seed, Initializer initializer,
                                    std::span<float> learned) const {
  learned_.Initialize(seed, initializer, learned);
  learned[temperature_at_] = temperature_.first();
}

void SacNetworks::Bound(std::span<float> learned) const {
  learned[temperature_at_] = temperature_.Bounded(learned[temperature_at_]);
}

namespace {

// ---- loss

class Sac : public SacNetworks {
 public:
  // kConfig: a network that is no perceptron.
  static Result<std::unique_ptr<ReplayAlgorithm>> Make(const AgentSetup& setup) {
    const auto observations = static_cast<size_t>(setup.environment.observation.elements());
    const auto actions = static_cast<size_t>(setup.environment.action.n);
    const std::string line = setup.config.network.text();
    const kernel::Ops& ops = OpsOf(setup.config.network);
    ASSIGN_OR_RETURN(Perceptron policy, Perceptron::Make(line, observations, 2 * actions, ops));
    ASSIGN_OR_RETURN(Perceptron critic, Perceptron::Make(line, observations + actions, 1, ops));
    return std::unique_ptr<ReplayAlgorithm>(
        new Sac(setup.config, std::make_shared<const Perceptron>(std::move(policy)),
                std::make_shared<const Perceptron>(std::move(critic))));
  }

  ModelShape shape() const override {
    return {.observation_bytes = policy_->inputs() * sizeof(float),
            .actions = actions_,
            .action_values = actions_,
            .values = 0};
  }
  std::unique_ptr<ReplayScratch> MakeScratch(size_t rows_max) const override;
  void Act(std::span<const float> acting, ReplayScratch& scratch,
           InferenceBatch& batch) const override;
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch& scratch,
                                         std::span<float> gradient) const override;

 private:
  struct Scratch : ReplayScratch {
    PerceptronPass policy;
    Critics::Scratch critics;
    std::vector<float> noise, sample;         // [rows][actions]
    std::vector<float> log_prob, target;      // [rows]
    std::vector<float> by_action, by_policy;  // [rows][actions], [rows][2 actions]
    std::vector<std::vector<size_t>> least;   // rows whose least value each critic has
  };

  Sac(const LearningConfig& config, const std::shared_ptr<const Perceptron>& policy,
      std::shared_ptr<const Perceptron> critic)
      : SacNetworks(config, policy, critic),
        actions_(policy->outputs() / 2),
        critics_(std::move(critic), static_cast<size_t>(config_.critics), actions_) {}

  template <typename Observation>
  void SampleActions(std::span<const float> policy, size_t rows, const Observation& observation,
                     const CounterRng& noise, uint64_t first, Scratch& s) const;

  const size_t actions_;
  const Critics critics_;
};

std::unique_ptr<ReplayScratch> Sac::MakeScratch(size_t rows_max) const {
  auto scratch = std::make_unique<Scratch>();
  scratch->policy = policy_->MakePass(rows_max);
  scratch->critics = critics_.MakeScratch(rows_max);
  for (std::vector<float>* all : {&scratch->noise, &scratch->sample, &scratch->by_action})
    all->resize(rows_max * actions_);
  for (std::vector<float>* all : {&scratch->log_prob, &scratch->target}) all->resize(rows_max);
  scratch->by_policy.resize(rows_max * 2 * actions_);
  scratch->least.resize(critics_.count());
  return scratch;
}

// Draws an action of the policy for each row, and its log-probability. `observation`(row): bytes.
template <typename Observation>
void Sac::SampleActions(std::span<const float> policy, size_t rows, const Observation& observation,
                        const CounterRng& noise, uint64_t first, Scratch& s) const {
  Evaluate(*policy_, policy, rows, observation, s.policy);
  for (size_t i = 0; i < rows; ++i) {
    const auto output = policy_->Output(s.policy, i);
    s.log_prob[i] = 0;
    for (size_t d = 0, at = i * actions_; d < actions_; ++d, ++at) {
      const SquashedNormal normal(output[d], output[actions_ + d]);
      s.noise[at] = static_cast<float>(noise.Normal(first + at));
      s.sample[at] = normal.Sample(s.noise[at]);
      s.log_prob[i] += normal.LogProb(s.noise[at], s.sample[at]);
    }
  }
}

void Sac::Act(std::span<const float> acting, ReplayScratch& scratch, InferenceBatch& batch) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  const size_t rows = batch.rows.size();
  if (rows == 0) return;
  Evaluate(
      *policy_, acting, rows, [&](size_t i) { return batch.rows[i].observation; }, s.policy);
  for (size_t i = 0; i < rows; ++i) {
    const InferenceRow& row = batch.rows[i];
    const CounterRng rng(row.key);
    const auto output = policy_->Output(s.policy, i);
    bool finite = true;
    for (size_t d = 0, at = i * actions_; d < actions_; ++d, ++at) {
      const SquashedNormal normal(output[d], output[actions_ + d]);
      const double noise = row.greedy ? 0 : rng.Normal(uint64_t{row.step} * actions_ + d);
      const float sample = normal.Sample(static_cast<float>(noise));
      batch.action_values[at] = sample, batch.actions[at] = std::tanh(sample);
      finite = finite && std::isfinite(sample);
    }
    batch.status[i] =
        finite ? InferenceBatch::RowStatus::kOk : InferenceBatch::RowStatus::kNotFinite;
  }
}

std::map<std::string, double> Sac::Gradient(const ReplayMinibatch& minibatch,
                                            ReplayScratch& scratch,
                                            std::span<float> gradient) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  const auto steps = minibatch.steps;
  const size_t n = steps.size();
  const float mean = 1 / static_cast<float>(n);
  const auto policy = minibatch.learned.first(policy_->size());
  const auto learned_critics = CriticsOf(minibatch.learned);
  const auto alpha = static_cast<float>(temperature_.At(minibatch.learned[temperature_at_]));
  const auto now = [&](size_t i) { return steps[i].observation; };
  const auto next = [&](size_t i) { return steps[i].next_observation; };
  const auto next_learned = [&](size_t i) { return minibatch.NextLearned(i); };
  const auto sampled = [&](size_t i, size_t d) { return std::tanh(s.sample[i * actions_ + d]); };
  const auto played = [&](size_t i, size_t d) { return std::tanh(steps[i].action[d]); };

  // 1 soft values of what follows, by the targets (equations 3 and 5)
  SampleActions(policy, n, next_learned, minibatch.noise, 0, s);
  critics_.Evaluate(minibatch.targets, n, next, sampled, s.critics);
  for (size_t i = 0; i < n; ++i) {
    const float least = critics_.Value(s.critics, critics_.Least(s.critics, i), i);
    const float soft = least - alpha * s.log_prob[i];
    s.target[i] = steps[i].reward + (steps[i].discount > 0 ? steps[i].discount * soft : 0);
  }

  // 2 critics: the squared error of each
  const Critics::Loss critics = critics_.SquaredErrors(minibatch, learned_critics, played, s.target,
                                                       s.critics, CriticsOf(gradient));

  // 3 policy, reparametrized (equation 9): alpha log pi - min Q, through the action
  SampleActions(policy, n, now, minibatch.noise, n * actions_, s);
  critics_.Evaluate(learned_critics, n, now, sampled, s.critics);
  double policy_loss = 0, log_prob = 0;
  for (std::vector<size_t>& rows : s.least) rows.clear();
  for (size_t i = 0; i < n; ++i) {
    const size_t least = critics_.Least(s.critics, i);
    s.least[least].push_back(i);
    policy_loss += alpha * s.log_prob[i] - critics_.Value(s.critics, least, i);
    log_prob += s.log_prob[i];
  }
  for (size_t j = 0; j < critics_.count(); ++j) {
    const std::span<const size_t> rows = s.least[j];
    if (rows.empty()) continue;
    const std::span<float> by_value = std::span(s.critics.by_value).first(rows.size());
    std::ranges::fill(by_value, -mean);
    critic_->KeepRows(rows, s.critics.passes[j]);
    critic_->Backward(Critic(learned_critics, j), by_value, /*by_input=*/true, s.critics.passes[j],
                      {});
    for (size_t k = 0; k < rows.size(); ++k)
      std::ranges::copy(critics_.ByAction(s.critics, j, k),
                        s.by_action.begin() + static_cast<ptrdiff_t>(rows[k] * actions_));
  }
  for (size_t i = 0; i < n; ++i) {
    const auto output = policy_->Output(s.policy, i);
    for (size_t d = 0, at = i * actions_; d < actions_; ++d, ++at) {
      const SquashedNormal normal(output[d], output[actions_ + d]);
      const float action = std::tanh(s.sample[at]);
      // d log pi / d sample = 2 tanh(sample)
      const float by_sample = s.by_action[at] * (1 - action * action) + mean * alpha * 2 * action;
      float* by_policy = s.by_policy.data() + i * 2 * actions_ + d;
      by_policy[0] = by_sample;
      by_policy[actions_] =
          (by_sample * s.noise[at] - mean * alpha / normal.deviation) * normal.slope;
    }
  }
  policy_->Backward(policy, std::span(s.by_policy).first(n * 2 * actions_), /*by_input=*/false,
                    s.policy, gradient.first(policy_->size()));

  // 4 temperature (equation 18): alpha (entropy - target)
  const auto rows = static_cast<double>(n);
  const double entropy = -log_prob / rows;
  const auto temperature = temperature_.LossAt(minibatch.learned[temperature_at_], entropy);
  gradient[temperature_at_] = temperature.by_parameter;
  policy_loss /= rows;
  return {{"loss", critics.loss + policy_loss + temperature.value},
          {"policy_loss", policy_loss},
          {"value_loss", critics.loss},
          {"entropy", entropy},
          {"q_mean", critics.values}};
}

}  // namespace

Result<std::unique_ptr<ReplayAlgorithm>> MakeSac(const AgentSetup& setup) {
  return setup.environment.action.discrete ? MakeDiscreteSac(setup) : Sac::Make(setup);
}

LearningAlgorithm SacRow() {
  return {.name = "sac",
          .about = "soft actor-critic, off-policy, for continuous or discrete actions",
          .paper = "Haarnoja et al. 2018",
          .parameters = NewParameters<SacParameters>,
          .agent = MakeReplayAgent<MakeSac>};
}

}  // namespace samara
