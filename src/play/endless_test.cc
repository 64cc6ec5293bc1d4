#include "play/endless.h"

#include <gtest/gtest.h>

namespace samara::endless_test {
namespace {

std::unique_ptr<Reminder> Watch(int64_t steps, int64_t frames, int64_t test_frames, Played played) {
  EnvironmentSetup setup;
  setup.environment.steps_max = steps;
  setup.episodes.frames_max = frames, setup.episodes.frames_max_test = test_frames;
  return WatchForEndlessEpisodes(setup, played, [] { return 0; });
}

TEST(EndlessTest, EveryEpisodeHasToHaveALimit) {
  for (const Played played : {Played::kAll, Played::kTests}) {
    EXPECT_NE(Watch(0, 0, 0, played), nullptr);
    EXPECT_NE(Watch(0, 9, 0, played), nullptr);
    EXPECT_EQ(Watch(9, 0, 0, played), nullptr);
    EXPECT_EQ(Watch(0, 9, 9, played), nullptr);
  }
  EXPECT_NE(Watch(0, 0, 9, Played::kAll), nullptr);
  EXPECT_EQ(Watch(0, 0, 9, Played::kTests), nullptr);
}

}  // namespace
}  // namespace samara::endless_test
