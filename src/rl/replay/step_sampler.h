// Minibatches from a replay of steps, by their priorities.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "core/status.h"
#include "rl/replay/priorities.h"
#include "rl/replay/unroll_replay.h"

namespace samara {

// Thread safety: none.
class StepSampler {
 public:
  // alpha, beta: of its priorities (priorities.h).
  StepSampler(const ReplayShape& shape, double alpha, double beta)
      : replay_(shape), priorities_(shape.capacity, alpha, beta) {}

  // Memory when full, as UnrollReplay::Bytes.
  static uint64_t Bytes(const ReplayShape& shape, double alpha) {
    return UnrollReplay::Bytes(shape) + Priorities::Bytes(shape.capacity, alpha);
  }
  const UnrollReplay& replay() const { return replay_; }
  // As UnrollReplay::Add. New steps have the largest priority so far (Schaul et al. 2016, arXiv
  // 1511.05952, algorithm 1).
  void Add(const Unroll& unroll, uint64_t stream);
  void EndStreams() { replay_.EndStreams(); }

  // Draws `n` steps, with replacement, of those in `shards` replays of the same size; `share` of
  // the minibatch.
  void Draw(const CounterRng& rng, size_t n, int64_t shards, double share);
  // The steps drawn last, and their weights (Priorities::Drawn).
  std::span<const uint64_t> drawn() const { return drawn_; }
  std::span<const float> weights() const { return weights_; }
  // Sets the priorities of the steps drawn last.
  void SetPriorities(std::span<const float> priorities);

  double filled() const { return replay_.filled(); }
  uint64_t stored_bytes() const { return replay_.stored_bytes(); }
  // Contents of a checkpoint, as UnrollReplay's, with priorities. Restore: kBadData, the sampler
  // must not be used then.
  std::vector<uint64_t> parts() const { return replay_.parts(); }
  std::string SavePart(uint64_t part) const { return replay_.SavePart(part); }
  std::string Save() const;
  Status Restore(std::string_view saved, const PartSource& part = NoParts);

 private:
  UnrollReplay replay_;
  Priorities priorities_;
  std::vector<uint64_t> drawn_;
  std::vector<float> weights_;
};

}  // namespace samara
