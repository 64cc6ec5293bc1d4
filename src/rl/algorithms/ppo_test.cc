#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "rl/algorithms/batch_test_util.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/actor_critic.h"
#include "rl/learner/algorithm.h"

namespace samara::ppo_test {
namespace {

using namespace batch_test;
using torch::Tensor;

LearningConfig PpoConfig(const Settings& settings) { return ConfigOf("ppo", settings); }

// An update's passes over one shard.
class Passes {
 public:
  Passes(const LearningConfig& config, const LearnerBatch& batch, AgentNetworkImpl& network,
         const ActionDistribution& distribution = ActionDistribution::Categorical(kActions))
      : algorithm_(FindLearningAlgorithm("ppo")->make(config)),
        batch_(batch),
        network_(network),
        distribution_(distribution) {}

  ShardLoss Loss(int64_t epoch, int64_t minibatch) { return Of(epoch, minibatch, nullptr); }
  ShardLoss LossByHand(int64_t epoch, int64_t minibatch, DensePass& pass) {
    return Of(epoch, minibatch, &pass);
  }
  const Algorithm& algorithm() const { return *algorithm_; }

 private:
  ShardLoss Of(int64_t epoch, int64_t minibatch, DensePass* pass) {
    Shard shard = {.batch = batch_,
                   .distribution = distribution_,
                   .network = network_,
                   .rng = CounterRng(0),
                   .pass = {epoch, minibatch},
                   .order = CounterRng(static_cast<uint64_t>(100 + epoch))};
    if (minibatch == 0) algorithm_->Prepare(shard, prepared_);
    shard.prepared = prepared_.get();
    return pass != nullptr ? algorithm_->LossByHand(shard, *pass) : algorithm_->Loss(shard);
  }

