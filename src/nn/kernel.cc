// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/kernel.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/check.h"
#include "core/clock.h"
#include "nn/kernel_choice.h"

namespace samara {
namespace {

using kernel::Format;
using kernel::kObservations;

constexpr size_t kLine = 16;  // floats in a cache line
// Fewer observations of one network than this are evaluated one by one, skipping zeros.
constexpr size_t kFewObservations = 4;
constexpr size_t kReferenceMax = 1024;  // observations of a reference batch

size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

const kernel::Ops& OpsFor(IsaLevel isa) {
#if defined(__x86_64__)
  if (isa == IsaLevel::kAvx2) return kernel::kAvx2Ops;
  if (isa == IsaLevel::kAvx512) return kernel::kAvx512Ops;
#endif
  CHECK(isa == IsaLevel::kPortable) << Name(isa);
  return kernel::kPortableOps;
}

kernel::Act ToAct(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return kernel::Act::kNone;
    case Activation::kRelu:
      return kernel::Act::kRelu;
    case Activation::kTanh:
      return kernel::Act::kTanh;
    case Activation::kSigmoid:
      return kernel::Act::kSigmoid;
    case Activation::kElu:
      return kernel::Act::kElu;
    case Activation::kSelu:
      return kernel::Act::kSelu;
    case Activation::kSilu:
      return kernel::Act::kSilu;
    case Activation::kLrelu:
      return kernel::Act::kLrelu;
    case Activation::kLrelu0p2:
      return kernel::Act::kLrelu0p2;
    case Activation::kGelu:
      return kernel::Act::kGelu;
  }
  return kernel::Act::kNone;
}

size_t U(int64_t n) { return static_cast<size_t>(n); }

// How a layer's input lies in the workspace: a map with its border of zeros, or a plain vector.
struct Map {
  size_t offset = 0;  // of the first float, border included
  size_t height = 1, width = 1, channels = 0;
  size_t inner = 0;  // from `offset` to the first inner pixel
  size_t row() const { return width * channels; }
  size_t size() const { return height * row(); }
};

Map MapOf(const Layer& layer) {
  Map map;
  map.channels = U(layer.in);
  if (layer.kind != Layer::Kind::kConv) return map;
  // as far as the last window reaches, or the map itself where VALID leaves a rest
  map.height = U(std::max(layer.pad_before + layer.in_height,
                          (layer.out_height - 1) * layer.stride + layer.kernel));
  map.width = U(std::max(layer.pad_before_columns + layer.in_width,
                         (layer.out_width - 1) * layer.stride + layer.kernel));
  map.inner = U(layer.pad_before) * map.row() + U(layer.pad_before_columns) * map.channels;
  return map;
}

// Convolutions have few weights: they stay near as float32, whatever the storage's values.
Format FormatOf(const NetworkDescription& network, size_t layer) {
  if (network.layers[layer].kind == Layer::Kind::kConv) return Format::kFloat32;
  return KernelFormat(StorageOf(network, layer));
}

// One row of `count` floats -> `columns` halves; see Format::kBf16.
void PackBf16Row(const float* row, size_t count, size_t columns, size_t lanes, uint32_t* to) {
  const auto half = [&](size_t column) {
    return column < count ? std::bit_cast<uint32_t>(RoundToBf16(row[column])) >> 16 : 0U;
  };
  size_t block = 0;
  for (; block + 2 * lanes <= count; block += 2 * lanes, to += lanes, row += 2 * lanes) {
    for (size_t i = 0; i < lanes; ++i) {
      to[i] = std::bit_cast<uint32_t>(RoundToBf16(row[i])) >> 16 |
              std::bit_cast<uint32_t>(RoundToBf16(row[lanes + i]));
    }
  }
  row -= block;
  for (; block < columns; block += 2 * lanes, to += lanes) {
    for (size_t i = 0; i < lanes; ++i) to[i] = half(block + i) | half(block + lanes + i) << 16;
  }
}

// Rows of `out` weights in the format of a dense layer.
void PackDense(const float* from, size_t out, const kernel::DenseLayer& to, const kernel::Ops& ops,
               float* packed) {
  auto* bytes = reinterpret_cast<char*>(packed);
  const size_t row_bytes = to.columns * kernel::WeightBytes(to.format);
  for (size_t row = 0; row < to.count; ++row, from += out, bytes += row_bytes) {
    switch (to.format) {
      case Format::kFloat32:
        std::memcpy(bytes, from, out * sizeof(float));
        std::memset(bytes + out * sizeof(float), 0, row_bytes - out * sizeof(float));
        break;
      case Format::kBf16:
        PackBf16Row(from, out, to.columns, ops.lanes, reinterpret_cast<uint32_t*>(bytes));
        break;
      case Format::kInt8:
        ops.to_int8(from, out, 1 / to.scale, bytes);
        std::memset(bytes + out, 0, row_bytes - out);
        break;
    }
  }
}

}  // namespace

