#include "evo/algorithms/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara::schedule_test {
namespace {

TEST(ScheduleTest, EachKindAtItsBeginningMiddleEndAndBeyond) {
  struct Case {
    Schedule schedule;
    double at[4];  // t = 0, 50, 100, 250 of 100
  };
  const Case cases[] = {{Schedule::kConstant, {0.4, 0.4, 0.4, 0.4}},
                        {Schedule::kLinear, {0.4, 0.25, 0.1, 0.1}},
                        {Schedule::kExponential, {0.4, 0.2, 0.1, 0.1}}};
  for (const Case& c : cases) {
    const double times[] = {0, 50, 100, 250};
    for (int i = 0; i < 4; ++i)
      EXPECT_NEAR(ScheduledValue(c.schedule, 0.4, 0.1, times[i], 100), c.at[i], 1e-15);
  }
  EXPECT_EQ(ScheduledValue(Schedule::kLinear, 0.4, 0.1, 100, 100), 0.1);
}

TEST(ScheduleTest, AgreesWithTheFormulaBetween) {
  for (double t = 0; t < 90; t += 7) {
    EXPECT_NEAR(ScheduledValue(Schedule::kExponential, 0.01, 0.5, t, 90),
                0.01 * std::pow(50, t / 90), 1e-15);
    EXPECT_NEAR(ScheduledValue(Schedule::kLinear, 0.01, 0.5, t, 90), 0.01 + 0.49 * t / 90, 1e-15);
  }
}

TEST(ScheduleTest, AnExponentialOneFromOrToZeroIsRefused) {
  for (const auto& [first, last] : {std::pair(0.1, 0.0), {0.0, 0.1}}) {
    const Status refused = CheckSchedule("es.sigma", Schedule::kExponential, first, last);
    EXPECT_EQ(refused.code(), Code::kConfig);
    EXPECT_TRUE(refused.message().starts_with("es.sigma=")) << refused.message();
    EXPECT_TRUE(CheckSchedule("es.sigma", Schedule::kLinear, first, last).ok());
  }
  EXPECT_TRUE(CheckSchedule("es.sigma", Schedule::kExponential, 0.1, 0.01).ok());
}

TEST(ScheduleTest, AnExponentialOneToZeroIsZeroAfterItsBeginning) {
  EXPECT_EQ(ScheduledValue(Schedule::kExponential, 0.1, 0, 0, 10), 0.1);
  EXPECT_EQ(ScheduledValue(Schedule::kExponential, 0.1, 0, 1, 10), 0);
  EXPECT_EQ(ScheduledValue(Schedule::kExponential, 0, 0.1, 5, 10), 0);
}

}  // namespace
}  // namespace samara::schedule_test
