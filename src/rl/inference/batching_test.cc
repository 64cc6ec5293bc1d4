#include <gtest/gtest.h>

#include "rl/inference/async_batching.h"
#include "rl/inference/lockstep_batching.h"

namespace samara::batching_test {
namespace {

using Slots = std::vector<uint32_t>;

class FakeModel : public Model {
 public:
  const ModelShape& shape() const override { return shape_; }
  Status Infer(InferenceBatch&) override { return Status::Ok(); }
  bool Has(uint64_t version) const override { return version <= newest; }
  uint64_t newest = 0;

 private:
  ModelShape shape_;
};

// Slots of the next batch; empty when none runs.
Slots Next(Batching& batching, InferenceBatch& batch, uint32_t live) {
  batch.rows.clear();
  Slots slots;
  if (batching.Next(live, batch))
    for (const InferenceRow& row : batch.rows) slots.push_back(row.slot);
  return slots;
}

class BatchingTest : public testing::Test {
 protected:
  FakeModel model_;
  InferenceBatch batch_{model_.shape(), 16};
};

TEST_F(BatchingTest, AsynchronousRunsAtTheLowMarkAtTheWaitAndWhenFull) {
  AsyncBatching batching({.batch_max = 3, .wait = 60, .low_mark = 0.5}, 8, nullptr);
  const SteadyTime now = Now();
  EXPECT_EQ(batching.NextWait(4).events, 1U) << "the first row starts the clock";
  batching.Ready(5, 0, now);
  EXPECT_EQ(Next(batching, batch_, 4), Slots());
  EXPECT_EQ(batching.NextWait(4).events, 1U);
  EXPECT_EQ(batching.NextWait(8).events, 2U)
      << "the mark follows the slots that live, up to a batch";
  batching.Ready(2, 0, now);
  EXPECT_EQ(batching.NextWait(4).timeout.count(), 0);
  EXPECT_EQ(Next(batching, batch_, 4), (Slots{5, 2})) << "in the order they came";
  EXPECT_EQ(batch_.version, InferenceBatch::kNewest);
  for (const uint32_t slot : {0U, 1U, 2U, 3U}) batching.Ready(slot, 0, now);
  EXPECT_EQ(Next(batching, batch_, 8), (Slots{0, 1, 2}));
  EXPECT_EQ(Next(batching, batch_, 8), Slots());
  batching.Ready(7, 0, now);
  AsyncBatching impatient({.batch_max = 3, .wait = 0, .low_mark = 1}, 8, nullptr);
  impatient.Ready(7, 0, now);
  EXPECT_EQ(Next(impatient, batch_, 8), Slots{7});
}

// A slot without a buffer waits; the others go on, and it comes after them once there is one.
TEST_F(BatchingTest, AsynchronousWithholdsASlotWithoutABuffer) {
  UnrollStore store({}, {.slots = 2, .length = 1, .buffers = 2});
  AsyncBatching batching({.batch_max = 2, .wait = 0, .low_mark = 1}, 2, &store);
  const float value = 0;
  Entry entry;
  entry.values = {&value, 1};
  for (int i = 0; i < 2; ++i) {  // one buffer is complete, and one is being filled
    ASSERT_TRUE(store.Reserve(0));
    store.Append(0, entry);
  }
  ASSERT_TRUE(store.Reserve(0));
  batching.Ready(1, 0, Now());
  EXPECT_EQ(Next(batching, batch_, 2), Slots());
  EXPECT_EQ(batching.stalls(), 1U);
  EXPECT_EQ(batching.NextWait(2).timeout, Batching::kStallWait);
  batching.Ready(0, 0, Now());
  EXPECT_EQ(Next(batching, batch_, 2), Slots{0});
  store.Take(1);
  EXPECT_EQ(Next(batching, batch_, 2), Slots{1});
}

// Two shards of four slots: groups of two, in slot order whatever became ready first; round k plays
// the version of lag rounds before it.
TEST_F(BatchingTest, LockstepRunsWholeGroupsWithTheVersionOfTheirRound) {
  constexpr uint32_t kSlots = 8, kLength = 2;
  UnrollStore store({}, {.slots = kSlots, .length = kLength, .buffers = 64});
  LockstepBatching batching(
      {.lag = 1, .unroll_length = kLength, .unrolls_per_update = 4, .shards = 2}, kSlots, model_,
      &store);
  batching.Ready(3, 0, Now());
  EXPECT_EQ(Next(batching, batch_, kSlots), Slots());
  EXPECT_EQ(batching.NextWait(kSlots).timeout, Batching::kIdleWait);
  batching.Ready(2, 0, Now());
  EXPECT_EQ(Next(batching, batch_, kSlots), (Slots{2, 3}));
  EXPECT_EQ(batching.NextWait(kSlots).timeout.count(), 0);
  EXPECT_EQ(Next(batching, batch_, kSlots), Slots());

  EXPECT_EQ(batching.VersionOf(1), 0U);
  EXPECT_EQ(batching.VersionOf(2), 2U) << "a round of eight unrolls is two updates";
  const uint64_t third_round = 2 * kLength + 1;
  for (const uint32_t slot : {6U, 7U}) batching.Ready(slot, third_round, Now());
  EXPECT_EQ(Next(batching, batch_, kSlots), Slots()) << "its policy is not there";
  EXPECT_EQ(batching.NextWait(kSlots).timeout, Batching::kStallWait);
  model_.newest = 2;
  EXPECT_EQ(Next(batching, batch_, kSlots), (Slots{6, 7}));
  EXPECT_EQ(batch_.version, 2U);
}

TEST_F(BatchingTest, LockstepGroupsTakeTurnsAndPark) {
  UnrollStore store({}, {.slots = 2, .length = 1, .buffers = 8});
  LockstepBatching batching({.unroll_length = 1, .unrolls_per_update = 2}, 2, model_, &store);
  model_.newest = 100;
  batching.Ready(0, 0, Now()), batching.Ready(1, 0, Now());
  EXPECT_EQ(Next(batching, batch_, 2), Slots{0});
  batching.Ready(0, 1, Now());
  EXPECT_EQ(Next(batching, batch_, 2), Slots{1}) << "not the first again";
  batching.Ready(1, 1, Now());
  batching.Park(1);
  EXPECT_EQ(Next(batching, batch_, 2), Slots{0}) << "still of round 0";
  batching.Ready(0, 2, Now());
  EXPECT_EQ(Next(batching, batch_, 2), Slots{1});
  EXPECT_EQ(Next(batching, batch_, 2), Slots());
  EXPECT_FALSE(batching.parked()) << "the last slot steps";
  batching.Ready(1, 2, Now());
  EXPECT_EQ(Next(batching, batch_, 2), Slots());
  EXPECT_TRUE(batching.parked());
  batching.Resume();
  EXPECT_EQ(Next(batching, batch_, 2), Slots{0});
}

TEST_F(BatchingTest, LockstepGoesOnWithoutSlotsThatRest) {
  LockstepBatching batching({}, 4, model_, nullptr);
  batching.Rest(0);
  batching.Ready(1, 0, Now());
  EXPECT_EQ(Next(batching, batch_, 4), Slots{1});
  EXPECT_EQ(batch_.version, InferenceBatch::kNewest);
  EXPECT_EQ(batch_.padded, 2U);
}

}  // namespace
}  // namespace samara::batching_test