struct PopulationKernel::Plan {
  // Weights and bias in the packed vector: a layer's, or those of a recurrent layer's state.
  struct Matrix {
    size_t weights = 0, bias = 0, scale = 0;
    size_t rows = 0;
    size_t columns = 0;  // padded
    Format format = Format::kFloat32;
  };
  struct Step {
    Map in;
    size_t out_offset = 0;  // in the workspace: first float that the layer writes
    size_t out_row = 0;     // convolution: between rows written
    size_t block = 0;       // convolution: channels packed together; dense: padded columns
    Matrix matrix;
    Matrix recurrent;    // of the state
    size_t state = 0;    // recurrent: offset of hidden and memory, each padded to whole lines
    size_t factors = 0;  // of a Norm, in the packed vector: by which its weights were multiplied
  };
  const kernel::Ops* ops = nullptr;
  std::vector<Step> steps;
  size_t packed_size = 0;
  size_t activations = 0;                // floats of a workspace
  size_t output = 0;                     // offset of the last layer's output
  size_t bits = 0, masks = 0, rows = 0;  // scratch: words, words, inputs
  size_t columns = 0, gates = 0;  // of the widest dense or recurrent, of the widest recurrent
  size_t state_size = 0;
  size_t normalized = 0;                  // layers up to the last one with a Norm
  size_t widest = 0;                      // floats of the largest input of a layer up to there
  std::vector<kernel::SmallLayer> stack;  // the last layers, as far back as they are small

  Matrix Reserve(size_t inputs, size_t outputs, size_t block, Format format) {
    Matrix m;
    m.rows = inputs;
    m.columns = RoundUp(outputs, block);
    m.format = format;
    m.weights = packed_size;
    m.bias = m.weights + inputs * m.columns * kernel::WeightBytes(format) / sizeof(float);
    m.scale = m.bias + RoundUp(m.columns, kLine);
    packed_size = m.scale + (format == Format::kInt8 ? kLine : 0);
    return m;
  }
  static kernel::DenseLayer Dense(const Matrix& m, Activation activation, const float* packed) {
    return {.weights = packed + m.weights,
            .format = m.format,
            .scale = m.format == Format::kInt8 ? packed[m.scale] : 1.0f,
            .bias = packed + m.bias,
            .count = m.rows,
            .columns = m.columns,
            .activation = ToAct(activation)};
  }
  // The matrix that a dense or recurrent layer's input meets.
  kernel::DenseLayer Dense(const Layer& layer, const Step& step, const float* packed) const {
    return Dense(step.matrix, layer.recurrent() ? Activation::kNone : layer.activation, packed);
  }
  // The matrix of its state.
  static kernel::DenseLayer Recurrent(const Step& step, const float* packed) {
    return Dense(step.recurrent, Activation::kNone, packed);
  }
  void PackMatrix(std::span<const float> weights, std::span<const float> bias, const Matrix& m,
                  std::span<float> packed) const;
  static bool Small(const Layer& layer, const Step& step) {
    const Matrix& m = step.matrix;
    return layer.kind == Layer::Kind::kDense && m.format == Format::kFloat32 &&
           m.rows <= kernel::kSmallInputs &&
           (m.columns == kernel::kSmallColumns / 2 || m.columns == kernel::kSmallColumns);
  }
  static kernel::SmallLayer StackLayer(const Layer& layer, const Step& step) {
    const Matrix& m = step.matrix;
    return {.weights = m.weights,
            .bias = m.bias,
            .count = m.rows,
            .columns = m.columns,
            .activation = ToAct(layer.activation)};
  }
};

