// D4PG: distributed distributional deterministic policy gradient. Barth-Maron et al. 2018 (arXiv
// 1804.08617), algorithm 1, with a categorical distribution of returns (Bellemare et al. 2017,
// arXiv 1707.06887). Its networks are perceptrons, without torch.
#include "rl/algorithms/d4pg.h"

#include <algorithm>
#include <cmath>

#include "rl/algorithms/deterministic_policy.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/log_sum_exp.h"
#include "rl/learner/replay_learner.h"
#include "rl/learner/return_atoms.h"

namespace samara {
namespace {

// ---- parameters

class D4pgParameters : public ReplayAlgorithmConfig {
 public:
  D4pgParameters() { policy.steps = 5, policy.noise = 0.3, policy.random_start = false; }
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<D4pgParameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindSteps(table);
    policy.Bind(table, "d4pg");
    table.Add("d4pg.atoms", &atoms, {2, 10'000}, "atoms",
              "number of atoms of the distribution of returns");
    table.Add("d4pg.value_min", &value_min, {-1e9, 1e9}, "return",
              "return of the first atom of the distribution");
    table.Add("d4pg.value_max", &value_max, {-1e9, 1e9}, "return",
              "return of the last atom of the distribution");
    table.Add("d4pg.target_every", &target_every, {1, 1e9}, "steps",
              "number of steps of the learner after which the targets are copied");
    table.Add("d4pg.action_gradient", &action_gradient, {0, 1e9}, "",
              "largest norm of a value's derivative by the action; 0 = no limit");
  }
  Status Check(const LearningConfig& config) const override {
    if (value_min >= value_max)
      return {Code::kConfig, "d4pg.value_min=" + std::to_string(value_min) +
                                 ": expected it below d4pg.value_max=" + std::to_string(value_max)};
    return replay.Check(config);
  }

  DeterministicPolicyKeys policy;
  int64_t atoms = 51, target_every = 100;
  double value_min = -150, value_max = 150, action_gradient = 1;
};

// ---- loss

class D4pg : public DeterministicActorCritic {
 public:
  static Result<std::unique_ptr<ReplayAlgorithm>> Make(const AgentSetup& setup) {
    const auto& own = dynamic_cast<const D4pgParameters&>(*setup.config.own);
    ASSIGN_OR_RETURN(const Networks networks, MakeNetworks(setup, own.atoms));
    return std::unique_ptr<ReplayAlgorithm>(new D4pg(setup.config, own, networks));
  }

  std::unique_ptr<ReplayScratch> MakeScratch(size_t rows_max) const override {
    auto scratch = std::make_unique<Memory>();
    Prepare(*scratch, rows_max);
    scratch->target.resize(rows_max * atoms_.size());
    scratch->probability.resize(atoms_.size());
    return scratch;
  }
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch& scratch,
                                         std::span<float> gradient) const override;
  double polyak(uint64_t step) const override {
    return (step + 1) % static_cast<uint64_t>(config_.target_every) == 0 ? 0 : 1;
  }

 private:
  struct Memory : Scratch {
    std::vector<float> target;       // [rows][atoms]
    std::vector<float> probability;  // [atoms]
  };
  struct Loss {
    double loss = 0, values = 0;  // means
  };

  D4pg(const LearningConfig& config, const D4pgParameters& own, const Networks& networks)
      : DeterministicActorCritic(config, own.policy, networks, /*critics=*/1, /*every=*/1),
        config_(own),
        atoms_(own.value_min, own.value_max, static_cast<size_t>(own.atoms)) {}

  std::span<float> Row(std::vector<float>& all, size_t row) const {
    return std::span(all).subspan(row * atoms_.size(), atoms_.size());
  }
  // Writes s.probability, by the critic's outputs for this row. Returns their LogSumExp.
  float SetProbability(size_t row, Memory& s) const;
  void SetTargets(const ReplayMinibatch& minibatch, Memory& s) const;
  Loss CrossEntropy(const ReplayMinibatch& minibatch, Memory& s, std::span<float> gradient) const;
  double PolicyValue(size_t rows, Memory& s) const;

