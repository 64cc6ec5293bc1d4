// PPO: proximal policy optimization with the clipped objective. Schulman et al. 2017
// (arXiv 1707.06347), equation 7 and algorithm 1; advantages of Schulman et al. 2016 (arXiv
// 1506.02438). The program without torch has the parameters alone.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "rl/algorithms/registry.h"
#ifdef SAMARA_AGENTS
#include "nn/torch/given_gradient.h"
#include "rl/learner/actor_critic.h"
#endif

namespace samara {
namespace {

// ---- parameters

// Units of a minibatch: single steps, or whole unrolls.
enum class Units : uint8_t { kTransitions, kSequences };
constexpr EnumName<Units> kUnitsNames[] = {{Units::kTransitions, "transitions"},
                                           {Units::kSequences, "sequences"}};

class PpoParameters : public AlgorithmConfig {
 public:
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<PpoParameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    table.Add("learn.epochs", &epochs, {1, 1000}, "epochs", "passes over the batch of an update");
    table.Add("learn.minibatches", &minibatches, {1, 65'536}, "minibatches",
              "minibatches of an epoch, a step of the optimizer each");
    table.Add("ppo.gamma", &gamma, {0, 1}, "", "discount per agent step");
    table.Add("ppo.lambda", &lambda, {0, 1}, "",
              "lambda of the advantages: 1 = n-step returns, 0 = one-step");
    table.Add("ppo.clip", &clip, {0, 1e9}, "", "maximum change of an action's probability ratio");
    table.Add("ppo.value_cost", &value_cost, {0, 1e6}, "",
              "weight of half the value's squared error in the loss");
    table.Add(
        "ppo.value_clip", &value_clip, {0, 1e9}, "",
        "maximum change of a value in an update, in deviations with network.normalize_value; 0 = "
        "no clipping");
    table.Add("ppo.units", &units, kUnitsNames,
              "what minibatches are made of: single transitions, or whole unrolls, which a network "
              "with a recurrent core needs");
    table.Add("ppo.shuffle", &shuffle, "draw new minibatches for each epoch");
    table.Add("ppo.recompute", &recompute, "compute the advantages again before each epoch");
    table.Add("ppo.normalize_advantages", &normalize_advantages,
              "normalize them to mean 0 and deviation 1 over a shard's part of a minibatch");
    table.Add("ppo.target_kl", &target_kl, {0, 1e9}, "nats",
              "an update ends when the policy has moved further; 0 = never");
  }
  Status Check(const LearningConfig& config) const override {
    const AgentCore core = config.network.core();
    if (units == Units::kTransitions && core)
      return {Code::kConfig, "ppo.units=transitions with network." + core.name() + "=" +
                                 std::to_string(core.units) +
                                 ": a state belongs to its sequence; expected sequences"};
    const LearnConfig& learn = config.learn;
    const int64_t unrolls = learn.batch / std::max<int64_t>(1, learn.shards);
    const int64_t most = units == Units::kSequences ? unrolls : unrolls * learn.unroll;
    if (minibatches <= most) return Status::Ok();
    return {Code::kConfig, "learn.minibatches=" + std::to_string(minibatches) +
                               ": expected at most the " + std::to_string(most) + " " +
                               std::string(NameOf<Units>(kUnitsNames, units)) +
                               " of a batch's shard"};
  }