namespace {

std::vector<float> DiagonalMatrix(std::span<const float> weights) {
  std::vector<float> matrix(weights.size() * weights.size());
  for (size_t i = 0; i < weights.size(); ++i) matrix[i * (weights.size() + 1)] = weights[i];
  return matrix;
}

}  // namespace

// bias and, of a dense or recurrent layer, weights
void PopulationKernel::Plan::PackMatrix(std::span<const float> weights, std::span<const float> bias,
                                        const Matrix& m, std::span<float> packed) const {
  float* to = packed.data() + m.bias;
  std::copy(bias.begin(), bias.end(), to);
  std::fill(to + bias.size(), to + RoundUp(m.columns, kLine), 0.0f);
  if (m.format == Format::kInt8)
    packed[m.scale] = Int8Scale(ops->magnitude(weights.data(), weights.size()));
  if (weights.empty()) return;
  PackDense(weights.data(), bias.size(), Dense(m, Activation::kNone, packed.data()), *ops,
            packed.data() + m.weights);
}

PopulationKernel::Workspace::Workspace(const Plan& plan)
    : layers_(plan.steps.size()),
      activations_(plan.activations),
      gates_(plan.gates),
      recurrent_gates_(plan.gates),
      bits_(plan.bits),
      masks_(plan.masks),
      rows_(plan.rows + kernel::kChunk),
      values_(plan.rows) {}

PopulationKernel::PopulationKernel(NetworkDescription network, IsaLevel isa)
    : network_(std::move(network)), plan_(std::make_unique<Plan>()) {
  Plan& plan = *plan_;
  plan.ops = &OpsFor(isa);
  const auto reserve = [&plan](size_t floats) {
    return std::exchange(plan.activations, plan.activations + RoundUp(floats, kLine));
  };
  // inputs first: a layer's output is the next one's input
  for (size_t i = 0; i < network_.layers.size(); ++i) {
    const Layer& layer = network_.layers[i];
    Plan::Step step;
    step.in = MapOf(layer);
    // room for the layer before to write its padded columns
    step.in.offset = reserve(step.in.size() + kernel::LineColumns(Format::kInt8));
    const bool conv = layer.kind == Layer::Kind::kConv;
    const Format format = FormatOf(network_, i);
    step.block = conv ? plan.ops->conv_block(U(layer.out)) : kernel::LineColumns(format);
    // a normalize layer's row is that of its means, and its deviations come as the bias
    const bool normalize = layer.kind == Layer::Kind::kNormalize;
    step.matrix =
        plan.Reserve(normalize ? 1 : U(layer.fan_in()), U(layer.columns()), step.block, format);
    if (layer.norm != Norm::kNone) {
      CHECK(network_.storage == Storage::kFloat32) << "SetStorage refuses others";
      step.factors = std::exchange(plan.packed_size, plan.packed_size + step.matrix.columns);
    }
    if (layer.has_statistics()) plan.normalized = i + 1;
    if (conv) {
      const size_t groups =
          RoundUp(U(layer.out_height * layer.out_width), kernel::kConvPixels) / kernel::kConvPixels;
      const size_t words = U(layer.kernel) * (RoundUp(U(layer.kernel * layer.in), 64) / 64);
      plan.bits = std::max(plan.bits, RoundUp(step.in.size(), 64) / 64 + 2);
      plan.masks = std::max(plan.masks, groups * words);
    } else {
      plan.rows = std::max(plan.rows, U(layer.in));
      plan.columns = std::max(plan.columns, step.matrix.columns);
    }
    if (layer.recurrent()) {
      step.recurrent = plan.Reserve(U(layer.out), U(layer.columns()), step.block, format);
      const size_t parts = layer.kind == Layer::Kind::kLstm ? 2 : 1;
      step.state =
          std::exchange(plan.state_size, plan.state_size + parts * RoundUp(U(layer.out), kLine));
      plan.rows = std::max(plan.rows, U(layer.out));
      // vectors of the last gate may reach a line further
      plan.gates = std::max(plan.gates, step.matrix.columns + kLine);
    }
    plan.steps.push_back(step);
  }
  for (size_t i = 0; i < plan.normalized; ++i) {
    const Layer& layer = network_.layers[i];
    plan.widest = std::max(
        {plan.widest, layer.output_size(), U(layer.in_height * layer.in_width * layer.in)});
  }
  size_t small = plan.steps.size();
  while (small > 0 && Plan::Small(network_.layers[small - 1], plan.steps[small - 1])) --small;
  for (size_t i = small; i < plan.steps.size(); ++i)
    plan.stack.push_back(Plan::StackLayer(network_.layers[i], plan.steps[i]));
  plan.output =
      reserve(std::max({plan.steps.back().matrix.columns, network_.layers.back().output_size(),
                        2 * kernel::kSmallColumns * kernel::kStackNetworks}));
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    Plan::Step& step = plan.steps[i];
    const Layer& layer = network_.layers[i];
    const bool last = i + 1 == plan.steps.size();
    const Map next = last ? Map{} : plan.steps[i + 1].in;
    step.out_offset = last ? plan.output : next.offset + next.inner;
    const bool bordered = !last && network_.layers[i + 1].kind == Layer::Kind::kConv;
    step.out_row = bordered ? next.row() : U(layer.out_width * layer.out);
  }
}