  const D4pgParameters config_;
  const ReturnAtoms atoms_;
};

float D4pg::SetProbability(size_t row, Memory& s) const {
  const auto logits = critics_.Output(s.critics, 0, row);
  const float log_sum = LogSumExp(logits);
  for (size_t k = 0; k < atoms_.size(); ++k) s.probability[k] = std::exp(logits[k] - log_sum);
  return log_sum;
}

// The distribution of r + gamma^m Z'(x', pi'(x')) on the atoms.
void D4pg::SetTargets(const ReplayMinibatch& minibatch, Memory& s) const {
  const auto steps = minibatch.steps;
  const auto next = [&](size_t i) { return steps[i].next_observation; };
  EvaluatePolicy(minibatch.targets, steps.size(), next, s);
  critics_.Evaluate(
      critics_group_.Of(minibatch.targets), steps.size(), next,
      [&](size_t i, size_t d) { return policy_->Output(s.policy, i)[d]; }, s.critics);
  for (size_t i = 0; i < steps.size(); ++i) {
    SetProbability(i, s);
    atoms_.Project(steps[i].reward, steps[i].discount, s.probability, Row(s.target, i));
  }
}

// Returns the cross-entropy of the targets and Z(x, a); each row's is the step's priority.
D4pg::Loss D4pg::CrossEntropy(const ReplayMinibatch& minibatch, Memory& s,
                              std::span<float> gradient) const {
  const auto steps = minibatch.steps;
  const auto all = critics_group_.Of(minibatch.learned);
  const auto rows = static_cast<double>(steps.size());
  critics_.Evaluate(
      all, steps.size(), [&](size_t i) { return steps[i].observation; },
      [&](size_t i, size_t d) { return steps[i].action[d]; }, s.critics);
  Loss sum;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto logits = critics_.Output(s.critics, 0, i);
    const float log_sum = SetProbability(i, s);
    const auto target = Row(s.target, i), by_output = Row(s.by_output, i);
    const auto counts = static_cast<float>(minibatch.weights[i] / rows);
    double loss = 0;
    for (size_t k = 0; k < atoms_.size(); ++k) {
      loss -= static_cast<double>(target[k]) * (logits[k] - log_sum);
      by_output[k] = counts * (s.probability[k] - target[k]);
    }
    minibatch.errors[i] = static_cast<float>(loss);
    sum.loss += minibatch.weights[i] * loss / rows;
    sum.values += atoms_.Mean(s.probability) / rows;
  }
  BackwardToObservations(
      critics_.net(), all, std::span(s.by_output).first(steps.size() * atoms_.size()),
      s.critics.passes[0], critics_group_.Of(gradient), minibatch.by_observation);
  return sum;
}

// The mean value of the policy's actions; s.by_output: derivatives of each row's value.
double D4pg::PolicyValue(size_t rows, Memory& s) const {
  double sum = 0;
  for (size_t i = 0; i < rows; ++i) {
    SetProbability(i, s);
    const double value = atoms_.Mean(s.probability);
    const auto by_output = Row(s.by_output, i);
    for (size_t k = 0; k < atoms_.size(); ++k)
      by_output[k] = static_cast<float>(s.probability[k] * (atoms_.At(k) - value));
    sum += value;
  }
  return sum / static_cast<double>(rows);
}

std::map<std::string, double> D4pg::Gradient(const ReplayMinibatch& minibatch,
                                             ReplayScratch& scratch,
                                             std::span<float> gradient) const {
  auto& s = dynamic_cast<Memory&>(scratch);

  // 1 distributions of what follows, by the targets
  SetTargets(minibatch, s);

  // 2 critic: the cross-entropy with them
  const Loss critic = CrossEntropy(minibatch, s, gradient);

  // 3 policy: minus the mean of Z(x, pi(x))
  EvaluatePolicysActions(minibatch, s);
  const double policy_loss = -PolicyValue(minibatch.steps.size(), s);
  PolicyGradient(minibatch, config_.action_gradient, s, gradient);

  return {{"loss", critic.loss + policy_loss},
          {"policy_loss", policy_loss},
          {"value_loss", critic.loss},
          {"q_mean", critic.values}};
}

}  // namespace

Result<std::unique_ptr<ReplayAlgorithm>> MakeD4pg(const AgentSetup& setup) {
  return D4pg::Make(setup);
}

LearningAlgorithm D4pgRow() {
  return {.name = "d4pg",
          .about =
              "deterministic policy gradient with a distribution of returns, off-policy, for "
              "continuous actions",
          .paper = "Barth-Maron et al. 2018",
          .parameters = NewParameters<D4pgParameters>,
          .agent = MakeReplayAgent<MakeD4pg>};
}

}  // namespace samara
