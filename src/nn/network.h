// SPDX-License-Identifier: Apache-2.0 OR MIT
// One description of a network serves every executor: population kernels (kernel.h), the torch
// module (nn/torch/), noise, export and checkpoint all agree on its canonical parameter order.
//
// Canonical order (that of the released GPU program): per layer in order, weights then biases;
// convolution weights [ky][kx][in][out], dense weights [in][out], row-major; a convolution's output
// is flattened rows, columns, channels. Images are [row][column][channel], frame stack oldest
// first. A recurrent layer has the weights of its input [in][gates * units], those of its state
// [units][gates * units], then two biases [gates * units] in the same order; the gates follow each
// other as in PyTorch: i, f, g, o in an LSTM, r, z, n in a GRU. An affine virtual batch norm and a
// layer normalization have scales and shifts behind the bias of their layer.
//
// Statistics, which are measured instead of evolved, follow the parameters of all layers: so the
// evolved ones are the first evolved_count of the vector. Noise and mutations end there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "core/status.h"

namespace samara {

// Far above every published network, far below what could overflow an int64_t product.
constexpr int64_t kUnitsMax = 1 << 20, kKernelMax = 64;
constexpr size_t kLayersMax = 1025;  // the output layer included

enum class Activation : uint8_t {
  kNone,
  kRelu,
  kTanh,
  kSigmoid,
  kElu,
  kSelu,
  kSilu,
  kLrelu,     // slope 0.01 below zero
  kLrelu0p2,  // slope 0.2
  kGelu,      // in its form with tanh
};
// How the sums of a layer are normalized before their activation.
// Virtual batch norm, of populations' convolutions and dense layers: per channel or unit, by mean
// and variance over a reference batch of observations (kernel.h computes both):
//   kVbn        (x - mean) / sqrt(variance + 1e-3) + bias, where x has no bias
//   kVbnAffine  (x - mean) / sqrt(variance + 1e-3) * scale + shift, where x has its bias
// Layer normalization (Ba et al. 2016, arXiv 1607.06450), of learners' dense layers: by mean and
// variance over the units for one observation, where x has its bias:
//   kLayer      (x - mean) / sqrt(variance + 1e-5) * scale + shift
enum class Norm : uint8_t { kNone, kVbn, kVbnAffine, kLayer };
constexpr double kVbnEpsilon = 1e-3;
constexpr float kLayerNormEpsilon = 1e-5f;
// A normalize layer computes (x - mean) / max(deviation, kDeviationMin), clipped to
// +-kNormalizedMax.
constexpr float kDeviationMin = 0.1f, kNormalizedMax = 5;
inline float NormalizedInput(float x, float mean, float deviation) {
  return std::clamp((x - mean) / std::max(deviation, kDeviationMin), -kNormalizedMax,
                    kNormalizedMax);
}
constexpr EnumName<Activation> kActivationNames[] = {
    {Activation::kRelu, "relu"},        {Activation::kTanh, "tanh"}, {Activation::kNone, "none"},
    {Activation::kSigmoid, "sigmoid"},  {Activation::kElu, "elu"},   {Activation::kSelu, "selu"},
    {Activation::kSilu, "silu"},        {Activation::kGelu, "gelu"}, {Activation::kLrelu, "lrelu"},
    {Activation::kLrelu0p2, "lrelu0.2"}};
enum class Padding : uint8_t {
  kSame,
  kValid
};  // kSame as TensorFlow pads: the smaller half before

// How weights are held. It is part of a network's definition; biases stay, and all arithmetic is
// float32 all the same.
//   kBf16  every weight is the nearest bfloat16, ties to even
//   kInt8  a hidden dense layer's weights are whole multiples, -127 to 127, of its Int8Scale,
//          ties to even, and so is each of a recurrent layer's two matrices; convolutions and the
//          output layer stay float32
enum class Storage : uint8_t { kFloat32, kBf16, kInt8 };
std::string_view Name(Storage storage);  // "float32", "bf16", "int8"
Result<Storage> ParseStorage(std::string_view name);

struct Layer {
  // kResidual: a stack of residual blocks (layer_line.h), of learners' networks only
  // kDiagonal: an output layer without bias whose weights multiply an input each
  // kNormalize: of an observation that is a vector, the first layer
  enum class Kind : uint8_t {
    kConv,
    kDense,
    kResidual,
    kRnn,
    kLstm,
    kGru,
    kDiagonal,
    kNormalize
  } kind = Kind::kDense;
  std::string name;  // "conv1", "fc", "out": names of exported tensors
  int64_t out = 0;   // output channels or units
  int64_t kernel = 0, stride = 1;
  Padding padding = Padding::kValid;
  Activation activation = Activation::kNone;
  Norm norm = Norm::kNone;
  bool bias = true;  // false: an output layer's sums have none
  // filled by Finish()
  int64_t in_height = 1, in_width = 1, in = 0;  // input map (dense: 1 x 1 x in)
  int64_t out_height = 1, out_width = 1;
  int64_t pad_before = 0, pad_before_columns = 0;  // rows of zeros above, columns at the left
  size_t weight_offset = 0, weight_count = 0,
         bias_offset = 0;  // in canonical order; bias has columns(), or none
  // recurrent: weights and bias of the state; the bias has columns()
  size_t recurrent_offset = 0, recurrent_count = 0, recurrent_bias_offset = 0;
  size_t scale_offset = 0, shift_offset = 0;  // where has_scales(), `out` each
  // statistics, `out` each: of virtual batch norm variances, of kNormalize standard deviations
  size_t mean_offset = 0, spread_offset = 0;
  bool virtual_batch_norm() const { return norm == Norm::kVbn || norm == Norm::kVbnAffine; }
  bool has_scales() const { return norm == Norm::kVbnAffine || norm == Norm::kLayer; }
  bool has_statistics() const { return virtual_batch_norm() || kind == Kind::kNormalize; }
  int64_t fan_in() const {
    if (kind == Kind::kResidual) return kernel * kernel * (in + 4 * out);  // of its five kernels
    if (kind == Kind::kNormalize) return 0;
    return kind == Kind::kConv ? kernel * kernel * in : in;
  }
  // Units of the cell that a recurrent layer computes per output unit; 0 in other layers.
  int64_t gates() const {
    return kind == Kind::kRnn ? 1 : kind == Kind::kLstm ? 4 : kind == Kind::kGru ? 3 : 0;
  }
  bool recurrent() const { return gates() > 0; }
  // Columns of the weight matrices.
  int64_t columns() const { return recurrent() ? gates() * out : out; }
  size_t output_size() const { return static_cast<size_t>(out_height * out_width * out); }
};

struct NetworkDescription {
  std::string name;                             // "LargeModel", or the line of its layers
  int64_t height = 1, width = 1, channels = 0;  // input; a vector is 1 x 1 x n
  std::vector<Layer> layers;
  Storage storage = Storage::kFloat32;
  size_t parameter_count = 0;  // of the canonical vector, statistics included
  size_t evolved_count = 0;    // of them, the first ones: weights, biases, scales, shifts
  size_t input_size() const { return static_cast<size_t>(height * width * channels); }
  size_t output_size() const { return static_cast<size_t>(layers.back().out); }
  bool recurrent() const {
    return std::ranges::any_of(layers, [](const Layer& layer) { return layer.recurrent(); });
  }
  // Whether it has statistics, which come from a reference batch.
  bool needs_reference() const {
    return std::ranges::any_of(layers, [](const Layer& layer) { return layer.has_statistics(); });
  }
};

// Where one tensor lies in the canonical vector.
struct TensorSlice {
  std::string name;            // "conv1.weight", "conv1.bias", "lstm1.weight_hh", ...
  std::vector<int64_t> shape;  // canonical shape: {ky, kx, in, out}, {in, out} or {out}
  size_t layer = 0;            // in NetworkDescription::layers
  size_t offset = 0, count = 0;
  int64_t fan_in = 0, fan_out = 0;  // of one gate in a recurrent layer
  bool bias = false;                // one number per output unit, which starts as `initial`
  bool statistic = false;           // the same, and is not evolved
  float initial = 0;
  bool output_layer = false;
};
std::vector<TensorSlice> Tensors(const NetworkDescription& network);

// How the weights of layers[layer] are held.
Storage StorageOf(const NetworkDescription& network, size_t layer);

// x as the nearest bfloat16, ties to even. REQUIRES: finite.
inline float RoundToBf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}
// The least power of two of which 127 reach the largest magnitude of a layer's weights. REQUIRES:
// finite.
float Int8Scale(float magnitude);
// The whole multiple of `scale` nearest to x. REQUIRES: |x| <= 127 scale, scale a power of two.
inline int8_t RoundToInt8(float x, float scale) {
  // the sum's last bit counts ones: adding rounds, ties to even
  constexpr float kOnes = 0x1.8p23f;
  return static_cast<int8_t>(std::bit_cast<int32_t>(x * (1 / scale) + kOnes));
}
// Chooses how the weights of `network` are held. kConfig where they must stay float32.
Status SetStorage(Storage storage, NetworkDescription& network);
// Rounds canonical parameters to what an executor of the network uses: float32 stays as it is.
void RoundToStorage(const NetworkDescription& network, std::span<float> canonical);

// Fills everything that follows from the input and the layers' own fields: maps, padding, offsets,
// parameter_count, evolved_count. kConfig on sizes out of range or a window larger than its map.
Status Finish(NetworkDescription& network);

// The network of a name or a line of layers (layer_line.h), and a dense output layer, "out",
// without activation unless the line says otherwise. kConfig where it does not fit the input, and
// for residual stacks and layer normalization, which populations lack.
Result<NetworkDescription> MakeNetwork(std::string_view name_or_line, int64_t height, int64_t width,
                                       int64_t channels, int64_t outputs);
// The same for vectors and learners, with layer normalization.
Result<NetworkDescription> MakeLearnedNetwork(std::string_view name_or_line, int64_t inputs,
                                              int64_t outputs);
// The hidden layers alone, residual stacks included, for networks that learn by gradients: their
// maps and sizes; there is a dense layer at the end. kConfig as above.
Result<NetworkDescription> MakeTorso(std::string_view name_or_line, int64_t height, int64_t width,
                                     int64_t channels);

}  // namespace samara