PopulationKernel::~PopulationKernel() = default;

std::unique_ptr<PopulationKernel::Workspace> PopulationKernel::MakeWorkspace() const {
  return std::make_unique<Workspace>(*plan_);
}

size_t PopulationKernel::packed_size() const { return plan_->packed_size; }
size_t PopulationKernel::state_size() const { return plan_->state_size; }

void PopulationKernel::Pack(std::span<const float> canonical, std::span<float> packed) const {
  CHECK_EQ(canonical.size(), network_.parameter_count);
  CHECK_EQ(packed.size(), plan_->packed_size);
  for (size_t i = 0; i < plan_->steps.size(); ++i)
    PackLayer(i, canonical, Fold::kStatistics, packed);
}

void PopulationKernel::PackLayer(size_t index, std::span<const float> canonical, Fold fold,
                                 std::span<float> packed) const {
  const Layer& layer = network_.layers[index];
  const Plan::Step& step = plan_->steps[index];
  const auto part = [canonical](size_t offset, size_t n) { return canonical.subspan(offset, n); };
  if (layer.kind == Layer::Kind::kNormalize) {
    float* means = packed.data() + step.matrix.weights;
    float* deviations = packed.data() + step.matrix.bias;
    std::fill_n(means, step.matrix.columns, 0.0f);
    std::fill_n(deviations, step.matrix.columns, 1.0f);
    for (size_t i = 0; i < U(layer.out); ++i) {
      means[i] = -canonical[layer.mean_offset + i];
      deviations[i] = std::max(kDeviationMin, canonical[layer.spread_offset + i]);
    }
    return;
  }
  const auto weights = part(layer.weight_offset, layer.weight_count);
  const std::vector<float> zeros(layer.bias ? 0 : U(layer.columns()));
  const auto bias = layer.bias ? part(layer.bias_offset, U(layer.columns())) : std::span(zeros);
  if (layer.kind == Layer::Kind::kDiagonal)
    return plan_->PackMatrix(DiagonalMatrix(weights), bias, step.matrix, packed);
  if (layer.kind != Layer::Kind::kConv) {
    plan_->PackMatrix(weights, bias, step.matrix, packed);
    if (layer.recurrent())
      plan_->PackMatrix(part(layer.recurrent_offset, layer.recurrent_count),
                        part(layer.recurrent_bias_offset, U(layer.columns())), step.recurrent,
                        packed);
  } else {
    plan_->PackMatrix({}, bias, step.matrix, packed);
    const size_t rows = U(layer.fan_in()), out = U(layer.out);
    float* to = packed.data() + step.matrix.weights;
    for (size_t first = 0; first < out; first += step.block) {
      const size_t count = std::min(step.block, out - first);
      for (size_t row = 0; row < rows; ++row, to += step.block) {
        std::memcpy(to, weights.data() + row * out + first, count * sizeof(float));
        if (network_.storage == Storage::kBf16) std::transform(to, to + count, to, RoundToBf16);
        std::memset(to + count, 0, (step.block - count) * sizeof(float));
      }
    }
  }
  if (layer.norm == Norm::kNone) return;
  if (fold == Fold::kStatistics)
    FoldNorm(index, canonical, packed);
  else if (layer.norm == Norm::kVbn)  // the bias comes after the normalization
    std::fill_n(packed.data() + step.matrix.bias, step.matrix.columns, 0.0f);
}

