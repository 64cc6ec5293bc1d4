// SAC: soft actor-critic. Haarnoja et al. 2018 (arXiv 1801.01290) with the twin critics, the
// targets and the adjusted temperature of Haarnoja et al. 2018 (arXiv 1812.05905): equations 5, 7,
// 9 and 18 of the latter, without the half in 5. Its networks are perceptrons, without torch.
#include "rl/algorithms/sac.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "rl/algorithms/registry.h"
#include "rl/learner/replay_learner.h"
#include "rl/learner/squashed_normal.h"

namespace samara {

// ---- parameters

void SacParameters::Bind(ConfigTable& table) {
  replay.Bind(table);
  table.Add("sac.gamma", &gamma, {0, 1}, "", "discount per agent step");
  table.Add("sac.critics", &critics, {1, 100}, "critics", "whose least value counts");
  table.Add("sac.polyak", &polyak, {0, 1}, "",
            "of a target critic that stays in a step: 0 = it is the critic");
}

SacTemperature::SacTemperature(const LearnConfig& learn)
    : speed_(learn.entropy_speed), cost_(learn.entropy_cost) {
  if (learn.entropy_target != "none") target_ = std::strtod(learn.entropy_target.c_str(), nullptr);
}

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

void SacNetworks::Initialize(uint64_t seed, std::span<float> learned,
                             std::span<float> targets) const {
  learned_.Initialize(seed, learned);
  learned[temperature_at_] = temperature_.first();
  ResetTargets(learned, targets);
}

void SacNetworks::ResetTargets(std::span<const float> learned, std::span<float> targets) const {
  std::ranges::copy(Critics(learned), targets.begin());
}

void SacNetworks::AfterStep(uint64_t /*step*/, std::span<float> learned,
                            std::span<float> targets) const {
  Follow(config_.polyak, Critics(std::span<const float>(learned)), targets);
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
    ASSIGN_OR_RETURN(Perceptron policy, Perceptron::Make(line, observations, 2 * actions));
    ASSIGN_OR_RETURN(Perceptron critic, Perceptron::Make(line, observations + actions, 1));
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
    std::vector<PerceptronPass> critics;
    std::vector<float> noise, sample;               // [rows][actions]
    std::vector<float> log_prob, target, by_value;  // [rows]
    std::vector<float> by_action, by_policy;        // [rows][actions], [rows][2 actions]
  };

  Sac(const LearningConfig& config, std::shared_ptr<const Perceptron> policy,
      std::shared_ptr<const Perceptron> critic)
      : SacNetworks(config, policy, std::move(critic)), actions_(policy->outputs() / 2) {}

  template <typename Observation>
  void SampleActions(std::span<const float> policy, size_t rows, const Observation& observation,
                     const CounterRng& noise, uint64_t first, Scratch& s) const;
  template <typename Observation, typename Actions>
  void Evaluate(std::span<const float> critic, size_t rows, const Observation& observation,
                const Actions& action, PerceptronPass& pass) const;

  const size_t actions_;
};

std::unique_ptr<ReplayScratch> Sac::MakeScratch(size_t rows_max) const {
  auto scratch = std::make_unique<Scratch>();
  scratch->policy = policy_->MakePass(rows_max);
  for (int64_t j = 0; j < config_.critics; ++j)
    scratch->critics.push_back(critic_->MakePass(rows_max));
  for (std::vector<float>* all : {&scratch->noise, &scratch->sample, &scratch->by_action})
    all->resize(rows_max * actions_);
  for (std::vector<float>* all : {&scratch->log_prob, &scratch->target, &scratch->by_value})
    all->resize(rows_max);
  scratch->by_policy.resize(rows_max * 2 * actions_);
  return scratch;
}

void CopyFloats(std::span<const std::byte> bytes, float* to) {
  std::memcpy(to, bytes.data(), bytes.size());
}

