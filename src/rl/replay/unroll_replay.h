// What off-policy learners learn from: the last steps that were played, an unroll a block.
//
// A block has an observation more than steps, so that an observation is stored once, but for the
// first and last of a block and those at which an episode's clock ran out. Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// What a step is worth: discounted rewards of `steps` steps, and then a value.
struct ReturnRule {
  int64_t steps = 1;
  double gamma = 1;
};

// A step as a learner sees it. Views, until the next Add.
struct Transition {
  std::span<const std::byte> observation;
  std::span<const float> action;                // as the store has it; of discrete ones the index
  float reward = 0;                             // sum over i < m of gamma^i r_i
  std::span<const std::byte> next_observation;  // m steps later
  float discount = 0;  // gamma^m; 0: nothing follows, next_observation has no meaning
};

struct ReplayShape {
  uint64_t capacity = 1;  // steps; room for whole blocks, one at least
  uint32_t length = 1;    // steps of a block
  size_t observation_bytes = 0;
  size_t action_values = 0;  // floats of a continuous action; 0 when discrete
};

class UnrollReplay {
 public:
  explicit UnrollReplay(const ReplayShape& shape);

  // Memory when full.
  static uint64_t Bytes(const ReplayShape& shape);
  // Replaces the oldest block once it is full. REQUIRES: `unroll` is whole, of `length` steps.
  // Returns its first step.
  uint64_t Add(const Unroll& unroll);
  uint64_t size() const { return blocks_ * shape_.length; }  // steps that are there
  uint64_t added() const { return added_ * shape_.length; }  // ever
  // m = rule.steps, or fewer at the end of the block or of an episode. REQUIRES: step < size().
  Transition At(uint64_t step, const ReturnRule& rule) const;

  // What a checkpoint holds. Restore: kBadData, of another shape or damaged; nothing has changed.
  std::string Save() const;
  Status Restore(std::string_view saved);

 private:
  void Reserve();

  const ReplayShape shape_;
  const size_t action_floats_;
  const uint64_t blocks_max_;
  uint64_t blocks_ = 0, added_ = 0;
  // by block
  std::vector<std::byte> observations_;   // [length + 1][observation_bytes]
  std::vector<float> actions_, rewards_;  // [length][action_floats], [length]
  enum End : uint8_t { kNone, kTerminated, kTruncated };
  std::vector<uint8_t> ends_;  // [length] of End: how the step ended its episode
  std::map<uint64_t, std::vector<std::byte>> finals_;  // by step: after truncated ones
};

}  // namespace samara
