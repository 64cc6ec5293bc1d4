// SPDX-License-Identifier: Apache-2.0 OR MIT
// Implementation shared by the instruction sets. The including file defines, in an unnamed
// namespace: Vec, kLanes, the tiles that its registers hold (kConvVectors, kTileRows,
// kTileVectors), and Load, LoadPair, LoadBytes, Store, StoreLowBytes, Broadcast, Fma(a, b, c) = a *
// b + c rounded once, Add, Mul, Div, Min(a, b) = a < b ? a : b, Max(a, b) = a > b ? a : b,
// NonzeroLanes (one bit per lane). Each is correctly rounded or exact, so the order of operations
// below fixes every bit.
//
// Zeros: an input that is zero adds nothing to a chain of finite numbers, except that it may turn a
// sum of -0 into +0. Activate therefore never returns -0, and a loop may skip zeros or not, as
// suits it. Parameters must be finite for the instruction sets to agree.
#pragma once

#include "nn/kernel_ops.h"

#define SAMARA_KERNEL_INLINE inline
#define SAMARA_KERNEL_APART __attribute__((noinline))
#include "nn/kernel_activation_impl.h"

namespace samara::kernel {
namespace {

// Rows of a dense layer that pass through the accumulators together.
constexpr size_t kDenseRows = 8;

// 64 bits from bit `start`.
inline uint64_t BitsAt(const uint64_t* bits, size_t start) {
  const uint64_t* word = bits + start / 64;
  const unsigned shift = start % 64;
  return word[0] >> shift | word[1] << 1 << (63 - shift);
}

// Where the windows of one group of pixels start. The last group repeats the last pixel.
template <size_t kPixels>
struct Group {
  size_t window[kPixels];  // in `in`
  size_t out[kPixels];     // in `out`
  size_t valid;
};

// All groups, one after the other.
template <size_t kPixels>
class Groups {
 public:
  explicit Groups(const ConvTask& t) : t_(t), left_(t.out_height * t.out_width) {}
  bool Next(Group<kPixels>& group) {
    if (left_ == 0) return false;
    group.valid = left_ < kPixels ? left_ : kPixels;
    for (size_t p = 0; p < kPixels; ++p) {
      group.window[p] = row_ * t_.step_row + column_ * t_.step_column;
      group.out[p] = row_ * t_.out_row + column_ * t_.channels;
      const bool last = p + 1 >= left_;
      if (!last && ++column_ == t_.out_width) column_ = 0, ++row_;
    }
    left_ -= group.valid;
    return true;
  }

 private:
  const ConvTask& t_;
  size_t left_, row_ = 0, column_ = 0;
};

// masks[ky][word]: inputs of the window that are nonzero in any pixel of the group.
template <size_t kPixels>
void GroupMasks(const ConvTask& t, const Group<kPixels>& group, uint64_t* masks) {
  for (size_t ky = 0; ky < t.kernel; ++ky) {
    for (size_t k = 0; k < t.run; k += 64) {
      uint64_t any = 0;
      for (size_t p = 0; p < kPixels; ++p) {
        any |= BitsAt(t.bits, group.window[p] + ky * t.in_row + k);
      }
      const size_t left = t.run - k;
      *masks++ = left < 64 ? any & ((uint64_t{1} << left) - 1) : any;
    }
  }
}

// The chains of one group of pixels and one block of channels.
template <size_t kPixels, size_t kVectors>
inline void ConvTile(const ConvTask& t, const Group<kPixels>& group, const uint64_t* masks,
                     const float* weights, const float* bias, Vec (&sum)[kPixels][kVectors]) {
  constexpr size_t kBlock = kVectors * kLanes;
  SAMARA_UNROLL
  for (size_t p = 0; p < kPixels; ++p) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) sum[p][v] = Load(bias + v * kLanes);
  }
  for (size_t ky = 0; ky < t.kernel; ++ky) {
    for (size_t k = 0; k < t.run; k += 64) {
      const size_t offset = ky * t.in_row + k;
      const float* in[kPixels];
      SAMARA_UNROLL
      for (size_t p = 0; p < kPixels; ++p) in[p] = t.in + group.window[p] + offset;
      const float* block = weights + (ky * t.run + k) * kBlock;
      for (uint64_t mask = *masks++; mask != 0; mask &= mask - 1) {
        const size_t i = static_cast<size_t>(__builtin_ctzll(mask));
        Vec w[kVectors];
        SAMARA_UNROLL
        for (size_t v = 0; v < kVectors; ++v) w[v] = Load(block + i * kBlock + v * kLanes);
        SAMARA_UNROLL
        for (size_t p = 0; p < kPixels; ++p) {
          const Vec x = Broadcast(in[p][i]);
          SAMARA_UNROLL
          for (size_t v = 0; v < kVectors; ++v) sum[p][v] = Fma(x, w[v], sum[p][v]);
        }
      }
    }
  }
}

