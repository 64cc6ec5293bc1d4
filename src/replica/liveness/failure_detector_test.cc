#include "replica/liveness/failure_detector.h"

#include <gtest/gtest.h>

#include <random>

namespace samara::failure_detector_test {
namespace {

using namespace std::chrono_literals;

// All of `size` have come at time 0.
FailureDetector Group(int size) {
  FailureDetector detector(size, 1500ms);
  for (int rank = 1; rank < size; ++rank) detector.Join(rank, 0ms);
  return detector;
}

TEST(AwakeClockTest, CountsOfAGapOneStepOnly) {
  const SteadyTime start{};
  AwakeClock clock(250ms, start);
  EXPECT_EQ(clock.Tick(start + 100ms), 100ms);
  EXPECT_EQ(clock.Tick(start + 300ms), 300ms);
  EXPECT_EQ(clock.Tick(start + 30'300ms), 550ms);  // half a minute without the processor
  EXPECT_EQ(clock.Tick(start + 30'310ms), 560ms);
}

TEST(FailureDetectorTest, NamesRanksByRuns) {
  EXPECT_EQ(NameRanks({4}), "rank 4");
  EXPECT_EQ(NameRanks({0, 1, 3, 5, 6, 7}), "ranks 0-1, 3, 5-7");
}

TEST(FailureDetectorTest, NamesADeadRankAndAllActivities) {
  FailureDetector detector = Group(4);
  for (const int rank : {0, 1, 3})
    detector.SetActivity(rank, MakeActivity(7, true, "all_reduce at train.cc:41"));
  detector.SetActivity(2, MakeActivity(6, false, "broadcast at train.cc:12"));
  detector.ConnectionClosed(2);
  EXPECT_EQ(detector.failure().code(), Code::kUnavailable);
  EXPECT_EQ(detector.failure().message(),
            "rank 2 died; rank 2 after collective 6 (broadcast at train.cc:12), ranks 0-1, 3 in "
            "collective 7 (all_reduce at train.cc:41)");
}

TEST(FailureDetectorTest, RanksThatLeftDoNotDie) {
  FailureDetector detector = Group(3);
  detector.Leave(1);
  detector.ConnectionClosed(1);
  detector.CheckTimeouts(1000ms);
  EXPECT_TRUE(detector.failure().ok());
  EXPECT_FALSE(detector.AllLeft());
  detector.Leave(2);
  detector.CheckTimeouts(1h);
  EXPECT_TRUE(detector.failure().ok());
  EXPECT_TRUE(detector.AllLeft());
}

TEST(FailureDetectorTest, TimesOutAtTheDeadlineAndNotBefore) {
  FailureDetector detector = Group(3);
  detector.Heartbeat(1, 1000ms);
  detector.Heartbeat(2, 400ms);
  EXPECT_EQ(detector.NextTimeout(), FailureDetector::Time(1900ms));
  detector.CheckTimeouts(1899ms);
  EXPECT_TRUE(detector.failure().ok());
  detector.CheckTimeouts(1900ms);
  EXPECT_TRUE(detector.failure().message().starts_with("rank 2 has been silent for 1.5 s; "))
      << detector.failure().message();
}

TEST(FailureDetectorTest, KeepsTheFirstFailure) {
  FailureDetector detector = Group(4);
  detector.GiveUp(3, {Code::kConfig, "another seed"});
  detector.ConnectionClosed(1);
  detector.CheckTimeouts(1h);
  EXPECT_EQ(detector.failure().message(), "rank 3 gave up: another seed");
  EXPECT_EQ(detector.failure().code(), Code::kConfig);
}

TEST(FailureDetectorTest, NamesMissingRanks) {
  FailureDetector detector(6, 1500ms);
  detector.Join(1, 0ms);
  detector.Join(4, 0ms);
  EXPECT_FALSE(detector.Complete());
  detector.StartTimedOut(600s);
  EXPECT_EQ(detector.failure().message(),
            "ranks 2-3, 5 of 6 did not come within 600 s: were all of them started?");
}

TEST(FailureDetectorTest, ShortensManyActivities) {
  FailureDetector detector = Group(256);
  for (int rank = 0; rank < 256; ++rank)
    detector.SetActivity(rank,
                         MakeActivity(static_cast<uint64_t>(rank), true, std::string(103, 'x')));
  EXPECT_LT(detector.Describe(0ms).size(), size_t{976});
}

// 256 ranks that beat every 250 ms, some of them late by up to 900 ms, on a detector that is itself
// not scheduled now and then; one is frozen at a time drawn at random. It alone is blamed, between
// 1.5 s and 2 s of the detector's time later.
TEST(FailureDetectorTest, TimesOutOnlyTheFrozenRankOf256) {
  constexpr int kRanks = 256;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    FailureDetector detector = Group(kRanks);
    const SteadyTime start{};
    AwakeClock clock(250ms, start);
    std::vector<std::chrono::milliseconds> next(kRanks, 0ms);
    const int frozen = 1 + static_cast<int>(random() % (kRanks - 1));
    const auto frozen_at = std::chrono::milliseconds(random() % 5000);
    FailureDetector::Time awake{0}, last{0};
    for (std::chrono::milliseconds t{0}; t < 60s && detector.failure().ok();
         t += random() % 50 == 0 ? 2000ms : 20ms) {
      awake = clock.Tick(start + t);
      for (int rank = 1; rank < kRanks; ++rank) {
        const auto i = static_cast<size_t>(rank);
        if ((rank == frozen && t >= frozen_at) || t < next[i]) continue;
        detector.Heartbeat(rank, awake);
        if (rank == frozen) last = awake;
        next[i] = t + std::chrono::milliseconds(250 + random() % 650);
      }
      detector.CheckTimeouts(awake);
    }
    EXPECT_TRUE(detector.failure().message().starts_with(SilentText(frozen, 1500ms)))
        << "seed " << seed << ", rank " << frozen << ": " << detector.failure().message();
    EXPECT_GE(awake - last, FailureDetector::Time(1500ms));
    EXPECT_LT(awake - last, FailureDetector::Time(2000ms));
  }
}

}  // namespace
}  // namespace samara::failure_detector_test
