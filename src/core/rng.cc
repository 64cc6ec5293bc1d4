// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/rng.h"

#include <cmath>

#include "core/check.h"
#include "core/math.h"

namespace samara {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

// sub-streams of one key, kept apart by the last counter word
constexpr uint32_t kStreamBits = 0, kStreamBits64 = 1, kStreamUniform = 2, kStreamNormal = 3;

constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
constexpr uint64_t Join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

std::array<uint32_t, 4> Block(uint64_t key, uint64_t index, uint32_t stream) {
  return Philox4x32({Low(index), High(index), 0, stream}, {Low(key), High(key)});
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * c[0], p1 = uint64_t{kMultiplier1} * c[2];
    c = {High(p1) ^ c[1] ^ k[0], Low(p1), High(p0) ^ c[3] ^ k[1], Low(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

uint64_t DeriveKey(uint64_t run_seed, Purpose purpose, uint64_t generation, uint64_t individual,
                   uint64_t episode) {
  // absorb 128 bits at a time: the first block keys the second
  const auto first =
      Philox4x32({Low(generation), High(generation), static_cast<uint32_t>(purpose), 0},
                 {Low(run_seed), High(run_seed)});
  const auto second = Philox4x32({Low(individual), High(individual), Low(episode), High(episode)},
                                 {first[0], first[1]});
  return Join(second[0] ^ first[2], second[1] ^ first[3]);
}

uint32_t CounterRng::Bits(uint64_t index) const {
  return Block(key_, index / 4, kStreamBits)[index % 4];
}

uint64_t CounterRng::Bits64(uint64_t index) const {
  const auto b = Block(key_, index / 2, kStreamBits64);
  return index % 2 == 0 ? Join(b[0], b[1]) : Join(b[2], b[3]);
}

double CounterRng::Uniform(uint64_t index) const {
  const auto b = Block(key_, index / 2, kStreamUniform);
  const uint64_t bits = index % 2 == 0 ? Join(b[0], b[1]) : Join(b[2], b[3]);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

uint64_t CounterRng::UniformInt(uint64_t index, uint64_t n) const {
  DCHECK(n > 0 && n < (uint64_t{1} << 32)) << n;
  // (bits * n) >> 64 in two halves: the bias is below n / 2^64
  const uint64_t bits = Bits64(index);
  return (High(bits) * n + ((Low(bits) * n) >> 32)) >> 32;
}

double CounterRng::Normal(uint64_t index) const {
  const auto b = Block(key_, index, kStreamNormal);
  const double u1 = (static_cast<double>(Join(b[0], b[1]) >> 11) + 0.5) * 0x1.0p-53;
  const double u2 = static_cast<double>(Join(b[2], b[3]) >> 11) * 0x1.0p-53;
  return std::sqrt(-2.0 * Log(u1)) * Cos(6.283185307179586 * u2);
}

}  // namespace samara
