// Interface of a network for inference: computed by torch on a CPU or a device, or not at all.
//
// A model keeps what belongs to a slot (the frame stack, the recurrent state) on the device that
// computes, keyed by slot: a row brings its newest frame only. Rows of
// one batch have distinct slots. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/status.h"
#include "env/interface.h"

namespace samara {

// A frame stack's rule applies where observations are single frames (nn/frame_stack.h).
struct ModelShape {
  size_t observation_bytes = 0;  // of the newest frame, or of a vector
  size_t actions = 0;            // floats the environment gets per continuous action; 0: discrete
  size_t action_values = 0;      // floats stored per continuous action
  size_t behaviour = 0;          // floats that describe the distribution an action was drawn from
  size_t values = 1;             // floats: V(x_t), or one Q-value per action
  size_t state = 0;              // floats of the recurrent state
  size_t history_bytes = 0;      // frames of a stack besides the newest
};

struct InferenceRow {
  uint32_t slot = 0;
  bool first = false;   // an episode begins: stack and recurrent state are reset
  bool keeps = false;   // state and history are wanted as they enter this row
  bool greedy = false;  // the most probable action instead of a draw
  float reward = 0;     // of the step that led here, as the network sees it
  int32_t previous_action = 0;
  uint32_t step = 0;                       // of the episode: which of its draws
  uint64_t key = 0;                        // of the episode's draws of actions (core/rng.h)
  std::span<const std::byte> observation;  // borrowed for the call
};

// One batch. The arrays are sized once, for the largest batch; row i's part begins at i times the
// size in ModelShape. What a model wrote for a row is not used unless `status` allows it.
struct InferenceBatch {
  enum class RowStatus : uint8_t { kOk, kNotFinite };
  static constexpr uint64_t kNewest = std::numeric_limits<uint64_t>::max();

  InferenceBatch(const ModelShape& shape, size_t rows_max);

  std::vector<InferenceRow> rows;
  size_t padded = 0;           // compute as if there were so many rows at least
  uint64_t version = kNewest;  // in: which policy; out: the one that was used
  // out
  std::vector<RowStatus> status;
  std::vector<int32_t> index;        // discrete actions
  std::vector<float> actions;        // continuous ones, in [-1, 1]
  std::vector<float> action_values;  // and what a learner scores: the sample before squashing
  std::vector<float> behaviour, values;
  std::vector<float> state;  // where kept
  std::vector<std::byte> history;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelShape& shape() const = 0;
  // Fills the outputs and moves the rows' slots on. Not ok: what slots remember is of no use any
  // more, the run ends.
  // REQUIRES: the wanted version is there.
  virtual Status Infer(InferenceBatch& batch) = 0;
  virtual bool Has(uint64_t version) const = 0;
  // Whether rows that are not greedy act at random at times, besides what a policy draws: to learn
  // from, not to be tested with.
  virtual bool explores() const { return false; }
  // Whether unrolls are to have the last observation of episodes that terminated too, besides those
  // that were truncated.
  virtual bool keeps_last() const { return false; }
};

// Acts uniformly at random, by each row's own draws.
class RandomModel : public Model {
 public:
  explicit RandomModel(const EnvironmentSpec& spec);
  const ModelShape& shape() const override { return shape_; }
  Status Infer(InferenceBatch& batch) override;
  bool Has(uint64_t) const override { return true; }

 private:
  const int64_t choices_;  // 0: continuous
  ModelShape shape_;
};

// Chooses action 0 for every row: what the transport and the server cost by themselves.
class NullModel : public Model {
 public:
  // With `rows_max` rows it copies their observations first, as a network that gathers its input
  // does; with 0 it looks at nothing.
  NullModel(size_t observation_bytes, size_t rows_max);
  const ModelShape& shape() const override { return shape_; }
  Status Infer(InferenceBatch& batch) override;
  bool Has(uint64_t) const override { return true; }

 private:
  ModelShape shape_;
  std::vector<std::byte> observations_;  // [rows_max][observation_bytes]; empty: not copied
};

}  // namespace samara
