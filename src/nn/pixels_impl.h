// SPDX-License-Identifier: Apache-2.0 OR MIT
// The one implementation of the pixel loops; included by pixels_{portable,avx2,avx512}.cc only,
// which name the function that returns it.
//
// Loops over output columns have no reduction and vectorise as they stand; bytes are picked by
// shuffles where the instruction set has them. Horizontal results are kept per source row, because
// neighbouring output rows share source rows and equal source rows (background) share results.
#include "nn/pixels_ops.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace samara::pixels {
namespace {

void MaxTail(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t i, size_t n,
             uint8_t* out) {
  for (; i < n; ++i) {
    const uint8_t u = lookup.table[a[i] >> lookup.shift], v = lookup.table[b[i] >> lookup.shift];
    out[i] = u > v ? u : v;
  }
}

void PairTail(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t i, size_t n,
              uint8_t* out) {
  const size_t row = 256U >> lookup.shift;
  for (; i < n; ++i) {
    out[i] = lookup.pair[static_cast<size_t>(a[i] >> lookup.shift) * row + (b[i] >> lookup.shift)];
  }
}

#if defined(__AVX2__)

// The table in sixteens, each in both halves of a register.
struct Tables {
  explicit Tables(const Lookup& lookup) : shift(lookup.shift), count(16 >> lookup.shift) {
    for (int t = 0; t < count; ++t) {
      part[t] = _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(lookup.table + 16 * t)));
    }
  }
  int shift, count;
  __m256i part[16];
};

// 32 entries: sixteen-entry shuffles, each answering where its number is the entry's high part
// (elsewhere the addition sets the top bit, and the shuffle gives 0).
template <int kCount>
inline __m256i Shuffles(__m256i entry, const Tables& tables) {
  __m256i result = _mm256_setzero_si256();
  for (int t = 0; t < kCount; ++t) {
    const __m256i here = _mm256_xor_si256(entry, _mm256_set1_epi8(static_cast<char>(t << 4)));
    const __m256i select = _mm256_adds_epu8(here, _mm256_set1_epi8(0x70));
    result = _mm256_or_si256(result, _mm256_shuffle_epi8(tables.part[t], select));
  }
  return result;
}

inline __m256i Lookup32(__m256i index, const Tables& tables) {
  if (tables.shift == 0) return Shuffles<16>(index, tables);
  return Shuffles<8>(_mm256_and_si256(_mm256_srli_epi16(index, 1), _mm256_set1_epi8(0x7f)), tables);
}

inline __m256i Load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline void Store32(uint8_t* p, __m256i x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
}
inline bool Equal(__m256i a, __m256i b) {
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) == -1;
}

void LookupMax(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t n, uint8_t* out) {
  const Tables tables(lookup);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i x = Load32(a + i), y = Load32(b + i);
    __m256i result = Lookup32(x, tables);
    if (!Equal(x, y)) result = _mm256_max_epu8(result, Lookup32(y, tables));
    Store32(out + i, result);
  }
  MaxTail(lookup, a, b, i, n, out);
}

void LookupPair(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t n, uint8_t* out) {
  const Tables tables(lookup);
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i x = Load32(a + i), y = Load32(b + i);
    if (Equal(x, y)) {
      Store32(out + i, Lookup32(x, tables));
    } else {
      PairTail(lookup, a, b, i, i + 32, out);
    }
  }
  PairTail(lookup, a, b, i, n, out);
}

// gathered[x] = row[column of tap k of x]; reads up to kPad bytes beyond the row.
void Gather(const Taps& taps, size_t k, const uint8_t* row, uint8_t* gathered) {
  if (taps.base == nullptr) {
    const uint16_t* column = taps.column + k * taps.padded;
    for (size_t x = 0; x < taps.padded; ++x) gathered[x] = row[column[x]];
    return;
  }
  const uint8_t* shuffle = taps.shuffle + k * taps.padded;
  const uint16_t* base = taps.base + k * (taps.padded / 16);
  for (size_t x = 0; x < taps.padded; x += 16) {
    const uint8_t* from = row + base[x / 16];
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16));
    const __m128i select = _mm_loadu_si128(reinterpret_cast<const __m128i*>(shuffle + x));
    // select < 16 takes from `low` (the addition leaves the top bit clear), others from `high`
    const __m128i in_low = _mm_shuffle_epi8(low, _mm_adds_epu8(select, _mm_set1_epi8(0x70)));
    const __m128i in_high = _mm_shuffle_epi8(high, _mm_sub_epi8(select, _mm_set1_epi8(16)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(gathered + x), _mm_or_si128(in_low, in_high));
  }
}

#else

