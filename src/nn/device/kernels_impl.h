// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bodies of the kernels of a population on a device (tasks.h), included by cpu.cc and by gpu.cu.
//
// Bits: those of the population kernel of the CPU (nn/kernel.h). Every output is one chain of fused
// multiply-adds from the bias on, inputs in canonical order; zeros are skipped or multiplied as
// suits.
#pragma once

#include "nn/device/code.h"
#include "nn/device/tasks.h"

namespace samara::kernel {
namespace {

using Vec = float;
#define SAMARA_KERNEL_INLINE SAMARA_DEVICE
#define SAMARA_KERNEL_APART SAMARA_DEVICE
SAMARA_DEVICE Vec Broadcast(float x) { return x; }
SAMARA_DEVICE Vec Fma(Vec a, Vec b, Vec c) { return device::Fma(a, b, c); }
SAMARA_DEVICE Vec Add(Vec a, Vec b) { return device::Add(a, b); }
SAMARA_DEVICE Vec Mul(Vec a, Vec b) { return device::Mul(a, b); }
SAMARA_DEVICE Vec Div(Vec a, Vec b) { return device::Div(a, b); }
SAMARA_DEVICE Vec Min(Vec a, Vec b) { return a < b ? a : b; }
SAMARA_DEVICE Vec Max(Vec a, Vec b) { return a > b ? a : b; }

}  // namespace
}  // namespace samara::kernel

#include "nn/kernel_activation_impl.h"

namespace samara::device {
namespace {

// ---- weights: 16 bytes as floats

template <Format kFormat>
struct Vector;

template <>
struct Vector<Format::kFloat32> {
  static constexpr unsigned kSize = 4;
  static SAMARA_DEVICE void Expand(const Words4& words, float* w) {
    SAMARA_DEVICE_UNROLL
    for (unsigned i = 0; i < 4; ++i) w[i] = FloatOf(words.word[i]);
  }
};

template <>
struct Vector<Format::kBf16> {
  static constexpr unsigned kSize = 8;
  static SAMARA_DEVICE void Expand(const Words4& words, float* w) {
    SAMARA_DEVICE_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      w[2 * i] = FloatOf(words.word[i] << 16);
      w[2 * i + 1] = FloatOf(words.word[i] & 0xffff0000);
    }
  }
};

template <>
struct Vector<Format::kInt8> {
  static constexpr unsigned kSize = 16;
  static SAMARA_DEVICE void Expand(const Words4& words, float* w) {
    // a float between 2^23 and 2^24 counts ones in its last bits: 2^23 + 128 + x, less the rest
    SAMARA_DEVICE_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t shifted = words.word[i] ^ 0x80808080;
      SAMARA_DEVICE_UNROLL
      for (unsigned b = 0; b < 4; ++b)
        w[4 * i + b] = Add(FloatOf(0x4B000000 | (shifted >> 8 * b & 0xff)), -8388736.0f);
    }
  }
};

// ---- frame stacks (nn/frame_stack.h)

template <typename Block>
SAMARA_DEVICE void PushBody(Block& block, const PushTask& t) {
  const Row row = t.rows[block.y()];
  const unsigned char* frame = t.frames + size_t{block.y()} * t.pixels;
  unsigned char* stack = t.stacks + size_t{row.stack} * t.pixels * t.depth;
  const unsigned depth = t.depth, newest = t.newest_first ? 0 : depth - 1;
  const bool front = t.at_reset == PushTask::AtReset::kFront;
  block.Threads([&](unsigned thread) {
    const unsigned i = block.x() * block.size() + thread;
    if (i >= t.pixels) return;
    unsigned char* planes = stack + size_t{i} * depth;
    const unsigned char value = frame[i];
    if (row.seen == 0) {
      const unsigned char rest = t.at_reset == PushTask::AtReset::kRepeat ? value : 0;
      for (unsigned d = 0; d < depth; ++d) planes[d] = rest;
      planes[front ? 0 : newest] = value;
    } else if (front && row.seen < depth) {
      planes[row.seen] = value;
    } else {
      if (t.newest_first)
        for (unsigned d = depth - 1; d > 0; --d) planes[d] = planes[d - 1];
      else
        for (unsigned d = 0; d + 1 < depth; ++d) planes[d] = planes[d + 1];
      planes[newest] = value;
    }
  });
}