template <size_t kPixels, size_t kVectors>
void StoreTile(const ConvTask& t, const Group<kPixels>& group, size_t channel,
               const Vec (&sum)[kPixels][kVectors]) {
  constexpr size_t kBlock = kVectors * kLanes;
  const size_t left = t.channels - channel;
  for (size_t p = 0; p < group.valid; ++p) {
    float* out = t.out + group.out[p] + channel;
    alignas(64) float tail[kBlock];
    float* to = left < kBlock ? tail : out;
    for (size_t v = 0; v < kVectors; ++v) {
      Store(to + v * kLanes, Activate(sum[p][v], t.activation));
    }
    for (size_t c = 0; to == tail && c < left; ++c) out[c] = tail[c];
  }
}

template <size_t kPixels, size_t kVectors>
void ConvBlocks(const ConvTask& t) {
  constexpr size_t kBlock = kVectors * kLanes;
  const size_t words = t.kernel * ((t.run + 63) / 64);
  uint64_t* masks = t.masks;
  Group<kPixels> group;
  for (Groups<kPixels> groups(t); groups.Next(group); masks += words) GroupMasks(t, group, masks);
  const float* next = t.next;
  const size_t tiles =
      (t.out_height * t.out_width + kPixels - 1) / kPixels * ((t.channels + kBlock - 1) / kBlock);
  const size_t slice = (t.next_size / tiles + 16) / 16 * 16;  // whole cache lines
  // a block of channels keeps its weights near for all pixels
  for (size_t channel = 0; channel < t.channels; channel += kBlock) {
    const float* weights = t.weights + channel * t.kernel * t.run;
    masks = t.masks;
    for (Groups<kPixels> groups(t); groups.Next(group); masks += words) {
      Vec sum[kPixels][kVectors];
      ConvTile(t, group, masks, weights, t.bias + channel, sum);
      StoreTile(t, group, channel, sum);
      const float* end = t.next + t.next_size;
      for (const float* stop = end - next < static_cast<ptrdiff_t>(slice) ? end : next + slice;
           next < stop; next += 16) {
        __builtin_prefetch(next);
      }
    }
  }
}

// Vectors of channels that are packed together: kConvVectors or, while that is enough, half as
// many. Fewer go with more pixels, so that there are always as many chains as the registers hold.
template <size_t kVectors>
size_t BlockVectors(size_t channels) {
  if constexpr (kVectors > 1) {
    if (channels <= kVectors / 2 * kLanes) return BlockVectors<kVectors / 2>(channels);
  }
  return kVectors;
}
size_t ConvBlock(size_t channels) { return BlockVectors<kConvVectors>(channels) * kLanes; }

template <size_t kPixels, size_t kVectors>
void ConvWith(const ConvTask& t, size_t vectors) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return ConvWith<2 * kPixels, kVectors / 2>(t, vectors);
  }
  ConvBlocks<kPixels, kVectors>(t);
}
void Conv(const ConvTask& t) {
  ConvWith<kConvPixels, kConvVectors>(t, BlockVectors<kConvVectors>(t.channels));
}

// Weights of kVectors vectors of columns, from where a row's part for them begins.
template <Format kFormat, size_t kVectors>
inline void LoadWeights(const char* p, Vec (&w)[kVectors]) {
  const auto* words = reinterpret_cast<const float*>(p);
  if constexpr (kFormat == Format::kBf16) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; v += 2) LoadPair(words + v / 2 * kLanes, w[v], w[v + 1]);
  } else {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      w[v] = kFormat == Format::kInt8 ? LoadBytes(p + v * kLanes) : Load(words + v * kLanes);
    }
  }
}

