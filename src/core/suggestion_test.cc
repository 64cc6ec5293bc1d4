// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/suggestion.h"

#include <gtest/gtest.h>

namespace samara {
namespace {

TEST(SuggestionTest, IsEmptyWhenNothingIsNear) {
  const std::vector<std::string> names = {"atari/es", "parity/rnn", "classic/cartpole-ga",
                                          "env.id"};
  for (const char* word : {"nope", "pong", "README.md", "my_task.py", "/tmp", "lr", "zzz"})
    EXPECT_EQ(Suggestion(word, names), "") << word;
  EXPECT_EQ(Suggestion("word", {}), "");
}

TEST(SuggestionTest, IsTheNearestNameWhenHalfOfTheWordIsRight) {
  const std::vector<std::string> names = {"atari/es", "parity/rnn", "classic/cartpole-ga",
                                          "env.id"};
  const std::pair<const char*, const char*> cases[] = {
      {"atari/ees", "atari/es"},
      {"cartpole", "classic/cartpole-ga"},
      {"parity/rn", "parity/rnn"},
      {"envv.id", "env.id"},
      {"other/cartpol-ga", "classic/cartpole-ga"},
      {"ab", ""},
      {"id", "env.id"},
      {"xd", ""},
  };
  for (const auto& [word, name] : cases) EXPECT_EQ(Suggestion(word, names), name) << word;
}

TEST(SuggestionTest, KnowsTheNamesOfOtherLibraries) {
  const std::vector<std::string> learning = {"learn.frames", "learn.environments", "ppo.gamma",
                                             "optimizer.learning_rate", "run.seed"};
  const std::vector<std::string> evolution = {"ga.frames", "fleet.slots", "ga.population"};
  EXPECT_EQ(SuggestedKey("lr", learning), "optimizer.learning_rate");
  EXPECT_EQ(SuggestedKey("total_timesteps", learning), "learn.frames");
  EXPECT_EQ(SuggestedKey("n_envs", learning), "learn.environments");
  EXPECT_EQ(SuggestedKey("discount", learning), "ppo.gamma");
  EXPECT_EQ(SuggestedKey("SEED", learning), "run.seed");
  EXPECT_EQ(SuggestedKey("total_timesteps", evolution), "ga.frames");
  EXPECT_EQ(SuggestedKey("num_envs", evolution), "fleet.slots");
  EXPECT_EQ(SuggestedKey("lr", evolution), "");
  EXPECT_EQ(SuggestedKey("poplation", evolution), "ga.population");
}

}  // namespace
}  // namespace samara
