// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/jacobian.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "nn/kernel_choice.h"
#include "nn/matrix.h"

namespace samara {
namespace {

size_t Index(int64_t n) { return static_cast<size_t>(n); }
size_t Pixels(const Layer& layer) { return Index(layer.out_height * layer.out_width); }
bool IsConv(const Layer& layer) { return layer.kind == Layer::Kind::kConv; }
bool IsDiagonal(const Layer& layer) { return layer.kind == Layer::Kind::kDiagonal; }

// Inputs of every window of a map [channel][pixel]: columns[ky, kx, channel][padded pixel].
void Unfold(const Layer& layer, const float* map, float* columns) {
  const size_t row = PaddedRow(Pixels(layer));
  for (int64_t ky = 0; ky < layer.kernel; ++ky)
    for (int64_t kx = 0; kx < layer.kernel; ++kx)
      for (int64_t c = 0; c < layer.in; ++c, columns += row) {
        const float* channel = map + c * layer.in_height * layer.in_width;
        float* to = columns;
        for (int64_t oy = 0; oy < layer.out_height; ++oy)
          for (int64_t ox = 0; ox < layer.out_width; ++ox) {
            const int64_t y = oy * layer.stride + ky - layer.pad_before;
            const int64_t x = ox * layer.stride + kx - layer.pad_before_columns;
            const bool inside = y >= 0 && y < layer.in_height && x >= 0 && x < layer.in_width;
            *to++ = inside ? channel[y * layer.in_width + x] : 0.0f;
          }
        std::fill(to, columns + row, 0.0f);
      }
}

// The transpose of Unfold: adds what the windows say about a pixel.
void Fold(const Layer& layer, const float* columns, float* map) {
  const size_t row = PaddedRow(Pixels(layer));
  for (int64_t ky = 0; ky < layer.kernel; ++ky)
    for (int64_t kx = 0; kx < layer.kernel; ++kx)
      for (int64_t c = 0; c < layer.in; ++c, columns += row) {
        float* channel = map + c * layer.in_height * layer.in_width;
        const float* from = columns;
        for (int64_t oy = 0; oy < layer.out_height; ++oy)
          for (int64_t ox = 0; ox < layer.out_width; ++ox, ++from) {
            const int64_t y = oy * layer.stride + ky - layer.pad_before;
            const int64_t x = ox * layer.stride + kx - layer.pad_before_columns;
            if (y >= 0 && y < layer.in_height && x >= 0 && x < layer.in_width)
              channel[y * layer.in_width + x] += *from;
          }
      }
}

void MakeAbsolute(std::span<float> values) {
  for (float& v : values) v = std::abs(v);
}

// A matrix of weights [inputs][units] and the columns that it meets.
struct Product {
  const kernel::Ops& ops;
  size_t inputs, units;
  const float* weights;

