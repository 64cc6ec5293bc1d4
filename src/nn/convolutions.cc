// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/convolutions.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace samara {
namespace {

constexpr size_t kPatchFloats = size_t{1} << 16;  // that go together, unless an image has more

}  // namespace

Result<Convolutions> Convolutions::Make(NetworkDescription network, const kernel::Ops& ops) {
  if (network.layers.empty())
    return Status(Code::kConfig, "network " + network.name + ": expected a convolution");
  for (const Layer& layer : network.layers)
    if (layer.kind != Layer::Kind::kConv || !Differentiable(layer))
      return Status(Code::kConfig, "network " + network.name + ": layer " + layer.name +
                                       ": expected convolutions alone, without normalization, "
                                       "silu and gelu");
  return Convolutions(std::move(network), ops);
}

Convolutions::Convolutions(NetworkDescription network, const kernel::Ops& ops)
    : PaddedLayers(std::move(network)), ops_(&ops) {
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  const NetworkDescription& made = this->network();
  maps_.push_back({size(made.height), size(made.width), size(made.channels), size(made.channels)});
  for (const Layer& layer : made.layers)
    maps_.push_back({size(layer.out_height), size(layer.out_width), size(layer.out),
                     PaddedRow(size(layer.out))});
}

// How many images' patches go together.
size_t Convolutions::ImagesAtOnce(size_t layer) const {
  const size_t patches = maps_[layer + 1].pixels() * PaddedRow(layers()[layer].inputs);
  return std::max<size_t>(1, kPatchFloats / patches);
}

ConvolutionPass Convolutions::MakePass(size_t rows_max, bool backward) const {
  ConvolutionPass pass;
  pass.input = AlignedFloats(rows_max * inputs());
  size_t patches = 0, widest = 0;
  for (size_t s = 0; s < layers().size(); ++s) {
    const PaddedLayer& layer = layers()[s];
    const Map& map = maps_[s + 1];
    pass.values.emplace_back(rows_max * map.floats());
    pass.transposed.emplace_back(backward && s > 0 ? layer.outputs * PaddedRow(layer.inputs) : 0);
    const size_t images = std::min(rows_max, ImagesAtOnce(s));
    patches = std::max(patches, images * map.pixels() * PaddedRow(layer.inputs));
    widest = std::max(widest, map.floats());
  }
  pass.patches = AlignedFloats(patches);
  if (!backward) return pass;
  pass.patches_delta = AlignedFloats(patches);
  for (AlignedFloats& delta : pass.delta) delta = AlignedFloats(rows_max * widest);
  return pass;
}

const float* Convolutions::Input(const ConvolutionPass& pass, size_t layer, size_t image) const {
  const AlignedFloats& all = layer > 0 ? pass.values[layer - 1] : pass.input;
  return all.data() + image * maps_[layer].floats();
}

// Calls visit(patch, map, floats) for runs of floats that follow each other in the patches of one
// image and in its map, by where they begin. The padding is in none.
template <typename Visit>
void Convolutions::ForEachRun(size_t s, const Visit& visit) const {
  const Layer& layer = network().layers[s];
  const Map &in = maps_[s], &out = maps_[s + 1];
  const auto height = static_cast<int64_t>(in.height), width = static_cast<int64_t>(in.width);
  const size_t patch_row = PaddedRow(layers()[s].inputs);
  const bool joined = in.row == in.channels;  // pixels of a row
  for (size_t y = 0; y < out.height; ++y)
    for (size_t x = 0; x < out.width; ++x) {
      const int64_t top = static_cast<int64_t>(y) * layer.stride - layer.pad_before;
      const int64_t left = static_cast<int64_t>(x) * layer.stride - layer.pad_before_columns;
      const int64_t first = std::max<int64_t>(0, -left), end = std::min(layer.kernel, width - left);
      const int64_t run = joined ? end - first : 1;
      for (int64_t ky = std::max<int64_t>(0, -top); ky < std::min(layer.kernel, height - top); ++ky)
        for (int64_t kx = first; kx < end; kx += run)
          visit((y * out.width + x) * patch_row +
                    static_cast<size_t>(ky * layer.kernel + kx) * in.channels,
                static_cast<size_t>((top + ky) * width + left + kx) * in.row,
                static_cast<size_t>(run) * in.channels);
    }
}

// The patches of one image, zeros where they reach into the padding.
void Convolutions::Gather(size_t s, const float* __restrict image,
                          float* __restrict patches) const {
  if (network().layers[s].padding == Padding::kSame)
    std::fill_n(patches, maps_[s + 1].pixels() * PaddedRow(layers()[s].inputs), 0.0F);
  ForEachRun(s, [&](size_t patch, size_t map, size_t floats) {
    for (size_t i = 0; i < floats; ++i) patches[patch + i] = image[map + i];
  });
}

