// PPO: proximal policy optimization with the clipped objective. Schulman et al. 2017
// (arXiv 1707.06347), equation 7 and algorithm 1; advantages of Schulman et al. 2016 (arXiv
// 1506.02438). The program without torch has the parameters alone.
#include <algorithm>

#include "rl/algorithms/registry.h"
#ifdef SAMARA_AGENTS
#include "rl/learner/actor_critic.h"
#endif

namespace samara {
namespace {

// ---- parameters

class PpoParameters : public AlgorithmConfig {
 public:
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<PpoParameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    table.Add("learn.epochs", &epochs, {1, 1000}, "epochs", "of an update, over its batch");
    table.Add("learn.minibatches", &minibatches, {1, 65'536}, "minibatches",
              "of an epoch, a step of the optimizer each");
    table.Add("ppo.gamma", &gamma, {0, 1}, "", "discount per agent step");
    table.Add("ppo.lambda", &lambda, {0, 1}, "",
              "of the advantages: 1 = n-step returns, 0 = one-step");
    table.Add("ppo.clip", &clip, {0, 1e9}, "", "maximum change of an action's probability ratio");
    table.Add("ppo.value_cost", &value_cost, {0, 1e6}, "", "of half the value's squared error");
    table.Add("ppo.value_clip", &value_clip, {0, 1e9}, "",
              "maximum change of a value in an update; 0 = no clipping");
    table.Add("ppo.units", &units, {"transitions", "sequences"},
              "what minibatches are made of: single transitions, or whole unrolls, which a network "
              "with an LSTM needs");
    table.Add("ppo.shuffle", &shuffle, "draw new minibatches for each epoch");
    table.Add("ppo.recompute", &recompute, "compute the advantages anew before each epoch");
    table.Add("ppo.normalize_advantages", &normalize_advantages,
              "to mean 0 and deviation 1, over a shard's part of a minibatch");
    table.Add("ppo.target_kl", &target_kl, {0, 1e9}, "nats",
              "an update ends when the policy has moved further; 0 = never");
  }
  Status Check(const LearningConfig& config) const override {
    if (units == "transitions" && config.network.lstm > 0)
      return {Code::kConfig,
              "ppo.units=transitions with network.lstm=" + std::to_string(config.network.lstm) +
                  ": a state belongs to its sequence; expected sequences"};
    const LearnConfig& learn = config.learn;
    const int64_t unrolls = learn.batch / std::max<int64_t>(1, learn.shards);
    const int64_t most = units == "sequences" ? unrolls : unrolls * learn.unroll;
    if (minibatches <= most) return Status::Ok();
    return {Code::kConfig, "learn.minibatches=" + std::to_string(minibatches) +
                               ": expected at most the " + std::to_string(most) + " " + units +
                               " of a batch's shard"};
  }

  int64_t epochs = 10, minibatches = 32;
  double gamma = 0.99, lambda = 0.95;
  double clip = 0.2;
  double value_cost = 0.5, value_clip = 0;
  std::string units = "transitions";
  bool shuffle = true, recompute = false;
  bool normalize_advantages = true;
  double target_kl = 0;
};

#ifdef SAMARA_AGENTS
// ---- loss

using torch::Tensor;

// Keeps what all epochs of an update share, of a shard's T x B steps, and the order of one.
struct PpoPrepared : Prepared {
  Tensor log_mu, advantage, value;  // [T][B]; value: before the update
  double explained_variance = 0;    // by the value before the update
  Tensor order;                     // int64: of the units, by number
};

class Ppo : public ActorCritic {
 public:
  explicit Ppo(const LearningConfig& config)
      : ActorCritic(config.learn), config_(dynamic_cast<const PpoParameters&>(*config.own)) {}

  int64_t epochs() const override { return config_.epochs; }
  int64_t minibatches() const override { return config_.minibatches; }
  bool averages() const override { return true; }
  bool Enough(const std::map<std::string, double>& numbers) const override {
    return config_.target_kl > 0 && numbers.at("kl") > config_.target_kl;
  }

  void Prepare(const Shard& shard, std::unique_ptr<Prepared>& prepared) const override {
    const torch::NoGradGuard no_gradient;
    const bool first = prepared == nullptr;
    if (first) prepared = std::make_unique<PpoPrepared>();
    auto& now = dynamic_cast<PpoPrepared&>(*prepared);
    if (first || config_.recompute) {
      const ActorCriticSteps steps = EvaluateSteps(shard);
      now.advantage = GeneralizedAdvantages(steps, config_.gamma, config_.lambda);
      now.value_target = now.advantage + steps.value;
      if (first) {
        now.value = steps.value, now.log_mu = steps.log_mu;
        now.explained_variance = ExplainedVariance(now.value_target, now.value);
      }
    }
    const int64_t units = Sequences() ? now.value.size(1) : now.value.numel();
    if (first || config_.shuffle) now.order = Order(shard.order, units);
  }