  const std::unique_ptr<Algorithm> algorithm_;
  const LearnerBatch& batch_;
  AgentNetworkImpl& network_;
  const ActionDistribution distribution_;
  std::unique_ptr<Prepared> prepared_;
};

double NumberOf(const ShardLoss& loss, const std::string& name) {
  for (const ShardLoss::Number& number : loss.numbers)
    if (number.name == name) return number.value;
  ADD_FAILURE() << name;
  return 0;
}

LearnerBatch OfEpisodes(int64_t steps, int64_t streams, uint64_t seed) {
  torch::manual_seed(seed);
  const Tensor end = torch::rand({steps, streams}) < 0.2,
               kind = torch::rand({steps, streams}) < 0.5;
  return RandomBatch(torch::randn({steps, streams}), end & kind, end & ~kind);
}

// Behaviour log-probabilities that make the ratios pi / mu of a uniform policy these.
void SetRatios(const std::vector<double>& ratios, LearnerBatch& batch) {
  for (size_t t = 0; t < ratios.size(); ++t) {
    const double taken = 1.0 / kActions / ratios[t], other = (1 - taken) / (kActions - 1);
    const auto at = static_cast<int64_t>(t);
    batch.behaviour[at][0] = std::log(other);
    batch.behaviour[at][0][batch.action[at][0][0].item<int64_t>()] = std::log(taken);
  }
}

// Equation 7 for each of its six cases: a uniform policy, values of 0, gamma 0, so that advantages
// are the rewards.
TEST(PpoTest, TheClippedObjectiveByHand) {
  const AgentNetwork network = SmallNetwork();
  const torch::NoGradGuard no_gradient;
  for (Tensor& parameter : network->parameters()) parameter.zero_();
  const std::vector<double> ratios = {0.5, 0.5, 1, 1, 1.5, 1.5};
  const std::vector<float> advantages = {2, -3, 5, -7, 11, -13};
  // A > 0 counts at most 1.2 A, A < 0 at least 0.8 A
  const double expected = (0.5 * 2 + 0.8 * -3 + 5 - 7 + 1.2 * 11 + 1.5 * -13) / 6;
  const Tensor never = torch::zeros({6, 1}, torch::kBool);
  LearnerBatch batch = RandomBatch(torch::tensor(advantages).unsqueeze(1), never, never);
  SetRatios(ratios, batch);
  Passes passes(
      PpoConfig(
          {{"ppo.gamma", "0"}, {"ppo.normalize_advantages", "false"}, {"learn.minibatches", "1"}}),
      batch, *network);
  const ShardLoss loss = passes.Loss(0, 0);
  EXPECT_NEAR(NumberOf(loss, "policy_loss"), -expected, 1e-5);
  double value = 0, kl = 0;
  for (size_t t = 0; t < ratios.size(); ++t) {
    value += 0.5 * advantages[t] * advantages[t] / 6;
    kl += (ratios[t] - 1 - std::log(ratios[t])) / 6;
  }
  EXPECT_NEAR(NumberOf(loss, "value_loss"), value, 1e-4);
  EXPECT_NEAR(NumberOf(loss, "kl"), kl, 1e-5);
  EXPECT_NEAR(NumberOf(loss, "clip_fraction"), 4.0 / 6, 1e-6);
  EXPECT_NEAR(loss.total.item<double>(), -expected + 0.5 * value - 0.01 * std::log(kActions), 1e-4);
}

// Where nothing has moved and nothing is clipped, PPO's first step is A2C's.
TEST(PpoTest, OnThePolicyThatActedTheGradientIsA2cs) {
  const AgentNetwork network = SmallNetwork();
  LearnerBatch batch = OfEpisodes(6, 4, 3);
  {
    const torch::NoGradGuard no_gradient;
    const Tensor zeros = torch::zeros({7, 4});
    batch.behaviour =
        network
            ->forward({batch.observation, zeros, zeros.to(torch::kInt64), zeros.to(torch::kBool)},
                      batch.state)
            .policy;
  }
  LearningConfig a2c;
  ChooseAlgorithm(a2c, "a2c");
  a2c.learn.entropy_cost = 0.01;
  ConfigTable table;
  Bind(table, a2c);
  ASSERT_TRUE(table.Set("a2c.lambda", "0.7").ok());
  const auto gradients = [&](const ShardLoss& loss) {
    return torch::autograd::grad({loss.total}, network->parameters());
  };
  const ActionDistribution distribution = ActionDistribution::Categorical(kActions);
  const auto expected = gradients(FindLearningAlgorithm("a2c")->make(a2c)->Loss(
      {batch, distribution, *network, CounterRng(0), {}}));
  for (const char* units : {"transitions", "sequences"}) {
    Passes passes(PpoConfig({{"ppo.lambda", "0.7"},
                             {"ppo.normalize_advantages", "false"},
                             {"ppo.units", units},
                             {"learn.minibatches", "1"}}),
                  batch, *network);
    const auto mine = gradients(passes.Loss(0, 0));
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(torch::allclose(mine[i], expected[i], 1e-4, 1e-6)) << units << i;
  }
}

// Derivatives without torch's graph have the bits of those with it.
TEST(PpoTest, TheLossByHandIsTheLoss) {
  const AgentNetwork network = SmallNetwork();
  LearnerBatch batch = OfEpisodes(6, 4, 3);
  std::vector<Tensor> learned;
  std::map<std::string, Tensor> by_name;
  for (const auto& parameter : network->named_parameters())
    by_name[parameter.key()] = parameter.value();
  for (const auto& [name, parameter] : by_name) learned.push_back(parameter);
  for (const char* units : {"transitions", "sequences"}) {
    const LearningConfig config = PpoConfig({{"ppo.units", units}, {"learn.minibatches", "3"}});
    Passes by_graph(config, batch, *network), by_hand(config, batch, *network);
    DensePass pass;
    for (int64_t minibatch = 0; minibatch < 3; ++minibatch) {
      const ShardLoss expected = by_graph.Loss(0, minibatch);
      const ShardLoss loss = by_hand.LossByHand(0, minibatch, pass);
      EXPECT_EQ(loss.total.item<float>(), expected.total.item<float>());
      for (size_t i = 0; i < loss.numbers.size(); ++i)
        EXPECT_EQ(loss.numbers[i].value, expected.numbers[i].value) << loss.numbers[i].name;
      std::vector<Tensor> flat;
      for (const Tensor& gradient : torch::autograd::grad({expected.total}, learned))
        flat.push_back(gradient.flatten());
      std::vector<float> gradient(static_cast<size_t>(network->parameter_count()));
      pass.Backward(*network, gradient);
      EXPECT_TRUE(torch::tensor(gradient).equal(torch::cat(flat))) << units << minibatch;
    }
  }
}

// Schulman et al. 2017, equations 7, 9 and 11, and the clipped value of common implementations,
// written with torch. Its derivatives where the policy has moved far from the one that acted.
class PaperLoss {
 public:
  static constexpr double kGamma = 0.9, kLambda = 0.7, kClip = 0.2, kValueClip = 0.05;
  // `outputs`, `values`: [T][B]... of the network before the update; the last value bootstraps.
  PaperLoss(const LearnerBatch& batch, bool continuous, const Tensor& values)
      : continuous_(continuous),
        steps_(batch.reward.size(0) - 1),
        old_(values.slice(0, 0, steps_)) {
    action_ = batch.action.slice(0, 0, steps_);
    log_mu_ = LogProb(batch.behaviour.slice(0, 0, steps_));
    advantage_ = torch::zeros_like(old_);
    for (int64_t t = 0; t < steps_; ++t) {
      double weight = 1;
      for (int64_t l = t; l < steps_; ++l, weight *= kGamma * kLambda)  // equation 11
        advantage_[t] += weight * (batch.reward[l + 1] + kGamma * values[l + 1] - values[l]);
    }
    target_ = advantage_ + old_;
    advantage_ = (advantage_ - advantage_.mean()) / advantage_.std();
  }
  Tensor operator()(const Tensor& outputs, const Tensor& values) const {
    const Tensor policy = outputs.slice(0, 0, steps_), value = values.slice(0, 0, steps_);
    const Tensor ratio = torch::exp(LogProb(policy) - log_mu_);
    clipped_ = ((ratio - 1).abs() > kClip).to(torch::kFloat64).mean().item<double>();
    const Tensor objective =
        torch::minimum(ratio * advantage_, ratio.clamp(1 - kClip, 1 + kClip) * advantage_);
    const Tensor bounded = old_ + (value - old_).clamp(-kValueClip, kValueClip);
    const Tensor errors = torch::maximum((value - target_).square(), (bounded - target_).square());
    return -objective.mean() + 0.5 * 0.5 * errors.mean() - 0.01 * Entropy(policy).mean();
  }
  double clipped() const { return clipped_; }

