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

// ---- weights

template <Format kFormat>
constexpr unsigned kPerWord = kFormat == Format::kFloat32 ? 1
                              : kFormat == Format::kBf16  ? 2
                                                          : 4;

// The weights in kWords words, as floats.
template <Format kFormat, unsigned kWords>
SAMARA_DEVICE void Expand(const uint32_t (&words)[kWords], float* w) {
  SAMARA_DEVICE_UNROLL
  for (unsigned i = 0; i < kWords; ++i) {
    if constexpr (kFormat == Format::kFloat32) {
      w[i] = FloatOf(words[i]);
    } else if constexpr (kFormat == Format::kBf16) {
      w[2 * i] = FloatOf(words[i] << 16);
      w[2 * i + 1] = FloatOf(words[i] & 0xffff0000);
    } else {
      // a float between 2^23 and 2^24 counts ones in its last bits: 2^23 + 128 + x, less the rest
      const uint32_t shifted = words[i] ^ 0x80808080;
      SAMARA_DEVICE_UNROLL
      for (unsigned b = 0; b < 4; ++b)
        w[4 * i + b] = Add(FloatOf(0x4B000000 | (shifted >> 8 * b & 0xff)), -8388736.0f);
    }
  }
}

// ---- frame stacks (nn/frame_stack.h)