  // out (+)= W^T in, `columns` of each
  void Forward(const float* in, size_t in_row, float* out, size_t out_row, size_t columns) const {
    ops.product({.left = weights,
                 .left_row = 1,
                 .left_link = units,
                 .right = in,
                 .right_row = in_row,
                 .out = out,
                 .out_row = out_row,
                 .rows = units,
                 .links = inputs,
                 .columns = columns,
                 .add = true});
  }
  // out = W delta
  void Backward(const float* delta, size_t delta_row, float* out, size_t out_row,
                size_t columns) const {
    ops.product({.left = weights,
                 .left_row = units,
                 .left_link = 1,
                 .right = delta,
                 .right_row = delta_row,
                 .out = out,
                 .out_row = out_row,
                 .rows = inputs,
                 .links = units,
                 .columns = columns,
                 .add = false});
  }
};

void FillRows(const float* values, size_t rows, size_t columns, float* out) {
  for (size_t row = 0; row < rows; ++row) std::fill_n(out + row * columns, columns, values[row]);
}

// Writes a map to where the next layer reads it.
void Deliver(const Layer& layer, const Layer& next, const float* out, size_t state, size_t column,
             size_t row, float* to) {
  const size_t pixels = Pixels(layer), padded = PaddedRow(pixels), channels = Index(layer.out);
  for (size_t c = 0; c < channels; ++c) {
    const float* from = out + c * padded;
    if (IsConv(next)) {
      std::copy_n(from, pixels, to + (state * channels + c) * pixels);
    } else {
      for (size_t p = 0; p < pixels; ++p) to[(p * channels + c) * row + column] = from[p];
    }
  }
}

// The floats of a layer's input.
size_t InputFloats(const Layer& layer, size_t states, size_t row) {
  if (IsConv(layer)) return states * Index(layer.in_height * layer.in_width * layer.in);
  return Index(layer.in) * row;
}

// value = the activation of what it holds; its derivative, if there is one.
void ActivateWithSlope(const kernel::Ops& ops, Activation activation, std::span<float> value,
                       float* slope) {
  if (slope != nullptr) std::ranges::copy(value, slope);  // the arguments
  ops.activate(value.data(), value.size(), KernelActivation(activation));
  for (size_t j = 0; j < value.size() && slope != nullptr; ++j)
    slope[j] = ActivationSlope(activation, slope[j], value[j]);
}

// How many numbers of a cell's evaluation its derivatives need: gates after their activations, and
//   kLstm  i, f, g, o, the memory it met, tanh(the memory it left)
//   kGru   r, z, n, the part of n's argument that r scales
size_t KeptOf(Layer::Kind kind) {
  return kind == Layer::Kind::kLstm ? 6 : kind == Layer::Kind::kGru ? 4 : 0;
}

float SlopeOfSigmoid(float a) { return a * (1 - a); }
float SlopeOfTanh(float a) { return 1 - a * a; }

}  // namespace

// One layer at all states.
struct Jacobians::LayerValues {
  const Layer* layer;
  Floats in;     // [input][column]; of a convolution [state][channel][pixel]
  Floats slope;  // of the activation, [unit][column]; of a convolution [state][unit][padded pixel].
                 // Empty: 1
  // of a recurrent layer, [unit][column]
  Floats before;             // the hidden state that it met
  std::vector<Floats> cell;  // what its derivatives need: KeptOf numbers
};

Jacobians::Jacobians(const NetworkDescription& network, std::span<const float> parameters,
                     std::span<const float> inputs, std::span<const uint8_t> begins, IsaLevel isa)
    : network_(network),
      parameters_(parameters.begin(), parameters.end()),
      isa_(isa),
      states_(inputs.size() / network.input_size()),
      stride_(PaddedRow(states_)),
      row_(stride_) {
  CHECK_EQ(parameters.size(), network_.parameter_count);
  CHECK(states_ > 0 && inputs.size() == states_ * network_.input_size()) << inputs.size();
  if (network_.recurrent()) ArrangeSequences(begins);
  RoundToStorage(network_, parameters_);
  Evaluate(inputs);
}

Jacobians::~Jacobians() = default;

void Jacobians::ArrangeSequences(std::span<const uint8_t> begins) {
  CHECK(begins.size() == states_ && begins[0] == 1);
  for (const uint8_t first : begins) {
    if (first == 1) lengths_.push_back(0);
    ++lengths_.back();
  }
  stride_ = PaddedRow(lengths_.size());
  times_ = *std::ranges::max_element(lengths_);
  row_ = times_ * stride_;
  for (size_t s = 0; s < lengths_.size(); ++s)
    for (size_t p = 0; p < lengths_[s]; ++p) columns_.push_back(p * stride_ + s);
}

void Jacobians::Evaluate(std::span<const float> inputs) {
  for (const Layer& layer : network_.layers)
    layer_values_.push_back({.layer = &layer,
                             .in = Floats(InputFloats(layer, states_, row_)),
                             .slope = {},
                             .before = {},
                             .cell = {}});
  const size_t size = network_.input_size(), channels = Index(network_.channels);
  for (size_t x = 0; x < states_; ++x) {
    const float* from = inputs.data() + x * size;
    float* to = layer_values_.front().in.data();
    if (IsConv(network_.layers.front()))
      TransposeMatrix(from, size / channels, channels, channels, to + x * size, size / channels);
    else
      for (size_t i = 0; i < size; ++i) to[i * row_ + Column(x)] = from[i];
  }
  Floats columns, value;
  for (size_t i = 0; i < layer_values_.size(); ++i) {
    const Layer& layer = *layer_values_[i].layer;
    if (IsConv(layer))
      EvaluateConv(i, columns, value);
    else if (layer.recurrent())
      EvaluateRecurrent(i, value);
    else if (IsDiagonal(layer))
      EvaluateDiagonal(i, value);
    else
      EvaluateDense(i, value);
    if (!IsConv(layer) && i + 1 < layer_values_.size())
      std::copy_n(value.data(), value.size(), layer_values_[i + 1].in.data());
  }
  const size_t k = network_.output_size();
  outputs_.resize(states_ * k);
  for (size_t x = 0; x < states_; ++x)
    for (size_t o = 0; o < k; ++o) outputs_[x * k + o] = value.data()[o * row_ + Column(x)];
}

void Jacobians::EvaluateConv(size_t i, Floats& columns, Floats& value) {
  LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out), width = PaddedRow(Pixels(layer)), floats = units * width;
  if (layer.activation != Activation::kNone) values.slope = Floats(states_ * floats);
  value = Floats(floats);
  columns = Floats(Index(layer.fan_in()) * width);
  const Product product{KernelOps(isa_), Index(layer.fan_in()), units, weights(layer)};
  for (size_t x = 0; x < states_; ++x) {
    Unfold(layer, values.in.data() + x * (values.in.size() / states_), columns.data());
    FillRows(parameters_.data() + layer.bias_offset, units, width, value.data());
    product.Forward(columns.data(), width, value.data(), width, width);
    ActivateWithSlope(product.ops, layer.activation, value.span(),
                      values.slope.size() > 0 ? values.slope.data() + x * floats : nullptr);
    Deliver(layer, *layer_values_[i + 1].layer, value.data(), x, Column(x), row_,
            layer_values_[i + 1].in.data());
  }
}