  int64_t epochs = 10, minibatches = 32;
  double gamma = 0.99, lambda = 0.95;
  double clip = 0.2;
  double value_cost = 0.5, value_clip = 0;
  Units units = Units::kTransitions;
  bool shuffle = true, recompute = false;
  bool normalize_advantages = true;
  double target_kl = 0;
};

#ifdef SAMARA_AGENTS
// ---- loss

using torch::Tensor;

// Rows of which one has its entropy measured for the report, where it is no part of the loss.
constexpr size_t kEntropyEvery = 16;

// Keeps what all epochs of an update share, of a shard's T x B steps, and the order of one.
struct PpoPrepared : Prepared {
  Tensor log_mu, advantage, value;  // [T][B]; value: before the update
  Tensor action;                    // [T][B][...], on the CPU
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
      const ActorCriticSteps steps = OnCpu(EvaluateSteps(shard));
      now.advantage = GeneralizedAdvantages(steps, config_.gamma, config_.lambda).contiguous();
      now.value_target = (now.advantage + steps.value).contiguous();
      if (first) {
        now.value = steps.value.contiguous(), now.log_mu = steps.log_mu.contiguous();
        now.action = shard.batch.action.cpu().contiguous();
        now.explained_variance = ExplainedVariance(now.value_target, now.value);
      }
    }
    const int64_t units = Sequences() ? now.value.size(1) : now.value.numel();
    if (first || config_.shuffle) now.order = Order(shard.order, units);
  }

  ShardLoss Loss(const Shard& shard) const override {
    const auto& prepared = dynamic_cast<const PpoPrepared&>(*shard.prepared);
    const Chosen chosen = Choose(shard, prepared);
    const auto out = Evaluate(shard, prepared, chosen);
    const Tensor policy = out.policy.contiguous(), value = out.value.contiguous();
    const Tensor policy_here = policy.detach().cpu(), value_here = value.detach().cpu();
    const Tensor by_policy = torch::empty_like(policy_here);
    const Tensor by_value = torch::empty_like(value_here);
    const Means means = Differentiate(shard, prepared, Rows(prepared, chosen),
                                      {policy_here.data_ptr<float>(), value_here.data_ptr<float>(),
                                       by_policy.data_ptr<float>(), by_value.data_ptr<float>()});
    return Report(prepared, means,
                  WithGradient(means.loss, {policy, value},
                               {by_policy.to(policy.device()), by_value.to(value.device())}));
  }

  bool by_hand() const override { return true; }
  ShardLoss LossByHand(const Shard& shard, DensePass& pass) const override {
    const auto& prepared = dynamic_cast<const PpoPrepared&>(*shard.prepared);
    const std::vector<int64_t> rows = Rows(prepared, Choose(shard, prepared));
    pass.Forward(shard.network, shard.batch.observation.data_ptr<float>(), rows);
    const Means means = Differentiate(shard, prepared, rows,
                                      {pass.policy().data(), pass.value().data(),
                                       pass.by_policy().data(), pass.by_value().data()});
    return Report(prepared, means, SingleScalar(means.loss));
  }

 private:
  // Units of a minibatch, by number.
  using Chosen = std::span<const int64_t>;
  // Outputs of the network for the rows of a minibatch, and the loss's derivatives by them.
  struct Outputs {
    const float *policy, *value;  // [rows][outputs], [rows]
    float *by_policy, *by_value;
  };
  // Means over the rows of a minibatch.
  struct Means {
    double loss = 0, policy = 0, value = 0, entropy = 0, kl = 0, outside = 0, ratio = 0;
  };

