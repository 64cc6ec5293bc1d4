// SPDX-License-Identifier: Apache-2.0 OR MIT
// From a genome to its parameters, and a cache of ancestors so that a child costs one mutation.
//
// Initial parameters, in canonical order; the noise covers every evolved parameter, biases
// included, which are then set to 0 (scales of a normalization to 1):
//   kFanIn     w = e * float32(c / sqrt(fan_in)), in float32, as the released GPU program computes;
//   kUnitNorm  the weights that lead to one output unit are scaled to L2 norm c: sum of squares in
//              float64 in canonical order (rows upwards), w = float32(e * (c / sqrt(sum))); a
//              vector of zeros stays;
//   kUnitNormSmall  the same with 0.01 in the output layer;
// c = 1 in hidden layers, 0.1 in the output layer;
//   kPolicy    w = the policy's, which the caller passes as `initial`;
//   kXavier    w = e * float32(sqrt(2 / (fan_in + fan_out))) (Glorot and Bengio 2010);
//   kHe        w = e * float32(sqrt(2 / fan_in)) (He et al. 2015);
//   kUniform   w = float32(2 u - 1) with u the draw of core/rng.h's stream of the genome's initial
//              key at w's place, whatever the noise: weights of NEAT.
// A recurrent layer's two matrices have their own fan_in, and the fan_out of one gate.
//
// Statistics of the network (network.h) are 0 for means and 1 for variances and deviations; noise
// and mutations leave them as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/mutex.h"
#include "evo/genome/genome.h"
#include "nn/network.h"

namespace samara {

// out[parameter_count] = theta_0. REQUIRES: CheckKeys(genome, parameter_count, initial) is ok.
void InitialParameters(const Genome& genome, const NetworkDescription& network,
                       std::span<float> out, const InitialPolicy* initial = nullptr);

// out[parameter_count] = the genome's parameters. REQUIRES: as above, and genome.plain().
void DecodeParameters(const Genome& genome, const NetworkDescription& network, std::span<float> out,
                      const InitialPolicy* initial = nullptr);

// Parameters of kept genomes, found again as prefixes of their descendants.
// Thread safety: every method may be called from any thread.
// Invariants: (1) what DecodeParameters writes never depends on what the cache holds; (2) after
// each call bytes <= bytes_max. Vectors that other threads are reading while they are evicted live
// until then: at most one per thread on top.
class AncestorCache {
 public:
  // bytes_max: 4 per parameter and sizeof(Mutation) per mutation of every genome held. 0 holds
  // nothing. `initial`: of genomes that begin from a policy; outlives the cache.
  AncestorCache(NetworkDescription network, size_t bytes_max,
                const InitialPolicy* initial = nullptr);
  AncestorCache(const AncestorCache&) = delete;
  AncestorCache& operator=(const AncestorCache&) = delete;

  // Like samara::DecodeParameters, starting at the longest prefix of `genome` that is held.
  // REQUIRES: genome.plain(), as of Keep.
  void DecodeParameters(const Genome& genome, std::span<float> out);
  // Holds the parameters of `genome` (a parent-to-be), built from its own longest prefix; what was
  // used least recently leaves. A genome larger than the bound is not held.
  void Keep(const Genome& genome);

  struct Counters {
    uint64_t hits = 0, misses = 0;  // calls that found a prefix, or built theta_0
    uint64_t mutations = 0;         // applied in all calls
    uint64_t evictions = 0;
    size_t entries = 0, bytes = 0;  // held now
  };
  Counters counters() const;
  const NetworkDescription& network() const { return network_; }

 private:
  using Parameters = std::shared_ptr<const std::vector<float>>;
  struct Entry {
    uint64_t hash;  // of the whole genome
    Genome genome;
    Parameters parameters;
    size_t bytes() const;
  };
  using Entries = std::list<Entry>;
  struct Found {
    Parameters parameters;  // null when no prefix is held
    size_t mutations = 0;   // of the prefix
  };

  Found FindAndCount(const Genome& genome, std::span<const uint64_t> hashes);
  void Build(const Genome& genome, const Found& start, std::span<float> out) const;
  // Moves an entry to `gone`.
  void Remove(Entries::iterator entry, Entries& gone) REQUIRES(mu_);

  // constant after construction
  const NetworkDescription network_;
  const size_t bytes_max_;
  const InitialPolicy* const initial_;

  mutable Mutex mu_;
  Entries entries_ GUARDED_BY(mu_);  // most recently used first
  std::unordered_map<uint64_t, Entries::iterator> by_hash_ GUARDED_BY(mu_);
  Counters counters_ GUARDED_BY(mu_);
};

}  // namespace samara