// ---- convolutions

constexpr unsigned kTilePixels = 8, kTileChannels = 8;

SAMARA_DEVICE float ByteToUnit(unsigned char byte) { return Div(static_cast<float>(byte), 255.0f); }

// The part of the input that a block's rows read, with its border of zeros, into shared memory.
template <unsigned kStep, typename Block>
SAMARA_DEVICE void TakeRegion(Block& block, const ConvTask& t, const Row& row, unsigned first_row,
                              unsigned height, unsigned width, float* region) {
  const size_t size = size_t{t.in_height} * t.in_width * t.in_channels;
  const unsigned char* bytes = t.stacks == nullptr ? nullptr : t.stacks + row.stack * size;
  const float* floats = t.in == nullptr ? nullptr : t.in + block.x() * size;
  const unsigned steps = t.in_channels / kStep, units = height * width * steps;
  block.Threads([&](unsigned thread) {
    for (unsigned unit = thread; unit < units; unit += block.size()) {
      const unsigned pixel = unit / steps, channel = (unit - pixel * steps) * kStep;
      const unsigned y = pixel / width, x = pixel - y * width;
      const unsigned from_y = first_row * t.stride + y - t.pad_rows, from_x = x - t.pad_columns;
      float* to = region + size_t{pixel} * t.pixel + channel;
      // unsigned: what lies above or left of the map is far beyond its end
      const bool inside = from_y < t.in_height && from_x < t.in_width;
      const size_t from = (size_t{from_y} * t.in_width + from_x) * t.in_channels + channel;
      SAMARA_DEVICE_UNROLL
      for (unsigned i = 0; i < kStep; ++i)
        to[i] = !inside ? 0.0f : bytes != nullptr ? ByteToUnit(bytes[from + i]) : floats[from + i];
    }
  });
}

template <Format kFormat>
SAMARA_DEVICE void LoadChannels(const unsigned char* p, float (&w)[kTileChannels]) {
  Vector<kFormat>::Expand(Load16(p), w);
  if constexpr (Vector<kFormat>::kSize < kTileChannels)
    Vector<kFormat>::Expand(Load16(p + 16), w + Vector<kFormat>::kSize);
}

