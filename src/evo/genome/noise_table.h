// SPDX-License-Identifier: Apache-2.0 OR MIT
// The noise table of the released GPU program: 250,000,000 values of
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

// The generator has no shortcut to its n-th value. A caller that reads thousands of slices, as
// training does, holds the table in memory; one that decodes a genome or two draws what it needs
// again from the nearest of a thousand remembered states (2.4 MB; 2 seconds once to find them, and
// about 17 ns a value). Both have the same bits. Any thread may call any of this.

// Holds the whole table in memory until the process ends: 1 GB, drawn at the first call, which
// takes several seconds.
void HoldNoiseTable();
bool NoiseTableIsHeld();
// out[i] = table[first + i]. REQUIRES: first + out.size() <= kNoiseTableSize.
void ReadNoiseTable(uint64_t first, std::span<float> out);
// The same without a copy. REQUIRES: the table is held.
std::span<const float> HeldNoiseTable();

// Draws the table's values in order.
class LegacyNormals {
  // std::mt19937's sequence in words of 32 bits; its own have 64, which takes twice the time.
  using Words = std::mersenne_twister_engine<uint32_t, 32, 624, 397, 31, 0x9908b0df, 11, 0xffffffff,
                                             7, 0x9d2c5680, 15, 0xefc60000, 18, 1812433253>;

 public:
  explicit LegacyNormals(uint32_t seed) : words_(seed) {}
  // REQUIRES of both: an even size, as values come in pairs.
  void Draw(std::span<float> out);
  void Skip(uint64_t values);

 private:
  double Uniform();  // in [0, 1), of two words

  Words words_;
};

}  // namespace samara