template <typename T, typename Block>
SAMARA_DEVICE void PushBody(Block& block, const PushTask& t) {
  const Row row = t.rows[block.y()];
  const T* frame = static_cast<const T*>(t.frames) + size_t{block.y()} * t.pixels;
  T* stack = static_cast<T*>(t.stacks) + size_t{row.stack} * t.pixels * t.depth;
  const unsigned depth = t.depth, newest = t.newest_first ? 0 : depth - 1;
  const bool front = t.at_reset == PushTask::AtReset::kFront;
  block.Threads([&](unsigned thread) {
    const unsigned i = block.x() * block.size() + thread;
    if (i >= t.pixels) return;
    T* planes = stack + size_t{i} * depth;
    const T value = frame[i];
    if (row.seen == 0) {
      const T rest = t.at_reset == PushTask::AtReset::kRepeat ? value : T{0};
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

// byte / 255 as a division rounds it: a product, put right by its remainder (tests compare all).
SAMARA_DEVICE float ByteToUnit(unsigned char byte) {
  constexpr float kInverse = 1.0f / 255.0f;
  const float x = static_cast<float>(byte), y = Mul(x, kInverse);
  return Fma(Fma(-y, 255.0f, x), kInverse, y);
}

// The part of the input that a block's rows read, with its border of zeros, into shared memory.
template <unsigned kStep, typename Block>
SAMARA_DEVICE void TakeRegion(Block& block, const ConvTask& t, const Row& row, unsigned first_row,
                              unsigned height, unsigned width, float* region) {
  const size_t size = size_t{t.in_height} * t.in_width * t.in_channels;
  const unsigned char* bytes =
      t.byte_stacks == nullptr ? nullptr : t.byte_stacks + row.stack * size;
  const float* floats =
      t.float_stacks != nullptr ? t.float_stacks + row.stack * size : t.in + block.x() * size;
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

// Eight channels of a row of weights in shared memory.
template <Format kFormat>
SAMARA_DEVICE void LoadChannels(const unsigned char* p, float (&w)[kTileChannels]) {
  Expand<kFormat>(LoadShared16(p).word, w);
  if constexpr (kFormat == Format::kFloat32) Expand<kFormat>(LoadShared16(p + 16).word, w + 4);
}

struct ConvSums {
  float sum[kTilePixels][kTileChannels];
};

// One row of the window's weights, or four that have neighbouring inputs.
template <Format kFormat, unsigned kStep>
SAMARA_DEVICE void AddInputs(const float* from, const unsigned (&window)[kTilePixels],
                             const unsigned char* weights, unsigned row_bytes, ConvSums& sums) {
  float x[kTilePixels][kStep];
  SAMARA_DEVICE_UNROLL
  for (unsigned p = 0; p < kTilePixels; ++p) {
    if constexpr (kStep == 4)
      Expand<Format::kFloat32>(LoadShared16(from + window[p]).word, x[p]);
    else
      x[p][0] = from[window[p]];
  }
  SAMARA_DEVICE_UNROLL
  for (unsigned i = 0; i < kStep; ++i) {
    float w[kTileChannels];
    LoadChannels<kFormat>(weights + i * row_bytes, w);
    SAMARA_DEVICE_UNROLL
    for (unsigned p = 0; p < kTilePixels; ++p) {
      SAMARA_DEVICE_UNROLL
      for (unsigned c = 0; c < kTileChannels; ++c)
        sums.sum[p][c] = Fma(x[p][i], w[c], sums.sum[p][c]);
    }
  }
}

// A thread computes eight channels of eight pixels; weights pass through shared memory, since a
// block's threads all need them.
template <Format kFormat, unsigned kStep, typename Block>
SAMARA_DEVICE void ConvBody(Block& block, const ConvTask& t, float* region) {
  const Row row = t.rows[block.x()];
  const unsigned first_row = block.y() * t.tile_rows;
  const unsigned left = t.out_height - first_row;
  const unsigned rows = left < t.tile_rows ? left : t.tile_rows;
  const unsigned width = (t.out_width - 1) * t.stride + t.kernel;
  TakeRegion<kStep>(block, t, row, first_row, (rows - 1) * t.stride + t.kernel, width, region);

  const unsigned char* network = t.networks.bytes + row.network * t.networks.stride;
  const unsigned row_bytes = t.columns * (4 / kPerWord<kFormat>);
  unsigned char* weights = reinterpret_cast<unsigned char*>(region) + t.weights_at;
  const unsigned pixels = rows * t.out_width;
  const unsigned parts = t.columns / kTileChannels;
  const unsigned groups = (pixels + kTilePixels - 1) / kTilePixels;
  // pixels of a thread lie apart, those of its neighbours side by side
  struct Work {
    unsigned channel, window[kTilePixels];
    bool any;
    ConvSums sums;
  };
  typename Block::template PerThread<Work> works;
  block.Threads([&](unsigned thread) {
    Work& work = works[thread];
    const unsigned group = thread / parts;
    work.any = group < groups;
    work.channel = (thread - group * parts) * kTileChannels;
    const float* bias = reinterpret_cast<const float*>(network + t.bias) + work.channel;
    SAMARA_DEVICE_UNROLL
    for (unsigned p = 0; p < kTilePixels; ++p) {
      unsigned pixel = group + p * groups;
      if (pixel >= pixels) pixel = pixels - 1;
      const unsigned y = pixel / t.out_width, x = pixel - y * t.out_width;
      work.window[p] = (y * width + x) * t.stride * t.pixel;
      SAMARA_DEVICE_UNROLL
      for (unsigned c = 0; c < kTileChannels; ++c) work.sums.sum[p][c] = bias[c];
    }
  });
  // one part of the weights is on its way while the one before is used
  const unsigned inputs = t.kernel * t.kernel * t.in_channels;
  const auto send = [&](unsigned thread, unsigned first) {
    const unsigned rest = inputs - first, bytes = (rest < kConvRows ? rest : kConvRows) * row_bytes;
    const unsigned char* from = network + t.weights + size_t{first} * row_bytes;
    unsigned char* to = weights + first / kConvRows % 2 * kConvRows * row_bytes;
    for (unsigned i = thread * 16; i < bytes; i += block.size() * 16)
      Block::Copy16(to + i, from + i);
  };
  block.ThreadsUnordered([&](unsigned thread) {
    send(thread, 0);
    Block::Commit();
  });
  for (unsigned first = 0; first < inputs; first += kConvRows) {
    const unsigned rest = inputs - first, count = rest < kConvRows ? rest : kConvRows;
    block.Threads([&](unsigned) { Block::template Await<0>(); });
    block.ThreadsUnordered([&](unsigned thread) {
      if (rest > kConvRows) send(thread, first + kConvRows);
      Block::Commit();
      Work& work = works[thread];
      if (!work.any) return;
      const unsigned char* w = weights + first / kConvRows % 2 * kConvRows * row_bytes +
                               work.channel * (4 / kPerWord<kFormat>);
      unsigned in = first % t.in_channels, kx = first / t.in_channels % t.kernel;
      unsigned ky = first / t.in_channels / t.kernel;
      for (unsigned i = 0; i < count; i += kStep) {
        AddInputs<kFormat, kStep>(region + (ky * width + kx) * t.pixel + in, work.window, w,
                                  row_bytes, work.sums);
        w += kStep * row_bytes;
        if ((in += kStep) == t.in_channels) {
          in = 0;
          if (++kx == t.kernel) kx = 0, ++ky;
        }
      }
    });
  }
  float* out =
      t.out + (size_t{block.x()} * t.out_height + first_row) * t.out_width * t.out_channels;
  block.Threads([&](unsigned thread) {
    Work& work = works[thread];
    const unsigned group = thread / parts;
    if (!work.any) return;
    SAMARA_DEVICE_UNROLL
    for (unsigned p = 0; p < kTilePixels; ++p) {
      const unsigned pixel = group + p * groups;
      if (pixel >= pixels) continue;
      SAMARA_DEVICE_UNROLL
      for (unsigned c = 0; c < kTileChannels; ++c) {
        if (work.channel + c < t.out_channels)
          out[size_t{pixel} * t.out_channels + work.channel + c] =
              kernel::Activate(work.sums.sum[p][c], t.activation);
      }
    }
  });
}

// ---- dense layers

constexpr unsigned kDenseThreads = 128;
constexpr unsigned kDenseColumns = 4;                     // of a thread
constexpr unsigned kDenseInputs = 2048;                   // that a block takes at a time
constexpr unsigned kPart = kDenseInputs / kDenseThreads;  // inputs that a thread looks through
// Weights pass through shared memory in stages, all but one of which are on their way.
constexpr unsigned kStages = 6, kStageBytes = 8 * 1024;
// of a block, in bytes: stages, inputs, those that are not zero, counts, indices
constexpr unsigned kDenseShared = kStages * kStageBytes + kDenseThreads * (kPart + 1) * 4 +
                                  kDenseInputs * 4 + kDenseThreads * 4 + kDenseInputs * 2;

// A layer of the network of a group, and the columns of a block.
template <Format kFormat>
struct DensePart {
  const unsigned char* network;
  const unsigned char* weights;  // of the block's columns, of input 0
  size_t row_bytes;              // between inputs
  unsigned first, columns;       // of the block
  float scale;
  template <typename Block>
  SAMARA_DEVICE DensePart(const Block& block, const DenseTask& t, const Group& group) {
    constexpr unsigned kBytes = 4 / kPerWord<kFormat>;
    network = t.networks.bytes + group.network * t.networks.stride;
    row_bytes = size_t{t.columns} * kBytes;
    first = block.y() * kDenseThreads * kDenseColumns;
    const unsigned left = t.columns - first;
    columns = left < kDenseThreads * kDenseColumns ? left : kDenseThreads * kDenseColumns;
    weights = network + t.weights + first * kBytes;
    scale = kFormat == Format::kInt8 ? *reinterpret_cast<const float*>(network + t.scale) : 1.0f;
  }
};

template <unsigned kColumns>
SAMARA_DEVICE void TakeBias(const DenseTask& t, const unsigned char* network, unsigned column,
                            float* sum) {
  const float* bias = reinterpret_cast<const float*>(network + t.bias) + column;
  SAMARA_DEVICE_UNROLL
  for (unsigned c = 0; c < kColumns; ++c) sum[c] = bias[c];
}

template <unsigned kColumns>
SAMARA_DEVICE void StoreColumns(const DenseTask& t, unsigned row, unsigned column,
                                const float* sum) {
  SAMARA_DEVICE_UNROLL
  for (unsigned c = 0; c < kColumns; ++c) {
    if (column + c < t.outputs)
      t.out[size_t{row} * t.outputs + column + c] = kernel::Activate(sum[c], t.activation);
  }
}

// The weights of a thread's columns in a row of a stage.
template <Format kFormat>
SAMARA_DEVICE void LoadColumns(const unsigned char* p, float (&w)[kDenseColumns]) {
  const auto* words = reinterpret_cast<const uint32_t*>(p);
  uint32_t word[kDenseColumns / kPerWord<kFormat>];
  SAMARA_DEVICE_UNROLL
  for (unsigned i = 0; i < kDenseColumns / kPerWord<kFormat>; ++i) word[i] = words[i];
  Expand<kFormat>(word, w);
}

// use(thread, n, weights) for rows n = 0 ... count - 1 of weights, each row_of(n) of the matrix.
template <Format kFormat, typename Block, typename RowOf, typename Use>
SAMARA_DEVICE void StreamRows(Block& block, const DensePart<kFormat>& part, unsigned count,
                              unsigned char* stages, RowOf row_of, Use use) {
  constexpr unsigned kBytes = 4 / kPerWord<kFormat>;
  constexpr unsigned kRows = kStageBytes / (kDenseThreads * kDenseColumns * kBytes);
  const unsigned row_bytes = part.columns * kBytes, pieces = row_bytes / 16;
  const unsigned steps = (count + kRows - 1) / kRows;
  const auto send = [&](unsigned thread, unsigned step) {
    unsigned char* stage = stages + step % kStages * kStageBytes;
    unsigned row = thread / pieces, piece = thread - row * pieces;
    const unsigned more_rows = block.size() / pieces;
    const unsigned more_pieces = block.size() - more_rows * pieces;
    while (row < kRows && step * kRows + row < count) {
      Block::Copy16(stage + row * row_bytes + piece * 16,
                    part.weights + row_of(step * kRows + row) * part.row_bytes + piece * 16);
      row += more_rows, piece += more_pieces;
      if (piece >= pieces) piece -= pieces, ++row;
    }
    Block::Commit();
  };
  block.ThreadsUnordered([&](unsigned thread) {
    for (unsigned step = 0; step + 1 < kStages; ++step) send(thread, step);
  });
  for (unsigned step = 0; step < steps; ++step) {
    block.Threads([&](unsigned) { Block::template Await<kStages - 2>(); });
    block.ThreadsUnordered([&](unsigned thread) {
      send(thread, step + kStages - 1);
      if (thread * kDenseColumns >= part.columns) return;
      const unsigned char* stage =
          stages + step % kStages * kStageBytes + thread * kDenseColumns * kBytes;
      const unsigned left = count - step * kRows;
      if (left >= kRows) {
        SAMARA_DEVICE_UNROLL
        for (unsigned r = 0; r < kRows; ++r) use(thread, step * kRows + r, stage + r * row_bytes);
      } else {
        for (unsigned r = 0; r < left; ++r) use(thread, step * kRows + r, stage + r * row_bytes);
      }
    });
  }
  block.Threads([&](unsigned) { Block::template Await<0>(); });
}

// One observation of each network: weights are read once, those that meet a zero are not.
template <Format kFormat, typename Block>
SAMARA_DEVICE void DenseBody(Block& block, const DenseTask& t, unsigned char* shared) {
  struct Sums {
    float sum[kDenseColumns];
  };
  const Group group = t.groups[block.x()];
  const DensePart<kFormat> part(block, t, group);
  const float* in = t.in + size_t{group.first} * t.inputs;
  float* taken = reinterpret_cast<float*>(shared + kStages * kStageBytes);
  float* values = taken + kDenseThreads * (kPart + 1);  // `taken` is padded: banks differ
  uint32_t* counts = reinterpret_cast<uint32_t*>(values + kDenseInputs);
  uint16_t* indices = reinterpret_cast<uint16_t*>(counts + kDenseThreads);
  typename Block::template PerThread<Sums> sums;
  block.ThreadsUnordered([&](unsigned thread) {
    if (thread * kDenseColumns < part.columns)
      TakeBias<kDenseColumns>(t, part.network, part.first + thread * kDenseColumns,
                              sums[thread].sum);
  });
  for (unsigned first = 0; first < t.inputs; first += kDenseInputs) {
    const unsigned rest = t.inputs - first, count = rest < kDenseInputs ? rest : kDenseInputs;
    block.Threads([&](unsigned thread) {
      for (unsigned i = thread; i < count; i += block.size())
        taken[i / kPart * (kPart + 1) + i % kPart] = in[first + i];
    });
    // each of kDenseThreads parts, whatever the block's size
    block.Threads([&](unsigned thread) {
      for (unsigned p = thread; p < kDenseThreads; p += block.size()) {
        unsigned nonzero = 0;
        for (unsigned i = 0; i < kPart && p * kPart + i < count; ++i)
          nonzero += taken[p * (kPart + 1) + i] != 0.0f;
        counts[p] = nonzero;
      }
    });
    block.Threads([&](unsigned thread) {
      for (unsigned p = thread; p < kDenseThreads; p += block.size()) {
        unsigned to = 0;
        for (unsigned before = 0; before < p; ++before) to += counts[before];
        for (unsigned i = 0; i < kPart && p * kPart + i < count; ++i) {
          const float x = taken[p * (kPart + 1) + i];
          if (x == 0.0f) continue;
          indices[to] = static_cast<uint16_t>(p * kPart + i);
          values[to++] = Mul(x, part.scale);
        }
      }
    });
    unsigned nonzero = 0;
    for (unsigned p = 0; p < kDenseThreads; ++p) nonzero += counts[p];
    StreamRows(
        block, part, nonzero, shared, [&](unsigned n) { return size_t{first} + indices[n]; },
        [&](unsigned thread, unsigned n, const unsigned char* weights) {
          float w[kDenseColumns];
          LoadColumns<kFormat>(weights, w);
          SAMARA_DEVICE_UNROLL
          for (unsigned c = 0; c < kDenseColumns; ++c)
            sums[thread].sum[c] = Fma(values[n], w[c], sums[thread].sum[c]);
        });
  }
  block.ThreadsUnordered([&](unsigned thread) {
    if (thread * kDenseColumns < part.columns)
      StoreColumns<kDenseColumns>(t, group.first, part.first + thread * kDenseColumns,
                                  sums[thread].sum);
  });
}

// ---- small dense layers: all weights of a network in shared memory, one observation, a column a
// thread

constexpr unsigned kSmallThreads = 128, kSmallBytes = 40 * 1024;

SAMARA_BOTH size_t SmallWeightBytes(const DenseTask& t, unsigned per_word) {
  return (size_t{t.inputs} * t.columns * 4 / per_word + 15) / 16 * 16;
}

template <Format kFormat, typename Block>
SAMARA_DEVICE void SmallBody(Block& block, const DenseTask& t, unsigned char* shared) {
  const Group group = t.groups[block.x()];
  const DensePart<kFormat> part(block, t, group);
  const unsigned bytes = static_cast<unsigned>(SmallWeightBytes(t, kPerWord<kFormat>));
  float* values = reinterpret_cast<float*>(shared + bytes);
  const float* in = t.in + size_t{group.first} * t.inputs;
  block.Threads([&](unsigned thread) {
    for (unsigned i = thread * 16; i < bytes; i += block.size() * 16)
      Store16(shared + i, Load16(part.network + t.weights + i));
    for (unsigned i = thread; i < t.inputs; i += block.size()) values[i] = Mul(in[i], part.scale);
  });
  block.Threads([&](unsigned thread) {
    for (unsigned column = thread; column < t.outputs; column += block.size()) {
      float sum;
      TakeBias<1>(t, part.network, column, &sum);
      for (unsigned i = 0; i < t.inputs; ++i) {
        const unsigned at = i * t.columns + column;
        float w;
        if constexpr (kFormat == Format::kFloat32)
          w = reinterpret_cast<const float*>(shared)[at];
        else if constexpr (kFormat == Format::kBf16)
          w = FloatOf(uint32_t{reinterpret_cast<const uint16_t*>(shared)[at]} << 16);
        else
          w = static_cast<float>(reinterpret_cast<const signed char*>(shared)[at]);
        sum = Fma(values[i], w, sum);
      }
      StoreColumns<1>(t, group.first, column, &sum);
    }
  });
}

// ---- dense layers on several observations of a network: its weights are read once for all

constexpr unsigned kGroupInputs = 512;  // that a block takes at a time
constexpr unsigned kGroupShared = kStages * kStageBytes + kGroupInputs * kGroupMax * 4;

template <Format kFormat, typename Block>
SAMARA_DEVICE void DenseGroupBody(Block& block, const DenseTask& t, unsigned char* shared) {
  struct Sums {
    float sum[kGroupMax][kDenseColumns];
  };
  const Group group = t.groups[block.x()];
  const DensePart<kFormat> part(block, t, group);
  const float* in = t.in + size_t{group.first} * t.inputs;
  float* values = reinterpret_cast<float*>(shared + kStages * kStageBytes);  // [input][kGroupMax]
  typename Block::template PerThread<Sums> sums;
  block.ThreadsUnordered([&](unsigned thread) {
    if (thread * kDenseColumns >= part.columns) return;
    SAMARA_DEVICE_UNROLL
    for (unsigned r = 0; r < kGroupMax; ++r)
      TakeBias<kDenseColumns>(t, part.network, part.first + thread * kDenseColumns,
                              sums[thread].sum[r]);
  });
  for (unsigned first = 0; first < t.inputs; first += kGroupInputs) {
    const unsigned rest = t.inputs - first, count = rest < kGroupInputs ? rest : kGroupInputs;
    block.Threads([&](unsigned thread) {
      for (unsigned r = 0; r < kGroupMax; ++r) {
        for (unsigned i = thread; i < count; i += block.size())
          values[i * kGroupMax + r] =
              r < group.count ? Mul(in[size_t{r} * t.inputs + first + i], part.scale) : 0.0f;
      }
    });
    StreamRows(
        block, part, count, shared, [&](unsigned n) { return size_t{first} + n; },
        [&](unsigned thread, unsigned n, const unsigned char* weights) {
          float w[kDenseColumns], x[kGroupMax];
          LoadColumns<kFormat>(weights, w);
          Expand<Format::kFloat32>(LoadShared16(values + n * kGroupMax).word, x);
          Expand<Format::kFloat32>(LoadShared16(values + n * kGroupMax + 4).word, x + 4);
          SAMARA_DEVICE_UNROLL
          for (unsigned r = 0; r < kGroupMax; ++r) {
            SAMARA_DEVICE_UNROLL
            for (unsigned c = 0; c < kDenseColumns; ++c)
              sums[thread].sum[r][c] = Fma(x[r], w[c], sums[thread].sum[r][c]);
          }
        });
  }
  block.ThreadsUnordered([&](unsigned thread) {
    if (thread * kDenseColumns >= part.columns) return;
    SAMARA_DEVICE_UNROLL
    for (unsigned r = 0; r < kGroupMax; ++r) {
      if (r < group.count)
        StoreColumns<kDenseColumns>(t, group.first + r, part.first + thread * kDenseColumns,
                                    sums[thread].sum[r]);
    }
  });
}

}  // namespace
}  // namespace samara::device
