#include "samara/input.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/rng.h"
#include "samara/error.h"

namespace samara {

int64_t InputContext::PerReplicaBatch(int64_t global_batch) const {
  if (global_batch <= 0 || global_batch % num_replicas != 0) {
    throw ReplicationError(78, "a global batch of " + std::to_string(global_batch) +
                                   ": expected a multiple of the " + std::to_string(num_replicas) +
                                   " replicas");
  }
  return global_batch / num_replicas;
}

int64_t SampleOrder::StepsPerEpoch() const {
  if (samples <= 0 || global_batch <= 0)
    throw ReplicationError(78, "an order of samples needs a data set and a batch of at least 1");
  return drop_last ? samples / global_batch : (samples + global_batch - 1) / global_batch;
}

std::vector<int64_t> SampleOrder::Indices(int64_t step, int replica, int replicas) const {
  const int64_t steps = StepsPerEpoch();
  if (steps == 0) return {};
  const int64_t epoch = step / steps, at = step % steps * global_batch;
  const int64_t batch = std::min(global_batch, samples - at);
  // contiguous shares that differ by one sample at most
  const int64_t begin = at + batch * replica / replicas,
                end = at + batch * (replica + 1) / replicas;
  std::vector<int64_t> indices(static_cast<size_t>(std::max<int64_t>(0, end - begin)));
  std::iota(indices.begin(), indices.end(), begin);
  if (!shuffle) return indices;
  // a permutation that needs no table: a Feistel network over the next power of four, walked until
  // it lands inside; every rank computes only its own share
  int half = 1;
  while ((int64_t{1} << (2 * half)) < samples) ++half;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t key = DeriveKey(seed, Purpose::kSampleOrder, static_cast<uint64_t>(epoch));
  const auto round = [&](uint64_t x, uint32_t r) {
    const auto block = Philox4x32({static_cast<uint32_t>(x), r, 0, 0},
                                  {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    return (uint64_t{block[0]} << 32 | block[1]) & mask;
  };
  for (int64_t& index : indices) {
    auto x = static_cast<uint64_t>(index);
    do {
      uint64_t left = x >> half, right = x & mask;
      for (uint32_t r = 0; r < 4; ++r) {
        const uint64_t next = left ^ round(right, r);
        left = right;
        right = next;
      }
      x = left << half | right;
    } while (x >= static_cast<uint64_t>(samples));
    index = static_cast<int64_t>(x);
  }
  return indices;
}

}  // namespace samara
