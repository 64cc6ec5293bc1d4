// Episodes of one model over a fleet, without learning: tests, comparisons, videos.
#pragma once

#include <functional>
#include <vector>

#include "evo/evaluate/evaluator.h"
#include "play/environment_setup.h"
#include "play/saved_policy.h"
#include "rl/inference/inference_server.h"
#include "rl/learner/agent.h"

namespace samara {

struct PlayOptions {
  size_t episodes = 1;
  std::function<EpisodeSpec(size_t episode)> spec;
  uint64_t seed = 0;                      // of the draws of actions
  bool greedy = false;                    // the most probable action instead of a draw
  RewardMode rewards = RewardMode::kRaw;  // that the model sees; results have raw ones
  LifeLoss life_loss = LifeLoss::kIgnored;
  SlotShare share{};    // others play the rest of the episodes, whose results are not `done` here
  uint32_t shards = 1;  // parts of the slots that share no batch
  StopToken stop;       // may be empty
  std::function<void()> ended;  // after every episode; may be empty
  // After every event of an episode, with its sums so far; false ends early, and the results say
  // how far it came. May be empty.
  std::function<bool(const EpisodeRecord&)> shown;
};

// Results in the order of the episodes, the same at any number of actors and threads. kTryAgain
// when stopped.
Result<std::vector<EpisodeResult>> PlayEpisodes(Fleet& fleet, Model& model,
                                                const PlayOptions& options);

// The agent of `policy` for `slots` environments as those of `on`. REQUIRES:
// policy.config.Learns(), HasAgents(run.algorithm).
Result<std::unique_ptr<Agent>> MakePolicyAgent(const Policy& policy, const EnvironmentSetup& on,
                                               uint32_t slots);

}  // namespace samara
