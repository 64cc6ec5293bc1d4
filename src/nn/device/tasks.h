// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arguments of the kernels of a population on a device. Pointers are the device's; sizes are
// counts of elements unless said otherwise. Included by code that nvcc compiles.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "nn/kernel_ops.h"

namespace samara::device {

using kernel::Act;
using kernel::Format;

// Bytes of shared memory that a block may use on every GPU since 8.0.
constexpr size_t kSharedMax = 96 * 1024;

// One observation of a batch: which parameters and which frame stack it uses, and how many frames
// the stack has seen in this episode before this one.
struct Row {
  uint32_t network, stack, seen, unused;
};
// Rows that follow each other and have the same parameters.
struct Group {
  uint32_t network, first, count, unused;
};
constexpr uint32_t kGroupMax = 8;

// Parameters of all networks: network n begins at bytes + n * stride.
struct Networks {
  const unsigned char* bytes;
  size_t stride;
};

// Moves the newest frames into the stacks.
struct PushTask {
  const Row* rows;
  uint32_t count;
  const void* frames;  // [count][pixels], bytes or floats
  void* stacks;        // [stack][pixels][depth], the same
  bool floats;
  uint32_t pixels, depth;
  bool newest_first;
  enum class AtReset : int { kRepeat, kZeros, kFront } at_reset;
};

// A thread of a convolution computes so many pixels and channels; so many rows of weights lie in
// shared memory together.
constexpr unsigned kTilePixels = 8, kTileChannels = 8, kConvRows = 32;

struct ConvTask {
  const Row* rows;
  uint32_t count;
  Networks networks;
  size_t weights, bias;  // bytes from a network's begin: [ky][kx][in][columns], float32 [columns]
  Format format;         // kFloat32 or kBf16
  // one of them: the stacks' bytes, which are divided by 255, the stacks' floats, or floats of the
  // layer before, by row
  const unsigned char* byte_stacks;  // [stack][height][width][in]
  const float* float_stacks;         // [stack][height][width][in]
  const float* in;                   // [count][height][width][in]
  float* out;                        // [count][out_height][out_width][out]
  uint32_t in_height, in_width, in_channels, kernel, stride, pad_rows, pad_columns;
  uint32_t out_height, out_width, out_channels;
  uint32_t columns;    // out_channels padded
  uint32_t tile_rows;  // rows of the output that a block computes
  uint32_t pixel;      // floats between pixels in shared memory
  size_t weights_at;   // of shared memory: bytes of the part of the input, whole 16
  size_t shared_size;  // bytes of shared memory
  Act activation;
};

struct DenseTask {
  const Group* groups;
  uint32_t count;   // of groups
  uint32_t shared;  // 1: all groups have one row; otherwise up to kGroupMax
  Networks networks;
  size_t weights, bias, scale;  // bytes: [inputs][columns], float32 [columns], float32 of kInt8
  Format format;
  const float* in;  // [row][inputs]
  float* out;       // [row][outputs]
  uint32_t inputs, outputs;
  uint32_t columns;  // outputs padded
  Act activation;
};

// A tensor of the canonical vector, and where it goes in a network's bytes.
struct Segment {
  size_t first, count;       // elements of the canonical vector
  size_t to;                 // bytes
  uint32_t columns, padded;  // of a row: in the canonical vector, at its place
  Format format;
  size_t scale;  // kInt8: bytes
};

// Writes canonical parameters into a network's bytes, in two passes where a segment is kInt8: the
// largest magnitudes first.
struct PlaceTask {
  const Segment* segments;
  uint32_t segment_count;
  float* magnitudes;  // [segment_count], zeros before the first pass
  bool measure;       // the first pass
  const float* canonical;
  size_t size;
  unsigned char* network;
};

}  // namespace samara::device