void PopulationKernel::FoldNorm(size_t index, std::span<const float> canonical,
                                std::span<float> packed) const {
  const Layer& layer = network_.layers[index];
  const Plan::Step& step = plan_->steps[index];
  float* factors = packed.data() + step.factors;
  float* bias = packed.data() + step.matrix.bias;
  std::fill_n(factors, step.matrix.columns, 0.0f);
  for (size_t c = 0; c < U(layer.out); ++c) {
    const bool affine = layer.norm == Norm::kVbnAffine;
    const double mean = canonical[layer.mean_offset + c];
    const double scale = affine ? canonical[layer.scale_offset + c] : 1;
    const double factor = scale / std::sqrt(canonical[layer.spread_offset + c] + kVbnEpsilon);
    const double b = bias[c];
    factors[c] = static_cast<float>(factor);
    bias[c] = static_cast<float>(affine ? (b - mean) * factor + canonical[layer.shift_offset + c]
                                        : b - mean * factor);
  }
  // packed as rows of `width` columns: of all of them, or of one block after the other
  const bool conv = layer.kind == Layer::Kind::kConv;
  const size_t width = conv ? step.block : step.matrix.columns;
  float* weights = packed.data() + step.matrix.weights;
  for (size_t first = 0; first < step.matrix.columns; first += width) {
    for (size_t row = 0; row < step.matrix.rows; ++row, weights += width) {
      for (size_t c = 0; c < width; ++c) weights[c] *= factors[first + c];
    }
  }
}

void PopulationKernel::ComputeStatistics(std::span<const float* const> reference,
                                         Workspace& workspace, std::span<float> canonical) const {
  CHECK_EQ(canonical.size(), network_.parameter_count);
  const size_t n = reference.size();
  CHECK(n > 0 && n <= kReferenceMax);
  if (workspace.reference_[0].size() < n * plan_->widest) {
    workspace.reference_packed_ = AlignedFloats(plan_->packed_size);
    for (AlignedFloats& outputs : workspace.reference_) outputs = AlignedFloats(n * plan_->widest);
    workspace.sums_.resize(plan_->widest);
  }
  const std::span<float> packed = workspace.reference_packed_.span();
  const float* inputs[kReferenceMax];
  std::copy(reference.begin(), reference.end(), inputs);
  for (size_t i = 0; i < plan_->normalized; ++i) {
    const Layer& layer = network_.layers[i];
    float* outputs = workspace.reference_[i % 2].data();
    if (layer.has_statistics()) {
      const bool normalize = layer.kind == Layer::Kind::kNormalize;
      // 1 the sums of the layer; a normalize layer measures its inputs
      if (!normalize) {
        PackLayer(i, canonical, Fold::kRaw, packed);
        RunReference(i, {inputs, n}, /*raw=*/true, workspace, outputs);
      }
      // 2 their mean and variance
      const size_t channels = U(layer.out), pixels = layer.output_size() / channels;
      const auto sums = std::span(workspace.sums_).first(channels);
      for (const bool mean : {true, false}) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (size_t o = 0; o < n; ++o) {
          const float* x = normalize ? inputs[o] : outputs + o * layer.output_size();
          for (size_t pixel = 0; pixel < pixels; ++pixel, x += channels) {
            for (size_t c = 0; c < channels; ++c) {
              const double d = x[c], from = mean ? 0 : canonical[layer.mean_offset + c];
              sums[c] += mean ? d : (d - from) * (d - from);
            }
          }
        }
        float* to = canonical.data() + (mean ? layer.mean_offset : layer.spread_offset);
        for (size_t c = 0; c < channels; ++c) {
          const double moment = sums[c] / static_cast<double>(n * pixels);
          to[c] = static_cast<float>(normalize && !mean ? std::sqrt(moment) : moment);
        }
      }
    }
    // 3 what the next layer reads
    PackLayer(i, canonical, Fold::kStatistics, packed);
    if (i + 1 < plan_->normalized) RunReference(i, {inputs, n}, /*raw=*/false, workspace, outputs);
    for (size_t o = 0; o < n; ++o) inputs[o] = outputs + o * layer.output_size();
  }
}

