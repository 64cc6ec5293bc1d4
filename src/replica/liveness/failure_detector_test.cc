#include "replica/liveness/failure_detector.h"

#include <gtest/gtest.h>

#include <random>

namespace samara {
namespace {

using namespace std::chrono_literals;

// All of `size` have come at time 0.
GroupJudge Group(int size) {
  GroupJudge judge(size, 1500ms);
  for (int rank = 1; rank < size; ++rank) judge.Come(rank, 0ms);
  return judge;
}

TEST(AwakeClockTest, CountsOfAGapOneStepOnly) {
  const SteadyTime start{};
  AwakeClock clock(250ms, start);
  EXPECT_EQ(clock.Tick(start + 100ms), 100ms);
  EXPECT_EQ(clock.Tick(start + 300ms), 300ms);
  EXPECT_EQ(clock.Tick(start + 30'300ms), 550ms);  // half a minute without the processor
  EXPECT_EQ(clock.Tick(start + 30'310ms), 560ms);
}

TEST(GroupJudgeTest, NamesRanksByRuns) {
  EXPECT_EQ(NameRanks({4}), "rank 4");
  EXPECT_EQ(NameRanks({0, 1, 3, 5, 6, 7}), "ranks 0-1, 3, 5-7");
}

TEST(GroupJudgeTest, ADeathIsNamedWithWhatEverybodyDid) {
  GroupJudge judge = Group(4);
  for (const int rank : {0, 1, 3})
    judge.Do(rank, MakeActivity(7, true, "all_reduce at train.cc:41"));
  judge.Do(2, MakeActivity(6, false, "broadcast at train.cc:12"));
  judge.Close(2);
  EXPECT_EQ(judge.failure().code(), Code::kUnavailable);
  EXPECT_EQ(judge.failure().message(),
            "rank 2 died; rank 2 after collective 6 (broadcast at train.cc:12), ranks 0-1, 3 in "
            "collective 7 (all_reduce at train.cc:41)");
}

TEST(GroupJudgeTest, WhoHasLeftDoesNotDie) {
  GroupJudge judge = Group(3);
  judge.Leave(1);
  judge.Close(1);
  judge.JudgeSilence(1000ms);
  EXPECT_TRUE(judge.failure().ok());
  EXPECT_FALSE(judge.AllLeft());
  judge.Leave(2);
  judge.JudgeSilence(1h);
  EXPECT_TRUE(judge.failure().ok());
  EXPECT_TRUE(judge.AllLeft());
}

TEST(GroupJudgeTest, SilenceEndsAtItsDeadlineAndNotBefore) {
  GroupJudge judge = Group(3);
  judge.Hear(1, 1000ms);
  judge.Hear(2, 400ms);
  EXPECT_EQ(judge.Deadline(), GroupJudge::Time(1900ms));
  judge.JudgeSilence(1899ms);
  EXPECT_TRUE(judge.failure().ok());
  judge.JudgeSilence(1900ms);
  EXPECT_TRUE(judge.failure().message().starts_with("rank 2 has been silent for 1.5 s; "))
      << judge.failure().message();
}

TEST(GroupJudgeTest, TheFirstFailureStays) {
  GroupJudge judge = Group(4);
  judge.GiveUp(3, {Code::kConfig, "another seed"});
  judge.Close(1);
  judge.JudgeSilence(1h);
  EXPECT_EQ(judge.failure().message(), "rank 3 gave up: another seed");
  EXPECT_EQ(judge.failure().code(), Code::kConfig);
}

TEST(GroupJudgeTest, SaysWhoHasNotCome) {
  GroupJudge judge(6, 1500ms);
  judge.Come(1, 0ms);
  judge.Come(4, 0ms);
  EXPECT_FALSE(judge.Complete());
  judge.StartTimedOut(600s);
  EXPECT_EQ(judge.failure().message(),
            "ranks 2-3, 5 of 6 did not come within 600 s: were all of them started?");
}

TEST(GroupJudgeTest, ManyDifferentActivitiesStayShort) {
  GroupJudge judge = Group(256);
  for (int rank = 0; rank < 256; ++rank)
    judge.Do(rank, MakeActivity(static_cast<uint64_t>(rank), true, std::string(103, 'x')));
  EXPECT_LT(judge.Describe(0ms).size(), size_t{976});
}

// 256 ranks that beat every 250 ms, some of them late by up to 900 ms, on a judge that is itself
// not scheduled now and then; one is frozen at a time drawn at random. It alone is blamed, between
// 1.5 s and 2 s of the judge's time later.
TEST(GroupJudgeTest, BlamesTheFrozenOneOf256AndNobodyElse) {
  constexpr int kRanks = 256;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    GroupJudge judge = Group(kRanks);
    const SteadyTime start{};
    AwakeClock clock(250ms, start);
    std::vector<std::chrono::milliseconds> next(kRanks, 0ms);
    const int frozen = 1 + static_cast<int>(random() % (kRanks - 1));
    const auto frozen_at = std::chrono::milliseconds(random() % 5000);
    GroupJudge::Time awake{0}, last{0};
    for (std::chrono::milliseconds t{0}; t < 60s && judge.failure().ok();
         t += random() % 50 == 0 ? 2000ms : 20ms) {
      awake = clock.Tick(start + t);
      for (int rank = 1; rank < kRanks; ++rank) {
        const auto i = static_cast<size_t>(rank);
        if ((rank == frozen && t >= frozen_at) || t < next[i]) continue;
        judge.Hear(rank, awake);
        if (rank == frozen) last = awake;
        next[i] = t + std::chrono::milliseconds(250 + random() % 650);
      }
      judge.JudgeSilence(awake);
    }
    EXPECT_TRUE(judge.failure().message().starts_with(SilentText(frozen, 1500ms)))
        << "seed " << seed << ", rank " << frozen << ": " << judge.failure().message();
    EXPECT_GE(awake - last, GroupJudge::Time(1500ms));
    EXPECT_LT(awake - last, GroupJudge::Time(2000ms));
  }
}

}  // namespace
}  // namespace samara