template <Format kFormat, unsigned kStep, typename Block>
SAMARA_DEVICE void ConvBody(Block& block, const ConvTask& t, float* region) {
  constexpr unsigned kBytes = 16 / Vector<kFormat>::kSize;
  const Row row = t.rows[block.x()];
  const unsigned first_row = block.y() * t.tile_rows;
  const unsigned left = t.out_height - first_row;
  const unsigned rows = left < t.tile_rows ? left : t.tile_rows;
  const unsigned width = (t.out_width - 1) * t.stride + t.kernel;
  TakeRegion<kStep>(block, t, row, first_row, (rows - 1) * t.stride + t.kernel, width, region);

  const unsigned char* network = t.networks.bytes + row.network * t.networks.stride;
  const unsigned char* weights = network + t.weights;
  const float* bias = reinterpret_cast<const float*>(network + t.bias);
  const unsigned pixels = rows * t.out_width;
  const unsigned parts = t.columns / kTileChannels;
  const unsigned groups = (pixels + kTilePixels - 1) / kTilePixels;
  float* out =
      t.out + (size_t{block.x()} * t.out_height + first_row) * t.out_width * t.out_channels;
  block.Threads([&](unsigned thread) {
    for (unsigned work = thread; work < groups * parts; work += block.size()) {
      // pixels of a group lie apart, so that neighbouring threads read different banks
      const unsigned group = work / parts, channel = (work - group * parts) * kTileChannels;
      float sum[kTilePixels][kTileChannels];
      unsigned window[kTilePixels];
      SAMARA_DEVICE_UNROLL
      for (unsigned p = 0; p < kTilePixels; ++p) {
        unsigned pixel = group + p * groups;
        if (pixel >= pixels) pixel = pixels - 1;
        const unsigned y = pixel / t.out_width, x = pixel - y * t.out_width;
        window[p] = (y * width + x) * t.stride * t.pixel;
        SAMARA_DEVICE_UNROLL
        for (unsigned c = 0; c < kTileChannels; ++c) sum[p][c] = bias[channel + c];
      }
      const unsigned char* w = weights + channel * kBytes;
      for (unsigned ky = 0; ky < t.kernel; ++ky) {
        for (unsigned kx = 0; kx < t.kernel; ++kx) {
          const float* from = region + (ky * width + kx) * t.pixel;
          for (unsigned in = 0; in < t.in_channels; in += kStep) {
            float x[kTilePixels][kStep];
            SAMARA_DEVICE_UNROLL
            for (unsigned p = 0; p < kTilePixels; ++p) {
              if constexpr (kStep == 4) {
                const Words4 four = LoadShared16(from + window[p] + in);
                SAMARA_DEVICE_UNROLL
                for (unsigned i = 0; i < 4; ++i) x[p][i] = FloatOf(four.word[i]);
              } else {
                x[p][0] = from[window[p] + in];
              }
            }
            SAMARA_DEVICE_UNROLL
            for (unsigned i = 0; i < kStep; ++i) {
              float row_of[kTileChannels];
              LoadChannels<kFormat>(w, row_of);
              w += t.columns * kBytes;
              SAMARA_DEVICE_UNROLL
              for (unsigned p = 0; p < kTilePixels; ++p) {
                SAMARA_DEVICE_UNROLL
                for (unsigned c = 0; c < kTileChannels; ++c)
                  sum[p][c] = Fma(x[p][i], row_of[c], sum[p][c]);
              }
            }
          }
        }
      }
      SAMARA_DEVICE_UNROLL
      for (unsigned p = 0; p < kTilePixels; ++p) {
        const unsigned pixel = group + p * groups;
        if (pixel >= pixels) continue;
        SAMARA_DEVICE_UNROLL
        for (unsigned c = 0; c < kTileChannels; ++c) {
          if (channel + c < t.out_channels)
            out[size_t{pixel} * t.out_channels + channel + c] =
                kernel::Activate(sum[p][c], t.activation);
        }
      }
    }
  });
}

// ---- dense layers

constexpr unsigned kDenseThreads = 64;
constexpr unsigned kDenseInputs = 2048;  // that a block takes at a time
constexpr unsigned kDenseRows = 16;      // rows of weights that are on their way together
constexpr unsigned kPart = kDenseInputs / kDenseThreads;  // inputs that a thread looks through
// of a block, in bytes: inputs, those that are not zero, their indices, counts
constexpr unsigned kDenseShared =
    kDenseThreads * (kPart + 1) * 4 + kDenseInputs * 4 + kDenseInputs * 2 + kDenseThreads * 4;
constexpr unsigned kGroupShared = kDenseInputs / 2 * kGroupMax * 4;

template <Format kFormat>
SAMARA_DEVICE void StoreColumns(const DenseTask& t, unsigned row, unsigned column,
                                const float* sum) {
  SAMARA_DEVICE_UNROLL
  for (unsigned c = 0; c < Vector<kFormat>::kSize; ++c) {
    if (column + c < t.outputs)
      t.out[size_t{row} * t.outputs + column + c] = kernel::Activate(sum[c], t.activation);
  }
}

