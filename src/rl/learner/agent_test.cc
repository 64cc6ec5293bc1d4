#include "rl/learner/agent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <mutex>

#include "core/thread.h"
#include "nn/safetensors.h"
#include "rl/learner/agent_test_util.h"

namespace samara::agent_test {
namespace {

// The learner rebuilds frame stacks and recurrent states from unrolls: with the parameters that
// acted, every importance weight is 1.
TEST(AgentTest, TheLearnerSeesWhatActingSaw) {
  std::vector<AgentSetup> setups;
  for (const StackOrder order : {StackOrder::kOldestFirst, StackOrder::kNewestFirst}) {
    for (const StackReset reset : {StackReset::kRepeat, StackReset::kZeros}) {
      setups.push_back(MakeSetup(Images(5), "impala_shallow", 8));
      setups.back().stack = FrameStackRule{.depth = 4, .order = order, .at_reset = reset};
    }
  }
  setups.push_back(MakeSetup(Images(5, 3), "impala_shallow", 0));  // not stacked
  for (const auto& [channels, depth] : {std::pair{3, 2}, {4, 4}, {5, 3}}) {
    setups.push_back(MakeSetup(Images(5, channels), "impala_shallow", 8));
    setups.back().stack = FrameStackRule{.depth = depth};
  }
  setups.push_back(MakeSetup(Images(5), "impala_deep", 0));
  setups.push_back(MakeSetup(Vectors(6, true, 3), "mlp-16-tanh", 8));
  setups.push_back(MakeSetup(Vectors(6, false, 2), "mlp-16-tanh", 8));
  for (const AgentSetup& setup : setups) {
    for (const uint32_t length : {1U, 5U}) {
      Play play(setup, length);
      for (uint32_t i = 0; i <= 12 * length; ++i) play.Step(3);
      for (int unroll = 0; unroll < 12; ++unroll) {
        const auto taken = play.Take(4);
        const UpdateReport report = play.agent().Update(taken, 0).ValueOrThrow();
        EXPECT_TRUE(report.applied);
        EXPECT_NEAR(report.numbers.at("importance_weight"), 1, 2e-5)
            << setup.config.network.name << " length " << length;
        EXPECT_NEAR(report.numbers.at("kl"), 0, 2e-5);
      }
    }
  }
}

TEST(AgentTest, TheStackDecidesTheNetworksInput) {
  const auto parameters = [](const EnvironmentSpec& environment, std::optional<int64_t> depth) {
    AgentSetup setup = MakeSetup(environment, "impala_shallow", 0);
    if (depth) setup.stack = FrameStackRule{.depth = *depth};
    auto agent = MakeAgent(setup);
    return agent.ok() ? std::move(agent).ValueOrThrow()->parameter_count() : 0;
  };
  // the first convolution, 16 of 8 x 8, is all that depends on it
  const int64_t plane = 16 * 8 * 8, one = parameters(Images(5), 1);
  EXPECT_EQ(parameters(Images(5), std::nullopt), one + 3 * plane);
  EXPECT_EQ(parameters(Images(5, 3), std::nullopt), one + 2 * plane);
  EXPECT_EQ(parameters(Images(5, 4), 4), one + 15 * plane);
  EXPECT_EQ(parameters(Images(5, 3), 64), one + 191 * plane);
  EXPECT_EQ(parameters(Images(5, 3), 65), 0) << "refused";
  AgentSetup vectors = MakeSetup(Vectors(6, true, 3), "mlp-16-tanh", 0);
  vectors.stack = FrameStackRule{.depth = 1};
  const Status refused = MakeAgent(vectors).status();
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_NE(refused.message().find("env.stack=1"), std::string::npos) << refused.message();
}

// An endless task that pays 1 a step is worth 1 / (1 - gamma), wherever a clock cuts
// it; as an end it would be worth far less.
TEST(AgentTest, TruncationIsNotTermination) {
  for (const VtraceForm form : {VtraceForm::kImpala, VtraceForm::kSeed}) {
    for (const int64_t lstm : {0, 4}) {
      AgentSetup setup = MakeSetup(Vectors(1, true, 2), "mlp-8-tanh", lstm, 0.02);
      Vtrace(setup).vtrace.form = form;
      Vtrace(setup).vtrace.gamma = 0.8;
      setup.config.network.reward_input = setup.config.network.action_input = false;
      Play play(setup, 4, 0, /*reward=*/1);
      play.Step(4);
      for (int update = 0; update < 600; ++update) {
        for (int i = 0; i < 4; ++i) play.Step(4);
        ASSERT_TRUE(play.agent().Update(play.Take(4), 0).ValueOrThrow().applied);
      }
      EXPECT_NEAR(play.batch().values[0], 1 / (1 - 0.8), 0.35)
          << NameOf<VtraceForm>(kVtraceFormNames, form) << " lstm " << lstm;
    }
  }
}

TEST(AgentTest, ARestoredAgentLearnsOnWithTheSameBits) {
  for (const int64_t lstm : {0, 8}) {
    AgentSetup setup = MakeSetup(Images(5), "impala_shallow", lstm, 1e-3);
    setup.versions_kept = 2;
    setup.config.learn.entropy_target = 0.5;
    Play play(setup, 5);
    for (int i = 0; i <= 20; ++i) play.Step(4);
    ASSERT_TRUE(play.agent().Update(play.Take(4), 0).ok());
    const auto files = play.agent().Save(Agent::Part::kSlots);
    const auto other = MakeAgent(setup).ValueOrThrow();
    EXPECT_NE(other->parameter_hash(), play.agent().parameter_hash());
    ASSERT_TRUE(other->Restore(files, Agent::Part::kSlots).ok());
    EXPECT_EQ(other->parameter_hash(), play.agent().parameter_hash());
    EXPECT_EQ(other->version(), 1U);
    EXPECT_TRUE(other->Has(0) && other->Has(1));
    const auto unrolls = play.Take(4);
    ASSERT_TRUE(play.agent().Update(unrolls, 0).ok() && other->Update(unrolls, 0).ok());
    EXPECT_EQ(other->parameter_hash(), play.agent().parameter_hash());
    EXPECT_FALSE(other->Has(0)) << "two versions are kept";

    for (const auto& [name, bytes] : files) {
      auto damaged = files;
      damaged[name] = bytes.substr(0, bytes.size() / 2);
      EXPECT_EQ(other->Restore(damaged, Agent::Part::kSlots).code(), Code::kBadData) << name;
      damaged.erase(name);
      EXPECT_EQ(other->Restore(damaged, Agent::Part::kSlots).code(), Code::kBadData) << name;
    }
    EXPECT_EQ(other->parameter_hash(), play.agent().parameter_hash()) << "refused, not half taken";
  }
}

AgentSetup PpoSetup(int64_t shards) {
  AgentSetup setup = MakeSetup(Vectors(6, false, 2), "", 0, 1e-3);
  LearningConfig& c = setup.config;
  ChooseAlgorithm(c, "ppo");
  ConfigTable table;
  Bind(table, c);
  for (const auto& [key, value] : {std::pair{"learn.epochs", "3"},
                                   {"learn.minibatches", "5"},
                                   {"network.layers", "normalize, dense 16 tanh"},
                                   {"network.value", "separate"},
                                   {"network.normalize_value", "true"},
                                   {"network.deviation", "free"}})
    EXPECT_TRUE(table.Set(key, value).ok()) << key;
  c.learn.shards = shards;
  return setup;
}

// An update of many steps, with statistics: the threads leave no trace, and a restored agent goes
// on with the same bits.
TEST(AgentTest, AnUpdateOfManyStepsIsRepeatedBitByBit) {
  for (const int64_t shards : {1, 2}) {
    std::string hash;
    for (const int64_t threads : {1, 2}) {
      AgentSetup setup = PpoSetup(shards);
      setup.config.learn.threads = threads;
      Play play(setup, 10);
      const auto round = [&](Agent& agent, std::span<const UnrollStore::Loan> unrolls) {
        const UpdateReport report = agent.Update(unrolls, 0).ValueOrThrow();
        EXPECT_TRUE(report.applied);
        EXPECT_EQ(report.steps, 15);
      };
      for (int i = 0; i <= 10; ++i) play.Step(4);
      round(play.agent(), play.Take(4));
      const auto files = play.agent().Save(Agent::Part::kSlots);
      EXPECT_TRUE(files.contains("statistics.bin"));
      const auto other = MakeAgent(setup).ValueOrThrow();
      ASSERT_TRUE(other->Restore(files, Agent::Part::kSlots).ok());
      for (int i = 0; i < 10; ++i) play.Step(4);
      const auto unrolls = play.Take(4);
      round(play.agent(), unrolls), round(*other, unrolls);
      EXPECT_EQ(other->parameter_hash(), play.agent().parameter_hash());
      if (threads == 1) hash = other->parameter_hash();
      EXPECT_EQ(other->parameter_hash(), hash) << shards;

      auto damaged = files;
      damaged.erase("statistics.bin");
      EXPECT_EQ(other->Restore(damaged, Agent::Part::kRun).code(), Code::kBadData);
      damaged["statistics.bin"] = files.at("statistics.bin").substr(1);
      EXPECT_EQ(other->Restore(damaged, Agent::Part::kRun).code(), Code::kBadData);
      EXPECT_EQ(other->parameter_hash(), hash) << "refused, not half taken";
    }
  }
}

// Noise of bytes has a mean of 0.5 and a deviation of 0.289 in each number of a stack, over 160
// draws. `length`: of unrolls; `overlap`: of their entries that the unroll before has, too.
void ExpectStatisticsOfNoise(AgentSetup setup, uint32_t length, uint32_t overlap) {
  Set(setup, {{"network.layers", "normalize, conv 4 8x8/4 relu, dense 8 relu"}});
  setup.stack = FrameStackRule{.depth = 2, .at_reset = StackReset::kRepeat};
  Play play(setup, length, overlap);
  for (int i = 0; i <= 60; ++i) play.Step(4);
  for (uint32_t i = 0; i < 40 / length; ++i) ASSERT_TRUE(play.agent().Update(play.Take(4), 0).ok());
  auto files = play.agent().Save(Agent::Part::kRun);
  // targets, where there are some, see with the same statistics
  for (const char* file : {"weights.safetensors", "targets.safetensors"}) {
    if (!files.contains(file)) continue;
    const Safetensors parsed = ParseSafetensors(files.at(file)).ValueOrThrow();
    for (const auto& [name, expected] :
         {std::pair{"normalize_mean", 0.5F}, {"normalize_deviation", 0.289F}}) {
      const std::vector<float> numbers = parsed.tensors.at(name).Floats();
      ASSERT_EQ(numbers.size(), size_t{kSide} * kSide * 2) << name;
      double sum = 0;
      for (const float number : numbers) {
        EXPECT_NEAR(number, expected, 0.15) << name;
        sum += number;
      }
      EXPECT_NEAR(sum / static_cast<double>(numbers.size()), expected, 0.01) << name;
    }
  }
}

TEST(AgentTest, StatisticsOfImagesAreThoseOfTheirNumbers) {
  AgentSetup ppo = MakeSetup(Images(3), "", 0, 1e-3);
  ChooseAlgorithm(ppo.config, "ppo");
  ExpectStatisticsOfNoise(ppo, 40, 0);
  ExpectStatisticsOfNoise(R2d2Setup(), 5, 2);
}

// The pass after which the policy has moved beyond the target is the last one: how far it moves in
// each pass follows from updates of one pass less.
TEST(AgentTest, AnUpdateEndsBeyondItsTargetDivergence) {
  const auto update = [](const std::string& epochs, double target) {
    AgentSetup setup = PpoSetup(1);
    Set(setup, {{"learn.epochs", epochs.c_str()}, {"learn.minibatches", "1"}});
    Set(setup, {{"ppo.target_kl", std::to_string(target).c_str()}});
    setup.config.optimizer.learning_rate = 0.02;
    Play play(setup, 10);
    for (int i = 0; i <= 10; ++i) play.Step(4);
    const UpdateReport report = play.agent().Update(play.Take(4), 0).ValueOrThrow();
    return std::tuple(report.steps, report.numbers.at("kl"), play.agent().parameter_hash());
  };
  std::vector<double> kl;  // of each pass
  std::vector<std::string> hashes;
  double sum = 0;
  for (int epochs = 1; epochs <= 4; ++epochs) {
    const auto [steps, mean, hash] = update(std::to_string(epochs), 0);
    EXPECT_EQ(steps, epochs);
    kl.push_back(mean * epochs - sum), hashes.push_back(hash);
    sum = mean * epochs;
  }
  ASSERT_LT(kl[0], 1e-6) << "of the policy that acted";
  ASSERT_LT(kl[1], 0.9 * kl[2]);
  const auto [steps, mean, hash] = update("4", (kl[1] + kl[2]) / 2);
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(hash, hashes[2]);
  EXPECT_EQ(std::get<0>(update("4", kl[1] / 2)), 2);
  EXPECT_EQ(std::get<0>(update("4", 1e3)), 4);
}

// A loss that is not finite changes nothing and is said.
TEST(AgentTest, WhatIsNotFiniteIsSkipped) {
  Play play(MakeSetup(Vectors(3, true, 2), "mlp-8-tanh", 0, 0.1), 3);
  for (int i = 0; i <= 3; ++i) play.Step(4);
  auto unrolls = play.Take(4);
  unrolls[2]->headers[1].reward = std::numeric_limits<float>::infinity();
  const std::string before = play.agent().parameter_hash();
  EXPECT_FALSE(play.agent().Update(unrolls, 0).ValueOrThrow().applied);
  EXPECT_EQ(play.agent().parameter_hash(), before);
  EXPECT_EQ(play.agent().version(), 1U) << "versions count updates, applied or not";
  EXPECT_TRUE(play.agent().finite());
  unrolls[2]->headers[1].reward = 0;
  EXPECT_TRUE(play.agent().Update(unrolls, 0).ValueOrThrow().applied);
  EXPECT_NE(play.agent().parameter_hash(), before);
}

// The same update for 1, 2, 4 shards, over the mean and over the sum of a batch, but
// for the rounding of the order; the entropy's cost is steered by a mean either way.
TEST(AgentTest, ShardsAverageToTheWholeBatch) {
  for (const LossOver over : {LossOver::kMean, LossOver::kSum}) {
    std::vector<UpdateReport> reports;
    for (const int64_t shards : {1, 2, 4}) {
      AgentSetup setup = MakeSetup(Vectors(6, true, 3), "mlp-16-tanh", 4);
      Vtrace(setup).loss.over = over;
      setup.config.learn.shards = shards;
      setup.config.learn.entropy_target = 0.1;
      setup.config.learn.entropy_cost = 10;
      Play play(setup, 5);
      for (int i = 0; i <= 5; ++i) play.Step(4);
      reports.push_back(play.agent().Update(play.Take(4), 0).ValueOrThrow());
    }
    const UpdateReport& whole = reports[0];
    EXPECT_GT(whole.gradient_norm, 0);
    for (const UpdateReport& parts : reports) {
      EXPECT_NEAR(parts.gradient_norm, whole.gradient_norm, 1e-5 * whole.gradient_norm)
          << NameOf<LossOver>(kLossOverNames, over);
      EXPECT_NEAR(parts.numbers.at("policy_loss"), whole.numbers.at("policy_loss"),
                  1e-5 * std::abs(whole.numbers.at("policy_loss")))
          << NameOf<LossOver>(kLossOverNames, over);
      EXPECT_NEAR(parts.numbers.at("value_loss"), whole.numbers.at("value_loss"),
                  1e-5 * whole.numbers.at("value_loss"))
          << NameOf<LossOver>(kLossOverNames, over);
      EXPECT_NEAR(parts.numbers.at("entropy"), whole.numbers.at("entropy"), 1e-5)
          << NameOf<LossOver>(kLossOverNames, over);
      EXPECT_NEAR(parts.numbers.at("importance_weight"), whole.numbers.at("importance_weight"),
                  1e-5)
          << NameOf<LossOver>(kLossOverNames, over);
    }
  }
}

// Gradients go through the object that was given, flat and in the order of names; the numbers of
// the report that all learners share follow.
class Doubling : public GradientCombiner {
 public:
  Status Combine(std::span<const std::span<const float>> mine, std::span<float> sum) override {
    rows = mine.size();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = 2 * mine[0][i];
    count = sum.size();
    return fails ? Status(Code::kUnavailable, "a rank is gone") : Status::Ok();
  }
  size_t count = 0, rows = 0;
  bool fails = false;
};

TEST(AgentTest, GradientsAreCombinedByTheObjectGiven) {
  const auto update = [](GradientCombiner* combiner) {
    AgentSetup setup = MakeSetup(Vectors(6, true, 3), "mlp-16-tanh", 0);
    setup.combiner = combiner;
    Play play(setup, 5);
    for (int i = 0; i <= 5; ++i) play.Step(4);
    return play.agent().Update(play.Take(4), 0);
  };
  Doubling doubling;
  const UpdateReport once = update(nullptr).ValueOrThrow(),
                     twice = update(&doubling).ValueOrThrow();
  EXPECT_NEAR(twice.gradient_norm, 2 * once.gradient_norm, 1e-6);
  EXPECT_NEAR(twice.numbers.at("entropy"), 2 * once.numbers.at("entropy"), 1e-6);
  EXPECT_EQ(doubling.count, 16U * 6 + 16 + 3 * 16 + 3 + 16 + 1 + 7);
  EXPECT_EQ(doubling.rows, 1U);
  doubling.fails = true;
  EXPECT_EQ(update(&doubling).status().code(), Code::kUnavailable);
}

// Several learners of one process: the sum over all rows, in the order of learners and always as
// the tree ((0 + 1) + (2 + 3)) of four.
class Meeting {
 public:
  explicit Meeting(size_t learners) : learners_(learners), rows_(learners) {}
  Status Join(size_t rank, std::span<const std::span<const float>> mine, std::span<float> sum) {
    rows_[rank].assign(mine.begin(), mine.end());
    Wait();
    std::vector<std::span<const float>> all;
    for (const auto& rows : rows_) all.insert(all.end(), rows.begin(), rows.end());
    CHECK_EQ(all.size(), 4U);
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] = (all[0][i] + all[1][i]) + (all[2][i] + all[3][i]);
    Wait();
    return Status::Ok();
  }