void LookupMax(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t n, uint8_t* out) {
  MaxTail(lookup, a, b, 0, n, out);
}

void LookupPair(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t n, uint8_t* out) {
  PairTail(lookup, a, b, 0, n, out);
}

void Gather(const Taps& taps, size_t k, const uint8_t* row, uint8_t* gathered) {
  const uint16_t* column = taps.column + k * taps.padded;
  for (size_t x = 0; x < taps.padded; ++x) gathered[x] = row[column[x]];
}

#endif

inline int32_t RoundHalfEven(float x) { return static_cast<int32_t>(__builtin_rintf(x)); }
inline uint8_t Clip(int32_t x) { return static_cast<uint8_t>(x < 0 ? 0 : x > 255 ? 255 : x); }

// The scratch line that holds the horizontal result of source row y. `fill` computes it unless it
// is there, or the row equals the one computed before it.
template <typename T, typename Source, typename Fill>
const T* Line(Resize& r, const Source* in, int32_t y, uint32_t lines, const Fill& fill) {
  for (uint32_t i = 0; i < lines; ++i) {
    if (r.line_row[i] == y) return static_cast<const T*>(r.line[i]);
  }
  const uint32_t mine = r.next_line;
  r.next_line = (mine + 1) % lines;
  T* line = static_cast<T*>(r.line[mine]);
  r.line_row[mine] = y;
  const Source* row = in + static_cast<size_t>(y) * r.width;
  fill(row, line);
  return line;
}

void Forget(Resize& r) {
  for (int32_t& row : r.line_row) row = -1;
  r.next_line = 0;
}

void Area(Resize& r, const uint8_t* in, uint8_t* out) {
  const size_t n = r.taps.padded;
  float* sum = static_cast<float*>(r.line[2]);
  const auto fill = [&r, n](const uint8_t* row, float* line) {
    for (size_t k = 0; k < r.taps.taps; ++k) {
      Gather(r.taps, k, row, r.gathered);
      const float* weight = r.taps.weight_float + k * n;
      const uint8_t* pixel = r.gathered;
      if (k == 0) {
        for (size_t x = 0; x < n; ++x) line[x] = static_cast<float>(pixel[x]) * weight[x];
      } else {
        for (size_t x = 0; x < n; ++x) line[x] += static_cast<float>(pixel[x]) * weight[x];
      }
    }
  };
  Forget(r);
  for (size_t y = 0; y < r.rows.out; ++y) {
    for (size_t j = 0; j < r.rows.count[y]; ++j) {
      const float* line = Line<float>(r, in, static_cast<int32_t>(r.rows.first[y] + j), 2, fill);
      const float weight = r.rows.weight_float[y * r.rows.taps + j];
      if (j == 0) {
        for (size_t x = 0; x < n; ++x) sum[x] = weight * line[x];
      } else {
        for (size_t x = 0; x < n; ++x) sum[x] += weight * line[x];
      }
    }
    for (size_t x = 0; x < r.taps.out; ++x) out[x] = Clip(RoundHalfEven(sum[x]));
    out += r.taps.out;
  }
}

void Linear(Resize& r, const uint8_t* in, uint8_t* out) {
  const size_t n = r.taps.padded;
  const auto fill = [&r, n](const uint8_t* row, int32_t* line) {
    for (size_t k = 0; k < 2; ++k) {
      Gather(r.taps, k, row, r.gathered);
      const int32_t* weight = r.taps.weight_int + k * n;
      const uint8_t* pixel = r.gathered;
      if (k == 0) {
        for (size_t x = 0; x < n; ++x) line[x] = pixel[x] * weight[x];
      } else {
        for (size_t x = 0; x < n; ++x) line[x] += pixel[x] * weight[x];
      }
    }
  };
  Forget(r);
  for (size_t y = 0; y < r.rows.out; ++y) {
    const int32_t first = r.rows.first[y];
    const int32_t second = first + (r.rows.count[y] > 1 ? 1 : 0);
    const int32_t* top = Line<int32_t>(r, in, first, 2, fill);
    const int32_t* bottom = Line<int32_t>(r, in, second, 2, fill);
    const int32_t w0 = r.rows.weight_int[2 * y], w1 = r.rows.weight_int[2 * y + 1];
    for (size_t x = 0; x < r.taps.out; ++x) {
      const int32_t upper = (w0 * (top[x] >> 4)) >> 16, lower = (w1 * (bottom[x] >> 4)) >> 16;
      out[x] = Clip((upper + lower + 2) >> 2);
    }
    out += r.taps.out;
  }
}

constexpr int kPilBits = 22;  // of Pillow's fixed-point weights