void PopulationKernel::RunReference(size_t index, std::span<const float* const> inputs, bool raw,
                                    Workspace& workspace, float* outputs) const {
  const Layer& layer = network_.layers[index];
  const Plan::Step& step = plan_->steps[index];
  const float* packed = workspace.reference_packed_.data();
  const Activation activation = raw ? Activation::kNone : layer.activation;
  const size_t row = U(layer.out_width * layer.out);
  for (const float* input : inputs) {
    TakeInput(index, input, workspace);
    RunLayer(index, packed, activation, workspace, nullptr);
    const float* from = workspace.activations_.data() + step.out_offset;
    for (size_t y = 0; y < U(layer.out_height); ++y, from += step.out_row, outputs += row)
      std::memcpy(outputs, from, row * sizeof(float));
  }
}

void PopulationKernel::TakeInput(size_t index, const float* input, Workspace& workspace) const {
  const Layer& layer = network_.layers[index];
  const Map& map = plan_->steps[index].in;
  // a dense layer's input is one row
  const size_t input_row = U(layer.in_width * layer.in);
  for (size_t y = 0; y < U(layer.in_height); ++y) {
    std::memcpy(workspace.activations_.data() + map.offset + map.inner + y * map.row(),
                input + y * input_row, input_row * sizeof(float));
  }
}

void PopulationKernel::RunLayer(size_t index, const float* packed, Activation activation,
                                Workspace& workspace, float* state) const {
  const Plan& plan = *plan_;
  const Layer& layer = network_.layers[index];
  const Plan::Step& step = plan.steps[index];
  const float* in = workspace.activations_.data() + step.in.offset;
  float* out = workspace.activations_.data() + step.out_offset;
  const bool measured = !workspace.costs_.empty();
  const SteadyTime start = measured ? Now() : SteadyTime();
  size_t rows = U(layer.fan_in());
  if (layer.kind == Layer::Kind::kConv) {
    const bool conv_next =
        index + 1 < plan.steps.size() && network_.layers[index + 1].kind == Layer::Kind::kConv;
    const Plan::Matrix& next = plan.steps[conv_next ? index + 1 : index].matrix;
    plan.ops->nonzero_bits(in, step.in.size(), workspace.bits_.data());
    plan.ops->conv({.in = in,
                    .bits = workspace.bits_.data(),
                    .masks = workspace.masks_.data(),
                    .weights = packed + step.matrix.weights,
                    .bias = packed + step.matrix.bias,
                    .out = out,
                    .kernel = U(layer.kernel),
                    .run = U(layer.kernel * layer.in),
                    .in_row = step.in.row(),
                    .step_row = U(layer.stride) * step.in.row(),
                    .step_column = U(layer.stride) * step.in.channels,
                    .out_height = U(layer.out_height),
                    .out_width = U(layer.out_width),
                    .channels = U(layer.out),
                    .out_row = step.out_row,
                    .activation = ToAct(activation),
                    .next = packed + next.weights,
                    .next_size = conv_next ? next.bias - next.weights : 0});
  } else if (layer.recurrent()) {
    rows = RunRecurrent(index, packed, workspace, state);
  } else if (layer.kind == Layer::Kind::kNormalize) {
    plan.ops->normalize({.in = in,
                         .minus_mean = packed + step.matrix.weights,
                         .deviation = packed + step.matrix.bias,
                         .limit = kNormalizedMax,
                         .out = out,
                         .count = U(layer.out)});
  } else {
    rows = plan.ops->dense({.layer = Plan::Dense(step.matrix, activation, packed),
                            .in = in,
                            .rows = workspace.rows_.data(),
                            .values = workspace.values_.data(),
                            .out = out});
  }
  if (!measured) return;
  workspace.costs_[index].seconds += SecondsSince(start);
  workspace.costs_[index].weight_bytes +=
      rows * step.matrix.columns * kernel::WeightBytes(step.matrix.format);
}

// Returns the rows of both matrices that met a nonzero number.
size_t PopulationKernel::RunRecurrent(size_t index, const float* packed, Workspace& workspace,
                                      float* state) const {
  const Plan::Step& step = plan_->steps[index];
  const auto sums = [&](const kernel::DenseLayer& layer, const float* in, AlignedFloats& out) {
    return plan_->ops->dense({.layer = layer,
                              .in = in,
                              .rows = workspace.rows_.data(),
                              .values = workspace.values_.data(),
                              .out = out.data()});
  };
  const Layer& layer = network_.layers[index];
  size_t rows = sums(plan_->Dense(layer, step, packed),
                     workspace.activations_.data() + step.in.offset, workspace.gates_);
  rows += sums(Plan::Recurrent(step, packed), state + step.state, workspace.recurrent_gates_);
  const float* hidden =
      RunCell(index, workspace.gates_.data(), workspace.recurrent_gates_.data(), state);
  std::copy_n(hidden, layer.out, workspace.activations_.data() + step.out_offset);
  return rows;
}

