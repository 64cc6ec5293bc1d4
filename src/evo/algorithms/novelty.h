// Novelty of a behaviour: its mean distance to the nearest behaviours that are known (Lehman and
// Stanley 2011). What novelty search by the GA (ga_ns.cc) and by evolution strategies (ns_es.cc)
// share: the keys, the distance, and the archive.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/sha256.h"
#include "core/status.h"
#include "env/interface.h"

namespace samara {

// Kinds of behaviour that characterize an episode.
enum class BehaviourKind : uint8_t {
  kFinalPosition,  // of the body
  kTrajectory,     // its positions after every step
  kRam,            // the simulator's memory after every step
};

// A behaviour as rows of equal size: float32 positions (one row, or one a step), or bytes of
// memory. An episode that has ended holds its last row for ever.
using Behaviour = std::vector<std::byte>;

// The mean of the final positions of episodes that have one.
std::vector<float> MeanPosition(std::span<const EpisodeResult> episodes);

struct NoveltyRule {
  BehaviourKind kind = BehaviourKind::kFinalPosition;
  int64_t neighbours = 10;

  // Add novelty.behaviour and novelty.neighbours.
  void Bind(ConfigTable& table);
  // Returns what episodes must record. kConfig: the environment has no such behaviour.
  Result<RecordKind> Records(const EnvironmentSpec& environment) const;
  // Size of a behaviour's rows.
  size_t RowBytes(const EnvironmentSpec& environment) const;
  // The behaviour of one policy's finished episodes: the mean of their final positions; of
  // trajectories and memory the first one's. REQUIRES: they recorded what Records says.
  Behaviour BehaviourOf(std::span<const EpisodeResult> episodes) const;
};

// Squared Euclidean distance of two behaviours: summed over the rows of the longer one, the shorter
// one holding its last row. Of memory an exact integer. Stops, with a sum of `enough` or more, once
// the sum is as large; `row` is the size of a row. NaN where a position is.
double SquaredDistance(BehaviourKind kind, size_t row, const Behaviour& a, const Behaviour& b,
                       double enough);

// The nearest of the distances that it is offered.
class NearestDistances {
 public:
  explicit NearestDistances(size_t k) : k_(k) {}
  // NaN is no distance.
  void Offer(double squared);
  // A distance from which on Offer changes nothing.
  double bound() const;
  // Mean over the nearest, of the squares or of their roots, summed from the nearest on; over all
  // of them when there are fewer than k. 0 of none.
  double MeanSquared() const;
  double Mean() const;

 private:
  size_t k_;
  std::vector<double> squared_;  // ascending
};

// Behaviours in the order in which they were added; it only grows. Thread safety: const methods
// from any thread; Add and Append while no other thread uses it.
class NoveltyArchive {
 public:
  NoveltyArchive() = default;
  NoveltyArchive(BehaviourKind kind, size_t row) : kind_(kind), row_(row) {}
  // Another one of such behaviours.
  NoveltyArchive Empty() const { return {kind_, row_}; }
  void Add(Behaviour behaviour);
  size_t size() const { return entries_.size(); }
  const Behaviour& operator[](size_t i) const { return entries_[i]; }
  // SHA-256 of the one before and the entry, from zeros: names the whole content.
  const Digest& digest() const { return digest_; }
  // Offers the distance of every entry to `behaviour`.
  void OfferAll(const Behaviour& behaviour, NearestDistances& nearest) const;
  // Mean distance to the `k` nearest entries.
  double MeanDistance(const Behaviour& behaviour, size_t k) const;

  // The entries from number `first` on, and adding those of such bytes. kBadData: damaged, or of
  // other rows.
  std::string Encode(size_t first) const;
  Status Append(std::string_view bytes);

 private:
  BehaviourKind kind_ = BehaviourKind::kFinalPosition;
  size_t row_ = 0;
  std::vector<Behaviour> entries_;
  Digest digest_{};
};

}  // namespace samara