 private:
  void Wait() {
    std::unique_lock lock(mu_);
    const uint64_t turn = turn_;
    if (++here_ == learners_) {
      here_ = 0, ++turn_;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&] { return turn_ != turn; });
  }
  const size_t learners_;
  std::vector<std::vector<std::span<const float>>> rows_;
  std::mutex mu_;
  std::condition_variable all_here_;
  size_t here_ = 0;
  uint64_t turn_ = 0;
};

class OneOf : public GradientCombiner {
 public:
  OneOf(Meeting& meeting, size_t rank, bool on_gpus = false)
      : meeting_(meeting), rank_(rank), on_gpus_(on_gpus) {}
  Status Combine(std::span<const std::span<const float>> mine, std::span<float> sum) override {
    if (on_gpus_) {
      EXPECT_LT(sum.size(), 20U) << "gradients among the numbers of a report";
    }
    return meeting_.Join(rank_, mine, sum);
  }
  bool links_gpus() const override { return on_gpus_; }
  Status CombineOnGpus(std::span<const float> mine, std::span<float> sum) override {
    std::vector<std::span<const float>> rows;
    for (size_t at = 0; at < mine.size(); at += sum.size())
      rows.push_back(mine.subspan(at, sum.size()));
    return meeting_.Join(rank_, rows, sum);
  }

