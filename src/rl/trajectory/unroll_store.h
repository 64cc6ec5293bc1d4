// Unrolls: what inference saw, decided and valued, slot by slot, for a learner.
//
// Entry t holds what arrived with observation x_t (the reward and the end that action a_{t-1}
// caused) and what inference made of it (a_t, how probable it was, its value). An unroll has F =
// overlap + length + 1 entries: `overlap` in front to warm a recurrent network up, `length` to
// learn from, and one that only bootstraps. Consecutive unrolls of a slot share overlap + 1
// entries, so every transition is learned from once.
//
// The recurrent state of an unroll is the one that *entered* its entry 0, so that replaying it
// gives the values of acting. Where a stream begins there is nothing
// to warm up on: those entries are absent, and the first real one sees the initial state.
//
// A fixed number of buffers circulates: being filled, complete, or on loan to the learner. When
// none is free a slot that completed its unroll cannot go on: the caller withholds its credit.
// Thread safety: one thread appends to a slot at a time; everything else from any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "core/ring.h"
#include "core/status.h"

namespace samara {

// Sizes of an entry's parts.
struct EntryShape {
  size_t observation_bytes = 0;  // of the newest frame, or of a vector
  size_t action_values = 0;      // floats of a continuous action; 0 when discrete
  size_t behaviour = 0;          // floats that describe the distribution the action was drawn from
  size_t values = 1;             // floats: V(x_t), or one Q-value per action
  size_t state = 0;              // floats of the recurrent state
  size_t history_bytes = 0;      // of the frames that a frame stack holds besides the newest one
  int64_t choices = 0;           // number of discrete actions; 0 when continuous
};

struct EntryHeader {
  float reward = 0;             // as the learner sees it; of the step that led here
  float raw_reward = 0;         // as the environment gave it
  int32_t action = 0;           // discrete, chosen here
  int32_t previous_action = 0;  // the one that led here; 0 at the beginning of an episode
  uint32_t episode_step = 0;    // 0: the first observation of an episode: stack and state begin
  uint32_t frames = 0;          // simulator frames of the step that led here
  uint32_t incarnation = 0;     // of the actor
  bool terminated = false;      // the step that led here ended the last episode,
  bool truncated = false;       // or its clock did
  bool absent = false;          // before the beginning of the stream
  // With the first entry after an episode that was played to its end: its undiscounted raw return,
  // steps and frames.
  bool episode_ended = false;
  uint32_t episode_steps = 0;
  uint64_t episode_frames = 0;
  double episode_return = 0;
  uint64_t policy_version = 0;  // that chose the action
};
// Checkpoints hold its bytes: another layout needs another kSlotsVersion (slot_records.h).
static_assert(sizeof(EntryHeader) == 64 && std::is_trivially_copyable_v<EntryHeader>);

// Whether headers that were read from bytes are ones that a run can have: flags are 0 or 1, since
// no other byte is a boolean, and actions are among the `choices`, unless those are 0.
bool AreSound(std::span<const EntryHeader> headers, int64_t choices);

// One entry on its way into the store. Spans have the sizes of EntryShape.
struct Entry {
  EntryHeader header;
  std::span<const std::byte> observation;
  // Final observation of the last episode, if it was truncated here, or ended otherwise and a
  // learner wants it.
  std::span<const std::byte> final_observation;
  std::span<const float> action_values, behaviour, values;
  // Read only where NeedsState(slot) said so:
  std::span<const float> state;        // entering this entry: zeros where an episode begins
  std::span<const std::byte> history;  // frames before this entry's, the last one first
};

// F entries, each part contiguous over them.
struct Unroll {
  uint32_t slot = 0;
  uint32_t entries = 0;  // fewer than F while it is being filled
  uint32_t overlap = 0;  // of them, in front of those that are learned from
  uint64_t index = 0;    // how many unrolls the slot has completed before
  std::vector<EntryHeader> headers;
  std::vector<std::byte> observations;
  std::vector<float> action_values, behaviour, values;
  std::vector<float> state;        // entering entry 0
  std::vector<std::byte> history;  // frames before entry 0's, the last one first
  struct Final {
    uint32_t entry;  // the first of the next episode
    std::vector<std::byte> observation;
  };
  std::vector<Final> finals;  // of episodes that ended with a final_observation, in order
};

struct UnrollConfig {
  uint32_t slots = 1;
  uint32_t length = 20;  // T
  uint32_t overlap = 0;  // B
  uint32_t buffers = 2;  // in all; at least one a slot
  // When no buffer is free: false = the slot waits; true = the oldest complete unroll is dropped.
  bool drop_oldest = false;
};

class UnrollStore {
 public:
  UnrollStore(const EntryShape& shape, const UnrollConfig& config);

