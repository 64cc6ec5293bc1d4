// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/kernel.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/check.h"
#include "core/clock.h"
#include "nn/kernel_ops.h"

namespace samara {
namespace {

using kernel::Format;
using kernel::kObservations;

constexpr size_t kLine = 16;  // floats in a cache line
// Fewer observations of one network than this are evaluated one by one, skipping zeros.
constexpr size_t kFewObservations = 4;

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
  if (layer.kind == Layer::Kind::kDense) return map;
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
  switch (StorageOf(network, layer)) {
    case Storage::kFloat32:
      return Format::kFloat32;
    case Storage::kBf16:
      return Format::kBf16;
    case Storage::kInt8:
      return Format::kInt8;
  }
  return Format::kFloat32;
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

// Rows of a dense layer in its format.
void PackDense(const float* from, const Layer& layer, const kernel::DenseLayer& to,
               const kernel::Ops& ops, float* packed) {
  const size_t rows = U(layer.in), out = U(layer.out);
  auto* bytes = reinterpret_cast<char*>(packed);
  const size_t row_bytes = to.columns * kernel::WeightBytes(to.format);
  for (size_t row = 0; row < rows; ++row, from += out, bytes += row_bytes) {
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
  struct Step {
    Map in;
    size_t out_offset = 0;                    // in the workspace: first float that the layer writes
    size_t out_row = 0;                       // convolution: between rows written
    size_t weights = 0, bias = 0, scale = 0;  // in the packed vector
    size_t block = 0;    // convolution: channels packed together; dense: padded columns
    size_t columns = 0;  // output channels padded to `block`
    Format format = Format::kFloat32;
  };
  const kernel::Ops* ops = nullptr;
  std::vector<Step> steps;
  size_t packed_size = 0;
  size_t activations = 0;                // floats of a workspace
  size_t output = 0;                     // offset of the last layer's output
  size_t bits = 0, masks = 0, rows = 0;  // scratch: words, words, inputs
  size_t columns = 0;                    // of the widest dense layer

  kernel::DenseLayer Dense(const Layer& layer, const Step& step, const float* packed) const {
    return {.weights = packed + step.weights,
            .format = step.format,
            .scale = step.format == Format::kInt8 ? packed[step.scale] : 1.0f,
            .bias = packed + step.bias,
            .count = U(layer.in),
            .columns = step.columns,
            .activation = ToAct(layer.activation)};
  }
};

PopulationKernel::Workspace::Workspace(const Plan& plan)
    : layers_(plan.steps.size()),
      activations_(plan.activations),
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
    step.format = FormatOf(network_, i);
    step.block = conv ? plan.ops->conv_block(U(layer.out)) : kernel::LineColumns(step.format);
    step.columns = RoundUp(U(layer.out), step.block);
    step.weights = plan.packed_size;
    step.bias = step.weights +
                U(layer.fan_in()) * step.columns * kernel::WeightBytes(step.format) / sizeof(float);
    step.scale = step.bias + RoundUp(step.columns, kLine);
    plan.packed_size = step.scale + (step.format == Format::kInt8 ? kLine : 0);
    if (conv) {
      const size_t groups =
          RoundUp(U(layer.out_height * layer.out_width), kernel::kConvPixels) / kernel::kConvPixels;
      const size_t words = U(layer.kernel) * (RoundUp(U(layer.kernel * layer.in), 64) / 64);
      plan.bits = std::max(plan.bits, RoundUp(step.in.size(), 64) / 64 + 2);
      plan.masks = std::max(plan.masks, groups * words);
    } else {
      plan.rows = std::max(plan.rows, U(layer.in));
      plan.columns = std::max(plan.columns, step.columns);
    }
    plan.steps.push_back(step);
  }
  plan.output = reserve(std::max(plan.steps.back().columns, network_.layers.back().output_size()));
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

void PopulationKernel::Pack(std::span<const float> canonical, std::span<float> packed) const {
  CHECK_EQ(canonical.size(), network_.parameter_count);
  CHECK_EQ(packed.size(), plan_->packed_size);
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    const Layer& layer = network_.layers[i];
    const Plan::Step& step = plan_->steps[i];
    const size_t rows = U(layer.fan_in()), out = U(layer.out);
    const float* from = canonical.data() + layer.weight_offset;
    float* to = packed.data() + step.weights;
    float* bias = packed.data() + step.bias;
    std::memcpy(bias, canonical.data() + layer.bias_offset, out * sizeof(float));
    std::memset(bias + out, 0, (RoundUp(step.columns, kLine) - out) * sizeof(float));
    if (step.format == Format::kInt8)
      packed[step.scale] = Int8Scale(plan_->ops->magnitude(from, layer.weight_count));
    if (layer.kind == Layer::Kind::kDense) {
      PackDense(from, layer, plan_->Dense(layer, step, packed.data()), *plan_->ops, to);
      continue;
    }
    for (size_t first = 0; first < out; first += step.block) {
      const size_t count = std::min(step.block, out - first);
      for (size_t row = 0; row < rows; ++row, to += step.block) {
        std::memcpy(to, from + row * out + first, count * sizeof(float));
        if (network_.storage == Storage::kBf16) std::transform(to, to + count, to, RoundToBf16);
        std::memset(to + count, 0, (step.block - count) * sizeof(float));
      }
    }
  }
}

void PopulationKernel::TakeInput(const float* input, Workspace& workspace) const {
  const Layer& first = network_.layers.front();
  const Map& map = plan_->steps.front().in;
  const size_t input_row = U(first.in_width * first.in);
  for (size_t y = 0; y < U(first.in_height); ++y) {
    std::memcpy(workspace.activations_.data() + map.offset + map.inner + y * map.row(),
                input + y * input_row, input_row * sizeof(float));
  }
}

void PopulationKernel::RunLayer(size_t index, const float* packed, Workspace& workspace) const {
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
    const Plan::Step& next = plan.steps[conv_next ? index + 1 : index];
    plan.ops->nonzero_bits(in, step.in.size(), workspace.bits_.data());
    plan.ops->conv({.in = in,
                    .bits = workspace.bits_.data(),
                    .masks = workspace.masks_.data(),
                    .weights = packed + step.weights,
                    .bias = packed + step.bias,
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
                    .activation = ToAct(layer.activation),
                    .next = packed + next.weights,
                    .next_size = conv_next ? next.bias - next.weights : 0});
  } else {
    rows = plan.ops->dense({.layer = plan.Dense(layer, step, packed),
                            .in = in,
                            .rows = workspace.rows_.data(),
                            .values = workspace.values_.data(),
                            .out = out});
  }
  if (!measured) return;
  workspace.costs_[index].seconds += SecondsSince(start);
  workspace.costs_[index].weight_bytes += rows * step.columns * kernel::WeightBytes(step.format);
}

