// SPDX-License-Identifier: Apache-2.0 OR MIT
// The Gaussian quantiles of the quantile8 noise:
//   q[b] = round(32 PhiInv((b + 0.5) / 256)),   value q / 31.983f (unit variance, kurtosis 2.916).
// q[255 - b] = -q[b], so only the upper half is stored: kQuantileHalf[i] = q[128 + i].
// No quantile is nearer than 0.006 to a rounding boundary; tests recompute the table.
// Compiled with instruction-set flags: no standard library code here.
#pragma once

#include <cstdint>

namespace samara {

constexpr float kQuantileScale = 31.983f;
alignas(64) inline constexpr int8_t kQuantileHalf[128] = {
    0,  0,  1,  1,  1,  2,  2,  2,  3,  3,  3,  4,  4,  4,  5,  5,  5,  6,  6,  6,  6,  7,
    7,  7,  8,  8,  8,  9,  9,  9,  10, 10, 10, 11, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14,
    14, 15, 15, 15, 16, 16, 17, 17, 17, 18, 18, 18, 19, 19, 19, 20, 20, 21, 21, 21, 22, 22,
    23, 23, 23, 24, 24, 25, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31, 32, 32,
    33, 33, 34, 34, 35, 35, 36, 37, 37, 38, 38, 39, 40, 40, 41, 42, 43, 43, 44, 45, 46, 47,
    48, 49, 50, 51, 52, 53, 54, 56, 57, 59, 61, 63, 65, 67, 71, 75, 81, 92};

}  // namespace samara