  // Makes sure of room for one entry more; false while no buffer is free.
  bool Reserve(uint32_t slot);
  // Whether an unroll begins with the slot's next entry: its state and history are asked for.
  bool NeedsState(uint32_t slot) const;
  // The next entry of a slot. An incarnation other than the last entry's begins a new stream: what
  // was not complete is dropped. REQUIRES: Reserve(slot) was true.
  void Append(uint32_t slot, const Entry& entry);
  // The slot's stream ends here; its next entry begins another.
  void Drop(uint32_t slot);

  // An unroll on loan: its buffer is free again when this goes. Not beyond the store's life.
  struct GiveBack {
    UnrollStore* store;
    void operator()(Unroll* unroll) const;
  };
  using Loan = std::unique_ptr<Unroll, GiveBack>;
  // The oldest complete unrolls, at most `most`.
  std::vector<Loan> Take(size_t most);

  // Waits until `count` unrolls are complete, at most `timeout`; true when they are.
  bool WaitFor(size_t count, std::chrono::milliseconds timeout) const;

  // One slot's stream, between two unrolls: what a checkpoint holds. REQUIRES: the last entry
  // completed an unroll, or there was none, and nothing is reserved.
  std::string Save(uint32_t slot) const;
  // kBadData: of another shape.
  Status Restore(uint32_t slot, std::string_view saved);

  struct Counters {
    uint64_t completed = 0, dropped = 0, dropped_partial = 0;  // ever
    size_t waiting = 0, free = 0;                              // now: complete, and empty buffers
  };
  Counters counters() const;
  uint32_t entries() const { return config_.overlap + config_.length + 1; }  // F

 private:
  struct Beginning {
    std::vector<float> state;
    std::vector<std::byte> history;
  };
  struct Stream {
    explicit Stream(size_t beginnings_max) : beginnings(beginnings_max) {}
    std::unique_ptr<Unroll> filling;  // null: its next buffer is not there yet
    bool begun = false;               // tail holds what the next unroll begins with:
    Unroll tail;                      // overlap + 1 entries
    uint32_t incarnation = 0;
    uint64_t entries = 0;        // so far, tail and buffer included, absent ones not
    uint64_t unrolls = 0;        // complete; the next one's entry 0 is unrolls * length - overlap
    uint64_t completed = 0;      // over all streams of the slot
    Ring<Beginning> beginnings;  // of the unrolls to come, oldest first
  };
  std::optional<uint64_t> Beginnings(const Stream& stream) const;
  std::unique_ptr<Unroll> MakeUnroll(uint32_t entries) const;
  std::unique_ptr<Unroll> FreeBuffer();
  void Begin(Stream& stream, uint32_t slot) const;
  void AddAbsent(Unroll& unroll) const;
  void Write(Unroll& unroll, const Entry& entry) const;
  void CopyEntry(const Unroll& from, uint32_t i, Unroll& to) const;
  void KeepEnd(Stream& stream) const;
  void KeepState(Stream& stream, const Entry& entry) const;
  void Complete(Stream& stream);

  const EntryShape shape_;
  const UnrollConfig config_;
  std::vector<Stream> streams_;  // each is its slot's caller's
  mutable Mutex mu_;
  mutable CondVar completed_;  // signalled when complete_ grows
  std::vector<std::unique_ptr<Unroll>> free_ GUARDED_BY(mu_);
  Ring<std::unique_ptr<Unroll>> complete_ GUARDED_BY(mu_);
  Counters counters_ GUARDED_BY(mu_);
};

}  // namespace samara