void Jacobians::EvaluateDense(size_t i, Floats& value) {
  LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out);
  if (layer.activation != Activation::kNone) values.slope = Floats(units * row_);
  value = Floats(units * row_);
  const Product product{KernelOps(isa_), Index(layer.in), units, weights(layer)};
  if (layer.bias) FillRows(parameters_.data() + layer.bias_offset, units, row_, value.data());
  product.Forward(values.in.data(), row_, value.data(), row_, row_);
  ActivateWithSlope(product.ops, layer.activation, value.span(),
                    values.slope.size() > 0 ? values.slope.data() : nullptr);
}

// The formulas are those of the kernel's cells (kernel_impl.h), operation by operation.
void Jacobians::EvaluateRecurrent(size_t i, Floats& value) {
  LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const kernel::Ops& ops = KernelOps(isa_);
  const size_t units = Index(layer.out), gates = Index(layer.columns()), block = units * stride_;
  values.before = Floats(units * row_);
  for (size_t n = 0; n < KeptOf(layer.kind); ++n) values.cell.emplace_back(units * row_);
  if (layer.kind == Layer::Kind::kRnn) values.slope = Floats(units * row_);
  value = Floats(units * row_);
  const Product input{ops, Index(layer.in), gates, weights(layer)};
  const Product state{ops, units, gates, parameters_.data() + layer.recurrent_offset};
  Floats of_input(gates * row_), of_state(gates * stride_), memory(block);
  FillRows(parameters_.data() + layer.bias_offset, gates, row_, of_input.data());
  input.Forward(values.in.data(), row_, of_input.data(), row_, row_);

  std::vector<Floats> gate;
  for (int64_t g = 0; g < layer.gates(); ++g) gate.emplace_back(block);
  Floats slope(block);
  for (size_t p = 0; p < times_; ++p) {
    FillRows(parameters_.data() + layer.recurrent_bias_offset, gates, stride_, of_state.data());
    state.Forward(values.before.data() + p * stride_, row_, of_state.data(), stride_, stride_);
    // element q of a block is element At(q) of a matrix
    const auto at = [&](size_t q) { return q / stride_ * row_ + p * stride_ + q % stride_; };
    const auto from_input = [&](size_t g, size_t q) {
      return of_input.data()[g * units * row_ + at(q)];
    };
    const auto from_state = [&](size_t g, size_t q) { return of_state.data()[g * block + q]; };
    const auto sum_and_activate = [&](size_t g, Activation activation, float* to_slope) {
      for (size_t q = 0; q < block; ++q) gate[g].data()[q] = from_input(g, q) + from_state(g, q);
      ActivateWithSlope(ops, activation, gate[g].span(), to_slope);
    };
    const auto hidden = [&](size_t q) -> float& { return value.data()[at(q)]; };
    const auto keep = [&](size_t number, size_t q, float x) {
      values.cell[number].data()[at(q)] = x;
    };
    if (layer.kind == Layer::Kind::kRnn) {
      sum_and_activate(0, layer.activation, slope.data());
      for (size_t q = 0; q < block; ++q) {
        hidden(q) = gate[0].data()[q];
        values.slope.data()[at(q)] = slope.data()[q];
      }
    } else if (layer.kind == Layer::Kind::kLstm) {
      for (const size_t g : {0, 1, 2, 3})
        sum_and_activate(g, g == 2 ? Activation::kTanh : Activation::kSigmoid, nullptr);
      for (size_t q = 0; q < block; ++q) {
        for (const size_t g : {0, 1, 2, 3}) keep(g, q, gate[g].data()[q]);
        keep(4, q, memory.data()[q]);
        memory.data()[q] =
            std::fmaf(gate[1].data()[q], memory.data()[q], gate[0].data()[q] * gate[2].data()[q]);
      }
      std::copy_n(memory.data(), block, slope.data());
      ops.activate(slope.data(), block, kernel::Act::kTanh);
      for (size_t q = 0; q < block; ++q) {
        keep(5, q, slope.data()[q]);
        hidden(q) = gate[3].data()[q] * slope.data()[q] + 0.0F;
      }
    } else {
      sum_and_activate(0, Activation::kSigmoid, nullptr);
      sum_and_activate(1, Activation::kSigmoid, nullptr);
      for (size_t q = 0; q < block; ++q)
        gate[2].data()[q] = std::fmaf(gate[0].data()[q], from_state(2, q), from_input(2, q));
      ops.activate(gate[2].data(), block, kernel::Act::kTanh);
      for (size_t q = 0; q < block; ++q) {
        for (const size_t g : {0, 1, 2}) keep(g, q, gate[g].data()[q]);
        keep(3, q, from_state(2, q));
        const float change = values.before.data()[at(q)] - gate[2].data()[q];
        hidden(q) = std::fmaf(gate[1].data()[q], change, gate[2].data()[q]) + 0.0F;
      }
    }
    for (size_t q = 0; q < block && p + 1 < times_; ++q)
      values.before.data()[at(q) + stride_] = hidden(q);
  }
}

