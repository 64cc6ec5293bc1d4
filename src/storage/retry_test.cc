#include "storage/retry.h"

#include <cerrno>
#include <cstring>

#include "core/log.h"
#include "gtest/gtest.h"

namespace samara {
namespace {

const Status kFull(Code::kIoError, "x: disk full");

class RetryTest : public testing::Test {
 protected:
  RetryTest() { SetLogLevel(LogLevel::kError); }
  ~RetryTest() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(RetryTest, WaitsLongerEachTimeUntilItWorks) {
  std::vector<double> waits;
  int failures = 5;
  const Status status = RetryIo([&] { return failures-- > 0 ? kFull : Status::Ok(); },
                                [&](double seconds) { return waits.push_back(seconds), false; },
                                {.wait_seconds_min = 1, .wait_seconds_max = 5});
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(waits, (std::vector<double>{1, 2, 4, 5, 5}));
}

TEST_F(RetryTest, StopsForASignalAnotherFailureOrAfterTooLong) {
  int attempts = 0;
  const auto full = [&] { return ++attempts, kFull; };
  EXPECT_EQ(RetryIo(full, [](double) { return true; }).code(), Code::kIoError);
  EXPECT_EQ(attempts, 1);
  const auto bad = [&] { return ++attempts, Status(Code::kBadData, "damaged"); };
  EXPECT_EQ(RetryIo(bad, [](double) { return false; }).code(), Code::kBadData);
  EXPECT_EQ(attempts, 2);
  const RetryLimits none = {.give_up_seconds = 0};
  EXPECT_EQ(RetryIo(
                full, [](double) { return false; }, none)
                .code(),
            Code::kIoError);
  EXPECT_EQ(attempts, 3);
  const Status large(Code::kIoError, std::string("x: cannot write: ") + std::strerror(EFBIG));
  const auto limited = [&] { return ++attempts, large; };
  EXPECT_EQ(RetryIo(limited, [](double) { return false; }).code(), Code::kIoError);
  EXPECT_EQ(attempts, 4);
}

TEST_F(RetryTest, SavesEveryMinuteOrAtMostAHundredthOfTheTime) {
  CheckpointSchedule schedule(60);
  EXPECT_TRUE(schedule.Due(0)) << "the first at once";
  schedule.Saved(1000, 0.1);
  EXPECT_FALSE(schedule.Due(1059));
  EXPECT_TRUE(schedule.Due(1060));
  schedule.Saved(2000, 3);
  EXPECT_FALSE(schedule.Due(2299));
  EXPECT_TRUE(schedule.Due(2300));
}

TEST_F(RetryTest, AFailingSaveIsTriedAgainAndFinallyEndsTheRun) {
  CheckpointSchedule schedule(
      60, {.wait_seconds_min = 1, .wait_seconds_max = 10, .give_up_seconds = 100});
  EXPECT_TRUE(schedule.Failed(0, kFull, "ckpt-1").ok());
  EXPECT_FALSE(schedule.Due(0.5));
  EXPECT_TRUE(schedule.Due(1));
  EXPECT_TRUE(schedule.Failed(1, kFull, "ckpt-1").ok());
  EXPECT_FALSE(schedule.Due(2.5));
  EXPECT_TRUE(schedule.Failed(99, kFull, "ckpt-1").ok());
  const Status end = schedule.Failed(100, kFull, "ckpt-1");
  EXPECT_EQ(end.code(), Code::kIoError);
  EXPECT_NE(end.message().find("ckpt-1"), std::string::npos);
  schedule.Saved(101, 0);
  EXPECT_TRUE(schedule.Failed(300, kFull, "ckpt-1").ok()) << "a success starts anew";
}

}  // namespace
}  // namespace samara
