// SPDX-License-Identifier: Apache-2.0 OR MIT
// Counter-based random numbers: every draw is a pure function of a key and an index.
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). A key is derived from (run seed, purpose, generation, individual, episode), so no
// generator state is shared between threads and any machine can recompute any draw. The mapping is
// part of every run's identity: changing it changes population hashes.
#pragma once

#include <array>
#include <cstdint>

namespace samara {

// Purposes of draws. Values are part of run identity: append, never renumber.
enum class Purpose : uint32_t {
  kInitialGenome = 1,
  kMutation = 2,
  kParentChoice = 3,
  kEpisodePopulation = 4,
  kEpisodeValidation = 5,
  kEpisodeTest = 6,
  kEpisodeEval = 7,
  kRandomPolicy = 8,
  kNoops = 9,
  kStickyActions = 10,
  kEnvironmentReset = 11,
  kBootstrap = 12,
  kEpisodeTrain = 13,
  kPolicyAction = 14,
  kNetworkInit = 15,
  kEntropySample = 16,
  kReplicaStep = 17,
  kSampleOrder = 18,
  kAugmentation = 19,
  kDrawnSample = 20,
  kArchive = 21,
  kCentreChoice = 22,
  kMinibatches = 23,
  kReplaySample = 24,
  kHindsight = 25,
  kReference = 30,
  kActionNoise = 40,
  kObservationStatistics = 41,
};

// Philox4x32-10: one block of four uniform 32-bit words.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 64-bit key of one stream of draws.
uint64_t DeriveKey(uint64_t run_seed, Purpose purpose, uint64_t generation = 0,
                   uint64_t individual = 0, uint64_t episode = 0);

// Draws of one stream by index. Cheap to construct and to copy; constant after construction.
class CounterRng {
 public:
  explicit CounterRng(uint64_t key) : key_(key) {}
  uint32_t Bits(uint64_t index) const;    // uniform 32 bits
  uint64_t Bits64(uint64_t index) const;  // uniform 64 bits; its own sub-stream
  double Uniform(uint64_t index) const;   // uniform on [0, 1), 53 bits
  uint64_t UniformInt(uint64_t index,
                      uint64_t n) const;  // uniform on [0, n); REQUIRES: 0 < n < 2^32
  double Normal(uint64_t index) const;    // N(0, 1) for resets (not a hashed noise kind)

 private:
  uint64_t key_;
};

}  // namespace samara
