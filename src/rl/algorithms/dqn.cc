// DQN: deep Q-learning from a replay. Mnih et al. 2015 (Nature 518), algorithm 1, with the double
// estimate of van Hasselt et al. 2016 (arXiv 1509.06461), the dueling network of Wang et al. 2016
// (arXiv 1511.06581), equation 9, and an exploration rate for each environment (Horgan et al. 2018,
// arXiv 1803.00933). Its network is a perceptron, without torch.
#include "rl/algorithms/dqn.h"

#include <algorithm>
#include <cmath>

#include "rl/algorithms/registry.h"
#include "rl/inference/exploration.h"
#include "rl/learner/flat_optimizer.h"
#include "rl/learner/perceptron_rows.h"
#include "rl/learner/replay_learner.h"

namespace samara {
namespace {

// ---- parameters

class DqnParameters : public ReplayAlgorithmConfig {
 public:
  std::unique_ptr<AlgorithmConfig> Clone() const override {
    return std::make_unique<DqnParameters>(*this);
  }
  void Bind(ConfigTable& table) override {
    BindSteps(table);
    table.Add("dqn.gamma", &gamma, {0, 1}, "", "discount per agent step");
    table.Add("dqn.steps", &steps, {1, 1000}, "steps",
              "number of rewards before a value is taken, fewer at the end of an unroll",
              OnResume::kMustMatchAdded);
    table.Add("dqn.double", &double_estimate,
              "the network chooses the next action and the target values it; false: the target "
              "does both");
    table.Add("dqn.dueling", &dueling,
              "separate outputs for the state's value and the actions' advantages");
    table.Add("dqn.polyak", &polyak, {0, 1}, "",
              "share of the target network that a step keeps; 0 = it is the network");
    table.Add("dqn.huber", &huber, {0, 1e9}, "",
              "errors beyond it count linearly; 0 = all count squared");
    exploration.Bind(table, "dqn");
  }
  Status Check(const LearningConfig& config) const override {
    RETURN_IF_ERROR(exploration.Check("dqn"));
    return replay.Check(config);
  }

  double gamma = 0.99, polyak = 0.99, huber = 1;
  ExplorationKeys exploration;
  int64_t steps = 1;
  bool double_estimate = true, dueling = false;
};

// ---- loss

class Dqn : public ReplayAlgorithm {
 public:
  static Result<std::unique_ptr<ReplayAlgorithm>> Make(const AgentSetup& setup) {
    const auto observations = static_cast<size_t>(setup.environment.observation.elements());
    const auto& own = dynamic_cast<const DqnParameters&>(*setup.config.own);
    const auto actions = static_cast<size_t>(setup.environment.action.n);
    const AgentNetworkKeys& keys = setup.config.network;
    ASSIGN_OR_RETURN(
        Perceptron net,
        Perceptron::Make(keys.text(), observations, actions + (own.dueling ? 1 : 0), OpsOf(keys)));
    return std::unique_ptr<ReplayAlgorithm>(
        new Dqn(setup, own, std::make_shared<const Perceptron>(std::move(net))));
  }

  const ParameterBlocks& learned() const override { return learned_; }
  const ParameterBlocks& targets() const override { return targets_; }
  size_t acting() const override { return net_->size(); }
  ReturnRule returns() const override { return {config_.steps, config_.gamma}; }
  bool explores() const override { return true; }
  ModelShape shape() const override {
    return {.observation_bytes = net_->inputs() * sizeof(float), .values = 0};
  }
  std::unique_ptr<ReplayScratch> MakeScratch(size_t rows_max) const override {
    auto scratch = std::make_unique<Scratch>();
    scratch->pass = net_->MakePass(rows_max);
    scratch->values.resize(rows_max * actions_);
    scratch->target.resize(rows_max);
    scratch->best.resize(rows_max);
    scratch->by_output.resize(rows_max * net_->outputs());
    return scratch;
  }
  void Act(std::span<const float> acting, ReplayScratch& scratch,
           InferenceBatch& batch) const override;
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch& scratch,
                                         std::span<float> gradient) const override;
  bool learned_sees_next() const override { return config_.double_estimate; }
  double polyak(uint64_t /*step*/) const override { return config_.polyak; }

 private:
  struct Scratch : ReplayScratch {
    PerceptronPass pass;
    std::vector<float> values;  // [rows][actions]
    std::vector<float> target;  // [rows]
    std::vector<size_t> best;   // [rows]
    std::vector<float> by_output;
  };

  Dqn(const AgentSetup& setup, const DqnParameters& config, std::shared_ptr<const Perceptron> net)
      : config_(config),
        actions_(static_cast<size_t>(setup.environment.action.n)),
        first_(setup.share.first),
        exploration_(config.exploration.Rates(setup.config.learn)),
        net_(std::move(net)) {
    learned_.Add("", "value", net_);
    targets_.Add("", "value", net_);
  }

  size_t Best(const float* values) const {
    return static_cast<size_t>(std::max_element(values, values + actions_) - values);
  }
  // Values of all actions, to scratch.values.
  template <typename Observation>
  void Evaluate(std::span<const float> parameters, size_t rows, const Observation& observation,
                Scratch& s) const;