// Draws an action of the policy for each row, and its log-probability. `observation`(row): bytes.
template <typename Observation>
void Sac::SampleActions(std::span<const float> policy, size_t rows, const Observation& observation,
                        const CounterRng& noise, uint64_t first, Scratch& s) const {
  const size_t input_row = PaddedRow(policy_->inputs());
  for (size_t i = 0; i < rows; ++i)
    CopyFloats(observation(i), s.policy.input.data() + i * input_row);
  policy_->Forward(policy, rows, s.policy);
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

// Values of actions, whose samples before squashing are `action`(row), by one critic.
template <typename Observation, typename Actions>
void Sac::Evaluate(std::span<const float> critic, size_t rows, const Observation& observation,
                   const Actions& action, PerceptronPass& pass) const {
  const size_t input_row = PaddedRow(critic_->inputs());
  for (size_t i = 0; i < rows; ++i) {
    float* input = pass.input.data() + i * input_row;
    CopyFloats(observation(i), input);
    const float* sample = action(i);
    for (size_t d = 0; d < actions_; ++d) input[policy_->inputs() + d] = std::tanh(sample[d]);
  }
  critic_->Forward(critic, rows, pass);
}

void Sac::Act(std::span<const float> acting, ReplayScratch& scratch, InferenceBatch& batch) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  const size_t rows = batch.rows.size(), input_row = PaddedRow(policy_->inputs());
  if (rows == 0) return;
  for (size_t i = 0; i < rows; ++i)
    CopyFloats(batch.rows[i].observation, s.policy.input.data() + i * input_row);
  policy_->Forward(acting, rows, s.policy);
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
  const size_t n = steps.size(), critics = s.critics.size();
  const float mean = 1 / static_cast<float>(n);
  const auto policy = minibatch.learned.first(policy_->size());
  const auto learned_critics = Critics(minibatch.learned);
  const auto alpha = static_cast<float>(temperature_.At(minibatch.learned[temperature_at_]));
  const auto now = [&](size_t i) { return steps[i].observation; };
  const auto next = [&](size_t i) { return steps[i].next_observation; };
  const auto sampled = [&](size_t i) { return s.sample.data() + i * actions_; };
  const auto played = [&](size_t i) { return steps[i].action.data(); };
  const auto value = [&](size_t j, size_t i) { return critic_->Output(s.critics[j], i)[0]; };
  const auto least = [&](size_t i) {
    size_t j = 0;
    for (size_t other = 1; other < critics; ++other)
      if (value(other, i) < value(j, i)) j = other;
    return j;
  };

  // 1 soft values of what follows, by the targets (equations 3 and 5)
  SampleActions(policy, n, next, minibatch.noise, 0, s);
  for (size_t j = 0; j < critics; ++j)
    Evaluate(Critic(minibatch.targets, j), n, next, sampled, s.critics[j]);
  for (size_t i = 0; i < n; ++i) {
    const float soft = value(least(i), i) - alpha * s.log_prob[i];
    s.target[i] = steps[i].reward + (steps[i].discount > 0 ? steps[i].discount * soft : 0);
  }

  // 2 critics: the squared error of each
  double critic_loss = 0, values = 0;
  std::ranges::fill(minibatch.errors, 0.0F);
  for (size_t j = 0; j < critics; ++j) {
    Evaluate(Critic(learned_critics, j), n, now, played, s.critics[j]);
    for (size_t i = 0; i < n; ++i) {
      const float error = value(j, i) - s.target[i];
      const float weight = minibatch.weights[i];
      critic_loss += static_cast<double>(weight) * error * error, values += value(j, i);
      s.by_value[i] = 2 * error * mean * weight;
      minibatch.errors[i] += std::abs(error) / static_cast<float>(critics);
    }
    critic_->Backward(Critic(learned_critics, j), std::span(s.by_value).first(n),
                      /*by_input=*/false, s.critics[j], Critic(Critics(gradient), j));
  }

  // 3 policy, reparametrized (equation 9): alpha log pi - min Q, through the action
  SampleActions(policy, n, now, minibatch.noise, n * actions_, s);
  for (size_t j = 0; j < critics; ++j)
    Evaluate(Critic(learned_critics, j), n, now, sampled, s.critics[j]);
  double policy_loss = 0, log_prob = 0;
  std::ranges::fill(s.by_action, 0.0F);
  std::vector<size_t> chosen(n);
  for (size_t i = 0; i < n; ++i) {
    chosen[i] = least(i);
    policy_loss += alpha * s.log_prob[i] - value(chosen[i], i), log_prob += s.log_prob[i];
  }
  for (size_t j = 0; j < critics; ++j) {
    for (size_t i = 0; i < n; ++i) s.by_value[i] = chosen[i] == j ? -mean : 0;
    critic_->Backward(Critic(learned_critics, j), std::span(s.by_value).first(n),
                      /*by_input=*/true, s.critics[j], {});
    for (size_t i = 0; i < n; ++i) {
      const float* by_input =
          s.critics[j].input_delta.data() + i * PaddedRow(critic_->inputs()) + policy_->inputs();
      for (size_t d = 0; d < actions_; ++d) s.by_action[i * actions_ + d] += by_input[d];
    }
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
  critic_loss /= rows, policy_loss /= rows;
  return {{"loss", critic_loss + policy_loss + temperature.value},
          {"policy_loss", policy_loss},
          {"value_loss", critic_loss},
          {"entropy", entropy},
          {"q_mean", values / (rows * static_cast<double>(critics))}};
}

Result<std::unique_ptr<Agent>> MakeSacAgent(const AgentSetup& setup) {
  ASSIGN_OR_RETURN(auto algorithm, MakeSac(setup));
  return MakeReplayLearner(setup, std::move(algorithm));
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
          .agent = MakeSacAgent};
}

}  // namespace samara