 private:
  Meeting& meeting_;
  const size_t rank_;
  const bool on_gpus_;
};

struct Outcome {
  std::vector<std::string> hashes;
  std::vector<double> numbers;
  bool operator==(const Outcome&) const = default;
};

// Updates so many learners four times, the third with a shard that is not finite, unless a replay
// would keep it; returns what all of them make of it. on_gpus: their gradients stay on devices.
Outcome Learn(const AgentSetup& setup, size_t learners, bool on_gpus = false) {
  // the same unrolls for all
  const auto overlap = static_cast<uint32_t>(setup.config.own->overlap());
  const bool replay = overlap > 0;
  Play play(setup, 5, overlap);
  for (uint32_t i = 0; i <= 20 + overlap; ++i) play.Step(8);
  Meeting meeting(learners);
  std::vector<Outcome> outcomes(learners);
  std::vector<std::unique_ptr<OneOf>> combiners;
  std::vector<std::unique_ptr<Agent>> agents;  // made in turn: torch's generator is one
  for (size_t r = 0; r < learners; ++r) {
    AgentSetup mine = setup;
    mine.rank = static_cast<uint32_t>(r), mine.ranks = static_cast<uint32_t>(learners);
    combiners.push_back(std::make_unique<OneOf>(meeting, r, on_gpus));
    mine.combiner = combiners.back().get();
    agents.push_back(MakeAgent(mine).ValueOrThrow());
  }
  for (int update = 0; update < 4; ++update) {
    auto unrolls = play.Take(8);
    if (update == 2 && !replay)
      unrolls[5]->headers[1].reward = std::numeric_limits<float>::infinity();
    std::vector<std::unique_ptr<Thread>> threads;
    for (size_t r = 0; r < learners; ++r) {
      threads.push_back(std::make_unique<Thread>("learner", [&, r] {
        const size_t count = 8 / learners;
        const UpdateReport report =
            agents[r]->Update(std::span(unrolls).subspan(r * count, count), 0).ValueOrThrow();
        EXPECT_EQ(report.applied, replay || update != 2);
        outcomes[r].hashes.push_back(agents[r]->parameter_hash());
        if (!report.applied) return;
        outcomes[r].numbers.push_back(report.gradient_norm);
        for (const auto& [name, number] : report.numbers) outcomes[r].numbers.push_back(number);
      }));
    }
  }
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
  return outcomes[0];
}