 private:
  static std::pair<Tensor, Tensor> MeanAndDeviation(const Tensor& outputs) {
    const auto parts = outputs.chunk(2, -1);
    return {parts[0], torch::softplus(parts[1]) + 1e-3};
  }
  static Tensor LogSquashing(const Tensor& u) {  // log(1 - tanh(u)^2)
    return 2 * (std::log(2.0) - u - torch::softplus(-2 * u));
  }
  Tensor LogProb(const Tensor& outputs) const {
    if (!continuous_) return torch::log_softmax(outputs, -1).gather(-1, action_).squeeze(-1);
    const auto [mean, deviation] = MeanAndDeviation(outputs);
    const Tensor z = (action_ - mean) / deviation;
    return (-0.5 * z.square() - torch::log(deviation) - 0.5 * std::log(2 * M_PI) -
            LogSquashing(action_))
        .sum(-1);
  }
  // A continuous policy's is sampled, in the order of a minibatch: its cost is 0 here.
  Tensor Entropy(const Tensor& outputs) const {
    if (continuous_) return torch::zeros({1});
    return -(torch::softmax(outputs, -1) * torch::log_softmax(outputs, -1)).sum(-1);
  }

  const bool continuous_;
  const int64_t steps_;
  Tensor old_, action_, log_mu_, advantage_, target_;
  mutable double clipped_ = 0;
};

TEST(PpoTest, TheGradientIsThatOfThePapersLoss) {
  constexpr int64_t kSteps = 12, kStreams = 3, kDimensions = 2;
  for (const bool continuous : {false, true}) {
    torch::manual_seed(11);
    const Tensor never = torch::zeros({kSteps, kStreams}, torch::kBool);
    LearnerBatch batch = RandomBatch(torch::randn({kSteps, kStreams}), never, never);
    const int64_t outputs = continuous ? 2 * kDimensions : kActions;
    batch.behaviour = 0.3 * torch::randn({kSteps + 1, kStreams, outputs});
    if (continuous) batch.action = torch::randn({kSteps + 1, kStreams, kDimensions});
    const AgentNetwork network = AgentNetworkImpl::Make({.torso = "mlp-6-tanh",
                                                         .height = 1,
                                                         .width = 1,
                                                         .channels = kInputs,
                                                         .outputs = outputs})
                                     .ValueOrThrow();
    const auto evaluate = [&] {
      const Tensor zeros = torch::zeros({kSteps + 1, kStreams});
      return network->forward(
          {batch.observation, zeros, zeros.to(torch::kInt64), zeros.to(torch::kBool)}, batch.state);
    };
    Passes passes(PpoConfig({{"ppo.gamma", "0.9"},
                             {"ppo.lambda", "0.7"},
                             {"ppo.clip", "0.2"},
                             {"ppo.value_clip", "0.05"},
                             {"learn.entropy_cost", continuous ? "0" : "0.01"},
                             {"ppo.shuffle", "false"},
                             {"learn.minibatches", "1"}}),
                  batch, *network,
                  continuous ? ActionDistribution::TanhNormal(kDimensions)
                             : ActionDistribution::Categorical(kActions));
    const PaperLoss paper(batch, continuous, evaluate().value.detach());
    (void)passes.Loss(0, 0);  // what the epochs share is of the network before the update
    {
      const torch::NoGradGuard no_gradient;
      for (Tensor& parameter : network->parameters())
        parameter.add_(0.2 * torch::randn_like(parameter));
    }
    const ShardLoss mine = passes.Loss(1, 0);
    const auto now = evaluate();
    const Tensor expected = paper(now.policy, now.value);
    EXPECT_GT(paper.clipped(), 0.1);
    EXPECT_LT(paper.clipped(), 0.9);
    EXPECT_NEAR(NumberOf(mine, "clip_fraction"), paper.clipped(), 1e-6);
    EXPECT_NEAR(mine.total.item<double>(), expected.item<double>(), 1e-5);
    const auto found = torch::autograd::grad({mine.total}, network->parameters());
    const auto wanted = torch::autograd::grad({expected}, network->parameters());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(torch::allclose(found[i], wanted[i], 1e-4, 1e-6)) << continuous << " " << i;
  }
}

// The minibatches of an epoch are a partition of the batch, another one in each epoch: the means of
// their losses are the batch's.
TEST(PpoTest, AnEpochsMinibatchesAreThePartsOfTheBatch) {
  const AgentNetwork network = SmallNetwork();
  const LearnerBatch batch = OfEpisodes(6, 4, 5);
  for (const char* units : {"transitions", "sequences"}) {
    const auto config = [&](const char* minibatches, const char* shuffle) {
      return PpoConfig({{"ppo.normalize_advantages", "false"},
                        {"ppo.units", units},
                        {"ppo.shuffle", shuffle},
                        {"learn.minibatches", minibatches}});
    };
    Passes one(config("1", "true"), batch, *network);
    const double whole = NumberOf(one.Loss(0, 0), "value_loss");
    std::set<double> first_parts;
    Passes shuffled(config("4", "true"), batch, *network);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      double sum = 0;
      for (int64_t part = 0; part < 4; ++part) {
        const double loss = NumberOf(shuffled.Loss(epoch, part), "value_loss");
        if (part == 0) first_parts.insert(loss);
        sum += loss / 4;
      }
      EXPECT_NEAR(sum, whole, 1e-5 * whole) << units;
    }
    EXPECT_GT(first_parts.size(), 1U) << units;
    Passes fixed(config("4", "false"), batch, *network);
    const double before = NumberOf(fixed.Loss(0, 0), "value_loss");
    EXPECT_EQ(NumberOf(fixed.Loss(1, 0), "value_loss"), before) << units;
  }
}

// Advantages stay those of the policy before the update, unless they are to be recomputed.
TEST(PpoTest, RecomputedAdvantagesFollowTheValue) {
  const LearnerBatch batch = OfEpisodes(6, 4, 7);
  for (const char* recompute : {"false", "true"}) {
    const AgentNetwork network = SmallNetwork();
    Passes passes(PpoConfig({{"ppo.normalize_advantages", "false"},
                             {"ppo.recompute", recompute},
                             {"ppo.lambda", "0"},
                             {"ppo.gamma", "0"},
                             {"learn.minibatches", "1"}}),
                  batch, *network);
    const double before = NumberOf(passes.Loss(0, 0), "policy_loss");
    {
      const torch::NoGradGuard no_gradient;
      network->named_parameters()["value_bias"].add_(1);
    }
    const double after = NumberOf(passes.Loss(1, 0), "policy_loss");
    if (std::string(recompute) == "true")
      EXPECT_GT(std::abs(after - before), 0.5);
    else
      EXPECT_NEAR(after, before, 1e-5);
  }
}

TEST(PpoTest, AValueMovesAtMostAsFarAsItsClip) {
  const LearnerBatch batch = OfEpisodes(6, 4, 9);
  const AgentNetwork network = SmallNetwork();
  Passes passes(PpoConfig({{"ppo.value_clip", "0.1"}, {"learn.minibatches", "1"}}), batch,
                *network);
  (void)passes.Loss(0, 0);
  Tensor bias = network->named_parameters()["value_bias"];
  {
    const torch::NoGradGuard no_gradient;
    bias.add_(100);  // beyond every target: clipped errors are smaller, so the unclipped ones count
  }
  const auto gradient = [&] {
    return torch::autograd::grad({passes.Loss(1, 0).total}, {bias})[0].item<double>();
  };
  EXPECT_GT(gradient(), 10);
  {
    const torch::NoGradGuard no_gradient;
    bias.sub_(99.8);  // 0.2 too far for targets beyond it, whose error the clip makes larger
  }
  const double clipped = gradient();
  {
    const torch::NoGradGuard no_gradient;
    bias.sub_(0.11);
  }
  EXPECT_NE(clipped, gradient());
}

// The larger of the two squared errors, and no derivative where it is that of the bounded value: by
// hand, of a value that has moved from 0 to 0.3 deviations with a clip of 0.1, for targets that are
// rewards.
class ClippedValue : public testing::TestWithParam<double> {};

TEST_P(ClippedValue, HasTheLossByHand) {
  const double deviation = GetParam();
  struct Step {
    float target;
    double squared, error;  // the larger square; what the value's derivative is
  };
  // (0.3 - target)^2 and (0.1 - target)^2
  const Step steps[] = {{1, 0.81, 0}, {-1, 1.69, 1.3}, {0.25F, 0.0225, 0}, {0.1F, 0.04, 0.2}};
  const AgentNetwork network = SmallNetwork(/*normalize_value=*/deviation != 1);
  const Tensor bias = network->named_parameters()["value_bias"];
  const auto set = [&](double value) {
    const torch::NoGradGuard no_gradient;
    for (Tensor& parameter : network->parameters()) parameter.zero_();
    Tensor(bias).fill_(value);
    if (deviation != 1) network->values().deviation.fill_(deviation);
  };
  set(0);
  std::vector<float> targets;
  double squared = 0, error = 0;
  for (const Step& step : steps) {
    targets.push_back(static_cast<float>(deviation) * step.target);
    squared += step.squared / std::size(steps), error += step.error / std::size(steps);
  }
  const Tensor never = torch::zeros({std::ssize(steps), 1}, torch::kBool);
  LearnerBatch batch = RandomBatch(torch::tensor(targets).unsqueeze(1), never, never);
  SetRatios(std::vector<double>(std::size(steps), 1), batch);
  Passes passes(PpoConfig({{"ppo.gamma", "0"},
                           {"ppo.value_clip", "0.1"},
                           {"ppo.value_cost", "0.7"},
                           {"learn.minibatches", "1"}}),
                batch, *network);
  (void)passes.Loss(0, 0);
  set(0.3);
  const ShardLoss loss = passes.Loss(1, 0);
  EXPECT_NEAR(NumberOf(loss, "value_loss"), 0.5 * squared, 1e-6);
  const auto by_bias = torch::autograd::grad({loss.total}, {bias})[0];
  EXPECT_NEAR(by_bias.item<double>(), 0.7 * error, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Deviations, ClippedValue, testing::Values(1, 10));

TEST(PpoTest, StopsAtItsTarget) {
  const LearnerBatch batch = OfEpisodes(2, 2, 9);
  const AgentNetwork network = SmallNetwork();
  EXPECT_FALSE(Passes(PpoConfig({}), batch, *network).algorithm().Enough({{"kl", 1e9}}));
  Passes limited(PpoConfig({{"ppo.target_kl", "0.02"}}), batch, *network);
  EXPECT_FALSE(limited.algorithm().Enough({{"kl", 0.01}}));
  EXPECT_TRUE(limited.algorithm().Enough({{"kl", 0.03}}));
}

TEST(PpoTest, RefusesWhatDoesNotFit) {
  LearningConfig config = PpoConfig({{"learn.minibatches", "4"}});
  EXPECT_TRUE(Check(config).ok());
  config.network.lstm = 8;
  EXPECT_EQ(Check(config).code(), Code::kConfig);
  config.network.gru = 8;
  EXPECT_EQ(Check(config).message(),
            "network.lstm=8 with network.gru=8: a network has one recurrent core; expected 0 in "
            "one of them");
  config = PpoConfig({{"ppo.units", "sequences"}, {"learn.minibatches", "33"}});
  EXPECT_EQ(Check(config).code(), Code::kConfig) << "32 unrolls a batch";
}

}  // namespace
}  // namespace samara::ppo_test