// Adds `kRows` weighted rows to all columns, and asks for the rows that come `kRows` later.
template <Format kFormat, size_t kRows>
void AddRows(const DenseTask& t, size_t first, size_t nonzero) {
  constexpr size_t kColumns = LineColumns(kFormat), kVectors = kColumns / kLanes;
  const size_t row_bytes = t.layer.columns * WeightBytes(kFormat);
  const auto* weights = reinterpret_cast<const char*>(t.layer.weights);
  const char* row[kRows];
  const char* next[kRows];
  Vec x[kRows];
  SAMARA_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    row[r] = weights + t.rows[first + r] * row_bytes;
    const size_t later = first + r + kRows;
    next[r] = weights + t.rows[later < nonzero ? later : nonzero - 1] * row_bytes;
    x[r] = Broadcast(t.values[first + r]);
  }
  float* out = t.out;
  for (size_t line = 0; line < row_bytes; line += kLineBytes, out += kColumns) {
    Vec sum[kVectors];
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) sum[v] = Load(out + v * kLanes);
    SAMARA_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      Vec w[kVectors];
      LoadWeights<kFormat>(row[r] + line, w);
      SAMARA_UNROLL
      for (size_t v = 0; v < kVectors; ++v) sum[v] = Fma(x[r], w[v], sum[v]);
    }
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) Store(out + v * kLanes, sum[v]);
    SAMARA_UNROLL
    for (size_t r = 0; r < kRows; ++r) __builtin_prefetch(next[r] + line);
  }
}

template <Format kFormat>
void AddAllRows(const DenseTask& t, size_t nonzero) {
  size_t i = 0;
  for (; i + kDenseRows <= nonzero; i += kDenseRows) AddRows<kFormat, kDenseRows>(t, i, nonzero);
  for (; i < nonzero; ++i) AddRows<kFormat, 1>(t, i, nonzero);
}

size_t Dense(const DenseTask& t) {
  const DenseLayer& layer = t.layer;
  const float scale = layer.format == Format::kInt8 ? layer.scale : 1.0f;
  size_t nonzero = 0;
  for (size_t i = 0; i < layer.count; ++i) {
    t.rows[nonzero] = static_cast<uint32_t>(i);
    t.values[nonzero] = t.in[i] * scale;
    nonzero += t.in[i] != 0.0f;
  }
  for (size_t c = 0; c < layer.columns; c += kLanes) Store(t.out + c, Load(layer.bias + c));
  if (layer.format == Format::kFloat32) AddAllRows<Format::kFloat32>(t, nonzero);
  if (layer.format == Format::kBf16) AddAllRows<Format::kBf16>(t, nonzero);
  if (layer.format == Format::kInt8) AddAllRows<Format::kInt8>(t, nonzero);
  for (size_t c = 0; c < layer.columns; c += kLanes) {
    Store(t.out + c, Activate(Load(t.out + c), layer.activation));
  }
  return nonzero;
}

// A small layer of kNetworks networks whose outputs are kVectors vectors each: they stay in
// registers, and zeros are not worth a look.
template <size_t kVectors, size_t kNetworks>
inline void DenseSmall(const SmallLayer& layer, const float* const* packed, const float* const* in,
                       float* const* out) {
  Vec sum[kNetworks][kVectors];
  const float* row[kNetworks];
  SAMARA_UNROLL
  for (size_t n = 0; n < kNetworks; ++n) {
    row[n] = packed[n] + layer.weights;
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) sum[n][v] = Load(packed[n] + layer.bias + v * kLanes);
  }
  for (size_t i = 0; i < layer.count; ++i) {
    SAMARA_UNROLL
    for (size_t n = 0; n < kNetworks; ++n) {
      const Vec x = Broadcast(in[n][i]);
      SAMARA_UNROLL
      for (size_t v = 0; v < kVectors; ++v)
        sum[n][v] = Fma(x, Load(row[n] + v * kLanes), sum[n][v]);
      row[n] += kVectors * kLanes;
    }
  }
  SAMARA_UNROLL
  for (size_t n = 0; n < kNetworks; ++n) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      Store(out[n] + v * kLanes, Activate(sum[n][v], layer.activation));
  }
}

// Runs as many of kNetworks networks at a time as leave room for their sums in registers.
template <size_t kVectors, size_t kNetworks>
inline void DenseSmallInTurns(const SmallLayer& layer, const float* const* packed,
                              const float* const* in, float* const* out) {
  constexpr size_t kSums = 8, kMost = kVectors < kSums ? kSums / kVectors : 1;
  constexpr size_t kTogether = kNetworks < kMost ? kNetworks : kMost;
  for (size_t n = 0; n < kNetworks; n += kTogether)
    DenseSmall<kVectors, kTogether>(layer, packed + n, in + n, out + n);
}

