// R2D2: deep Q-learning with a recurrent network, from a prioritized replay of sequences with the
// state that entered each. Kapturowski et al. 2019 (ICLR; openreview r1lyTjAqYX), section 2.3. The
// program without torch has the parameters alone.
#include "rl/algorithms/r2d2.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "rl/algorithms/registry.h"
#include "rl/learner/replay_keys.h"
#ifdef SAMARA_AGENTS
#include "core/check.h"
#include "rl/learner/action_values.h"
#include "rl/learner/algorithm.h"
#endif

namespace samara {

// ---- targets

double Rescale(double x, double epsilon) {
  if (epsilon == 0) return x;
  return std::copysign(std::sqrt(std::abs(x) + 1) - 1, x) + epsilon * x;
}

double RescaleInverse(double x, double epsilon) {
  if (epsilon == 0) return x;
  const double y = std::abs(x) + 1 + epsilon;
  const double z = 2 * y / (1 + std::sqrt(1 + 4 * epsilon * y));
  return std::copysign(z * z - 1, x);
}

std::vector<float> MultiStepTargets(const ValueSteps& of, int64_t steps, double gamma,
                                    double epsilon) {
  const size_t length = of.reward.size();
  std::vector<float> targets(length);
  for (size_t t = 0; t < length; ++t) {
    double sum = 0, discount = 1;
    size_t last = t;
    for (int64_t i = 0; i < steps && t + static_cast<size_t>(i) < length; ++i) {
      last = t + static_cast<size_t>(i);
      sum += discount * of.reward[last];
      discount = of.terminated[last] ? 0 : discount * gamma;
      if (of.terminated[last] || of.truncated[last]) break;
    }
    if (discount > 0) sum += discount * RescaleInverse(of.next_value[last], epsilon);
    targets[t] = static_cast<float>(Rescale(sum, epsilon));
  }
  return targets;
}

double SequencePriority(std::span<const float> errors, double eta) {
  double largest = 0, sum = 0;
  for (const float error : errors) {
    largest = std::max<double>(largest, std::abs(error));
    sum += std::abs(error);
  }
  return eta * largest + (1 - eta) * sum / static_cast<double>(errors.size());
}

namespace {

// ---- parameters

// Recurrent state at the start of a sequence: as it was when played, the initial one, or the one
// after the burn-in.
enum class FirstState : uint8_t { kStored, kZeros, kLate };
constexpr EnumName<FirstState> kFirstStateNames[] = {
    {FirstState::kStored, "stored"}, {FirstState::kZeros, "zeros"}, {FirstState::kLate, "late"}};

class R2d2Parameters : public ReplayAlgorithmConfig {
 public:
  R2d2Parameters() {
    replay = {.capacity = 8e6,
              .start = 4e5,
              .batch = 5120,
              .ratio = 0.75,
              .alpha = 0.9,
              .beta = 0.6,
              .compress = Compression::kLz4};
  }
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<R2d2Parameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    replay.Bind(table);
    table.Add("r2d2.gamma", &gamma, {0, 1}, "", "discount per agent step");
    table.Add("r2d2.steps", &steps, {1, 1000}, "steps",
              "number of rewards before a value is taken");
    table.Add("r2d2.burn_in", &burn_in, {0, 100'000}, "steps",
              "first steps of a sequence, which only update the state and are not learned from");
    table.Add("r2d2.state", &state, kFirstStateNames,
              "recurrent state at the start of a sequence: as it was when played, the initial one, "
              "or the one after the burn-in, a fault of SEED RL's code");
    table.Add("r2d2.cross_episodes", &cross_episodes,
              "a sequence may hold steps of several episodes; false: it is divided where one ends",
              OnResume::kMustMatchAdded);
    table.Add("r2d2.double", &double_estimate,
              "the network chooses the next action and the target values it; false: the target "
              "does both");
    table.Add("r2d2.dueling", &dueling,
              "separate outputs for the state's value and the actions' advantages");
    table.Add("r2d2.rescale", &rescale, {0, 1}, "",
              "epsilon of the rescaled values; 0 = values are not rescaled");
    table.Add("r2d2.target_every", &target_every, {1, 1e9}, "steps",
              "steps of the optimizer after which the target becomes the network");
    table.Add("r2d2.priority_max", &priority_max, {0, 1}, "",
              "weight of the largest error in a sequence's priority; the mean has the rest");
    exploration.Bind(table, "r2d2");
  }
  int64_t overlap() const override { return burn_in; }
  Status Check(const LearningConfig& config) const override {
    RETURN_IF_ERROR(exploration.Check("r2d2"));
    if (replay.batch % config.learn.unroll != 0)
      return {Code::kConfig, "replay.batch=" + std::to_string(replay.batch) +
                                 ": r2d2 learns from whole sequences; expected a multiple of "
                                 "learn.unroll=" +
                                 std::to_string(config.learn.unroll)};
    if (replay.batch / config.learn.unroll < config.learn.shards)
      return {Code::kConfig,
              "replay.batch=" + std::to_string(replay.batch) +
                  ": expected a sequence of learn.unroll=" + std::to_string(config.learn.unroll) +
                  " steps for each of learn.shards=" + std::to_string(config.learn.shards) +
                  " at least"};
    if (config.network.normalize_value)
      return {Code::kConfig, "network.normalize_value=true: r2d2 rescales values; expected false"};
    return replay.Check(config);
  }