  // The loss of the rows of a minibatch, and its derivatives.
  Means Differentiate(const Shard& shard, const PpoPrepared& prepared,
                      std::span<const int64_t> rows, const Outputs& out) const {
    const auto floats = [](const Tensor& x) { return x.data_ptr<float>(); };
    const float *log_mu = floats(prepared.log_mu), *advantages = floats(prepared.advantage),
                *targets = floats(prepared.value_target), *old_values = floats(prepared.value);
    const ActionDistribution& distribution = shard.distribution;
    const bool continuous = distribution.continuous();
    const float* samples = continuous ? floats(prepared.action) : nullptr;
    const int64_t* indices = continuous ? nullptr : prepared.action.data_ptr<int64_t>();
    const auto outputs = static_cast<size_t>(distribution.parameters()),
               components = static_cast<size_t>(prepared.action.size(-1)), n = rows.size();
    const double mean = 1.0 / static_cast<double>(n);
    const auto [middle, spread] = Scale(advantages, rows);
    // in deviations of the returns where the network has them
    const Tensor returns = shard.network.values().deviation;
    const double scale = returns.defined() ? 1 / returns.item<double>() : 1;
    const double entropy_weight = entropy_cost().coefficient().item<double>();

    Means sums;
    std::vector<float> by_log_pi(outputs), by_entropy(outputs), normal(components);
    DistributionRow distribution_row(distribution);
    size_t measured = 0;  // rows whose entropy is
    for (size_t i = 0; i < n; ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      const bool measures = entropy_weight != 0 || i % kEntropyEvery == 0;
      measured += measures ? 1 : 0;
      for (size_t d = 0; measures && continuous && d < components; ++d)
        normal[d] = static_cast<float>(shard.rng.Normal(i * components + d));
      const auto now = distribution_row.Evaluate(
          out.policy + i * outputs, continuous ? 0 : indices[row],
          continuous ? samples + row * components : nullptr, normal.data(), by_log_pi.data(),
          measures ? by_entropy.data() : nullptr);
      // the clipped objective (equation 7)
      const double log_ratio = now.log_prob - log_mu[row], ratio = std::exp(log_ratio);
      const double advantage = (advantages[row] - middle) / spread;
      const double clipped = std::clamp(ratio, 1 - config_.clip, 1 + config_.clip);
      const bool moves = ratio * advantage <= clipped * advantage;
      sums.policy -= mean * std::min(ratio * advantage, clipped * advantage);
      const double by_ratio = moves ? -mean * ratio * advantage : 0;  // times d log pi
      for (size_t k = 0; k < outputs; ++k)
        out.by_policy[i * outputs + k] =
            static_cast<float>(by_ratio * by_log_pi[k] - mean * entropy_weight * by_entropy[k]);
      // the value's error, or the larger one of a value that moves no further than its clip
      double error = scale * (out.value[i] - targets[row]), by_error = scale;
      if (config_.value_clip > 0) {
        const double old = old_values[row], change = out.value[i] - old;
        const double limit = config_.value_clip / scale;
        const double bounded = std::clamp(change, -limit, limit);
        const double other = scale * (old + bounded - targets[row]);
        if (other * other > error * error) error = other, by_error = bounded == change ? scale : 0;
      }
      sums.value += mean * 0.5 * error * error;
      out.by_value[i] = static_cast<float>(mean * config_.value_cost * error * by_error);
      sums.entropy += mean * now.entropy;
      sums.kl += mean * (ratio - 1 - log_ratio);
      sums.outside += std::abs(ratio - 1) > config_.clip ? mean : 0;
      sums.ratio += mean * ratio;
    }
    sums.entropy *= static_cast<double>(n) / static_cast<double>(measured);
    sums.loss = sums.policy + config_.value_cost * sums.value - entropy_weight * sums.entropy;
    return sums;
  }

  ShardLoss Report(const PpoPrepared& prepared, const Means& means, const Tensor& loss) const {
    return {.total = loss + entropy_cost().Loss(SingleScalar(means.entropy)),
            .numbers = {{"policy_loss", means.policy, true},
                        {"value_loss", means.value, true},
                        {"entropy", means.entropy, true},
                        {"kl", means.kl, true},
                        {"clip_fraction", means.outside, true},
                        {"importance_weight", means.ratio, true},
                        {"explained_variance", prepared.explained_variance, true}}};
  }

  bool Sequences() const { return config_.units == Units::kSequences; }

  Chosen Choose(const Shard& shard, const PpoPrepared& prepared) const {
    const int64_t units = prepared.order.numel();
    const int64_t begin = shard.pass.minibatch * units / config_.minibatches;
    const int64_t end = (shard.pass.minibatch + 1) * units / config_.minibatches;
    return {prepared.order.data_ptr<int64_t>() + begin, static_cast<size_t>(end - begin)};
  }

  // The steps of units, among T x B, as Pick puts them.
  std::vector<int64_t> Rows(const PpoPrepared& prepared, Chosen chosen) const {
    if (!Sequences()) return {chosen.begin(), chosen.end()};
    std::vector<int64_t> rows;
    for (int64_t t = 0; t < prepared.value.size(0); ++t)
      for (const int64_t unroll : chosen) rows.push_back(t * prepared.value.size(1) + unroll);
    return rows;
  }

