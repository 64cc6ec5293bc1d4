// SPDX-License-Identifier: Apache-2.0 OR MIT
// The noise table of the released GPU program (neuroevolution.md 1.1): 250,000,000 values of
// NumPy's legacy RandomState(123).randn, narrowed to float32. The generator is MT19937 seeded with
// 123; each uniform takes two of its words, u = ((a >> 5) 2^26 + (b >> 6)) / 2^53; the polar method
//   x1 = 2 u1 - 1, x2 = 2 u2 - 1, s = x1^2 + x2^2, again unless 0 < s < 1, f = sqrt(-2 ln(s) / s)
// gives f x2, then f x1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace samara {

// The whole table, drawn at the first call (1 GB, several seconds); any thread may call.
std::span<const float> NoiseTable();

// Draws the table's values in order.
class LegacyNormals {
 public:
  explicit LegacyNormals(uint32_t seed) : words_(seed) {}
  // REQUIRES: an even size, as values come in pairs.
  void Draw(std::span<float> out);

 private:
  std::mt19937 words_;
};

}  // namespace samara