// Four shards on 1, 2 and 4 learners: the same bits and the same report, also where gradients stay
// on devices.
TEST(AgentTest, LearnersThatShareABatchHaveTheBitsOfOne) {
  std::vector<AgentSetup> setups;
  setups.push_back(MakeSetup(Images(5), "impala_shallow", 8, 1e-3));
  setups.push_back(MakeSetup(Vectors(6, false, 2), "mlp-16-tanh", 8, 1e-3));
  Vtrace(setups.back()).loss.over = LossOver::kSum;
  setups.back().config.learn.entropy_target = 0.5;
  setups.push_back(R2d2Setup());
  for (AgentSetup setup : setups) {
    setup.slots = setup.rows_max = 8;
    setup.config.learn.shards = 4;
    setup.config.learn.batch = 8;
    setup.config.optimizer.clip_norm = 0.5;
    const Outcome alone = Learn(setup, 1);
    EXPECT_EQ(alone.hashes[1] == alone.hashes[2], setup.config.algorithm != "r2d2");
    EXPECT_NE(alone.hashes[2], alone.hashes[3]);
    EXPECT_EQ(Learn(setup, 2), alone);
    EXPECT_EQ(Learn(setup, 4), alone);
    setup.as_on_gpu = true;
    const Outcome through_hosts = Learn(setup, 2);
    for (const size_t learners : {1, 4})
      EXPECT_EQ(Learn(setup, learners, /*on_gpus=*/true), through_hosts) << learners;
  }
}

