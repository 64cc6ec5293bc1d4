#include "rl/learner/learner_loop.h"

#include <gtest/gtest.h>

namespace samara::learner_loop_test {
namespace {

using Key = std::pair<uint32_t, uint64_t>;  // slot, and which of its unrolls
using Verdict = LearnerLoop::Verdict;

constexpr uint32_t kSlots = 4;

// Notes what it is to learn from.
class FakeAgent : public Agent {
 public:
  const ModelShape& shape() const override { return shape_; }
  Status Infer(InferenceBatch&) override { return Status::Ok(); }
  bool Has(uint64_t) const override { return true; }
  Result<UpdateReport> Update(std::span<const UnrollStore::Loan> unrolls, double) override {
    for (const auto& unroll : unrolls) learned.emplace_back(unroll->slot, unroll->index);
    ++updates;
    UpdateReport report;
    report.applied = applies;
    report.steps = steps;
    return report;
  }
  uint64_t version() const override { return updates; }
  int64_t parameter_count() const override { return 0; }
  std::string parameter_hash() const override { return {}; }
  bool finite() const override { return true; }
  std::map<std::string, std::string> Save(Part, const std::set<std::string>&) const override {
    return {};
  }
  Status Restore(const std::map<std::string, std::string>&, Part) override { return Status::Ok(); }

  std::vector<Key> learned;
  uint64_t updates = 0;
  bool applies = true;
  uint64_t steps = 1;  // of an update

 private:
  ModelShape shape_;
};

// One step an unroll: after a slot's first entry each completes one.
class LearnerLoopTest : public testing::Test {
 protected:
  LearnerLoop MakeLoop(const LearnConfig& learn, const LearnerShare& share) {
    return {learn, share, store_, agent_,
            [this](const Unroll& unroll) { stale_.emplace_back(unroll.slot, unroll.index); }};
  }
  void Step(uint32_t slot, uint64_t version) {
    ASSERT_TRUE(store_.Reserve(slot));
    const float value = 0;
    Entry entry;
    entry.header.policy_version = version;
    entry.values = {&value, 1};
    store_.Append(slot, entry);
  }
  void Begin() {
    for (uint32_t slot = 0; slot < kSlots; ++slot) Step(slot, 0);
  }
  // Slots and indices that the next batch brings, empty when there is none.
  static std::vector<Key> Keys(const LearnerLoop::Unrolls& batch) {
    std::vector<Key> keys;
    for (const auto& unroll : batch) keys.emplace_back(unroll->slot, unroll->index);
    return keys;
  }

