// A learning agent as the rest of samara sees it: a model that acts, an update that learns from
// unrolls, and what a checkpoint holds. Torch stays behind it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "env/interface.h"
#include "nn/frame_stack.h"
#include "rl/inference/model.h"
#include "rl/learner/learning_config.h"
#include "rl/replay/replay_memory.h"
#include "rl/trajectory/slot_records.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// Adds up what the shards of a batch bring, over all learners that share it.
class GradientCombiner {
 public:
  virtual ~GradientCombiner() = default;
  // `mine`: one row for each shard of this learner, in order. `sum`: over the shards of all
  // learners, added in an order that does not depend on who has which; equal bits on all of them.
  // Gradients that stay on a GPU are not in it: the rows have the numbers of the report alone.
  virtual Status Combine(std::span<const std::span<const float>> mine, std::span<float> sum) = 0;
  // The same for gradients on the learners' GPUs, where links_gpus(): `mine` has the rows one after
  // the other. Both lie in the memory of this learner's GPU, and its thread's stream uses them.
  virtual bool links_gpus() const { return false; }
  virtual Status CombineOnGpus(std::span<const float> /*mine*/, std::span<float> /*sum*/) {
    return Status(Code::kInternal, "no links between GPUs");
  }
};

struct UpdateReport {
  // False: a loss or gradient that is not finite; that step and those after it were not taken.
  bool applied = false;
  int64_t steps = 0;  // of the optimizer
  double gradient_norm = 0, learning_rate = 0;
  // By their names in metrics.jsonl: "loss" and what the algorithm says of it (algorithm.h), over
  // the batch; and the coefficients that the loss had. Of several steps the means.
  std::map<std::string, double> numbers, coefficients;
  // of this learner alone
  double seconds_batch = 0, seconds_forward = 0, seconds_backward = 0, seconds_step = 0;
};

struct AgentSetup {
  LearningConfig config;
  EnvironmentSpec environment;
  // Frame stack of images, along their channels; none: four gray images, or one with channels.
  std::optional<FrameStackRule> stack;
  uint32_t slots = 1;
  SlotShare share{};      // which of the run's slots these are
  uint32_t rows_max = 1;  // of one inference batch
  // policies that may still be asked for, the newest included: of those before it every so many
  uint32_t versions_kept = 1, versions_every = 1;
  uint64_t seed = 1;
  // Learners that share each batch: config.learn.batch is over all of them. Each has ShardsEach
  // shards, in the order of ranks.
  uint32_t rank = 0, ranks = 1;
  GradientCombiner* combiner = nullptr;  // borrowed; null: alone, shards are added in their order
  Device learns_on = {}, infers_on = {};
  bool as_on_gpu = false;  // the CPU is used as a GPU is: without samara's own loops (tests)
};

// Thread safety: Infer and Has on one thread, Update and the rest on another.
class Agent : public Model {
 public:
  // 1 to learn from: this learner's unrolls of the batch in the order of its shards, all of the
  // same length. `frames`: of all learners. Publishes the next version, the same on every learner.
  virtual Result<UpdateReport> Update(std::span<const UnrollStore::Loan> unrolls,
                                      double frames) = 0;
  virtual uint64_t version() const = 0;  // how often Update was called
  virtual int64_t parameter_count() const = 0;
  // Shape of one observation as a module of the user receives it (network.module): [numbers] or
  // [channels, rows, columns]; empty where there can be none.
  virtual std::vector<int64_t> module_input() const { return {}; }
  virtual ReplayMemory replay_memory() const { return {}; }
  virtual std::string parameter_hash() const = 0;  // SHA-256 over the parameters, by name
  virtual bool finite() const = 0;                 // all parameters

  enum class Part : uint8_t {
    kWeights,  // parameters, which are all that acting needs
    kRun,      // and the optimizer, statistics, a replay, the count of versions
    kSlots,    // and what slots remember, and the versions that may still be asked for
  };
  static constexpr char kWeightsFile[] = "weights.safetensors";
  // Files whose names begin so never change once a checkpoint has them (learner/replay_files.h).
  static constexpr char kReplayParts[] = "replay-";
  // Files of a checkpoint by name; kWeightsFile alone plays. Of those that never change, the ones
  // in `kept` are empty. REQUIRES of kSlots: no inference is running.
  virtual std::map<std::string, std::string> Save(Part part,
                                                  const std::set<std::string>& kept) const = 0;
  std::map<std::string, std::string> Save(Part part) const { return Save(part, {}); }
  // Some of the files of kRun that never change and are not in `kept`: about 16 MB, or one file;
  // none: there are no others.
  virtual std::map<std::string, std::string> SaveNextParts(
      const std::set<std::string>& /*kept*/) const {
    return {};
  }
  // kWeights takes the optimizer too where it is there; the count of versions goes on.
  // kBadData: a file is missing or has another network's shapes; the parameters have not changed
  // then, the rest may have.
  virtual Status Restore(const std::map<std::string, std::string>& files, Part part) = 0;
};

}  // namespace samara
