// SPDX-License-Identifier: Apache-2.0 OR MIT
// The counter noise of noise.h in whole groups, one instance per instruction set.
// Compiled with instruction-set flags: no standard library code here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace samara {

constexpr size_t kNormalGroup = 64, kQuantile8Group = 256;  // elements

// Both functions treat `groups` groups from number `group` on and trust their caller.
struct NoiseKernel {
  size_t group_size;
  void (*fill)(uint64_t key, uint64_t group, size_t groups, float* out);
  // out = base + power * noise; `base` may be `out`
  void (*add)(uint64_t key, uint64_t group, size_t groups, float power, const float* base,
              float* out);
};

extern const NoiseKernel kNormalPortable, kQuantile8Portable;  // noise_portable.cc
extern const NoiseKernel kNormalAvx2, kQuantile8Avx2;          // noise_avx2.cc
extern const NoiseKernel kNormalAvx512, kQuantile8Avx512;      // noise_avx512.cc

}  // namespace samara
