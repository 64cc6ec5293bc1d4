// Replay of off-policy learners: the last steps that were played, an unroll a block.
//
// A block has an observation more than steps, so that an observation is stored once, but for the
// first and last of a block and those at which an episode's clock ran out. Of frames that are
// stacked it has those before its first, too: `history` more. Frames may be compressed, each by
// itself, so that a step is drawn without the others of its block. Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "nn/frame_stack.h"
#include "rl/replay/block_links.h"
#include "rl/replay/packed_bytes.h"
#include "rl/replay/parts.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// Rule of a return: discounted rewards of `steps` steps, and then a value.
struct ReturnRule {
  int64_t steps = 1;
  double gamma = 1;
};

// A step as a learner sees it. Views, until the next Add; no observations where the replay's are
// compressed.
struct Transition {
  std::span<const std::byte> observation;
  std::span<const float> action;                // as the store has it; of discrete ones the index
  float reward = 0;                             // sum over i < m of gamma^i r_i
  std::span<const std::byte> next_observation;  // m steps later
  float discount = 0;  // gamma^m; 0: nothing follows, next_observation has no meaning
  uint64_t last = 0;   // of the m steps
};

struct ReplayShape {
  uint64_t capacity = 1;         // steps; room for whole blocks, one at least
  uint32_t length = 1;           // steps of a block
  size_t observation_bytes = 0;  // of the newest frame of a stack
  uint32_t history = 0;          // frames of a stack besides it
  size_t action_values = 0;      // floats of a continuous action; 0 when discrete
  int64_t choices = 0;           // number of discrete actions; 0 when continuous
  // Unrolls have the last observation of terminated episodes too, and the replay finds an episode's
  // later steps in later blocks.
  bool episodes = false;
  bool compress = false;  // frames, by LZ4. REQUIRES: not with episodes
  PartRule parts = {};    // of a checkpoint; its items are blocks

  // Shape of what is not compressed.
  ReplayShape Rest() const {
    ReplayShape rest = *this;
    if (compress) rest.observation_bytes = 0;
    return rest;
  }
};

class UnrollReplay {
 public:
  explicit UnrollReplay(const ReplayShape& shape);

  // Memory when full, as if nothing could be compressed.
  static uint64_t Bytes(const ReplayShape& shape);
  // Replaces the oldest block once it is full. REQUIRES: `unroll` is whole, of `length` steps.
  // `stream`: number of its slot among the run's. Returns its first step.
  uint64_t Add(const Unroll& unroll, uint64_t stream = 0);
  uint64_t size() const { return blocks_ * shape_.length; }  // steps that are there
  // Memory of what is there, but for last observations of episodes.
  uint64_t stored_bytes() const {
    return Bytes(shape_.Rest()) / blocks_max_ * blocks_ + slabs_.bytes();
  }
  double filled() const { return static_cast<double>(blocks_) / static_cast<double>(blocks_max_); }
  uint64_t added() const { return added_ * shape_.length; }  // ever
  // m = rule.steps, or fewer at the end of the block or of an episode. REQUIRES: step < size().
  Transition At(uint64_t step, const ReturnRule& rule) const {
    return At(step, rule, [this](uint64_t at) {
      return Outcome{rewards_[at], ends_[at] == kTerminated};
    });
  }
  // Outcome of a step.
  struct Outcome {
    float reward = 0;
    bool terminated = false;
  };
  // The same with other outcomes: `outcome`(step) is called for steps of the episode in order, up
  // to one that terminates.
  template <typename OutcomeOf>
  Transition At(uint64_t step, const ReturnRule& rule, const OutcomeOf& outcome) const;

  // Unrolls that are added from now on continue none that is there: slots have begun again.
  void EndStreams() { links_.EndStreams(); }
  bool terminated(uint64_t step) const { return ends_[step] == kTerminated; }
  // Observation after the step. Of a terminated step without shape.episodes it has no meaning.
  // Where frames are compressed, there is none here.
  std::span<const std::byte> After(uint64_t step) const;
  std::span<const std::byte> Before(uint64_t step) const {
    return Entry(step / shape_.length, step % shape_.length);
  }
  // Memory of a stack's frames, each of which is unpacked into its place; empty where none is
  // compressed.
  std::vector<std::byte> MakeStackMemory() const {
    return std::vector<std::byte>(
        shape_.compress ? (shape_.history + size_t{1}) * shape_.observation_bytes : 0);
  }
  // The planes of the frame stack that Before, or After, is the newest frame of (null: zeros), in
  // the replay or in `memory`. REQUIRES: rule.depth is shape.history + 1, and so many are `planes`;
  // `memory` is as MakeStackMemory gives it.
  void StackBefore(uint64_t step, const FrameStackRule& rule, std::span<std::byte> memory,
                   std::span<const std::byte*> planes) const;
  void StackAfter(uint64_t step, const FrameStackRule& rule, std::span<std::byte> memory,
                  std::span<const std::byte*> planes) const;
  // Steps of the episode that are there, from this one on; and the one that follows `ahead` steps
  // later. REQUIRES: shape.episodes; ahead < StepsFrom(step).
  uint64_t StepsFrom(uint64_t step) const;
  uint64_t Later(uint64_t step, uint64_t ahead) const;

