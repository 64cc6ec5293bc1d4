#include "env/dummy.h"

#include <gtest/gtest.h>

namespace samara::dummy_test {
namespace {

TEST(DummyTest, AStateOfAnotherSizeIsRefused) {
  const auto one = MakeDummyEnvironment({}).ValueOrThrow();
  std::vector<std::byte> observation(one->spec().observation.bytes()), again = observation;
  one->Reset({.seed = 5}, observation);
  (void)one->Step({.index = 1, .values = {}}, observation);
  const std::string state = one->SaveState();
  const auto other = MakeDummyEnvironment({}).ValueOrThrow();
  for (const std::string& wrong : {std::string(), state.substr(1), state + "x"}) {
    const Status status = other->RestoreState(wrong);
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), "dummy/guess: a saved state has " + std::to_string(state.size()) +
                                    " bytes, given " + std::to_string(wrong.size()));
  }
  ASSERT_TRUE(other->RestoreState(state).ok());
  const StepResult a = one->Step({.index = 2, .values = {}}, observation),
                   b = other->Step({.index = 2, .values = {}}, again);
  EXPECT_EQ(observation, again);
  EXPECT_EQ(a.reward, b.reward);
}

}  // namespace
}  // namespace samara::dummy_test