void Jacobians::EvaluateDiagonal(size_t i, Floats& value) {
  const LayerValues& values = layer_values_[i];
  const float* w = weights(*values.layer);
  value = Floats(values.in.size());
  for (size_t j = 0; j < value.size(); ++j)
    value.data()[j] = w[j / row_] * values.in.data()[j] + 0.0F;
}

void Jacobians::Sum(size_t k, std::span<float> out) const {
  std::vector<float> u(outputs_.size());
  for (size_t x = 0; x < states_; ++x) u[x * network_.output_size() + k] = 1;
  Reverse(u, Terms::kSigned, out);
}

// For a recurrent network: the states at one position of all sequences together; the terms of one
// sequence count as those of one state.
void Jacobians::SumAbs(size_t k, std::span<float> out) const {
  if (columns_.empty()) {
    std::vector<float> u(outputs_.size());
    for (size_t x = 0; x < states_; ++x) u[x * network_.output_size() + k] = 1;
    return Reverse(u, Terms::kMagnitudes, out);
  }
  std::ranges::fill(out, 0.0F);
  for (size_t p = 0; p < times_; ++p) {
    std::vector<float> u(outputs_.size());
    for (size_t x = 0; x < states_; ++x)
      if (Column(x) / stride_ == p) u[x * network_.output_size() + k] = 1;
    Reverse(u, Terms::kSequences, out);
  }
}

void Jacobians::TransposedTimes(std::span<const float> u, std::span<float> out) const {
  Reverse(u, Terms::kSigned, out);
}

// ---- forward mode: dz = W^T da + V^T a + v_bias, da = slope dz, layer by layer

std::vector<float> Jacobians::Times(std::span<const float> v) const {
  CHECK_EQ(v.size(), network_.parameter_count);
  Floats tangent;  // of the layer's input; empty: 0, as the states' is
  for (size_t i = 0; i < layer_values_.size(); ++i) {
    const Layer& layer = *layer_values_[i].layer;
    tangent = IsConv(layer)       ? TangentOfConv(i, v, tangent)
              : layer.recurrent() ? TangentOfRecurrent(i, v, tangent)
              : IsDiagonal(layer) ? TangentOfDiagonal(i, v, tangent)
                                  : TangentOfDense(i, v, tangent);
  }
  const size_t k = network_.output_size();
  std::vector<float> out(states_ * k);
  for (size_t x = 0; x < states_; ++x)
    for (size_t o = 0; o < k; ++o) out[x * k + o] = tangent.data()[o * row_ + Column(x)];
  return out;
}