void PopulationKernel::Forward(const float* packed, const float* input, Workspace& workspace,
                               float* output) const {
  TakeInput(input, workspace);
  for (size_t i = 0; i < plan_->steps.size(); ++i) RunLayer(i, packed, workspace);
  std::memcpy(output, workspace.activations_.data() + plan_->output,
              network_.output_size() * sizeof(float));
}

void PopulationKernel::ForwardMany(const float* packed, std::span<const float* const> inputs,
                                   Workspace& workspace, float* outputs) const {
  const size_t out = network_.output_size();
  while (inputs.size() >= kFewObservations) {
    const auto batch = inputs.first(std::min(inputs.size(), kObservations));
    ForwardBatch(packed, batch, workspace, outputs);
    inputs = inputs.subspan(batch.size());
    outputs += batch.size() * out;
  }
  for (const float* input : inputs) {
    Forward(packed, input, workspace, outputs);
    outputs += out;
  }
}

// Convolutions one observation after the other, dense layers as matrix products.
void PopulationKernel::ForwardBatch(const float* packed, std::span<const float* const> inputs,
                                    Workspace& workspace, float* outputs) const {
  const Plan& plan = *plan_;
  if (workspace.many_in_.size() == 0) {
    workspace.many_in_ = AlignedFloats(plan.rows * kObservations);
    workspace.many_out_ = AlignedFloats(plan.columns * kObservations);
  }
  float* in = workspace.many_in_.data();
  float* out = workspace.many_out_.data();
  // one observation's input of a dense layer, as the kernel reads it: [input][observation]
  const auto place = [&](size_t layer, size_t observation, const float* from) {
    const kernel::DenseLayer dense = plan.Dense(network_.layers[layer], plan.steps[layer], packed);
    for (size_t i = 0; i < dense.count; ++i) {
      in[i * kObservations + observation] = from[i] * dense.scale;
    }
  };
  const auto is_dense = [](const Layer& layer) { return layer.kind == Layer::Kind::kDense; };
  const auto first =
      static_cast<size_t>(std::find_if(network_.layers.begin(), network_.layers.end(), is_dense) -
                          network_.layers.begin());
  if (inputs.size() < kObservations) std::fill_n(in, plan.rows * kObservations, 0.0f);
  for (size_t o = 0; o < inputs.size(); ++o) {
    TakeInput(inputs[o], workspace);
    for (size_t i = 0; i < first; ++i) RunLayer(i, packed, workspace);
    place(first, o, workspace.activations_.data() + plan.steps[first].in.offset);
  }
  for (size_t i = first; i < plan.steps.size(); ++i) {
    if (i > first) {
      const size_t columns = plan.steps[i - 1].columns;
      for (size_t o = 0; o < inputs.size(); ++o) place(i, o, out + o * columns);
    }
    plan.ops->dense_many({.layer = plan.Dense(network_.layers[i], plan.steps[i], packed),
                          .observations = inputs.size(),
                          .in = in,
                          .rows = workspace.rows_.data(),
                          .out = out});
  }
  const size_t count = network_.output_size();
  for (size_t o = 0; o < inputs.size(); ++o) {
    std::copy_n(out + o * plan.steps.back().columns, count, outputs + o * count);
  }
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