// One observation of each network: weights are read once, those that meet a zero are not.
template <Format kFormat, typename Block>
SAMARA_DEVICE void DenseBody(Block& block, const DenseTask& t, unsigned char* shared) {
  constexpr unsigned kColumns = Vector<kFormat>::kSize;
  struct Sums {
    float sum[kColumns];
  };
  const Group group = t.groups[block.x()];
  const unsigned char* network = t.networks.bytes + group.network * t.networks.stride;
  const float* in = t.in + size_t{group.first} * t.inputs;
  const size_t row_bytes = size_t{t.columns} * (16 / kColumns);
  const float scale =
      kFormat == Format::kInt8 ? *reinterpret_cast<const float*>(network + t.scale) : 1.0f;
  float* taken = reinterpret_cast<float*>(shared);  // [thread][kPart + 1]: banks differ
  float* values = taken + kDenseThreads * (kPart + 1);
  uint32_t* counts = reinterpret_cast<uint32_t*>(values + kDenseInputs);
  uint16_t* indices = reinterpret_cast<uint16_t*>(counts + kDenseThreads);
  const auto column_of = [&](unsigned thread) {
    return (block.y() * block.size() + thread) * kColumns;
  };
  typename Block::template PerThread<Sums> sums;
  block.Threads([&](unsigned thread) {
    const unsigned column = column_of(thread);
    if (column >= t.columns) return;
    const float* bias = reinterpret_cast<const float*>(network + t.bias);
    SAMARA_DEVICE_UNROLL
    for (unsigned c = 0; c < kColumns; ++c) sums[thread].sum[c] = bias[column + c];
  });
  for (unsigned first = 0; first < t.inputs; first += kDenseInputs) {
    const unsigned rest = t.inputs - first, count = rest < kDenseInputs ? rest : kDenseInputs;
    block.Threads([&](unsigned thread) {
      for (unsigned i = thread; i < count; i += block.size())
        taken[i / kPart * (kPart + 1) + i % kPart] = in[first + i];
    });
    // each of kDenseThreads parts, whatever the block's size
    block.Threads([&](unsigned thread) {
      for (unsigned part = thread; part < kDenseThreads; part += block.size()) {
        unsigned nonzero = 0;
        for (unsigned i = 0; i < kPart && part * kPart + i < count; ++i)
          nonzero += taken[part * (kPart + 1) + i] != 0.0f;
        counts[part] = nonzero;
      }
    });
    block.Threads([&](unsigned thread) {
      for (unsigned part = thread; part < kDenseThreads; part += block.size()) {
        unsigned to = 0;
        for (unsigned before = 0; before < part; ++before) to += counts[before];
        for (unsigned i = 0; i < kPart && part * kPart + i < count; ++i) {
          const float x = taken[part * (kPart + 1) + i];
          if (x == 0.0f) continue;
          indices[to] = static_cast<uint16_t>(part * kPart + i);
          values[to++] = Mul(x, scale);
        }
      }
    });
    block.Threads([&](unsigned thread) {
      const unsigned column = column_of(thread);
      if (column >= t.columns) return;
      unsigned nonzero = 0;
      for (unsigned part = 0; part < kDenseThreads; ++part) nonzero += counts[part];
      float(&sum)[kColumns] = sums[thread].sum;
      const unsigned char* weights =
          network + t.weights + first * row_bytes + column * (16 / kColumns);
      unsigned n = 0;
      for (; n + kDenseRows <= nonzero; n += kDenseRows) {
        Words4 words[kDenseRows];
        SAMARA_DEVICE_UNROLL
        for (unsigned r = 0; r < kDenseRows; ++r)
          words[r] = Load16(weights + indices[n + r] * row_bytes);
        SAMARA_DEVICE_UNROLL
        for (unsigned r = 0; r < kDenseRows; ++r) {
          float w[kColumns];
          Vector<kFormat>::Expand(words[r], w);
          SAMARA_DEVICE_UNROLL
          for (unsigned c = 0; c < kColumns; ++c) sum[c] = Fma(values[n + r], w[c], sum[c]);
        }
      }
      for (; n < nonzero; ++n) {
        float w[kColumns];
        Vector<kFormat>::Expand(Load16(weights + indices[n] * row_bytes), w);
        SAMARA_DEVICE_UNROLL
        for (unsigned c = 0; c < kColumns; ++c) sum[c] = Fma(values[n], w[c], sum[c]);
      }
    });
  }
  block.Threads([&](unsigned thread) {
    const unsigned column = column_of(thread);
    if (column < t.columns) StoreColumns<kFormat>(t, group.first, column, sums[thread].sum);
  });
}