const float* PopulationKernel::RunCell(size_t index, const float* input, const float* recurrent,
                                       float* state) const {
  const Layer& layer = network_.layers[index];
  float* const hidden = state + plan_->steps[index].state;
  plan_->ops->cell({.cell = layer.kind == Layer::Kind::kRnn    ? kernel::Cell::kRnn
                            : layer.kind == Layer::Kind::kLstm ? kernel::Cell::kLstm
                                                               : kernel::Cell::kGru,
                    .activation = ToAct(layer.activation),
                    .units = U(layer.out),
                    .input = input,
                    .recurrent = recurrent,
                    .hidden = hidden,
                    .memory = hidden + RoundUp(U(layer.out), kLine)});
  return hidden;
}

void PopulationKernel::Forward(const float* packed, const float* input, Workspace& workspace,
                               float* output, float* state) const {
  const Plan& plan = *plan_;
  float* const activations = workspace.activations_.data();
  // layer by layer where each is measured
  const size_t small = workspace.costs_.empty() ? plan.stack.size() : 0;
  const size_t large = plan.steps.size() - small;
  if (large > 0) {
    TakeInput(0, input, workspace);
    for (size_t i = 0; i < large; ++i) RunLayer(i, packed, workspace, state);
  }
  if (small > 0) {
    const float* const in = large > 0 ? activations + plan.steps[large].in.offset : input;
    float* const out = activations + plan.output;
    plan.ops->dense_stack({.layers = plan.stack.data(),
                           .size = small,
                           .networks = 1,
                           .packed = &packed,
                           .in = &in,
                           .out = &out});
  }
  std::memcpy(output, activations + plan.output, network_.output_size() * sizeof(float));
}

bool PopulationKernel::small() const { return plan_->stack.size() == plan_->steps.size(); }

void PopulationKernel::ForwardSmall(std::span<const float* const> packed,
                                    std::span<const float* const> inputs, Workspace& workspace,
                                    std::span<float* const> outputs) const {
  static_assert(kSideBySide == kernel::kStackNetworks);
  const Plan& plan = *plan_;
  float* out[kSideBySide];
  for (size_t i = 0; i < packed.size(); ++i)
    out[i] = workspace.activations_.data() + plan.output + i * 2 * kernel::kSmallColumns;
  plan.ops->dense_stack({.layers = plan.stack.data(),
                         .size = plan.stack.size(),
                         .networks = packed.size(),
                         .packed = packed.data(),
                         .in = inputs.data(),
                         .out = out});
  for (size_t i = 0; i < packed.size(); ++i)
    std::copy_n(out[i], network_.output_size(), outputs[i]);
}

void PopulationKernel::ForwardMany(const float* packed, std::span<const float* const> inputs,
                                   Workspace& workspace, float* outputs,
                                   std::span<float* const> states) const {
  CHECK_EQ(states.size(), state_size() > 0 ? inputs.size() : 0);
  const size_t out = network_.output_size();
  for (size_t first = 0; first < inputs.size();) {
    const size_t left = inputs.size() - first;
    const size_t n = left < kFewObservations ? 1 : std::min(left, kObservations);
    if (n == 1)
      Forward(packed, inputs[first], workspace, outputs + first * out,
              states.empty() ? nullptr : states[first]);
    else
      ForwardBatch(packed, inputs.subspan(first, n), workspace, outputs + first * out,
                   states.empty() ? states : states.subspan(first, n));
    first += n;
  }
}