// Learners that do not divide a batch weigh their unrolls alike.
TEST(AgentTest, UnevenSharesOfABatchAverageToTheWhole) {
  const auto learn = [](size_t learners) {
    AgentSetup setup = MakeSetup(Vectors(6, true, 3), "mlp-16-tanh", 0);
    setup.slots = setup.rows_max = setup.config.learn.batch = 7;
    Play play(setup, 5);
    for (int i = 0; i <= 5; ++i) play.Step(7);
    const auto unrolls = play.Take(7);
    setup.ranks = static_cast<uint32_t>(learners);
    Meeting meeting(learners);
    std::vector<double> norms(learners);
    std::vector<std::unique_ptr<OneOf>> combiners;
    std::vector<std::unique_ptr<Agent>> agents;
    std::vector<std::unique_ptr<Thread>> threads;
    for (size_t r = 0; r < learners; ++r) {
      setup.rank = static_cast<uint32_t>(r);
      combiners.push_back(std::make_unique<OneOf>(meeting, r));
      setup.combiner = learners > 1 ? combiners.back().get() : nullptr;
      agents.push_back(MakeAgent(setup).ValueOrThrow());
    }
    for (size_t r = 0; r < learners; ++r) {
      threads.push_back(std::make_unique<Thread>("learner", [&, r] {
        const size_t begin = r * 7 / learners, end = (r + 1) * 7 / learners;
        norms[r] = agents[r]
                       ->Update(std::span(unrolls).subspan(begin, end - begin), 0)
                       .ValueOrThrow()
                       .gradient_norm;
      }));
    }
    threads.clear();
    for (const double norm : norms) EXPECT_EQ(norm, norms[0]);
    return norms[0];
  };
  EXPECT_NEAR(learn(4), learn(1), 1e-5 * learn(1));
}