Jacobians::Floats Jacobians::TangentOfConv(size_t i, std::span<const float> v,
                                           const Floats& tangent) const {
  const LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out), width = PaddedRow(Pixels(layer)), floats = units * width;
  const size_t map = values.in.size() / states_;
  Floats columns(Index(layer.fan_in()) * width), value(floats),
      next(layer_values_[i + 1].in.size());
  Product product{KernelOps(isa_), Index(layer.fan_in()), units, nullptr};
  for (size_t x = 0; x < states_; ++x) {
    FillRows(v.data() + layer.bias_offset, units, width, value.data());
    Unfold(layer, values.in.data() + x * map, columns.data());
    product.weights = v.data() + layer.weight_offset;
    product.Forward(columns.data(), width, value.data(), width, width);
    if (tangent.size() > 0) {
      Unfold(layer, tangent.data() + x * map, columns.data());
      product.weights = weights(layer);
      product.Forward(columns.data(), width, value.data(), width, width);
    }
    const float* slope = values.slope.data() + x * floats;
    for (size_t j = 0; j < floats && values.slope.size() > 0; ++j) value.data()[j] *= slope[j];
    Deliver(layer, *layer_values_[i + 1].layer, value.data(), x, Column(x), row_, next.data());
  }
  return next;
}

Jacobians::Floats Jacobians::TangentOfDense(size_t i, std::span<const float> v,
                                            const Floats& tangent) const {
  const LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out);
  Floats value(units * row_);
  Product product{KernelOps(isa_), Index(layer.in), units, v.data() + layer.weight_offset};
  if (layer.bias) FillRows(v.data() + layer.bias_offset, units, row_, value.data());
  product.Forward(values.in.data(), row_, value.data(), row_, row_);
  product.weights = weights(layer);
  if (tangent.size() > 0) product.Forward(tangent.data(), row_, value.data(), row_, row_);
  for (size_t j = 0; j < values.slope.size(); ++j) value.data()[j] *= values.slope.data()[j];
  return value;
}

Jacobians::Floats Jacobians::TangentOfRecurrent(size_t i, std::span<const float> v,
                                                const Floats& tangent) const {
  const LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out), gates = Index(layer.columns()), block = units * stride_;
  const kernel::Ops& ops = KernelOps(isa_);
  Product input{ops, Index(layer.in), gates, v.data() + layer.weight_offset};
  Product state{ops, units, gates, nullptr};
  Floats of_input(gates * row_), of_state(gates * stride_), hidden(block), memory(block);
  Floats value(units * row_);
  FillRows(v.data() + layer.bias_offset, gates, row_, of_input.data());
  input.Forward(values.in.data(), row_, of_input.data(), row_, row_);
  input.weights = weights(layer);
  if (tangent.size() > 0) input.Forward(tangent.data(), row_, of_input.data(), row_, row_);
  for (size_t p = 0; p < times_; ++p) {
    FillRows(v.data() + layer.recurrent_bias_offset, gates, stride_, of_state.data());
    state.weights = v.data() + layer.recurrent_offset;
    state.Forward(values.before.data() + p * stride_, row_, of_state.data(), stride_, stride_);
    state.weights = parameters_.data() + layer.recurrent_offset;
    state.Forward(hidden.data(), stride_, of_state.data(), stride_, stride_);
    for (size_t q = 0; q < block; ++q) {
      const size_t at = q / stride_ * row_ + p * stride_ + q % stride_;
      const auto kept = [&](size_t number) { return values.cell[number].data()[at]; };
      const auto of_gate = [&](size_t g) {
        return of_input.data()[g * units * row_ + at] + of_state.data()[g * block + q];
      };
      float& h = hidden.data()[q];
      if (layer.kind == Layer::Kind::kRnn) {
        h = values.slope.data()[at] * of_gate(0);
      } else if (layer.kind == Layer::Kind::kLstm) {
        const float in = SlopeOfSigmoid(kept(0)) * of_gate(0);
        const float forget = SlopeOfSigmoid(kept(1)) * of_gate(1);
        const float candidate = SlopeOfTanh(kept(2)) * of_gate(2);
        const float out = SlopeOfSigmoid(kept(3)) * of_gate(3);
        float& m = memory.data()[q];
        m = forget * kept(4) + kept(1) * m + in * kept(2) + kept(0) * candidate;
        h = out * kept(5) + kept(3) * SlopeOfTanh(kept(5)) * m;
      } else {
        const float reset = SlopeOfSigmoid(kept(0)) * of_gate(0);
        const float update = SlopeOfSigmoid(kept(1)) * of_gate(1);
        const float argument = of_input.data()[2 * units * row_ + at] + reset * kept(3) +
                               kept(0) * of_state.data()[2 * block + q];
        const float candidate = SlopeOfTanh(kept(2)) * argument;
        h = update * (values.before.data()[at] - kept(2)) + (1 - kept(1)) * candidate + kept(1) * h;
      }
      value.data()[at] = h;
    }
  }
  return value;
}

