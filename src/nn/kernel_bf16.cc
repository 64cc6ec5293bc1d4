// SPDX-License-Identifier: Apache-2.0 OR MIT
// Products of matrices whose numbers are rounded to bfloat16, summed in float32. Compiled with
// flags of its own: see kernel_ops.h.
//
// Two links go together in a word, the first in its low half: so the instruction takes them. The
// matrices are packed a block at a time, on the stack.
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/kernel_ops.h"

namespace samara::kernel {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kTileRows = 12, kTileVectors = 2;  // what the registers hold
constexpr size_t kPanel = kTileVectors * kLanes;    // columns
constexpr size_t kBlockRows = 8 * kTileRows;        // of the left matrix
constexpr size_t kPairs = 128;                      // of links

constexpr size_t Least(size_t a, size_t b) { return a < b ? a : b; }
// The first n lanes, at most all.
inline __mmask16 First(size_t n) {
  return static_cast<__mmask16>(n < kLanes ? (1U << n) - 1 : 0xFFFFU);
}

// Words of two rows' numbers; second: null for zeros.
inline __m512i Words(const float* first, const float* second, __mmask16 lanes) {
  const auto halves = [lanes](const float* from) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, from));
    return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(rounded));
  };
  const __m512i low = halves(first);
  return second == nullptr ? low : _mm512_or_si512(low, _mm512_slli_epi32(halves(second), 16));
}

// Two rows of `n` numbers, as words.
inline void PackRows(const float* first, const float* second, size_t n, uint32_t* words) {
  for (size_t i = 0; i < n; i += kLanes)
    _mm512_storeu_si512(words + i,
                        Words(first + i, second == nullptr ? nullptr : second + i, First(n - i)));
}

// A row of `n` numbers, of which two neighbours make a word.
inline void PackNeighbours(const float* from, size_t n, uint32_t* words) {
  for (size_t i = 0; i < n; i += 2 * kLanes, words += kLanes) {
    const __m512 low = _mm512_maskz_loadu_ps(First(n - i), from + i);
    const size_t left = n - i > kLanes ? n - i - kLanes : 0;
    const __m512 high =
        left > 0 ? _mm512_maskz_loadu_ps(First(left), from + i + kLanes) : _mm512_setzero_ps();
    _mm512_storeu_si512(words, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
}

// A block of the left matrix: the word of a row and a pair is at row * row_step + pair * pair_step.
struct LeftBlock {
  alignas(64) uint32_t words[kBlockRows * kPairs];
  size_t row_step, pair_step;
};

void PackLeft(const ProductTask& t, size_t row, size_t rows, size_t link, size_t links,
              LeftBlock& block) {
  const float* from = t.left + row * t.left_row + link * t.left_link;
  if (t.left_link == 1) {
    block.row_step = kPairs, block.pair_step = 1;
    for (size_t r = 0; r < rows; ++r)
      PackNeighbours(from + r * t.left_row, links, block.words + r * kPairs);
    return;
  }
  block.row_step = 1, block.pair_step = kBlockRows;
  for (size_t l = 0; l < links; l += 2)
    PackRows(from + l * t.left_link, l + 1 < links ? from + (l + 1) * t.left_link : nullptr, rows,
             block.words + l / 2 * kBlockRows);
}

// A tile from `row` of the block and column `column` of the output on. One that reaches beyond the
// last row computes that row again.
template <size_t kVectors>
void Tile(const ProductTask& t, const LeftBlock& left, const uint32_t* right, size_t first_row,
          size_t rows, size_t row, size_t column, size_t pairs, bool add) {
  const uint32_t* word[kTileRows];
  float* out[kTileRows];
  __m512 sum[kTileRows][kVectors];
  SAMARA_UNROLL
  for (size_t i = 0; i < kTileRows; ++i) {
    const size_t m = Least(row + i, rows - 1);
    word[i] = left.words + m * left.row_step;
    out[i] = t.out + (first_row + m) * t.out_row + column;
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      sum[i][v] = add      ? _mm512_loadu_ps(out[i] + v * kLanes)
                  : t.bias ? _mm512_loadu_ps(t.bias + column + v * kLanes)
                           : _mm512_setzero_ps();
  }
  for (size_t pair = 0, at = 0; pair < pairs; ++pair, at += left.pair_step, right += kPanel) {
    __m512bh r[kVectors];
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      r[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(right + v * kLanes));
    SAMARA_UNROLL
    for (size_t i = 0; i < kTileRows; ++i) {
      const auto l = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(word[i][at])));
      SAMARA_UNROLL
      for (size_t v = 0; v < kVectors; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], l, r[v]);
    }
  }
  SAMARA_UNROLL
  for (size_t i = 0; i < kTileRows; ++i) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) _mm512_storeu_ps(out[i] + v * kLanes, sum[i][v]);
  }
}

}  // namespace

void ProductBf16(const ProductTask& t) {
  LeftBlock left;
  alignas(64) uint32_t right[kPairs * kPanel];
  for (size_t link = 0; link < t.links; link += 2 * kPairs) {
    const size_t links = Least(2 * kPairs, t.links - link), pairs = (links + 1) / 2;
    const bool add = t.add || link > 0;
    for (size_t first = 0; first < t.rows; first += kBlockRows) {
      const size_t rows = Least(kBlockRows, t.rows - first);
      PackLeft(t, first, rows, link, links, left);
      for (size_t column = 0; column < t.columns; column += kPanel) {
        const size_t columns = Least(kPanel, t.columns - column);
        for (size_t l = 0; l < links; l += 2) {
          const float* from = t.right + (link + l) * t.right_row + column;
          PackRows(from, l + 1 < links ? from + t.right_row : nullptr, columns,
                   right + l / 2 * kPanel);
        }
        for (size_t row = 0; row < rows; row += kTileRows) {
          if (columns == kPanel)
            Tile<kTileVectors>(t, left, right, first, rows, row, column, pairs, add);
          else
            Tile<1>(t, left, right, first, rows, row, column, pairs, add);
        }
      }
    }
  }
}

}  // namespace samara::kernel
#endif