// The slots of learners are saved as one file, which any number of them read.
TEST(AgentTest, SlotsAreSavedOfAllAndReadByShare) {
  AgentSetup setup = MakeSetup(Images(5), "impala_shallow", 8);
  Play play(setup, 5);
  for (int i = 0; i <= 6; ++i) play.Step(4);
  auto files = play.agent().Save(Agent::Part::kSlots);
  const std::string whole = files["slots.bin"];
  setup.slots = 2;
  setup.share = {.first = 0, .all = 4};
  std::vector<std::string> parts;
  for (const uint32_t first : {0U, 2U}) {
    setup.share.first = first;
    const auto half = MakeAgent(setup).ValueOrThrow();
    ASSERT_TRUE(half->Restore(files, Agent::Part::kSlots).ok());
    parts.push_back(half->Save(Agent::Part::kSlots)["slots.bin"]);
  }
  EXPECT_NE(parts[0], parts[1]);
  EXPECT_EQ(JoinSlotRecords(parts).ValueOrThrow(), whole);
  files["slots.bin"] = parts[0];
  EXPECT_EQ(MakeAgent(setup).ValueOrThrow()->Restore(files, Agent::Part::kSlots).code(),
            Code::kBadData);
}

}  // namespace
}  // namespace samara::agent_test
