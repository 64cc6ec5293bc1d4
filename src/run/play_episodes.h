// Episodes of one model over a fleet, without learning: tests, comparisons, videos.
#pragma once

#include <functional>
#include <vector>

#include "evo/evaluate.h"
#include "rl/inference_server.h"
#include "run/experiment.h"

namespace samara {

struct PlayOptions {
  size_t episodes = 1;
  std::function<EpisodeSpec(size_t episode)> spec;
  uint64_t seed = 0;    // of the draws of actions
  bool greedy = false;  // the most probable action instead of a draw
  LifeLoss life_loss = LifeLoss::kIgnored;
  StopToken stop;                            // may be empty
  std::function<bool(uint32_t slot)> shown;  // after every event; false ends early; may be empty
};

// Results in the order of the episodes, the same at any number of actors and threads. kTryAgain
// when stopped.
Result<std::vector<EpisodeResult>> PlayEpisodes(Fleet& fleet, Model& model,
                                                const PlayOptions& options);

}  // namespace samara
