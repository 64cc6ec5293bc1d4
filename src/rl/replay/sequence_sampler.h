// A shard's part of a replay of unrolls: which are there, and which are learned from next.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "core/status.h"
#include "rl/replay/priorities.h"
#include "rl/replay/sequence_replay.h"

namespace samara {

// Thread safety: none.
class SequenceSampler {
 public:
  // alpha, beta: of its priorities (priorities.h).
  SequenceSampler(const SequenceShape& shape, double alpha, double beta)
      : replay_(shape), priorities_(shape.capacity, alpha, beta) {}

  // Memory when full.
  static uint64_t Bytes(const SequenceShape& shape, double alpha, bool shared) {
    return SequenceReplay::Bytes(shape, shared) + Priorities::Bytes(shape.capacity, alpha);
  }
  // Adds a sequence for each range of steps, with the priority of each.
  void Add(const Unroll& unroll, std::span<const StepRange> steps,
           std::span<const double> priorities) {
    uint64_t number = replay_.Add(unroll, steps);
    for (const double priority : priorities) priorities_.Set(replay_.PlaceOf(number++), priority);
  }
  uint64_t size() const { return replay_.size(); }  // sequences
  double filled() const { return replay_.filled(); }
  uint64_t stored_bytes() const { return replay_.stored_bytes(); }

  // Draws `n` sequences, with replacement, of `all` in all shards; `share` of the minibatch.
  void Draw(const CounterRng& rng, size_t n, double all, double share);
  // The sequences drawn last: their unrolls, their own steps of these, and their weights
  // (Priorities::Drawn).
  std::vector<const Unroll*> unrolls() const;
  std::span<const StepRange> steps() const { return steps_; }
  std::span<const float> weights() const { return weights_; }
  // Sets the priorities of the sequences drawn last, but for those that were replaced since.
  void SetPriorities(std::span<const double> priorities);

  // Contents of a checkpoint, as SequenceReplay's, with priorities. Restore: kBadData, the sampler
  // must not be used then.
  std::vector<uint64_t> parts() const { return replay_.parts(); }
  std::string SavePart(uint64_t part) const { return replay_.SavePart(part); }
  std::string Save() const;
  Status Restore(std::string_view saved, const PartSource& part = NoParts);

 private:
  SequenceReplay replay_;
  Priorities priorities_;
  std::vector<uint64_t> drawn_;  // numbers
  std::vector<Unroll> unrolls_;
  std::vector<StepRange> steps_;
  std::vector<float> weights_;
};

}  // namespace samara