  FirstState state = FirstState::kStored;
  double gamma = 0.997, rescale = 1e-3, priority_max = 0.9;
  int64_t steps = 5, burn_in = 40, target_every = 2500;
  bool cross_episodes = true, double_estimate = true, dueling = true;
  ExplorationKeys exploration{.epsilon = 0.4, .epsilon_last = 0.00065536};
};

#ifdef SAMARA_AGENTS
// ---- loss

using torch::Tensor;

class R2d2 : public Algorithm {
 public:
  explicit R2d2(const LearningConfig& config)
      : config_(dynamic_cast<const R2d2Parameters&>(*config.own)),
        use_{.keys = config_.replay,
             .overlap = static_cast<uint32_t>(config_.burn_in),
             .cross_episodes = config_.cross_episodes,
             .target_every = static_cast<uint64_t>(config_.target_every),
             .acting = {.dueling = config_.dueling,
                        .exploration = config_.exploration.Rates(config.learn)},
             .policy_bias = !config_.dueling,
             .reward_clip = false} {}

  const ReplayUse* replay() const override { return &use_; }
  bool averages() const override { return true; }
  double Priority(const Unroll& unroll, const StepRange& steps) const override;
  ShardLoss Loss(const Shard& shard) const override;

 private:
  // The target network's value of the best action, one number for each observation.
  Tensor BestValue(const AgentNetworkImpl::Output& online,
                   const AgentNetworkImpl::Output& target) const {
    const Tensor values = ActionValues(target, config_.dueling);
    const Tensor best =
        (config_.double_estimate ? ActionValues(online, config_.dueling) : values).argmax(-1, true);
    return values.gather(-1, best).squeeze(-1);
  }
  Tensor Targets(const Tensor& reward, const Tensor& terminated, const Tensor& truncated,
                 const Tensor& next_value) const;
  Tensor OwnSteps(std::span<const StepRange> sequences, int64_t steps) const;

