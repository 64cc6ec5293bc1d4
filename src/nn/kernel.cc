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

using kernel::ConvTask;
using kernel::DenseTask;

constexpr size_t kLine = 16;  // floats in a cache line

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

// Rows of `out` floats -> rows of columns / 2 words; see DenseTask::weights.
void PackHalves(const float* from, size_t rows, size_t out, size_t columns, size_t lanes,
                float* to) {
  const auto half = [](const float* row, size_t column, size_t count) {
    return column < count ? std::bit_cast<uint32_t>(RoundToBf16(row[column])) >> 16 : 0U;
  };
  for (size_t row = 0; row < rows; ++row, from += out) {
    for (size_t block = 0; block < columns; block += 2 * lanes, to += lanes) {
      for (size_t i = 0; i < lanes; ++i) {
        const uint32_t word = half(from, block + i, out) | half(from, block + lanes + i, out) << 16;
        to[i] = std::bit_cast<float>(word);
      }
    }
  }
}

}  // namespace

struct PopulationKernel::Plan {
  struct Step {
    Map in;
    size_t out_offset = 0;         // in the workspace: first float that the layer writes
    size_t out_row = 0;            // convolution: between rows written
    size_t weights = 0, bias = 0;  // in the packed vector
    size_t block = 0;              // convolution: channels packed together; dense: padded columns
    size_t columns = 0;            // output channels padded to `block`
    bool halves = false;           // two bfloat16 weights a word
  };
  const kernel::Ops* ops = nullptr;
  std::vector<Step> steps;
  size_t packed_size = 0;
  size_t activations = 0;                // floats of a workspace
  size_t output = 0;                     // offset of the last layer's output
  size_t bits = 0, masks = 0, rows = 0;  // scratch: words, words, inputs
};

PopulationKernel::Workspace::Workspace(const Plan& plan)
    : layers_(plan.steps.size()),
      activations_(plan.activations),
      bits_(plan.bits),
      masks_(plan.masks),
      rows_(plan.rows),
      values_(plan.rows) {}

PopulationKernel::PopulationKernel(NetworkDescription network, IsaLevel isa)
    : network_(std::move(network)), plan_(std::make_unique<Plan>()) {
  Plan& plan = *plan_;
  plan.ops = &OpsFor(isa);
  const auto reserve = [&plan](size_t floats) {
    return std::exchange(plan.activations, plan.activations + RoundUp(floats, kLine));
  };
  // inputs first: a layer's output is the next one's input
  for (const Layer& layer : network_.layers) {
    Plan::Step step;
    step.in = MapOf(layer);
    step.in.offset = reserve(step.in.size() + kernel::kDensePad);
    const bool conv = layer.kind == Layer::Kind::kConv;
    step.halves = !conv && network_.storage == Storage::kBf16;
    step.block = conv          ? plan.ops->conv_block
                 : step.halves ? kernel::kDensePadBf16
                               : kernel::kDensePad;
    step.columns = RoundUp(U(layer.out), step.block);
    step.weights = plan.packed_size;
    step.bias = step.weights + U(layer.fan_in()) * step.columns / (step.halves ? 2 : 1);
    plan.packed_size = step.bias + RoundUp(step.columns, kLine);
    if (conv) {
      const size_t groups =
          RoundUp(U(layer.out_height * layer.out_width), kernel::kConvPixels) / kernel::kConvPixels;
      const size_t words = U(layer.kernel) * (RoundUp(U(layer.kernel * layer.in), 64) / 64);
      plan.bits = std::max(plan.bits, RoundUp(step.in.size(), 64) / 64 + 2);
      plan.masks = std::max(plan.masks, groups * words);
    } else {
      plan.rows = std::max(plan.rows, U(layer.in));
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
    if (step.halves) {
      PackHalves(from, rows, out, step.columns, plan_->ops->lanes, to);
    } else if (layer.kind == Layer::Kind::kDense && out == step.columns) {
      std::memcpy(to, from, rows * out * sizeof(float));
    } else {
      // dense layers are one block of all columns
      const size_t width = layer.kind == Layer::Kind::kDense ? step.columns : step.block;
      for (size_t first = 0; first < out; first += width) {
        const size_t count = std::min(width, out - first);
        for (size_t row = 0; row < rows; ++row, to += width) {
          std::memcpy(to, from + row * out + first, count * sizeof(float));
          // few weights: they stay near as float32, the values are those of the storage
          if (network_.storage == Storage::kBf16) std::transform(to, to + count, to, RoundToBf16);
          std::memset(to + count, 0, (width - count) * sizeof(float));
        }
      }
    }
    float* bias = packed.data() + step.bias;
    std::memcpy(bias, canonical.data() + layer.bias_offset, out * sizeof(float));
    std::memset(bias + out, 0, (RoundUp(step.columns, kLine) - out) * sizeof(float));
  }
}

void PopulationKernel::Forward(const float* packed, const float* input, Workspace& workspace,
                               float* output) const {
  const Plan& plan = *plan_;
  float* activations = workspace.activations_.data();
  // the observation, inside the first layer's border
  const Layer& first = network_.layers.front();
  const Map& map = plan.steps.front().in;
  const size_t input_row = U(first.in_width * first.in);
  for (size_t y = 0; y < U(first.in_height); ++y) {
    std::memcpy(activations + map.offset + map.inner + y * map.row(), input + y * input_row,
                input_row * sizeof(float));
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Layer& layer = network_.layers[i];
    const Plan::Step& step = plan.steps[i];
    const float* in = activations + step.in.offset;
    const bool measured = !workspace.costs_.empty();
    const SteadyTime start = measured ? Now() : SteadyTime();
    size_t rows = U(layer.fan_in());
    if (layer.kind == Layer::Kind::kConv) {
      plan.ops->nonzero_bits(in, step.in.size(), workspace.bits_.data());
      plan.ops->conv({.in = in,
                      .bits = workspace.bits_.data(),
                      .masks = workspace.masks_.data(),
                      .weights = packed + step.weights,
                      .bias = packed + step.bias,
                      .out = activations + step.out_offset,
                      .kernel = U(layer.kernel),
                      .run = U(layer.kernel * layer.in),
                      .in_row = step.in.row(),
                      .step_row = U(layer.stride) * step.in.row(),
                      .step_column = U(layer.stride) * step.in.channels,
                      .out_height = U(layer.out_height),
                      .out_width = U(layer.out_width),
                      .channels = U(layer.out),
                      .out_row = step.out_row,
                      .activation = ToAct(layer.activation)});
    } else {
      rows = plan.ops->dense({.in = in,
                              .count = U(layer.in),
                              .rows = workspace.rows_.data(),
                              .values = workspace.values_.data(),
                              .weights = packed + step.weights,
                              .bf16 = step.halves,
                              .bias = packed + step.bias,
                              .columns = step.columns,
                              .out = activations + step.out_offset,
                              .activation = ToAct(layer.activation)});
    }
    if (measured) {
      workspace.costs_[i].seconds += SecondsSince(start);
      workspace.costs_[i].weight_bytes += rows * step.columns * (step.halves ? 2 : sizeof(float));
    }
  }
  std::memcpy(output, activations + plan.output, network_.output_size() * sizeof(float));
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
