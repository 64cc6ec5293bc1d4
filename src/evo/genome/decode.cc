// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/decode.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/check.h"
#include "core/cpu.h"
#include "core/resources.h"
#include "core/rng.h"
#include "core/thread.h"
#include "evo/genome/noise.h"
#include "evo/genome/noise_table.h"

namespace samara {
namespace {

// Parameters that take all their mutations while they stay in the second-level cache (64 kB); a
// multiple of every noise group.
constexpr size_t kChunk = 16384;
constexpr size_t kPartMin = size_t{1} << 18;  // parameters worth a thread

void Scale(double factor, std::span<float> weights) {
  const auto scale = static_cast<float>(factor);
  for (float& w : weights) w *= scale;
}

// The last dimension of a weight tensor counts output units, so a unit's weights are a column.
void ScaleToNorm(const TensorSlice& tensor, double norm, std::span<float> weights) {
  const auto units = static_cast<size_t>(tensor.shape.back());
  std::vector<double> factor(units, 0.0);
  for (size_t row = 0; row < weights.size(); row += units) {
    for (size_t unit = 0; unit < units; ++unit) {
      const double w = weights[row + unit];
      factor[unit] += w * w;
    }
  }
  for (double& f : factor) f = f == 0 ? 0 : norm / std::sqrt(f);
  for (size_t row = 0; row < weights.size(); row += units) {
    for (size_t unit = 0; unit < units; ++unit) {
      weights[row + unit] = static_cast<float>(weights[row + unit] * factor[unit]);
    }
  }
}

// From noise (which it need not read) to initial weights.
void Initialize(const Genome& genome, const TensorSlice& tensor, std::span<float> weights) {
  const auto fan_in = static_cast<double>(tensor.fan_in),
             fan_out = static_cast<double>(tensor.fan_out);
  const double c = tensor.output_layer ? 0.1 : 1.0;
  switch (genome.init) {
    case InitKind::kFanIn:
      return Scale(c / std::sqrt(fan_in), weights);
    case InitKind::kUnitNorm:
      return ScaleToNorm(tensor, c, weights);
    case InitKind::kUnitNormSmall:
      return ScaleToNorm(tensor, tensor.output_layer ? 0.01 : 1.0, weights);
    case InitKind::kXavier:
      return Scale(std::sqrt(2 / (fan_in + fan_out)), weights);
    case InitKind::kHe:
      return Scale(std::sqrt(2 / fan_in), weights);
    case InitKind::kPolicy:
      break;
    case InitKind::kUniform: {
      const CounterRng rng(genome.initial);
      for (size_t i = 0; i < weights.size(); ++i)
        weights[i] = static_cast<float>(2 * rng.Uniform(tensor.offset + i) - 1);
      return;
    }
  }
}

// out = base + the mutations, left to right, `size` parameters at a time; `base` may be `out`.
void ApplyInChunks(const Noise& noise, std::span<const Mutation> mutations,
                   std::span<const float> base, size_t first, size_t size, std::span<float> out) {
  for (size_t at = 0; at < out.size(); at += size) {
    const auto chunk = out.subspan(at, std::min(size, out.size() - at));
    std::span<const float> from = base.subspan(at, chunk.size());
    for (const Mutation& mutation : mutations) {
      noise.Add(mutation.key, mutation.power, first + at, from, chunk);
      from = chunk;
    }
    if (from.data() != chunk.data()) std::copy(from.begin(), from.end(), chunk.begin());
  }
}

// The same of all evolved parameters, which is all that `base` and `out` hold. Slices that are not
// cached are drawn on all cores, a part of the parameters each.
void ApplyMutations(NoiseKind kind, std::span<const Mutation> mutations,
                    std::span<const float> base, std::span<float> out) {
  for (const Mutation& mutation : mutations) CHECK(mutation.plain());
  const Noise& noise = GetNoise(kind);
  if (!noise.prefers_long_slices()) return ApplyInChunks(noise, mutations, base, 0, kChunk, out);
  const size_t part = std::max(kPartMin, (out.size() + Cores() - 1) / Cores());
  const size_t parts = (out.size() + part - 1) / part;
  const auto apply = [&](size_t i) {
    const size_t at = i * part, n = std::min(part, out.size() - at);
    ApplyInChunks(noise, mutations, base.subspan(at, n), at, n, out.subspan(at, n));
  };
  ThreadGroup others(/*stop=*/nullptr);
  const bool started = others.Start("decode", parts - 1, [&](size_t i) { apply(i + 1); }).ok();
  apply(0);
  for (size_t i = 1; i < parts && !started; ++i) apply(i);  // no room for threads
  others.Join();
}

// murmur3's finaliser: every bit of the argument reaches every bit of the result
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

// hashes[k] covers the first k mutations. Only an index: a hit is compared in full.
std::vector<uint64_t> PrefixHashes(const Genome& genome) {
  std::vector<uint64_t> hashes;
  hashes.reserve(genome.mutations.size() + 1);
  hashes.push_back(Mix(genome.initial + Mix(static_cast<uint64_t>(genome.noise) << 8 |
                                            static_cast<uint64_t>(genome.init))));
  for (const Mutation& m : genome.mutations) {
    hashes.push_back(Mix(Mix(hashes.back() ^ m.key) + std::bit_cast<uint32_t>(m.power)));
  }
  return hashes;
}

}  // namespace

void InitialParameters(const Genome& genome, const NetworkDescription& network,
                       std::span<float> out, const InitialPolicy* initial) {
  CHECK_EQ(out.size(), network.parameter_count);
  if (genome.begins_from_policy()) {
    CHECK(initial != nullptr && initial->key == genome.initial);
    CHECK_EQ(initial->parameters.size(), out.size());
    std::copy(initial->parameters.begin(), initial->parameters.end(), out.begin());
    return;
  }
  GetNoise(genome.noise).Fill(genome.initial, 0, out.first(network.evolved_count));
  for (const TensorSlice& tensor : Tensors(network)) {
    const auto values = out.subspan(tensor.offset, tensor.count);
    if (tensor.bias)
      std::fill(values.begin(), values.end(), tensor.initial);
    else
      Initialize(genome, tensor, values);
  }
}

void DecodeParameters(const Genome& genome, const NetworkDescription& network, std::span<float> out,
                      const InitialPolicy* initial) {
  // where more values would be drawn than the table has, and there is room for it
  const uint64_t drawn = (genome.mutations.size() + 1) * network.evolved_count;
  if (genome.noise == NoiseKind::kTable && drawn > kNoiseTableSize &&
      AvailableMemory().value_or(0) > 2 * sizeof(float) * kNoiseTableSize)
    HoldNoiseTable();
  InitialParameters(genome, network, out, initial);
  const auto evolved = out.first(network.evolved_count);
  ApplyMutations(genome.noise, genome.mutations, evolved, evolved);
}

AncestorCache::AncestorCache(NetworkDescription network, size_t bytes_max,
                             const InitialPolicy* initial)
    : network_(std::move(network)), bytes_max_(bytes_max), initial_(initial) {}

size_t AncestorCache::Entry::bytes() const {
  return parameters->size() * sizeof(float) + genome.mutations.size() * sizeof(Mutation);
}

void AncestorCache::DecodeParameters(const Genome& genome, std::span<float> out) {
  CHECK_EQ(out.size(), network_.parameter_count);
  Build(genome, FindAndCount(genome, PrefixHashes(genome)), out);
}

void AncestorCache::Keep(const Genome& genome) {
  const std::vector<uint64_t> hashes = PrefixHashes(genome);
  const Found start = FindAndCount(genome, hashes);
  if (start.parameters && start.mutations == genome.mutations.size()) return;
  auto parameters = std::make_shared<std::vector<float>>(network_.parameter_count);
  Build(genome, start, *parameters);
  Entry entry{hashes.back(), genome, std::move(parameters)};
  if (entry.bytes() > bytes_max_) return;

  Entries gone;  // freed after the lock
  const MutexLock lock(mu_);
  // another thread kept it meanwhile, or (2^-64) another genome has this hash
  if (const auto same = by_hash_.find(entry.hash); same != by_hash_.end())
    Remove(same->second, gone);
  while (counters_.bytes + entry.bytes() > bytes_max_) {
    Remove(std::prev(entries_.end()), gone);
    ++counters_.evictions;
  }
  counters_.bytes += entry.bytes();
  entries_.push_front(std::move(entry));
  by_hash_[hashes.back()] = entries_.begin();
  counters_.entries = entries_.size();
}

AncestorCache::Counters AncestorCache::counters() const {
  const MutexLock lock(mu_);
  return counters_;
}

// The longest held prefix, which counts as used now.
AncestorCache::Found AncestorCache::FindAndCount(const Genome& genome,
                                                 std::span<const uint64_t> hashes) {
  const MutexLock lock(mu_);
  Found found;
  for (size_t n = hashes.size(); n-- > 0 && !found.parameters;) {
    const auto candidate = by_hash_.find(hashes[n]);
    if (candidate == by_hash_.end()) continue;
    const auto entry = candidate->second;
    if (entry->genome.mutations.size() != n || !IsPrefix(entry->genome, genome)) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    found = {entry->parameters, n};
  }
  ++(found.parameters ? counters_.hits : counters_.misses);
  counters_.mutations += genome.mutations.size() - found.mutations;
  return found;
}

void AncestorCache::Build(const Genome& genome, const Found& start, std::span<float> out) const {
  if (genome.noise == NoiseKind::kTable) HoldNoiseTable();  // a cache decodes many genomes
  if (!start.parameters) return samara::DecodeParameters(genome, network_, out, initial_);
  const auto n = network_.evolved_count;
  ApplyMutations(genome.noise, std::span(genome.mutations).subspan(start.mutations),
                 std::span(*start.parameters).first(n), out.first(n));
  std::copy(start.parameters->begin() + static_cast<ptrdiff_t>(n), start.parameters->end(),
            out.begin() + static_cast<ptrdiff_t>(n));
}

void AncestorCache::Remove(Entries::iterator entry, Entries& gone) {
  counters_.bytes -= entry->bytes();
  by_hash_.erase(entry->hash);
  gone.splice(gone.begin(), entries_, entry);
}

}  // namespace samara