// Convolutions and normalization one observation after the other, dense and recurrent layers as
// matrix products.
void PopulationKernel::ForwardBatch(const float* packed, std::span<const float* const> inputs,
                                    Workspace& workspace, float* outputs,
                                    std::span<float* const> states) const {
  const Plan& plan = *plan_;
  if (workspace.many_in_.size() == 0) {
    workspace.many_in_ = AlignedFloats(plan.rows * kObservations);
    workspace.many_out_ = AlignedFloats(plan.columns * kObservations + kLine);
    if (plan.gates > 0)
      workspace.many_recurrent_ = AlignedFloats(plan.gates * kObservations + kLine);
  }
  float* in = workspace.many_in_.data();
  float* out = workspace.many_out_.data();
  const size_t n = inputs.size();
  // one observation's input of a matrix, as the kernel reads it: [input][observation]
  const auto place = [&](const kernel::DenseLayer& dense, size_t observation, const float* from) {
    for (size_t i = 0; i < dense.count; ++i) {
      in[i * kObservations + observation] = from[i] * dense.scale;
    }
  };
  const auto multiply = [&](const kernel::DenseLayer& dense, float* to) {
    plan.ops->dense_many(
        {.layer = dense, .observations = n, .in = in, .rows = workspace.rows_.data(), .out = to});
  };
  const auto is_dense = [](const Layer& layer) {
    return layer.kind != Layer::Kind::kConv && layer.kind != Layer::Kind::kNormalize;
  };
  const auto first =
      static_cast<size_t>(std::find_if(network_.layers.begin(), network_.layers.end(), is_dense) -
                          network_.layers.begin());
  if (n < kObservations) std::fill_n(in, plan.rows * kObservations, 0.0f);
  const kernel::DenseLayer first_dense =
      plan.Dense(network_.layers[first], plan.steps[first], packed);
  for (size_t o = 0; o < n; ++o) {
    TakeInput(0, inputs[o], workspace);
    for (size_t i = 0; i < first; ++i) RunLayer(i, packed, workspace, nullptr);
    place(first_dense, o, workspace.activations_.data() + plan.steps[first].in.offset);
  }
  const float* from[kObservations];  // outputs of the layer before
  for (size_t i = first; i < plan.steps.size(); ++i) {
    const Layer& layer = network_.layers[i];
    const Plan::Step& step = plan.steps[i];
    const kernel::DenseLayer dense = plan.Dense(layer, step, packed);
    for (size_t o = 0; i > first && o < n; ++o) place(dense, o, from[o]);
    multiply(dense, out);
    for (size_t o = 0; o < n; ++o) from[o] = out + o * dense.columns;
    if (!layer.recurrent()) continue;
    const kernel::DenseLayer recurrent = Plan::Recurrent(step, packed);
    float* sums = workspace.many_recurrent_.data();
    for (size_t o = 0; o < n; ++o) place(recurrent, o, states[o] + step.state);
    multiply(recurrent, sums);
    for (size_t o = 0; o < n; ++o)
      from[o] = RunCell(i, from[o], sums + o * recurrent.columns, states[o]);
  }
  for (size_t o = 0; o < n; ++o)
    std::copy_n(from[o], network_.output_size(), outputs + o * network_.output_size());
}

const kernel::Ops& KernelOps(IsaLevel isa) { return OpsFor(isa); }
const kernel::Ops& KernelOpsWithBf16() {
  CHECK(HasBf16Products());
#if defined(__x86_64__)
  static const kernel::Ops kOps = [] {
    kernel::Ops ops = kernel::kAvx512Ops;
    ops.product = kernel::ProductBf16;
    return ops;
  }();
  return kOps;
#else
  return kernel::kPortableOps;
#endif
}
kernel::Act KernelActivation(Activation activation) { return ToAct(activation); }
kernel::Format KernelFormat(Storage storage) {
  switch (storage) {
    case Storage::kFloat32:
      return Format::kFloat32;
    case Storage::kBf16:
      return Format::kBf16;
    case Storage::kInt8:
      return Format::kInt8;
  }
  return Format::kFloat32;
}

AlignedFloats::AlignedFloats(size_t n) : size_(n) {
  constexpr size_t kHugePage = size_t{1} << 21;
  const size_t alignment = n * sizeof(float) >= 2 * kHugePage ? kHugePage : 64;
  const size_t bytes = std::max(RoundUp(n * sizeof(float), alignment), alignment);
  void* memory = std::aligned_alloc(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  // a large network walks thousands of small pages otherwise; only advice, so its failure is none
  if (alignment == kHugePage) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  data_.reset(static_cast<float*>(memory));
}

void AlignedFloats::Free::operator()(float* p) const { std::free(p); }

}  // namespace samara
