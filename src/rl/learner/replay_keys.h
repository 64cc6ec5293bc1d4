// Keys that all algorithms with a replay have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "env/interface.h"
#include "rl/inference/exploration.h"
#include "rl/learner/learning_config.h"

namespace samara {

enum class Compression : uint8_t { kNone, kLz4 };

struct ReplayKeys {
  double capacity = 1e6;  // steps
  double start = 1000;    // steps that are stored before the first is learned from
  int64_t batch = 256;    // steps of a minibatch
  double ratio = 256;     // how often a step is learned from, on average
  double alpha = 0;       // exponent of priorities; 0 = all alike
  double beta = 0;        // of the weights that correct for them
  Compression compress = Compression::kNone;  // of observations
  void Bind(ConfigTable& table);
  Status Check(const LearningConfig& config) const;  // kConfig
  // Steps of the optimizer that are due after so many updates. The same number on every learner,
  // which may have unequal parts of a batch.
  uint64_t Due(const LearnConfig& learn, uint64_t updates) const;
};

// Returns the records of `shards` shards from `first` on, in a checkpoint's file of replays with a
// record for each shard of all learners; views into it. kBadData: missing, damaged, or of another
// number of shards.
Result<std::vector<std::string_view>> ReplayRecords(const std::map<std::string, std::string>& files,
                                                    const char* name, int64_t first, int64_t shards,
                                                    int64_t all);

// Keys of algorithms whose environments explore at rates of their own (rl/inference/exploration.h).
struct ExplorationKeys {
  double epsilon = 0.4, epsilon_last = 0.001;
  void Bind(ConfigTable& table, const std::string& algorithm);
  Status Check(const std::string& algorithm) const;  // kConfig
  Exploration Rates(const LearnConfig& learn) const {
    return {epsilon, epsilon_last, static_cast<uint32_t>(learn.environments)};
  }
};

// Keys of algorithms that may replace goals (rl/replay/hindsight.h).
struct HindsightKeys {
  double fraction = 0;  // of the sampled steps
  void Bind(ConfigTable& table);
  Status Check(const EnvironmentSpec& environment) const;  // kConfig: it has no goals
};

class ReplayAlgorithmConfig : public AlgorithmConfig {
 public:
  // Those of `config`. REQUIRES: its algorithm has a replay.
  static const ReplayAlgorithmConfig& Of(const LearningConfig& config) {
    return dynamic_cast<const ReplayAlgorithmConfig&>(*config.own);
  }
  // All of these, of an algorithm that learns from single steps.
  void BindSteps(ConfigTable& table);

  ReplayKeys replay;
  HindsightKeys hindsight;
  int64_t random_shift = 0;  // pixels by which a minibatch's images are moved at most
};

}  // namespace samara