  ShardLoss Loss(const Shard& shard) const override {
    // 1 the current policy at the minibatch's steps
    const auto& prepared = dynamic_cast<const PpoPrepared&>(*shard.prepared);
    const Minibatch steps = Evaluate(shard, prepared);

    // 2 the clipped objective (equation 7)
    Tensor advantage = steps.advantage;
    if (config_.normalize_advantages && advantage.numel() > 1)
      advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8);
    const Tensor log_ratio = steps.log_pi - steps.log_mu, ratio = log_ratio.exp();
    const Tensor clipped = ratio.clamp(1 - config_.clip, 1 + config_.clip);
    const Tensor policy = -torch::minimum(ratio * advantage, clipped * advantage).mean();

    // 3 the value's error, in deviations of the returns where the network has them
    const Tensor deviation = shard.network.values().deviation;
    const auto error = [&](const Tensor& value) {
      const Tensor difference = steps.value_target - value;
      return 0.5 * (deviation.defined() ? difference / deviation : difference).square();
    };
    Tensor errors = error(steps.value);
    if (config_.value_clip > 0) {
      const Tensor change =
          (steps.value - steps.old_value).clamp(-config_.value_clip, config_.value_clip);
      errors = torch::maximum(errors, error(steps.old_value + change));
    }
    const Tensor value = errors.mean(), entropy = steps.entropy.mean();

    const auto number = [](const Tensor& x) { return x.item<double>(); };
    const Tensor moved = ratio.detach(), outside = (moved - 1).abs() > config_.clip;
    return {.total = policy + config_.value_cost * value -
                     entropy_cost().coefficient().detach() * entropy + entropy_cost().Loss(entropy),
            .numbers = {{"policy_loss", number(policy), true},
                        {"value_loss", number(value), true},
                        {"entropy", number(entropy), true},
                        {"kl", number((moved - 1 - log_ratio.detach()).mean()), true},
                        {"clip_fraction", number(outside.to(torch::kFloat32).mean()), true},
                        {"importance_weight", number(moved.mean()), true},
                        {"explained_variance", prepared.explained_variance, true}}};
  }

 private:
  struct Minibatch {
    Tensor log_mu, advantage, value_target, old_value;
    Tensor log_pi, entropy, value;  // with a gradient
  };
  bool Sequences() const { return config_.units == "sequences"; }

  // A permutation of 0 ... n-1 (Fisher and Yates).
  static Tensor Order(const CounterRng& rng, int64_t n) {
    Tensor order = torch::arange(n);
    auto* at = order.data_ptr<int64_t>();
    for (int64_t i = n; i-- > 1;)
      std::swap(at[i], at[rng.UniformInt(static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1)]);
    return order;
  }

  // The minibatch's steps, [T][units] of sequences, [1][units] of transitions.
  Minibatch Evaluate(const Shard& shard, const PpoPrepared& prepared) const {
    const LearnerBatch& batch = shard.batch;
    const int64_t length = prepared.value.size(0), units = prepared.order.numel();
    const int64_t begin = shard.pass.minibatch * units / config_.minibatches;
    const int64_t end = (shard.pass.minibatch + 1) * units / config_.minibatches;
    const Tensor chosen = prepared.order.slice(0, begin, end);
    const auto pick = [&](const Tensor& x) {  // of [T][B] or longer
      const Tensor acted = x.slice(0, 0, length);
      if (Sequences()) return acted.index_select(1, chosen);
      return acted.flatten(0, 1).index_select(0, chosen).unsqueeze(0);
    };
    const Tensor state =
        Sequences() ? batch.state.index_select(0, chosen) : torch::zeros({chosen.numel(), 0});
    const auto out = shard.network.forward({pick(batch.observation), pick(batch.reward),
                                            pick(batch.previous_action), pick(batch.first)},
                                           state);
    const ActionDistribution& distribution = shard.distribution;
    const bool continuous = distribution.continuous();
    const Tensor picked = pick(batch.action);
    const Tensor action = continuous ? picked : distribution.Split(picked);
    return {.log_mu = pick(prepared.log_mu),
            .advantage = pick(prepared.advantage),
            .value_target = pick(prepared.value_target),
            .old_value = pick(prepared.value),
            .log_pi = distribution.LogProb(out.policy, action),
            .entropy = distribution.Entropy(
                out.policy, continuous ? Uniforms(shard.rng, action.sizes()) : Tensor()),
            .value = out.value};
  }

  const PpoParameters config_;
};

constexpr MakeAlgorithm* kMake = NewAlgorithm<Ppo>;
#else
constexpr MakeAlgorithm* kMake = nullptr;
#endif

}  // namespace

LearningAlgorithm PpoRow() {
  return {.name = "ppo",
          .about = "proximal policy optimization, clipped",
          .paper = "Schulman et al. 2017",
          .parameters = NewParameters<PpoParameters>,
          .make = kMake};
}

}  // namespace samara