  const R2d2Parameters config_;
  const ReplayUse use_;
};

// A sequence's own of the numbers of its unroll's steps after the `overlap`.
std::span<const float> Own(std::span<const float> of_unroll, const StepRange& steps,
                           uint32_t overlap) {
  return of_unroll.subspan(steps.begin - overlap, steps.size());
}

// Computed from the values with which the unroll was played. The value of an episode's final
// observation is not among them; the one before stands for it.
double R2d2::Priority(const Unroll& unroll, const StepRange& steps) const {
  const size_t actions = unroll.values.size() / unroll.headers.size();
  const auto values = [&](size_t t) {
    return unroll.values.begin() + static_cast<ptrdiff_t>(t * actions);
  };
  const auto best = [&](size_t t) { return *std::max_element(values(t), values(t + 1)); };
  ValueSteps of;
  for (size_t t = unroll.overlap; t + 1 < unroll.entries; ++t) {
    const EntryHeader& led = unroll.headers[t + 1];
    of.reward.push_back(led.reward);
    of.terminated.push_back(led.terminated), of.truncated.push_back(led.truncated);
    of.next_value.push_back(best(led.truncated ? t : t + 1));
  }
  std::vector<float> errors = MultiStepTargets(of, config_.steps, config_.gamma, config_.rescale);
  for (size_t t = steps.begin; t < steps.end; ++t)
    errors[t - unroll.overlap] -= *(values(t) + unroll.headers[t].action);
  return SequencePriority(Own(errors, steps, unroll.overlap), config_.priority_max);
}

// Targets of a batch, [T][B] like its arguments, all of the CPU.
Tensor R2d2::Targets(const Tensor& reward, const Tensor& terminated, const Tensor& truncated,
                     const Tensor& next_value) const {
  CHECK(reward.is_cpu());
  Tensor targets = torch::empty(reward.sizes());
  const auto column = [](const Tensor& x, int64_t b) {
    const Tensor one = x.select(1, b).to(torch::kFloat32).contiguous();
    return std::vector<float>(one.data_ptr<float>(), one.data_ptr<float>() + one.numel());
  };
  for (int64_t b = 0; b < reward.size(1); ++b) {
    const std::vector<float> ended = column(terminated, b), cut = column(truncated, b);
    const std::vector<float> target =
        MultiStepTargets({.reward = column(reward, b),
                          .terminated = {ended.begin(), ended.end()},
                          .truncated = {cut.begin(), cut.end()},
                          .next_value = column(next_value, b)},
                         config_.steps, config_.gamma, config_.rescale);
    targets.select(1, b).copy_(torch::tensor(at::ArrayRef<float>(target.data(), target.size())));
  }
  return targets;
}

// [steps][B] float32: 1 where a step is the sequence's own, 0 elsewhere.
Tensor R2d2::OwnSteps(std::span<const StepRange> sequences, int64_t steps) const {
  Tensor own = torch::zeros({steps, static_cast<int64_t>(sequences.size())});
  for (size_t b = 0; b < sequences.size(); ++b)
    own.select(1, static_cast<int64_t>(b))
        .slice(0, sequences[b].begin - use_.overlap, sequences[b].end - use_.overlap)
        .fill_(1);
  return own;
}

ShardLoss R2d2::Loss(const Shard& shard) const {
  const LearnerBatch& batch = shard.batch;
  const int64_t entries = batch.reward.size(0), burn_in = config_.burn_in;
  const auto part = [&](int64_t from, int64_t to) {
    const auto of = [from, to](const Tensor& x) { return x.slice(0, from, to); };
    return AgentNetworkImpl::Input{of(batch.observation), of(batch.reward),
                                   of(batch.previous_action), of(batch.first)};
  };
  Tensor entering =
      config_.state == FirstState::kZeros ? torch::zeros_like(batch.state) : batch.state;
  if (config_.state == FirstState::kLate && burn_in > 0) {
    const torch::NoGradGuard no_gradient;
    entering = shard.network.forward(part(0, burn_in), entering).state;
  }

  // 1 both networks over the sequence; no gradient goes into the burn-in
  AgentNetworkImpl::Output before, target;
  before.state = entering;
  {
    const torch::NoGradGuard no_gradient;
    if (burn_in > 0) before = shard.network.forward(part(0, burn_in), entering);
    target = shard.target->forward(part(0, entries), entering);
  }
  const auto online = shard.network.forward(part(burn_in, entries), before.state);

  // 2 the value of what each step led to, with the target network's value of the best action
  Tensor targets;
  {
    const torch::NoGradGuard no_gradient;
    AgentNetworkImpl::Output later;
    later.policy = target.policy.slice(0, burn_in), later.value = target.value.slice(0, burn_in);
    Tensor next_value = BestValue(online, later).slice(0, 1).cpu().contiguous();
    if (batch.final_entry.numel() > 0) {
      Tensor states = online.states;
      if (burn_in > 0 && states.defined()) states = torch::cat({before.states, states});
      const Tensor final_value = BestValue(EvaluateFinals(batch, shard.network, states),
                                           EvaluateFinals(batch, *shard.target, target.states))[0];
      const Tensor values = final_value.cpu(), entry = batch.final_entry.cpu(),
                   unroll = batch.final_unroll.cpu();
      for (int64_t k = 0; k < entry.numel(); ++k) {
        const int64_t step = entry[k].item<int64_t>() - 1 - burn_in;
        if (step >= 0) next_value[step][unroll[k].item<int64_t>()] = values[k];
      }
    }
    const auto followed = [&](const Tensor& x) { return x.slice(0, burn_in + 1).cpu(); };
    targets = Targets(followed(batch.reward), followed(batch.terminated), followed(batch.truncated),
                      next_value)
                  .to(online.value.device());
  }

  // 3 the errors of the actions that were played, and the loss
  const Tensor taken = ActionValues(online, config_.dueling)
                           .slice(0, 0, -1)
                           .gather(-1, batch.action.slice(0, burn_in, -1))
                           .squeeze(-1);
  const Tensor own = OwnSteps(shard.steps, taken.size(0)).to(taken.device());
  const Tensor errors = (targets - taken) * own;
  const auto mean = [&](const Tensor& x) {
    return (x * own).sum().item<double>() / own.sum().item<double>();
  };
  ShardLoss loss;
  loss.total = (shard.weight * 0.5 * errors.square().sum(0)).mean();
  const Tensor by_sequence = errors.detach().cpu().t().contiguous();
  for (int64_t b = 0; b < by_sequence.size(0); ++b) {
    const std::span<const float> row(by_sequence[b].data_ptr<float>(),
                                     static_cast<size_t>(by_sequence.size(1)));
    loss.priorities.push_back(SequencePriority(
        Own(row, shard.steps[static_cast<size_t>(b)], use_.overlap), config_.priority_max));
  }
  loss.numbers = {{"q_mean", mean(taken.detach()), true},
                  {"td_error", mean(errors.detach().abs()), true}};
  return loss;
}

constexpr MakeAlgorithm* kMakeR2d2 = NewAlgorithm<R2d2>;
#else
constexpr MakeAlgorithm* kMakeR2d2 = nullptr;
#endif

}  // namespace

LearningAlgorithm R2d2Row() {
  return {.name = "r2d2",
          .about = "recurrent deep Q-learning from a prioritized replay, for discrete actions",
          .paper = "Kapturowski et al. 2019",
          .parameters = NewParameters<R2d2Parameters>,
          .make = kMakeR2d2};
}

}  // namespace samara
