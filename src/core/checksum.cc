// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sixteen lanes of 64 bits, a block of 128 bytes at a time. A lane adds, for its word w and a key
// that changes from block to block, x = w ^ key: lower half of x times upper half of x, plus w. The
// product depends on the place of a word, the plain sum keeps what a product with zero forgets.
#include "core/checksum.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samara {
namespace {

constexpr size_t kLanes = 16, kBlock = kLanes * sizeof(uint64_t);
constexpr uint64_t kStep = 0x9E3779B97F4A7C15;  // of the keys, from block to block

// Odd and without a pattern: keys of the first block, and factors of the lanes at the end.
constexpr std::array<uint64_t, kLanes> kKeys = [] {
  std::array<uint64_t, kLanes> keys{};
  uint64_t h = kStep;
  for (uint64_t& key : keys) {
    h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9;
    key = h | 1;
  }
  return keys;
}();

struct alignas(64) Lanes {
  std::array<uint64_t, kLanes> sums{}, keys = kKeys;
};

using Update = void (*)(const std::byte* data, size_t blocks, Lanes& lanes);

void UpdatePortable(const std::byte* data, size_t blocks, Lanes& lanes) {
  for (; blocks > 0; --blocks, data += kBlock) {
    uint64_t words[kLanes];
    std::memcpy(words, data, kBlock);
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t x = words[i] ^ lanes.keys[i];
      lanes.sums[i] += (x & 0xFFFFFFFF) * (x >> 32) + words[i];
      lanes.keys[i] += kStep;
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void UpdateAvx2(const std::byte* data, size_t blocks,
                                                Lanes& lanes) {
  constexpr size_t kVectors = kBlock / sizeof(__m256i);
  const __m256i step = _mm256_set1_epi64x(static_cast<int64_t>(kStep));
  auto* sums = reinterpret_cast<__m256i*>(lanes.sums.data());
  auto* keys = reinterpret_cast<__m256i*>(lanes.keys.data());
  __m256i sum[kVectors], key[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    sum[v] = _mm256_load_si256(sums + v);
    key[v] = _mm256_load_si256(keys + v);
  }
  for (; blocks > 0; --blocks, data += kBlock) {
    for (size_t v = 0; v < kVectors; ++v) {
      const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data) + v);
      const __m256i x = _mm256_xor_si256(w, key[v]);
      const __m256i product = _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32));
      sum[v] = _mm256_add_epi64(sum[v], _mm256_add_epi64(product, w));
      key[v] = _mm256_add_epi64(key[v], step);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    _mm256_store_si256(sums + v, sum[v]);
    _mm256_store_si256(keys + v, key[v]);
  }
}
#endif

Update UpdateOf(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::kAvx2) return UpdateAvx2;
#endif
  (void)level;
  return UpdatePortable;
}

uint64_t Run(Update update, std::span<const std::byte> data, uint64_t seed) {
  Lanes lanes;
  const size_t whole = data.size() / kBlock, rest = data.size() % kBlock;
  update(data.data(), whole, lanes);
  if (rest > 0) {
    alignas(64) std::byte last[kBlock] = {};
    std::memcpy(last, data.data() + whole * kBlock, rest);
    update(last, 1, lanes);
  }
  uint64_t h = 0;
  for (size_t i = 0; i < kLanes; ++i) h += (lanes.sums[i] ^ (lanes.sums[i] >> 29)) * kKeys[i];
  return MixWord(MixWord(MixWord(0, seed), data.size()), h);
}

}  // namespace

uint64_t Checksum(std::span<const std::byte> data, uint64_t seed) {
  static const Update update = UpdateOf(ActiveIsa());
  return Run(update, data, seed);
}

uint64_t TEST_ChecksumAt(IsaLevel level, std::span<const std::byte> data, uint64_t seed) {
  return Run(UpdateOf(level), data, seed);
}

}  // namespace samara