template <size_t kNetworks>
void RunStack(const DenseStackTask& t, size_t first) {
  constexpr size_t kLine = LineColumns(Format::kFloat32);
  const float* in[kNetworks];
  float* out[kNetworks];
  for (size_t n = 0; n < kNetworks; ++n) in[n] = t.in[first + n];
  for (size_t i = 0; i < t.size; ++i) {
    const SmallLayer& layer = t.layers[i];
    for (size_t n = 0; n < kNetworks; ++n)
      out[n] = t.out[first + n] + (t.size - 1 - i) % 2 * kSmallColumns;
    if (layer.columns == kLine)
      DenseSmallInTurns<kLine / kLanes, kNetworks>(layer, t.packed + first, in, out);
    else
      DenseSmallInTurns<kSmallColumns / kLanes, kNetworks>(layer, t.packed + first, in, out);
    for (size_t n = 0; n < kNetworks; ++n) in[n] = out[n];
  }
}

void DenseStack(const DenseStackTask& t) {
  size_t first = 0;
  if (t.networks == kStackNetworks) {
    RunStack<kStackNetworks>(t, 0);
    return;
  }
  for (; first + 2 <= t.networks; first += 2) RunStack<2>(t, first);
  if (first < t.networks) RunStack<1>(t, first);
}

// `inputs` more links of the chains of kTileRows observations and kVectors vectors of columns.
template <Format kFormat, size_t kVectors, bool kPrefetch>
inline void AddTile(const DenseManyTask& t, size_t observation, size_t column, size_t first,
                    size_t inputs) {
  const size_t row_bytes = t.layer.columns * WeightBytes(kFormat);
  const auto* weights =
      reinterpret_cast<const char*>(t.layer.weights) + column * WeightBytes(kFormat);
  float* out = t.out + observation * t.layer.columns + column;
  Vec sum[kTileRows][kVectors];
  SAMARA_UNROLL
  for (size_t r = 0; r < kTileRows; ++r) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) sum[r][v] = Load(out + r * t.layer.columns + v * kLanes);
  }
  for (size_t j = first; j < first + inputs; ++j) {
    Vec w[kVectors];
    LoadWeights<kFormat>(weights + t.rows[j] * row_bytes, w);
    // rows[] ends with kChunk repetitions of its last entry
    if (kPrefetch) __builtin_prefetch(weights + t.rows[j + kChunk] * row_bytes);
    const float* x = t.in + t.rows[j] * kObservations + observation;
    SAMARA_UNROLL
    for (size_t r = 0; r < kTileRows; ++r) {
      const Vec xr = Broadcast(x[r]);
      SAMARA_UNROLL
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = Fma(xr, w[v], sum[r][v]);
    }
  }
  SAMARA_UNROLL
  for (size_t r = 0; r < kTileRows; ++r) {
    SAMARA_UNROLL
    for (size_t v = 0; v < kVectors; ++v) Store(out + r * t.layer.columns + v * kLanes, sum[r][v]);
  }
}

template <Format kFormat, bool kPrefetch>
void AddTiles(const DenseManyTask& t, size_t observation, size_t first, size_t inputs) {
  size_t c = 0;
  for (; c + kTileVectors * kLanes <= t.layer.columns; c += kTileVectors * kLanes) {
    AddTile<kFormat, kTileVectors, kPrefetch>(t, observation, c, first, inputs);
  }
  if constexpr (kFormat == Format::kFloat32) {  // the others' lines are whole tiles
    for (; c < t.layer.columns; c += kLanes) {
      AddTile<kFormat, 1, kPrefetch>(t, observation, c, first, inputs);
    }
  }
}

template <Format kFormat>
void AddAllTiles(const DenseManyTask& t, size_t nonzero) {
  for (size_t first = 0; first < nonzero; first += kChunk) {
    const size_t inputs = nonzero - first < kChunk ? nonzero - first : kChunk;
    AddTiles<kFormat, true>(t, 0, first, inputs);
    for (size_t o = kTileRows; o < t.observations; o += kTileRows) {
      AddTiles<kFormat, false>(t, o, first, inputs);
    }
  }
}

void DenseMany(const DenseManyTask& t) {
  const DenseLayer& layer = t.layer;
  size_t nonzero = 0;
  for (size_t i = 0; i < layer.count; ++i) {
    uint32_t any = 0;
    for (size_t o = 0; o < kObservations; o += kLanes) {
      any |= NonzeroLanes(Load(t.in + i * kObservations + o));
    }
    t.rows[nonzero] = static_cast<uint32_t>(i);
    nonzero += any != 0;
  }
  for (size_t i = 0; i < kChunk; ++i) t.rows[nonzero + i] = nonzero == 0 ? 0 : t.rows[nonzero - 1];
  for (size_t o = 0; o < kObservations; ++o) {
    for (size_t c = 0; c < layer.columns; c += kLanes) {
      Store(t.out + o * layer.columns + c, Load(layer.bias + c));
    }
  }
  if (layer.format == Format::kFloat32) AddAllTiles<Format::kFloat32>(t, nonzero);
  if (layer.format == Format::kBf16) AddAllTiles<Format::kBf16>(t, nonzero);
  if (layer.format == Format::kInt8) AddAllTiles<Format::kInt8>(t, nonzero);
  for (size_t i = 0; i < t.observations * layer.columns; i += kLanes) {
    Store(t.out + i, Activate(Load(t.out + i), layer.activation));
  }
}