// Adds derivatives by the patches of one image to those by its map.
void Convolutions::Scatter(size_t s, const float* __restrict patches,
                           float* __restrict image) const {
  ForEachRun(s, [&](size_t patch, size_t map, size_t floats) {
    for (size_t i = 0; i < floats; ++i) image[map + i] += patches[patch + i];
  });
}

void Convolutions::Forward(std::span<const float> parameters, size_t rows,
                           ConvolutionPass& pass) const {
  CHECK_EQ(parameters.size(), size());
  CHECK(rows > 0 && rows * inputs() <= pass.input.size());
  const kernel::Ops& ops = *ops_;
  pass.rows = rows;
  for (size_t s = 0; s < layers().size(); ++s) {
    const PaddedLayer& layer = layers()[s];
    const Map& map = maps_[s + 1];
    const size_t patch_row = PaddedRow(layer.inputs), most = ImagesAtOnce(s);
    for (size_t first = 0; first < rows; first += most) {
      const size_t images = std::min(most, rows - first);
      for (size_t i = 0; i < images; ++i)
        Gather(s, Input(pass, s, first + i), pass.patches.data() + i * map.pixels() * patch_row);
      float* out = pass.values[s].data() + first * map.floats();
      Sums(ops, layer, parameters, pass.patches.data(), patch_row, images * map.pixels(), out);
      Activate(ops, layer, images * map.pixels(), out);
    }
  }
}

void Convolutions::CopyOutput(const ConvolutionPass& pass, size_t row,
                              std::span<float> features) const {
  const Map& map = maps_.back();
  const float* from = pass.values.back().data() + row * map.floats();
  float* to = features.data();
  for (size_t pixel = 0; pixel < map.pixels(); ++pixel, from += map.row, to += map.channels)
    std::copy_n(from, map.channels, to);
}

// The part of some images in a layer's derivatives: added to `gradient`, and where `by_input` is
// not null to theirs there.
void Convolutions::DifferentiateImages(size_t s, size_t first, size_t images,
                                       const float* by_output, float* by_input,
                                       ConvolutionPass& pass, std::span<float> gradient) const {
  const kernel::Ops& ops = *ops_;
  const PaddedLayer& layer = layers()[s];
  const Map& map = maps_[s + 1];
  const size_t patch_row = PaddedRow(layer.inputs), pixels = images * map.pixels();
  const float* delta = by_output + first * map.floats();
  const auto patches_of = [&](AlignedFloats& all, size_t i) {
    return all.data() + i * map.pixels() * patch_row;
  };
  for (size_t i = 0; i < images; ++i)
    Gather(s, Input(pass, s, first + i), patches_of(pass.patches, i));
  WeightGradient(ops, layer, pass.patches.data(), patch_row, delta, pixels, /*add=*/true, gradient);
  if (by_input == nullptr) return;
  InputDelta(ops, layer, delta, pixels, pass.transposed[s].data(), pass.patches_delta.data());
  for (size_t i = 0; i < images; ++i)
    Scatter(s, patches_of(pass.patches_delta, i), by_input + (first + i) * maps_[s].floats());
}

void Convolutions::Backward(std::span<const float> parameters, std::span<const float> by_output,
                            ConvolutionPass& pass, std::span<float> gradient) const {
  const size_t rows = pass.rows;
  CHECK_EQ(by_output.size(), rows * outputs());
  CHECK_EQ(gradient.size(), size());
  std::ranges::fill(gradient, 0.0F);
  float* delta = pass.delta[0].data();
  float* next = pass.delta[1].data();
  const Map& last = maps_.back();
  std::fill_n(delta, rows * last.floats(), 0.0F);
  for (size_t pixel = 0; pixel < rows * last.pixels(); ++pixel)
    std::copy_n(by_output.data() + pixel * last.channels, last.channels, delta + pixel * last.row);
  for (size_t s = layers().size(); s-- > 0;) {
    const PaddedLayer& layer = layers()[s];
    MultiplyBySlope(layer.activation, pass.values[s].data(), delta, rows * maps_[s + 1].floats());
    if (s > 0) {
      std::fill_n(next, rows * maps_[s].floats(), 0.0F);
      TransposeMatrix(parameters.data() + layer.weights, layer.inputs, layer.outputs, layer.row,
                      pass.transposed[s].data(), PaddedRow(layer.inputs));
    }
    const size_t most = ImagesAtOnce(s);
    for (size_t first = 0; first < rows; first += most)
      DifferentiateImages(s, first, std::min(most, rows - first), delta, s > 0 ? next : nullptr,
                          pass, gradient);
    std::swap(delta, next);
  }
}

}  // namespace samara
