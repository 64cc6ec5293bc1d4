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

#if defined(__clang__)
#define SAMARA_UNROLL _Pragma("unroll")
#else
#define SAMARA_UNROLL _Pragma("GCC unroll 16")
#endif

namespace samara::kernel {

enum class Act : int {
  kNone,
  kRelu,
  kTanh,
  kSigmoid,
  kElu,
  kSelu,
  kSilu,
  kLrelu,
  kLrelu0p2,
  kGelu
};

// Output pixels that a convolution computes together; they share each loaded weight.
constexpr size_t kConvPixels = 6;
// Observations of one network that a dense layer takes together.
constexpr size_t kObservations = 16;

// Weights of a dense layer in memory, [input][column], each input's row padded to whole cache
// lines.
enum class Format : int {
  kFloat32,
  // pairs in words: of a block of 2 lanes columns, column i lies in the low half of word i and
  // column i + lanes in its high half
  kBf16,
  kInt8,  // multiples of DenseTask::scale
};
constexpr size_t WeightBytes(Format f) {
  return f == Format::kFloat32 ? 4 : f == Format::kBf16 ? 2 : 1;
}
// Inputs whose weights stay in the cache for all tiles of observations.
constexpr size_t kChunk = 64;
constexpr size_t kLineBytes = 64;
constexpr size_t LineColumns(Format f) { return kLineBytes / WeightBytes(f); }

// One convolution of one observation. Units are floats unless said otherwise.
struct ConvTask {
  const float* in;       // map with its zero border, [row][column][channel]
  const uint64_t* bits;  // bit i: in[i] != 0; one spare word after the last
  uint64_t* masks;       // scratch: groups of pixels * kernel * words_per_run words
  const float* weights;  // [block of channels][ky][kx][in][channel], zero in missing channels
  const float* bias;     // [channels], padded to whole blocks
  float* out;            // next layer's map at its first inner pixel
  size_t kernel;         // rows of the window
  size_t run;            // kernel * in channels: contiguous inputs of one window row
  size_t in_row;         // between rows of `in`
  size_t step_row, step_column;  // between windows, in `in`
  size_t out_height, out_width;  // pixels
  size_t channels;               // of the output
  size_t out_row;                // between rows of `out`
  Act activation;
  // what the next layer will read: it is asked for meanwhile, because the dense layers of the last
  // evaluation have swept it out of the near caches
  const float* next;
  size_t next_size;
};

// A dense layer of one network.
struct DenseLayer {
  const float* weights;  // [count][columns] of `format`
  Format format;
  float scale;  // kInt8: a power of two
  const float* bias;
  size_t count;    // inputs
  size_t columns;  // outputs padded to LineColumns(format)
  Act activation;
};

// A dense layer on one observation.
struct DenseTask {
  DenseLayer layer;
  const float* in;  // [count]
  uint32_t* rows;   // scratch [count]: indices of the nonzero inputs
  float* values;    // scratch [count]: the inputs themselves
  float* out;       // [columns], 64-byte aligned
};

// Dense layers whose outputs fit into registers, one after the other, of a few networks on one
// observation each: their chains of additions run side by side. Weights are float32, and zeros
// among the inputs are multiplied too.
constexpr size_t kStackNetworks = 4;
constexpr size_t kSmallInputs = 128, kSmallColumns = 2 * LineColumns(Format::kFloat32);
struct SmallLayer {
  size_t weights, bias;   // in the packed parameters: [count][columns], [columns]
  size_t count, columns;  // at most kSmallInputs; half of kSmallColumns, or all
  Act activation;
};
struct DenseStackTask {
  const SmallLayer* layers;
  size_t size, networks;  // at most kStackNetworks
  const float* const* packed;
  const float* const* in;  // [layers[0].count] each
  float* const* out;       // [2 * kSmallColumns] each: the output, then scratch; apart from `in`
};

// A dense layer on up to kObservations observations.
struct DenseManyTask {
  DenseLayer layer;
  size_t observations;
  const float* in;  // [count][kObservations], times the scale; zeros where there is no observation
  uint32_t* rows;   // scratch [count + kChunk]: indices of inputs that are not zero everywhere
  float* out;       // [kObservations][columns], 64-byte aligned
};

enum class Cell : int { kRnn, kLstm, kGru };

// The last step of a recurrent layer, on one observation: from the sums of its gates to its state.
struct CellTask {
  Cell cell;
  Act activation;  // kRnn
  size_t units;
  // [gates][units], then room for a vector: bias and weighted inputs, bias and weighted state
  const float* input;
  const float* recurrent;
  // [units], with room for whole vectors: the layer's output, and kLstm's memory
  float* hidden;
  float* memory;
};

// out[m][n] = sum over links of left(m, link) * right[link][n]: one chain of fused multiply-adds
// per element, links ascending. A chain begins with 0, with bias[n], or with what `out` holds.
struct ProductTask {
  const float* left;  // (m, link) at left[m * left_row + link * left_link]
  size_t left_row, left_link;
  const float* right;
  size_t right_row;
  float* out;
  size_t out_row;
  size_t rows, links, columns;  // columns: a multiple of kProductColumns; rows > 0
  bool add;                     // begin with `out`
  const float* bias = nullptr;  // [columns]; null: none
};
constexpr size_t kProductColumns = 16;

// A normalize layer. All sizes have room for whole vectors.
struct NormalizeTask {
  const float* in;
  const float* minus_mean;
  const float* deviation;  // at least the floor
  float limit;
  float* out;
  size_t count;
};

struct Ops {
  size_t lanes;                           // floats of a vector
  size_t (*conv_block)(size_t channels);  // output channels that are packed together
  void (*conv)(const ConvTask&);
  size_t (*dense)(const DenseTask&);  // how many inputs were not zero
  void (*dense_stack)(const DenseStackTask&);
  void (*dense_many)(const DenseManyTask&);
  void (*cell)(const CellTask&);
  void (*normalize)(const NormalizeTask&);
  // Packing of Format::kInt8: the largest magnitude of n floats; x[i] * inverse, rounded to the
  // nearest integer, ties to even.
  float (*magnitude)(const float* x, size_t n);
  void (*to_int8)(const float* x, size_t n, float inverse, char* out);
  // bits of x[0..n): bit i set when x[i] != 0 (NaN counts); writes (n + 63) / 64 words.
  void (*nonzero_bits)(const float* x, size_t n, uint64_t* bits);
  void (*product)(const ProductTask&);
  // REQUIRES: n is a multiple of kProductColumns.
  void (*activate)(float* x, size_t n, Act activation);
};

extern const Ops kPortableOps;
#if defined(__x86_64__)
extern const Ops kAvx2Ops;
extern const Ops kAvx512Ops;
// As Ops::product, of numbers rounded to bfloat16 (to nearest, ties to even; what is smaller than a
// normal number is zero), two links of a chain at a time. A row of the output depends on that row
// of the left matrix only, on one kind of processor. REQUIRES: HasBf16Products(); left_link or
// left_row is 1.
void ProductBf16(const ProductTask& task);
#endif

}  // namespace samara::kernel