  UnrollStore store_{EntryShape{}, {.slots = kSlots, .length = 1, .buffers = 64}};
  FakeAgent agent_;
  std::vector<Key> stale_;
};

TEST_F(LearnerLoopTest, AsynchronousBatchesAreInTheOrderOfArrival) {
  LearnConfig learn;
  LearnerLoop loop = MakeLoop(learn, {.slots = kSlots, .batch = 3});
  Begin();
  EXPECT_TRUE(loop.NextBatch().empty());
  for (const uint32_t slot : {2U, 0U, 2U, 3U}) Step(slot, 0);
  auto batch = loop.NextBatch();
  EXPECT_EQ(Keys(batch), (std::vector<Key>{{2, 0}, {0, 0}, {2, 1}}));
  ASSERT_TRUE(loop.Update(std::move(batch), 0).ok());
  EXPECT_EQ(agent_.learned.size(), 3U);
  EXPECT_TRUE(loop.NextBatch().empty());
  EXPECT_EQ(loop.waiting(), 1U) << "taken from the store, one batch is not whole";
  const size_t before = store_.counters().free;
  loop.Clear();
  EXPECT_EQ(store_.counters().free, before + 1);
}

TEST_F(LearnerLoopTest, AsynchronousUnrollsThatAreTooOldAreHandedOverAndDropped) {
  LearnConfig learn;
  learn.lag_max = 2;
  LearnerLoop loop = MakeLoop(learn, {.slots = kSlots, .batch = 1});
  agent_.updates = 5;
  Step(0, 2), Step(0, 3);  // an unroll is as old as its first entry
  Step(1, 3), Step(1, 5);
  LearnerLoop::Unrolls batch;
  for (int i = 0; i < 3 && batch.empty(); ++i) batch = loop.NextBatch();
  EXPECT_EQ(Keys(batch), (std::vector<Key>{{1, 0}}));
  EXPECT_EQ(stale_, (std::vector<Key>{{0, 0}}));
}

// Two shards of two slots and batches of two: each update has one slot of each shard, whatever
// arrives first.
TEST_F(LearnerLoopTest, DeterministicBatchesAreInTheOrderOfRoundsShardsAndSlots) {
  LearnConfig learn;
  learn.mode = LearnMode::kDeterministic;
  learn.environments = 4, learn.batch = 2, learn.shards = 2;
  LearnerLoop loop = MakeLoop(learn, {.slots = kSlots, .batch = 2, .shards = 2});
  Begin();
  std::vector<Key> all;
  for (const uint32_t slot : {3U, 1U, 1U, 2U, 0U, 3U, 2U, 0U}) {
    Step(slot, 0);
    for (int i = 0; i < 4; ++i) {
      auto batch = loop.NextBatch();
      for (const Key& key : Keys(batch)) all.push_back(key);
      if (!batch.empty()) {
        ASSERT_TRUE(loop.Update(std::move(batch), 0).ok());
      }
    }
  }
  EXPECT_EQ(all,
            (std::vector<Key>{{0, 0}, {2, 0}, {1, 0}, {3, 0}, {0, 1}, {2, 1}, {1, 1}, {3, 1}}));
}

TEST_F(LearnerLoopTest, UpdatesThatAreNotAppliedCallForRollbacksThenForTheEnd) {
  LearnerLoop loop = MakeLoop({}, {.slots = kSlots, .batch = 1});
  const auto update = [&](bool applies, uint64_t times) {
    agent_.applies = applies;
    for (uint64_t i = 0; i < times; ++i) EXPECT_TRUE(loop.Update({}, 0).ok());
    return loop.verdict();
  };
  EXPECT_EQ(update(false, LearnerLoop::kSkippedMax - 1), Verdict::kGoOn);
  EXPECT_EQ(update(true, 1), Verdict::kGoOn);
  for (uint64_t i = 0; i < LearnerLoop::kRollbacksMax; ++i) {
    EXPECT_EQ(update(false, LearnerLoop::kSkippedMax - 1), Verdict::kGoOn);
    EXPECT_EQ(update(false, 1), Verdict::kRollBack);
    EXPECT_EQ(update(true, LearnerLoop::kSoundAgain - 1), Verdict::kGoOn) << "not yet sound";
  }
  EXPECT_EQ(update(true, 1), Verdict::kGoOn);
  for (uint64_t i = 0; i < LearnerLoop::kRollbacksMax; ++i)
    EXPECT_EQ(update(false, LearnerLoop::kSkippedMax), Verdict::kRollBack);
  EXPECT_EQ(update(false, LearnerLoop::kSkippedMax), Verdict::kGiveUp);
}

TEST_F(LearnerLoopTest, AnUpdateWithoutStepsRepeatsNoRollback) {
  LearnerLoop loop = MakeLoop({}, {.slots = kSlots, .batch = 1});
  agent_.applies = false;
  for (uint64_t i = 0; i < LearnerLoop::kSkippedMax; ++i) EXPECT_TRUE(loop.Update({}, 0).ok());
  EXPECT_EQ(loop.verdict(), Verdict::kRollBack);
  agent_.applies = true, agent_.steps = 0;
  EXPECT_TRUE(loop.Update({}, 0).ok());
  EXPECT_EQ(loop.verdict(), Verdict::kGoOn);
}

}  // namespace
}  // namespace samara::learner_loop_test