Jacobians::Floats Jacobians::TangentOfDiagonal(size_t i, std::span<const float> v,
                                               const Floats& tangent) const {
  const LayerValues& values = layer_values_[i];
  const float* w = weights(*values.layer);
  Floats value(values.in.size());
  for (size_t j = 0; j < value.size(); ++j) {
    value.data()[j] = v[values.layer->weight_offset + j / row_] * values.in.data()[j];
    if (tangent.size() > 0) value.data()[j] += w[j / row_] * tangent.data()[j];
  }
  return value;
}

// ---- reverse mode: delta = derivatives of what u weighs by a layer's output, from the last layer
// ---- to the first

void Jacobians::Reverse(std::span<const float> u, Terms terms, std::span<float> out) const {
  CHECK_EQ(u.size(), outputs_.size());
  CHECK_EQ(out.size(), network_.parameter_count);
  const size_t k = network_.output_size();
  Floats delta(k * row_);
  for (size_t x = 0; x < states_; ++x)
    for (size_t o = 0; o < k; ++o) delta.data()[o * row_ + Column(x)] = u[x * k + o];
  for (size_t i = layer_values_.size(); i-- > 0;) {
    const Layer& layer = *layer_values_[i].layer;
    if (IsConv(layer))
      ReverseConv(i, terms, delta, out);
    else if (layer.recurrent())
      ReverseRecurrent(i, terms, delta, out);
    else if (IsDiagonal(layer))
      ReverseDiagonal(i, terms, delta, out);
    else
      ReverseDense(i, terms, delta, out);
  }
}

void Jacobians::AddGradient(Terms terms, const float* in, size_t inputs, const Floats& delta,
                            size_t units, std::span<float> to, std::span<float> bias) const {
  const kernel::Ops& ops = KernelOps(isa_);
  const size_t padded = PaddedRow(units), columns = columns_.empty() ? states_ : row_;
  Floats by_column(columns * padded), magnitudes;
  TransposeMatrix(delta.data(), units, columns, row_, by_column.data(), padded);
  if (terms == Terms::kMagnitudes) {
    MakeAbsolute(by_column.span());
    magnitudes = Floats(inputs * row_);
    std::copy_n(in, inputs * row_, magnitudes.data());
    MakeAbsolute(magnitudes.span());
    in = magnitudes.data();
  }
  const bool in_place = terms != Terms::kSequences && padded == units;
  Floats scratch(in_place ? 0 : inputs * padded);
  float* gradient = in_place ? to.data() : scratch.data();
  std::vector<float> sums(units);
  // sequence by sequence, or all columns at once
  const size_t parts = terms == Terms::kSequences ? lengths_.size() : 1;
  for (size_t s = 0; s < parts; ++s) {
    const bool one = terms == Terms::kSequences;
    const size_t step = one ? stride_ : 1, links = one ? times_ : columns;
    ops.product({.left = in + s,
                 .left_row = row_,
                 .left_link = step,
                 .right = by_column.data() + s * padded,
                 .right_row = step * padded,
                 .out = gradient,
                 .out_row = padded,
                 .rows = inputs,
                 .links = links,
                 .columns = padded,
                 .add = false});
    std::ranges::fill(sums, 0.0F);
    for (size_t link = 0; link < links; ++link)
      for (size_t unit = 0; unit < units; ++unit)
        sums[unit] += by_column.data()[(s + link * step) * padded + unit];
    for (size_t r = 0; r < inputs && !in_place; ++r)
      for (size_t unit = 0; unit < units; ++unit) {
        float& w = to[r * units + unit];
        w = one ? w + std::abs(gradient[r * padded + unit]) : gradient[r * padded + unit];
      }
    for (size_t unit = 0; unit < bias.size(); ++unit)
      bias[unit] = one ? bias[unit] + std::abs(sums[unit]) : sums[unit];
  }
}