  // Contents of a checkpoint: the complete parts, by number, and all else.
  std::vector<uint64_t> parts() const { return parts_.Complete(Held()); }
  std::string SavePart(uint64_t part) const;  // REQUIRES: one of parts()
  std::string Save() const;
  // kBadData: of another shape or damaged; nothing has changed. Reads what earlier builds saved
  // without parts, too.
  Status Restore(std::string_view saved, const PartSource& part = NoParts);

 private:
  void Reserve();
  ItemRange Held() const { return {added_ - blocks_, added_}; }
  void Resize();
  void PutBlocks(const ItemRange& blocks, ByteWriter& out) const;
  bool GetBlocks(const ItemRange& blocks, bool packed, ByteReader& in);
  bool GetPart(uint64_t part, std::string_view saved);
  bool GetWhole(ByteReader& in);
  bool Whole() const;  // what Restore read
  // Frames of a block: history, then one an entry.
  size_t FramesOfBlock() const { return shape_.history + shape_.length + 1; }
  uint64_t PlaceOf(uint64_t block, uint64_t entry) const {  // among frames
    return block * FramesOfBlock() + shape_.history + entry;
  }
  std::span<const std::byte> Entry(uint64_t block, uint64_t entry) const {
    if (shape_.compress) return {};
    return std::span(observations_)
        .subspan(PlaceOf(block, entry) * shape_.observation_bytes, shape_.observation_bytes);
  }
  void SetFrame(uint64_t place, std::span<const std::byte> frame);
  void PutFrames(const ItemRange& blocks, ByteWriter& out) const;
  bool GetFrames(const ItemRange& saved, const ItemRange& blocks, bool packed, ByteReader& in);
  void PutHistory(const Unroll& unroll, uint64_t block);
  void StackOf(uint64_t block, uint64_t entry, const std::byte* after, const FrameStackRule& rule,
               std::span<std::byte> memory, std::span<const std::byte*> planes) const;
  int64_t StackStep(uint64_t block, uint64_t entry) const {
    return shape_.history > 0 ? stack_steps_[block * (shape_.length + 1) + entry] : 0;
  }
  // Steps from this one to the last of the episode or of the block.
  uint64_t StepsInBlock(uint64_t step) const;

  const ReplayShape shape_;
  const size_t action_floats_;
  const uint64_t blocks_max_;
  ReplayParts parts_;
  uint64_t blocks_ = 0, added_ = 0;
  // by block; block number n is in place n % blocks_max_
  std::vector<std::byte> observations_;  // [FramesOfBlock()][observation_bytes]; or, compressed,
  std::vector<PackedBytes> packed_;      // [FramesOfBlock()]
  Slabs slabs_;
  std::vector<float> actions_, rewards_;  // [length][action_floats], [length]
  enum End : uint8_t { kNone, kTerminated, kTruncated };
  std::vector<uint8_t> ends_;  // [length] of End: how the step ended its episode
  std::vector<uint32_t>
      stack_steps_;  // [length + 1]: since the entry's stack began; without history 0
  std::map<uint64_t, std::vector<std::byte>> finals_;  // by step: after the last of an episode
  BlockLinks links_;                                   // of shape.episodes
};

template <typename OutcomeOf>
Transition UnrollReplay::At(uint64_t step, const ReturnRule& rule, const OutcomeOf& outcome) const {
  uint64_t left =
      std::min<uint64_t>(static_cast<uint64_t>(rule.steps), shape_.length - step % shape_.length);
  uint64_t last = step;
  Outcome now = outcome(step);
  double reward = now.reward, discount = rule.gamma;
  while (--left > 0 && !now.terminated && ends_[last] == kNone) {
    now = outcome(++last);
    reward += discount * now.reward;
    discount *= rule.gamma;
  }
  return {.observation = Before(step),
          .action = {actions_.data() + step * action_floats_, action_floats_},
          .reward = static_cast<float>(reward),
          .next_observation = After(last),
          .discount = now.terminated ? 0 : static_cast<float>(discount),
          .last = last};
}

}  // namespace samara