// Several observations of a network: its weights are read once for all of them.
template <Format kFormat, typename Block>
SAMARA_DEVICE void DenseGroupBody(Block& block, const DenseTask& t, unsigned char* shared) {
  constexpr unsigned kColumns = Vector<kFormat>::kSize, kInputs = kDenseInputs / 2;
  struct Sums {
    float sum[kGroupMax][kColumns];
  };
  const Group group = t.groups[block.x()];
  const unsigned char* network = t.networks.bytes + group.network * t.networks.stride;
  const float* in = t.in + size_t{group.first} * t.inputs;
  const size_t row_bytes = size_t{t.columns} * (16 / kColumns);
  const float scale =
      kFormat == Format::kInt8 ? *reinterpret_cast<const float*>(network + t.scale) : 1.0f;
  float* values = reinterpret_cast<float*>(shared);  // [input][kGroupMax]
  const auto column_of = [&](unsigned thread) {
    return (block.y() * block.size() + thread) * kColumns;
  };
  typename Block::template PerThread<Sums> sums;
  block.Threads([&](unsigned thread) {
    const unsigned column = column_of(thread);
    if (column >= t.columns) return;
    const float* bias = reinterpret_cast<const float*>(network + t.bias);
    SAMARA_DEVICE_UNROLL
    for (unsigned r = 0; r < kGroupMax; ++r) {
      SAMARA_DEVICE_UNROLL
      for (unsigned c = 0; c < kColumns; ++c) sums[thread].sum[r][c] = bias[column + c];
    }
  });
  for (unsigned first = 0; first < t.inputs; first += kInputs) {
    const unsigned rest = t.inputs - first, count = rest < kInputs ? rest : kInputs;
    block.Threads([&](unsigned thread) {
      for (unsigned r = 0; r < kGroupMax; ++r) {
        for (unsigned i = thread; i < count; i += block.size())
          values[i * kGroupMax + r] =
              r < group.count ? Mul(in[size_t{r} * t.inputs + first + i], scale) : 0.0f;
      }
    });
    block.Threads([&](unsigned thread) {
      const unsigned column = column_of(thread);
      if (column >= t.columns) return;
      const unsigned char* weights =
          network + t.weights + first * row_bytes + column * (16 / kColumns);
      const auto add = [&](unsigned i, const Words4& words) {
        float w[kColumns];
        Vector<kFormat>::Expand(words, w);
        SAMARA_DEVICE_UNROLL
        for (unsigned r = 0; r < kGroupMax; ++r) {
          SAMARA_DEVICE_UNROLL
          for (unsigned c = 0; c < kColumns; ++c)
            sums[thread].sum[r][c] = Fma(values[i * kGroupMax + r], w[c], sums[thread].sum[r][c]);
        }
      };
      constexpr unsigned kAhead = 4;
      unsigned i = 0;
      for (; i + kAhead <= count; i += kAhead) {
        Words4 words[kAhead];
        SAMARA_DEVICE_UNROLL
        for (unsigned a = 0; a < kAhead; ++a) words[a] = Load16(weights + (i + a) * row_bytes);
        SAMARA_DEVICE_UNROLL
        for (unsigned a = 0; a < kAhead; ++a) add(i + a, words[a]);
      }
      for (; i < count; ++i) add(i, Load16(weights + i * row_bytes));
    });
  }
  block.Threads([&](unsigned thread) {
    const unsigned column = column_of(thread);
    if (column >= t.columns) return;
    SAMARA_DEVICE_UNROLL
    for (unsigned r = 0; r < kGroupMax; ++r) {
      if (r < group.count) StoreColumns<kFormat>(t, group.first + r, column, sums[thread].sum[r]);
    }
  });
}

}  // namespace
}  // namespace samara::device