// delta: [unit][column] -> [input][column]
void Jacobians::ReverseDense(size_t i, Terms terms, Floats& delta, std::span<float> out) const {
  const LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out), inputs = Index(layer.in);
  for (size_t j = 0; j < values.slope.size(); ++j) delta.data()[j] *= values.slope.data()[j];
  AddGradient(terms, values.in.data(), inputs, delta, units,
              out.subspan(layer.weight_offset, layer.weight_count),
              out.subspan(layer.bias_offset, layer.bias ? units : 0));
  if (i == 0) return;
  Floats before(inputs * row_);
  const Product product{KernelOps(isa_), inputs, units, weights(layer)};
  product.Backward(delta.data(), row_, before.data(), row_, row_);
  delta = std::move(before);
}

void Jacobians::ReverseDiagonal(size_t i, Terms terms, Floats& delta, std::span<float> out) const {
  const LayerValues& values = layer_values_[i];
  const float* w = weights(*values.layer);
  const size_t parts = terms == Terms::kSequences ? lengths_.size() : 1;
  for (size_t unit = 0; unit < Index(values.layer->out); ++unit) {
    float& to = out[values.layer->weight_offset + unit];
    if (terms != Terms::kSequences) to = 0;
    for (size_t s = 0; s < parts; ++s) {
      float sum = 0;
      for (size_t x = s; x < row_; x += terms == Terms::kSequences ? stride_ : 1) {
        const float term = values.in.data()[unit * row_ + x] * delta.data()[unit * row_ + x];
        sum += terms == Terms::kMagnitudes ? std::abs(term) : term;
      }
      to += terms == Terms::kSequences ? std::abs(sum) : sum;
    }
  }
  for (size_t j = 0; j < delta.size(); ++j) delta.data()[j] *= w[j / row_];
}

void Jacobians::ReverseRecurrent(size_t i, Terms terms, Floats& delta, std::span<float> out) const {
  const LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out), gates = Index(layer.columns()), block = units * stride_;
  const kernel::Ops& ops = KernelOps(isa_);
  const Product state{ops, units, gates, parameters_.data() + layer.recurrent_offset};
  const bool gru = layer.kind == Layer::Kind::kGru;
  Floats of_input(gates * row_), of_state(gru ? gates * row_ : 0);
  Floats hidden(block), memory(block), direct(block);  // from the state behind
  for (size_t p = times_; p-- > 0;) {
    for (size_t q = 0; q < block; ++q) {
      const size_t at = q / stride_ * row_ + p * stride_ + q % stride_;
      const auto kept = [&](size_t number) { return values.cell[number].data()[at]; };
      const auto gate = [&](size_t g) -> float& { return of_input.data()[g * units * row_ + at]; };
      const float h = delta.data()[at] + hidden.data()[q];
      if (layer.kind == Layer::Kind::kRnn) {
        gate(0) = h * values.slope.data()[at];
      } else if (layer.kind == Layer::Kind::kLstm) {
        const float m = memory.data()[q] + h * kept(3) * SlopeOfTanh(kept(5));
        gate(0) = m * kept(2) * SlopeOfSigmoid(kept(0));
        gate(1) = m * kept(4) * SlopeOfSigmoid(kept(1));
        gate(2) = m * kept(0) * SlopeOfTanh(kept(2));
        gate(3) = h * kept(5) * SlopeOfSigmoid(kept(3));
        memory.data()[q] = m * kept(1);
      } else {
        const float candidate = h * (1 - kept(1)) * SlopeOfTanh(kept(2));
        gate(0) = candidate * kept(3) * SlopeOfSigmoid(kept(0));
        gate(1) = h * (values.before.data()[at] - kept(2)) * SlopeOfSigmoid(kept(1));
        gate(2) = candidate;
        float* to = of_state.data() + at;
        to[0] = gate(0), to[units * row_] = gate(1), to[2 * units * row_] = candidate * kept(0);
        direct.data()[q] = h * kept(1);
      }
    }
    const float* from = gru ? of_state.data() : of_input.data();
    state.Backward(from + p * stride_, row_, hidden.data(), stride_, stride_);
    for (size_t q = 0; q < block && gru; ++q) hidden.data()[q] += direct.data()[q];
  }
  AddGradient(terms, values.in.data(), Index(layer.in), of_input, gates,
              out.subspan(layer.weight_offset, layer.weight_count),
              out.subspan(layer.bias_offset, gates));
  AddGradient(terms, values.before.data(), units, gru ? of_state : of_input, gates,
              out.subspan(layer.recurrent_offset, layer.recurrent_count),
              out.subspan(layer.recurrent_bias_offset, gates));
  if (i == 0) return;
  Floats before(Index(layer.in) * row_);
  const Product input{ops, Index(layer.in), gates, weights(layer)};
  input.Backward(of_input.data(), row_, before.data(), row_, row_);
  delta = std::move(before);
}

