// SPDX-License-Identifier: Apache-2.0 OR MIT
// The inner loops of PixelKernel, once per instruction set.
//
// pixels_impl.h holds the one implementation; pixels_{portable,avx2,avx512}.cc compile it with
// their own flags. Like kernel_ops.h, those files include no standard header with inline functions.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace samara::pixels {

// Output columns are padded to a multiple of this; rows of bytes may be read this far beyond.
constexpr size_t kPad = 32;
// Colours by palette index: NTSC has even indices only, entry = index >> 1 of 128; PAL also shows
// odd ones (its loss of colour), entry = index of 256.
struct Lookup {
  int shift = 1;
  const uint8_t* table = nullptr;  // [256 >> shift]
  const uint8_t* pair = nullptr;   // [256 >> shift][256 >> shift], `table` is its diagonal; or null
};

// Horizontal taps of every output column: column x reads source columns first[x] ... first[x] +
// taps
// - 1 with weight[k * padded + x]; a missing tap weighs 0 and reads a valid column.
struct Taps {
  size_t out = 0, padded = 0, taps = 0;
  const uint16_t* column = nullptr;  // [taps][padded] source column
  const uint8_t* shuffle = nullptr;  // [taps][padded]: source column - base of its 16 columns
  const uint16_t* base = nullptr;    // [taps][padded / 16]; null when a span exceeds 32 bytes
  const float* weight_float = nullptr;
  const double* weight_double = nullptr;
  const int32_t* weight_int = nullptr;
};

// Vertical taps of every output row: rows first[y] ... first[y] + count[y] - 1.
struct Rows {
  size_t out = 0, taps = 0;
  const uint16_t* first = nullptr;
  const uint16_t* count = nullptr;
  const float* weight_float = nullptr;  // [out][taps]
  const double* weight_double = nullptr;
  const int32_t* weight_int = nullptr;
};

struct Resize {
  Taps taps;
  Rows rows;
  size_t width;       // source columns: bytes or floats between rows
  uint8_t* gathered;  // scratch [padded]
  void* line[16];     // scratch lines of [padded] 8-byte cells
  int32_t line_row[16];
  uint32_t next_line;
};

struct Ops {
  // out[i] = max(table[entry of a[i]], table[entry of b[i]])
  void (*lookup_max)(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t n,
                     uint8_t* out);
  // out[i] = pair[entry of a[i]][entry of b[i]]
  void (*lookup_pair)(const Lookup& lookup, const uint8_t* a, const uint8_t* b, size_t n,
                      uint8_t* out);
  void (*area)(Resize& resize, const uint8_t* in, uint8_t* out);
  void (*linear)(Resize& resize, const uint8_t* in, uint8_t* out);
  void (*pil)(Resize& resize, const uint8_t* in, uint8_t* out);
  void (*pil_float)(Resize& resize, const float* in, uint8_t* out);
  // `in` holds ranks, `value` their floats
  void (*aligned)(Resize& resize, const uint8_t* in, const float* value, float* out);
};

const Ops& PortableOps();
const Ops& Avx2Ops();
const Ops& Avx512Ops();

}  // namespace samara::pixels
