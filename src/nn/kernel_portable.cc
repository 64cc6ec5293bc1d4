// SPDX-License-Identifier: Apache-2.0 OR MIT
// The population kernel in plain C++: the reference of the other instruction sets.
#include <stddef.h>
#include <stdint.h>

namespace samara::kernel {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kConvVectors = 2;
constexpr size_t kTileRows = 4, kTileVectors = 2;
constexpr size_t kProductRows = 4;

struct Vec {
  float f[kLanes];
};

template <typename F>
inline Vec Map(F f) {
  Vec out;
  for (size_t i = 0; i < kLanes; ++i) out.f[i] = f(i);
  return out;
}

inline Vec Load(const float* p) {
  return Map([&](size_t i) { return p[i]; });
}
inline Vec LoadBytes(const char* p) {
  return Map([&](size_t i) { return static_cast<float>(static_cast<signed char>(p[i])); });
}
inline void Store(float* p, const Vec& v) {
  for (size_t i = 0; i < kLanes; ++i) p[i] = v.f[i];
}
// Two vectors of bfloat16: the low and the high halves of kLanes words.
inline void LoadPair(const float* p, Vec& low, Vec& high) {
  for (size_t i = 0; i < kLanes; ++i) {
    uint32_t word;
    __builtin_memcpy(&word, p + i, 4);
    const uint32_t halves[2] = {word << 16, word & 0xFFFF0000};
    __builtin_memcpy(&low.f[i], &halves[0], 4);
    __builtin_memcpy(&high.f[i], &halves[1], 4);
  }
}
// The low byte of each lane.
inline void StoreLowBytes(char* p, const Vec& v) {
  for (size_t i = 0; i < kLanes; ++i) {
    uint32_t word;
    __builtin_memcpy(&word, &v.f[i], 4);
    p[i] = static_cast<char>(word & 0xFF);
  }
}
inline Vec Broadcast(float x) {
  return Map([&](size_t) { return x; });
}
inline Vec Fma(const Vec& a, const Vec& b, const Vec& c) {
  return Map([&](size_t i) { return __builtin_fmaf(a.f[i], b.f[i], c.f[i]); });
}
inline Vec Add(const Vec& a, const Vec& b) {
  return Map([&](size_t i) { return a.f[i] + b.f[i]; });
}
inline Vec Mul(const Vec& a, const Vec& b) {
  return Map([&](size_t i) { return a.f[i] * b.f[i]; });
}
inline Vec Div(const Vec& a, const Vec& b) {
  return Map([&](size_t i) { return a.f[i] / b.f[i]; });
}
inline Vec Min(const Vec& a, const Vec& b) {
  return Map([&](size_t i) { return a.f[i] < b.f[i] ? a.f[i] : b.f[i]; });
}
inline Vec Max(const Vec& a, const Vec& b) {
  return Map([&](size_t i) { return a.f[i] > b.f[i] ? a.f[i] : b.f[i]; });
}
inline uint32_t NonzeroLanes(const Vec& v) {
  uint32_t bits = 0;
  for (size_t i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(v.f[i] != 0.0f) << i;
  return bits;
}

}  // namespace
}  // namespace samara::kernel

#include "nn/kernel_impl.h"

const samara::kernel::Ops samara::kernel::kPortableOps = samara::kernel::kOps;
