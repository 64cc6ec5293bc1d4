// SPDX-License-Identifier: Apache-2.0 OR MIT
// Compact seed encoding (Such et al. 2018, section 3.1): an individual is the key of its initial
// parameters and a list of mutations, so any machine rebuilds it bit for bit (decode.h).
//
//   theta_0 = s_layer * e(initial),  biases 0           (every kind but kPolicy)
//   theta_0 = a policy that is stored apart             (kPolicy)
//   theta_k = theta_{k-1} + power_k * e(key_k)          (weights and biases, not layer-scaled)
//
// left to right, float32, product rounded, then sum rounded, no FMA.
//
// A safe mutation (Lehman et al. 2018, arXiv 1712.06563) is scaled by what it does to the outputs
// at states that the parent saw (evo/algorithms/safe_mutation.h). It names the parent's episode
// they come from, which is played again to rebuild the individual, and their hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sha256.h"
#include "core/status.h"

namespace samara {

enum class NoiseKind : uint8_t { kNormal = 1, kQuantile8 = 2, kTable = 3 };  // values live on disk
enum class InitKind : uint8_t {                                              // values live on disk
  kFanIn = 1,     // the released GPU program's scale
  kUnitNorm = 2,  // that of the distributed one
  kPolicy = 3,    // an InitialPolicy; `initial` is its key
  kXavier = 4,
  kHe = 5,
  kUniform = 6,
  kUnitNormSmall = 7,  // kUnitNorm with an output layer of 0.01, as for MuJoCo
};
constexpr InitKind kInitKindMax = InitKind::kUnitNormSmall;

// Largest power of a configuration and of a published genome; published runs have 0.002 to 0.5.
constexpr double kMutationPowerMax = 10;

// How noise becomes a change of parameters; evo/algorithms/safe_mutation.h defines them. On disk.
enum class MutationKind : uint8_t {
  kPlain = 0,
  kSmR = 1,
  kSmGSum = 2,
  kSmGSumLegacy = 3,
  kSmGAbs = 4,
  kSmGSo = 5
};

struct Mutation {
  uint64_t key = 0;  // counter noise: key of the stream; table: start index of the slice
  float power = 0;   // sigma, finite
  // of safe mutations
  MutationKind kind = MutationKind::kPlain;
  float clip = 0;           // largest change of a parameter; 0 = any
  uint64_t episode = 0;     // key of the parent's episode (EpisodeRule::Make)
  uint64_t experience = 0;  // hash of the states that were used (evo/evaluate/experience.h)
  bool plain() const { return kind == MutationKind::kPlain; }
  bool operator==(const Mutation&) const = default;
};

struct Genome {
  NoiseKind noise = NoiseKind::kNormal;
  InitKind init = InitKind::kFanIn;
  uint64_t initial = 0;
  std::vector<Mutation> mutations;
  bool operator==(const Genome&) const = default;
  // Whether its seeds alone decide its parameters: no mutation is a safe one.
  bool plain() const;

  bool begins_from_policy() const { return init == InitKind::kPolicy; }

  // Little-endian: version (u8), noise (u8), init (u8), 0 (u8), number of mutations (u32), initial
  // (u64), then the mutations. Version 1, of plain genomes, has key (u64) and power (f32) of each:
  // 16 + 12 per mutation, 3,196 bytes at 265 mutations. Version 2 has key (u64), episode (u64),
  // experience (u64), power (f32), clip (f32) and kind (u32): 16 + 36 per mutation.
  std::string Encode() const;
  // kBadData on anything but an exact encoding. Keys of the table kind need CheckKeys as well.
  static Result<Genome> Decode(std::string_view bytes);
};

// Whether `genome` is `prefix` with further mutations, or with none; compares bits, as -0.0 is a
// power of its own.
bool IsPrefix(const Genome& prefix, const Genome& genome);

// The encoding, fed to `hash`. It tells its own length, so genomes may follow each other.
void UpdateHash(Sha256& hash, const Genome& genome);

// The parameters that a run begins from (run.init_from), in canonical order of its network.
struct InitialPolicy {
  std::vector<float> parameters;
  uint64_t key = 0;              // names them in genomes: of their SHA-256, the first 8 bytes
  std::optional<Genome> genome;  // decodes to them; not of kPolicy
};
InitialPolicy MakeInitialPolicy(std::vector<float> parameters,
                                std::optional<Genome> genome = std::nullopt);

// kBadData when the genome cannot be decoded. Table noise: every slice of `parameter_count` values
// must lie inside the table, that is, each index in [0, 250,000,000 - parameter_count]; the message
// names the first that does not. The counter kinds take any key. A genome that begins from a policy
// needs that policy as `initial`.
Status CheckKeys(const Genome& genome, size_t parameter_count,
                 const InitialPolicy* initial = nullptr);

}  // namespace samara