// PyTorch's formulas; the gates of an LSTM are i, f, g, o, those of a GRU r, z, n.
void ComputeCell(const CellTask& t) {
  const Vec zero = Broadcast(0.0f);  // no -0 in a state
  for (size_t i = 0; i < t.units; i += kLanes) {
    const auto input = [&](size_t gate) { return Load(t.input + gate * t.units + i); };
    const auto recurrent = [&](size_t gate) { return Load(t.recurrent + gate * t.units + i); };
    const auto sum = [&](size_t gate) { return Add(input(gate), recurrent(gate)); };
    if (t.cell == Cell::kRnn) {
      Store(t.hidden + i, Activate(sum(0), t.activation));
    } else if (t.cell == Cell::kLstm) {
      const Vec in = Sigmoid(sum(0)), forget = Sigmoid(sum(1));
      const Vec candidate = Tanh(sum(2)), out = Sigmoid(sum(3));
      const Vec memory = Fma(forget, Load(t.memory + i), Mul(in, candidate));
      Store(t.memory + i, memory);
      Store(t.hidden + i, Fma(out, Tanh(memory), zero));
    } else {
      const Vec reset = Sigmoid(sum(0)), update = Sigmoid(sum(1));
      const Vec candidate = Tanh(Fma(reset, recurrent(2), input(2)));
      // (1 - z) n + z h
      const Vec change = Fma(Broadcast(-1.0f), candidate, Load(t.hidden + i));
      Store(t.hidden + i, Add(Fma(update, change, candidate), zero));
    }
  }
}

void Normalize(const NormalizeTask& t) {
  for (size_t i = 0; i < t.count; i += kLanes) {
    const Vec x = Div(Add(Load(t.in + i), Load(t.minus_mean + i)), Load(t.deviation + i));
    // NaN passes
    const Vec y = Max(Broadcast(-t.limit), Min(Broadcast(t.limit), x));
    Store(t.out + i, Add(y, Broadcast(0.0f)));
  }
}

void NonzeroBits(const float* x, size_t n, uint64_t* bits) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t word = 0;
    for (size_t j = 0; j < 64; j += kLanes) word |= uint64_t{NonzeroLanes(Load(x + i + j))} << j;
    bits[i / 64] = word;
  }
  if (i == n) return;
  bits[i / 64] = 0;
  for (; i < n; ++i) bits[i / 64] |= uint64_t{x[i] != 0.0f} << (i % 64);
}

float Magnitude(const float* x, size_t n) {
  Vec largest = Broadcast(0.0f);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = Load(x + i);
    largest = Max(largest, Max(v, Mul(v, Broadcast(-1.0f))));
  }
  float lanes[kLanes], result = 0;
  Store(lanes, largest);
  for (size_t lane = 0; lane < kLanes; ++lane) result = lanes[lane] > result ? lanes[lane] : result;
  for (; i < n; ++i) {
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    result = magnitude > result ? magnitude : result;
  }
  return result;
}

void ToInt8(const float* x, size_t n, float inverse, char* out) {
  const Vec ones = Broadcast(0x1.8p23f);  // the last bit of a sum with it counts ones
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    StoreLowBytes(out + i, Add(Mul(Load(x + i), Broadcast(inverse)), ones));
  }
  char tail[kLanes];
  float rest[kLanes];
  for (size_t k = 0; k < kLanes; ++k) rest[k] = i + k < n ? x[i + k] : 0.0f;
  StoreLowBytes(tail, Add(Mul(Load(rest), Broadcast(inverse)), ones));
  for (size_t k = 0; i + k < n; ++k) out[i + k] = tail[k];
}

}  // namespace
}  // namespace samara::kernel

#include "nn/kernel_product_impl.h"

namespace samara::kernel {
namespace {

constexpr Ops kOps = {kLanes,      ConvBlock,   Conv,       Dense,     DenseStack,
                      DenseMany,   ComputeCell, Normalize,  Magnitude, ToInt8,
                      NonzeroBits, Product,     ActivateAll};

}  // namespace
}  // namespace samara::kernel