  const DqnParameters config_;
  const size_t actions_;
  const uint32_t first_;
  const Exploration exploration_;
  const std::shared_ptr<const Perceptron> net_;
  ParameterBlocks learned_, targets_;
};

template <typename Observation>
void Dqn::Evaluate(std::span<const float> parameters, size_t rows, const Observation& observation,
                   Scratch& s) const {
  samara::Evaluate(*net_, parameters, rows, observation, s.pass);
  for (size_t i = 0; i < rows; ++i) {
    const auto output = net_->Output(s.pass, i);
    float* values = s.values.data() + i * actions_;
    std::copy_n(output.begin(), actions_, values);
    if (!config_.dueling) continue;
    float mean = 0;
    for (size_t a = 0; a < actions_; ++a) mean += values[a];
    mean /= static_cast<float>(actions_);
    for (size_t a = 0; a < actions_; ++a) values[a] += output[actions_] - mean;
  }
}

void Dqn::Act(std::span<const float> acting, ReplayScratch& scratch, InferenceBatch& batch) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  const size_t rows = batch.rows.size();
  if (rows == 0) return;
  Evaluate(
      acting, rows, [&](size_t i) { return batch.rows[i].observation; }, s);
  for (size_t i = 0; i < rows; ++i) {
    const InferenceRow& row = batch.rows[i];
    const std::span<const float> values(s.values.data() + i * actions_, actions_);
    batch.index[i] = exploration_.Choose(row, first_ + row.slot, values);
    batch.status[i] =
        AllFinite(values) ? InferenceBatch::RowStatus::kOk : InferenceBatch::RowStatus::kNotFinite;
  }
}

std::map<std::string, double> Dqn::Gradient(const ReplayMinibatch& minibatch,
                                            ReplayScratch& scratch,
                                            std::span<float> gradient) const {
  auto& s = dynamic_cast<Scratch&>(scratch);
  const auto steps = minibatch.steps;
  const size_t n = steps.size(), outputs = net_->outputs();
  const double mean = 1.0 / static_cast<double>(n);
  const auto next = [&](size_t i) { return steps[i].next_observation; };
  const auto next_learned = [&](size_t i) { return minibatch.NextLearned(i); };

  // 1 values of what follows: r + gamma Q'(x', argmax Q)
  if (config_.double_estimate) {
    Evaluate(minibatch.learned, n, next_learned, s);
    for (size_t i = 0; i < n; ++i) s.best[i] = Best(s.values.data() + i * actions_);
  }
  Evaluate(minibatch.targets, n, next, s);
  for (size_t i = 0; i < n; ++i) {
    const float* values = s.values.data() + i * actions_;
    const float follows = values[config_.double_estimate ? s.best[i] : Best(values)];
    s.target[i] = steps[i].reward + (steps[i].discount > 0 ? steps[i].discount * follows : 0);
  }

  // 2 the error of the action that was played
  Evaluate(
      minibatch.learned, n, [&](size_t i) { return steps[i].observation; }, s);
  std::ranges::fill(s.by_output, 0.0F);
  double loss = 0, taken = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto action = static_cast<size_t>(steps[i].action[0]);
    const float value = s.values[i * actions_ + action];
    const double error = value - s.target[i], bound = config_.huber;
    const bool squared = bound == 0 || std::abs(error) <= bound;
    const double counts = mean * minibatch.weights[i];
    minibatch.errors[i] = static_cast<float>(std::abs(error));
    loss += counts * (squared ? 0.5 * error * error : bound * (std::abs(error) - 0.5 * bound));
    taken += mean * value;
    const auto by_value =
        static_cast<float>(counts * (squared ? error : std::copysign(bound, error)));
    float* by_output = s.by_output.data() + i * outputs;
    by_output[action] = by_value;
    if (!config_.dueling) continue;
    by_output[actions_] = by_value;
    for (size_t a = 0; a < actions_; ++a) by_output[a] -= by_value / static_cast<float>(actions_);
  }
  BackwardToObservations(*net_, minibatch.learned, std::span(s.by_output).first(n * outputs),
                         s.pass, gradient, minibatch.by_observation);
  return {{"loss", loss}, {"q_mean", taken}};
}

}  // namespace

Result<std::unique_ptr<ReplayAlgorithm>> MakeDqn(const AgentSetup& setup) {
  if (!setup.environment.action.discrete)
    return Status(Code::kConfig,
                  "run.algorithm=dqn: the environment's actions are continuous; expected discrete "
                  "ones");
  RETURN_IF_ERROR(CheckNoTargetEntropy(setup.config));
  return Dqn::Make(setup);
}

LearningAlgorithm DqnRow() {
  return {.name = "dqn",
          .about = "deep Q-learning from a replay, for discrete actions",
          .paper = "Mnih et al. 2015",
          .parameters = NewParameters<DqnParameters>,
          .agent = MakeReplayAgent<MakeDqn>};
}

}  // namespace samara
