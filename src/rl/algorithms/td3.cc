// TD3: twin delayed deterministic policy gradient. Fujimoto et al. 2018 (arXiv 1802.09477),
// algorithm 1. Its networks are perceptrons, without torch.
#include "rl/algorithms/td3.h"

#include <algorithm>

#include "rl/algorithms/deterministic_policy.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/replay_learner.h"

namespace samara {
namespace {

// ---- parameters

class Td3Parameters : public ReplayAlgorithmConfig {
 public:
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<Td3Parameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindSteps(table);
    policy.Bind(table, "td3");
    table.Add("td3.critics", &critics, {1, 100}, "critics",
              "number of critics, whose least value counts");
    table.Add("td3.smoothing", &smoothing, {0, 10}, "half ranges of the action",
              "standard deviation of the noise on the actions of targets");
    table.Add("td3.smoothing_clip", &smoothing_clip, {0, 10}, "half ranges of the action",
              "largest such noise");
    table.Add("td3.delay", &delay, {1, 1000}, "steps",
              "number of steps of the critics for each of the policy and of the targets");
    table.Add("td3.polyak", &polyak, {0, 1}, "",
              "share of the targets that such a step keeps; 0 = they are copies");
  }
  Status Check(const LearningConfig& config) const override { return replay.Check(config); }

  DeterministicPolicyKeys policy;
  int64_t critics = 2, delay = 2;
  double smoothing = 0.2, smoothing_clip = 0.5, polyak = 0.995;
};

// ---- loss

class Td3 : public DeterministicActorCritic {
 public:
  static Result<std::unique_ptr<ReplayAlgorithm>> Make(const AgentSetup& setup) {
    const auto& own = dynamic_cast<const Td3Parameters&>(*setup.config.own);
    ASSIGN_OR_RETURN(const Networks networks, MakeNetworks(setup, 1));
    return std::unique_ptr<ReplayAlgorithm>(new Td3(setup.config, own, networks));
  }

  std::unique_ptr<ReplayScratch> MakeScratch(size_t rows_max) const override {
    auto scratch = std::make_unique<Memory>();
    Prepare(*scratch, rows_max);
    scratch->target.resize(rows_max);
    return scratch;
  }
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch& scratch,
                                         std::span<float> gradient) const override;
  double polyak(uint64_t step) const override {
    return policy_group_.Learns(step) ? config_.polyak : 1;
  }

 private:
  struct Memory : Scratch {
    std::vector<float> target;  // [rows]
  };

  Td3(const LearningConfig& config, const Td3Parameters& own, const Networks& networks)
      : DeterministicActorCritic(config, own.policy, networks, own.critics, own.delay),
        config_(own) {}

  void SetTargets(const ReplayMinibatch& minibatch, Memory& s) const;

  const Td3Parameters config_;
};

// r + gamma min Q'(x', a'), a' the target policy's action with clipped noise.
void Td3::SetTargets(const ReplayMinibatch& minibatch, Memory& s) const {
  const auto steps = minibatch.steps;
  const size_t n = steps.size();
  const auto next = [&](size_t i) { return steps[i].next_observation; };
  EvaluatePolicy(minibatch.targets, n, next, s);
  for (size_t i = 0, at = 0; i < n; ++i)
    for (size_t d = 0; d < actions_; ++d, ++at) {
      const double noise = std::clamp(config_.smoothing * minibatch.noise.Normal(at),
                                      -config_.smoothing_clip, config_.smoothing_clip);
      const double action = policy_->Output(s.policy, i)[d] + noise;
      s.action[at] = static_cast<float>(std::clamp(action, -1.0, 1.0));
    }
  critics_.Evaluate(
      critics_group_.Of(minibatch.targets), n, next,
      [&](size_t i, size_t d) { return s.action[i * actions_ + d]; }, s.critics);
  for (size_t i = 0; i < n; ++i) {
    const float least = critics_.Value(s.critics, critics_.Least(s.critics, i), i);
    s.target[i] = steps[i].reward + (steps[i].discount > 0 ? steps[i].discount * least : 0);
  }
}

std::map<std::string, double> Td3::Gradient(const ReplayMinibatch& minibatch,
                                            ReplayScratch& scratch,
                                            std::span<float> gradient) const {
  auto& s = dynamic_cast<Memory&>(scratch);
  const auto steps = minibatch.steps;
  const size_t n = steps.size();

  // 1 values of what follows, by the targets
  SetTargets(minibatch, s);

  // 2 critics: the squared error of each
  const Critics::Loss critics = critics_.SquaredErrors(
      minibatch, critics_group_.Of(minibatch.learned),
      [&](size_t i, size_t d) { return steps[i].action[d]; }, s.target, s.critics,
      critics_group_.Of(gradient));

  // 3 policy, in its steps: -Q1(x, pi(x))
  double policy_loss = 0;
  if (policy_group_.Learns(minibatch.step)) {
    EvaluatePolicysActions(minibatch, s);
    for (size_t i = 0; i < n; ++i) policy_loss -= critics_.Value(s.critics, 0, i);
    std::ranges::fill(s.by_output, 1.0F);
    PolicyGradient(minibatch, /*norm_max=*/0, s, gradient);
  } else {
    std::ranges::fill(policy_group_.Of(gradient), 0.0F);
  }
  // so that means over all steps are those over the policy's
  policy_loss *= static_cast<double>(config_.delay) / static_cast<double>(n);
  return {{"loss", critics.loss + policy_loss},
          {"policy_loss", policy_loss},
          {"value_loss", critics.loss},
          {"q_mean", critics.values}};
}

}  // namespace

Result<std::unique_ptr<ReplayAlgorithm>> MakeTd3(const AgentSetup& setup) {
  return Td3::Make(setup);
}

LearningAlgorithm Td3Row() {
  return {.name = "td3",
          .about = "twin delayed deterministic policy gradient, off-policy, for continuous actions",
          .paper = "Fujimoto et al. 2018",
          .parameters = NewParameters<Td3Parameters>,
          .agent = MakeReplayAgent<MakeTd3>};
}

}  // namespace samara
