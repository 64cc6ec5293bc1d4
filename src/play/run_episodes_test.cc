#include "play/run_episodes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "env/registry.h"
#include "rl/inference/model.h"

namespace samara::run_episodes_test {
namespace {

// Acts at random and remembers which rewards it saw.
class RewardsModel : public RandomModel {
 public:
  using RandomModel::RandomModel;
  Status Infer(InferenceBatch& batch) override {
    for (const InferenceRow& row : batch.rows)
      if (row.step > 0) rewards.push_back(row.reward);
    return RandomModel::Infer(batch);
  }
  std::vector<float> rewards;
};

// A network that reads rewards is tested on those that it has learned with; scores are raw.
TEST(PlayEpisodesTest, AModelSeesRewardsAsItsConfigurationSays) {
  const auto fleet =
      MakeThreadFleet(NativeEnvironment("CartPole-v1", false).ValueOrThrow(), 2, 1).ValueOrThrow();
  RewardsModel model(fleet->spec());
  PlayOptions options;
  options.episodes = 2;
  options.spec = [](size_t e) { return EpisodeSpec{.seed = e}; };
  options.rewards = RewardMode::kAsymmetric;
  const auto results = PlayEpisodes(*fleet, model, options).ValueOrThrow();
  ASSERT_EQ(results.size(), 2U);
  for (const EpisodeResult& result : results) EXPECT_EQ(result.fitness, result.steps);
  ASSERT_FALSE(model.rewards.empty());
  for (const float reward : model.rewards) EXPECT_FLOAT_EQ(reward, 5 * std::tanh(0.2F));
}

}  // namespace
}  // namespace samara::run_episodes_test