void Pil(Resize& r, const uint8_t* in, uint8_t* out) {
  const size_t n = r.taps.padded;
  int32_t* sum = static_cast<int32_t*>(r.line[15]);
  const auto fill = [&r, n, sum](const uint8_t* row, uint8_t* line) {
    for (size_t x = 0; x < n; ++x) sum[x] = 1 << (kPilBits - 1);
    for (size_t k = 0; k < r.taps.taps; ++k) {
      Gather(r.taps, k, row, r.gathered);
      const int32_t* weight = r.taps.weight_int + k * n;
      const uint8_t* pixel = r.gathered;
      for (size_t x = 0; x < n; ++x) sum[x] += pixel[x] * weight[x];
    }
    for (size_t x = 0; x < n; ++x) line[x] = Clip(sum[x] >> kPilBits);
  };
  Forget(r);
  for (size_t y = 0; y < r.rows.out; ++y) {
    const uint8_t* lines[15];
    const size_t count = r.rows.count[y];
    for (size_t j = 0; j < count; ++j) {
      lines[j] = Line<uint8_t>(r, in, static_cast<int32_t>(r.rows.first[y] + j), 15, fill);
    }
    for (size_t x = 0; x < n; ++x) sum[x] = 1 << (kPilBits - 1);
    for (size_t j = 0; j < count; ++j) {
      const int32_t weight = r.rows.weight_int[y * r.rows.taps + j];
      const uint8_t* line = lines[j];
      for (size_t x = 0; x < n; ++x) sum[x] += line[x] * weight;
    }
    for (size_t x = 0; x < r.taps.out; ++x) out[x] = Clip(sum[x] >> kPilBits);
    out += r.taps.out;
  }
}

void PilFloat(Resize& r, const float* in, uint8_t* out) {
  const size_t n = r.taps.out;
  double* sum = static_cast<double*>(r.line[15]);
  const auto fill = [&r, n, sum](const float* row, float* line) {
    for (size_t x = 0; x < n; ++x) sum[x] = 0;
    for (size_t k = 0; k < r.taps.taps; ++k) {
      const double* weight = r.taps.weight_double + k * r.taps.padded;
      const uint16_t* column = r.taps.column + k * r.taps.padded;
      for (size_t x = 0; x < n; ++x) sum[x] += static_cast<double>(row[column[x]]) * weight[x];
    }
    for (size_t x = 0; x < n; ++x) line[x] = static_cast<float>(sum[x]);
  };
  Forget(r);
  for (size_t y = 0; y < r.rows.out; ++y) {
    const float* lines[15];
    const size_t count = r.rows.count[y];
    for (size_t j = 0; j < count; ++j) {
      lines[j] = Line<float>(r, in, static_cast<int32_t>(r.rows.first[y] + j), 15, fill);
    }
    for (size_t x = 0; x < n; ++x) sum[x] = 0;
    for (size_t j = 0; j < count; ++j) {
      const double weight = r.rows.weight_double[y * r.rows.taps + j];
      const float* line = lines[j];
      for (size_t x = 0; x < n; ++x) sum[x] += static_cast<double>(line[x]) * weight;
    }
    for (size_t x = 0; x < n; ++x) out[x] = Clip(static_cast<int32_t>(static_cast<float>(sum[x])));
    out += n;
  }
}

void Aligned(Resize& r, const uint8_t* in, const float* value, float* out) {
  const size_t n = r.taps.out;
  float* right = static_cast<float*>(r.line[15]);
  const auto fill = [&r, n, right, value](const uint8_t* row, float* line) {
    Gather(r.taps, 0, row, r.gathered);
    for (size_t x = 0; x < n; ++x) line[x] = value[r.gathered[x]];
    Gather(r.taps, 1, row, r.gathered);
    for (size_t x = 0; x < n; ++x) right[x] = value[r.gathered[x]];
    const float* part = r.taps.weight_float;
    for (size_t x = 0; x < n; ++x) line[x] = line[x] + (right[x] - line[x]) * part[x];
  };
  Forget(r);
  for (size_t y = 0; y < r.rows.out; ++y) {
    const int32_t first = r.rows.first[y];
    const int32_t second = first + (r.rows.count[y] > 1 ? 1 : 0);
    const float* top = Line<float>(r, in, first, 2, fill);
    const float* bottom = Line<float>(r, in, second, 2, fill);
    const float part = r.rows.weight_float[y];
    for (size_t x = 0; x < n; ++x) out[x] = top[x] + (bottom[x] - top[x]) * part;
    out += n;
  }
}

constexpr Ops kOps = {LookupMax, LookupPair, Area, Linear, Pil, PilFloat, Aligned};

}  // namespace

const Ops& SAMARA_PIXEL_OPS() { return kOps; }

}  // namespace samara::pixels
