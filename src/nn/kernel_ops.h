// SPDX-License-Identifier: Apache-2.0 OR MIT
// The inner loops of the population kernel, once per instruction set.
//
// kernel_impl.h holds the one implementation; kernel_{portable,avx2,avx512}.cc compile it with
// their own flags. Those files, this header included, use no standard header with inline functions:
// the linker would keep one copy of such a function, possibly one with instructions that the CPU
// lacks.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace samara::kernel {

enum class Act : int { kNone, kRelu, kTanh };

// Output pixels that a convolution computes together; they share each loaded weight.
constexpr size_t kConvPixels = 6;
// Packed rows of a dense layer are padded to whole cache lines of weights.
constexpr size_t kDensePad = 16;
constexpr size_t kDensePadBf16 = 32;

// One convolution of one observation. Units are floats unless said otherwise.
struct ConvTask {
  const float* in;               // map with its zero border, [row][column][channel]
  const uint64_t* bits;          // bit i: in[i] != 0; one spare word after the last
  uint64_t* masks;               // scratch: groups of pixels * kernel * words_per_run words
  const float* weights;          // [block][ky][kx][in][conv_block], zero in missing channels
  const float* bias;             // [blocks * conv_block]
  float* out;                    // next layer's map at its first inner pixel
  size_t kernel;                 // rows of the window
  size_t run;                    // kernel * in channels: contiguous inputs of one window row
  size_t in_row;                 // between rows of `in`
  size_t step_row, step_column;  // between windows, in `in`
  size_t out_height, out_width;  // pixels
  size_t channels;               // of the output
  size_t out_row;                // between rows of `out`
  Act activation;
};

// One dense layer of one observation.
struct DenseTask {
  const float* in;  // [count]
  size_t count;     // inputs
  uint32_t* rows;   // scratch [count]: indices of the nonzero inputs
  float* values;    // scratch [count]: the inputs themselves
  // [count][columns]; or, in bf16, [count][columns / 2 lanes][lanes] words: column i of a block of
  // 2 lanes in the low half of word i, column i + lanes in its high half
  const float* weights;
  bool bf16;
  const float* bias;  // [columns]
  size_t columns;     // outputs padded to kDensePad or kDensePadBf16
  float* out;         // [columns], 64-byte aligned
  Act activation;
};

struct Ops {
  size_t lanes;       // floats of a vector
  size_t conv_block;  // output channels that are packed together
  void (*conv)(const ConvTask&);
  size_t (*dense)(const DenseTask&);  // how many inputs were not zero
  // bits of x[0..n): bit i set when x[i] != 0 (NaN counts); writes (n + 63) / 64 words.
  void (*nonzero_bits)(const float* x, size_t n, uint64_t* bits);
};

extern const Ops kPortableOps;
#if defined(__x86_64__)
extern const Ops kAvx2Ops;
extern const Ops kAvx512Ops;
#endif

}  // namespace samara::kernel