  // Mean and deviation that advantages are normalized by, or 0 and 1.
  std::pair<double, double> Scale(const float* advantages, std::span<const int64_t> rows) const {
    const auto n = static_cast<double>(rows.size());
    if (!config_.normalize_advantages || n < 2) return {0, 1};
    double sum = 0, squares = 0;
    for (const int64_t row : rows) sum += advantages[row];
    const double mean = sum / n;
    for (const int64_t row : rows) squares += (advantages[row] - mean) * (advantages[row] - mean);
    return {mean, std::sqrt(squares / (n - 1)) + 1e-8};
  }

  // A permutation of 0 ... n-1 (Fisher and Yates).
  static Tensor Order(const CounterRng& rng, int64_t n) {
    Tensor order = torch::arange(n);
    auto* at = order.data_ptr<int64_t>();
    for (int64_t i = n; i-- > 1;)
      std::swap(at[i], at[rng.UniformInt(static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1)]);
    return order;
  }

  // The numbers of units as a tensor where `x` is.
  static Tensor IndexOf(Chosen chosen, const Tensor& x) {
    return torch::tensor(at::ArrayRef<int64_t>(chosen.data(), chosen.size())).to(x.device());
  }

  // Copies the minibatch's steps of [T][B][...] or longer: [T][units][...] of sequences,
  // [1][units][...] of transitions.
  Tensor Pick(const Tensor& x, int64_t length, Chosen chosen) const {
    const auto units = static_cast<int64_t>(chosen.size());
    if (!x.is_cpu()) return PickThere(x.slice(0, 0, length), chosen);
    std::vector<int64_t> sizes = x.sizes().vec();
    const int64_t all = sizes[1], times = Sequences() ? length : 1;
    sizes[0] = times, sizes[1] = units;
    Tensor picked = torch::empty(sizes, x.options());
    const size_t bytes = x.nbytes() / static_cast<size_t>(x.size(0) * all);
    const auto* from = static_cast<const char*>(x.data_ptr());
    auto* to = static_cast<char*>(picked.data_ptr());
    for (int64_t t = 0; t < times; ++t)
      for (int64_t i = 0; i < units; ++i, to += bytes)
        std::memcpy(to,
                    from + static_cast<size_t>(t * all + chosen[static_cast<size_t>(i)]) * bytes,
                    bytes);
    return picked;
  }

  // The same on the device of `x`.
  Tensor PickThere(const Tensor& x, Chosen chosen) const {
    const Tensor index = IndexOf(chosen, x);
    if (Sequences()) return x.index_select(1, index);
    return x.flatten(0, 1).index_select(0, index).unsqueeze(0);
  }

  AgentNetworkImpl::Output Evaluate(const Shard& shard, const PpoPrepared& prepared,
                                    Chosen chosen) const {
    const LearnerBatch& batch = shard.batch;
    const auto units = static_cast<int64_t>(chosen.size());
    const auto pick = [&](const Tensor& x) {
      return Pick(x.contiguous(), prepared.value.size(0), chosen);
    };
    const Tensor state = Sequences() ? batch.state.index_select(0, IndexOf(chosen, batch.state))
                                     : torch::zeros({units, 0}, batch.state.options());
    return shard.network.forward({pick(batch.observation), pick(batch.reward),
                                  pick(batch.previous_action), pick(batch.first)},
                                 state);
  }

  const PpoParameters config_;
};

constexpr MakeAlgorithm* kMakePpo = NewAlgorithm<Ppo>;
#else
constexpr MakeAlgorithm* kMakePpo = nullptr;
#endif

}  // namespace

LearningAlgorithm PpoRow() {
  return {.name = "ppo",
          .about = "proximal policy optimization, clipped",
          .paper = "Schulman et al. 2017",
          .parameters = NewParameters<PpoParameters>,
          .make = kMakePpo};
}

}  // namespace samara