// delta: [state][unit][padded pixel], or as the dense layer behind has left it, -> [state][channel]
// [padded pixel] of the layer's input
void Jacobians::ReverseConv(size_t i, Terms terms, Floats& delta, std::span<float> out) const {
  const LayerValues& values = layer_values_[i];
  const Layer& layer = *values.layer;
  const size_t units = Index(layer.out), rows = Index(layer.fan_in()), padded = PaddedRow(units);
  const size_t pixels = Pixels(layer), width = PaddedRow(pixels), channels = Index(layer.in);
  const size_t in_pixels = Index(layer.in_height * layer.in_width), in_width = PaddedRow(in_pixels);
  const bool dense_behind = !IsConv(*layer_values_[i + 1].layer);
  const Product product{KernelOps(isa_), rows, units, weights(layer)};
  Floats columns(rows * width), own(units * width), by_pixel(pixels * padded);
  Floats gradient(rows * padded), map(channels * in_pixels);
  Floats before(i == 0 ? 0 : states_ * channels * in_width);
  std::vector<float> terms_of_part((rows + 1) * units);  // weights, then bias
  const auto to = out.subspan(layer.weight_offset, layer.weight_count + units);  // the same
  if (terms != Terms::kSequences) std::ranges::fill(to, 0.0F);
  for (size_t x = 0; x < states_; ++x) {
    for (size_t c = 0; c < units; ++c) {
      const float* from = dense_behind ? delta.data() + c * row_ + Column(x)
                                       : delta.data() + (x * units + c) * width;
      const size_t step = dense_behind ? units * row_ : 1;
      for (size_t p = 0; p < pixels; ++p) own.data()[c * width + p] = from[p * step];
    }
    const float* slope = values.slope.data() + x * units * width;
    for (size_t j = 0; j < own.size() && values.slope.size() > 0; ++j) own.data()[j] *= slope[j];
    TransposeMatrix(own.data(), units, pixels, width, by_pixel.data(), padded);
    Unfold(layer, values.in.data() + x * (values.in.size() / states_), columns.data());
    product.ops.product({.left = columns.data(),
                         .left_row = width,
                         .left_link = 1,
                         .right = by_pixel.data(),
                         .right_row = padded,
                         .out = gradient.data(),
                         .out_row = padded,
                         .rows = rows,
                         .links = pixels,
                         .columns = padded,
                         .add = false});
    // a part is a state, or a sequence
    const bool begins = terms != Terms::kSequences || Column(x) < stride_;
    const bool ends = terms != Terms::kSequences || x + 1 == states_ || Column(x + 1) < stride_;
    if (begins) std::ranges::fill(terms_of_part, 0.0F);
    for (size_t r = 0; r < rows; ++r)
      for (size_t unit = 0; unit < units; ++unit)
        terms_of_part[r * units + unit] += gradient.data()[r * padded + unit];
    for (size_t p = 0; p < pixels; ++p)
      for (size_t unit = 0; unit < units; ++unit)
        terms_of_part[rows * units + unit] += by_pixel.data()[p * padded + unit];
    for (size_t j = 0; j < to.size() && ends; ++j)
      to[j] += terms == Terms::kSigned ? terms_of_part[j] : std::abs(terms_of_part[j]);
    if (i == 0) continue;
    product.Backward(own.data(), width, columns.data(), width, width);
    std::ranges::fill(map.span(), 0.0F);
    Fold(layer, columns.data(), map.data());
    for (size_t c = 0; c < channels; ++c)
      std::copy_n(map.data() + c * in_pixels, in_pixels,
                  before.data() + (x * channels + c) * in_width);
  }
  if (i > 0) delta = std::move(before);
}

std::vector<float> Outputs(const NetworkDescription& network, std::span<const float> parameters,
                           std::span<const float> inputs, std::span<const uint8_t> begins,
                           IsaLevel isa) {
  const Jacobians jacobians(network, parameters, inputs, begins, isa);
  return {jacobians.outputs().begin(), jacobians.outputs().end()};
}

}  // namespace samara
