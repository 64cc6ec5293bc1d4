// SPDX-License-Identifier: Apache-2.0 OR MIT
// Convolutions that learn: features of many images at once, and derivatives by the parameters.
//
// Each layer is a product of matrices: of its patches, a row for each pixel of its output, and its
// weights. A few images at a time, so that their patches stay in the cache.
//
// Bits: every sum is one chain of fused multiply-adds in ascending order, whatever the instruction
// set and however many images go together; not with products of bfloat16 (KernelOpsWithBf16).
// Thread safety: Convolutions are constant after construction; a ConvolutionPass is its thread's.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "nn/kernel.h"
#include "nn/padded_layers.h"

namespace samara {

// Activations of a forward pass for the backward pass, and its scratch.
struct ConvolutionPass {
  size_t rows = 0;
  AlignedFloats input;                // [rows][height][width][channels]
  std::vector<AlignedFloats> values;  // of each layer, [rows][pixels][padded channels]
  // scratch: patches and derivatives by them; derivatives by a layer's output and its input;
  // transposed weights of each layer
  AlignedFloats patches, patches_delta;
  std::array<AlignedFloats, 2> delta;
  std::vector<AlignedFloats> transposed;
};

class Convolutions : public PaddedLayers {
 public:
  // kConfig: other layers than convolutions, or one that is not Differentiable.
  static Result<Convolutions> Make(NetworkDescription network,
                                   const kernel::Ops& ops = KernelOps(ActiveIsa()));

  size_t inputs() const { return network().input_size(); }
  // Numbers of an image's features: rows, columns, channels.
  size_t outputs() const { return network().layers.back().output_size(); }

  // `backward`: Backward may follow.
  ConvolutionPass MakePass(size_t rows_max, bool backward = true) const;
  // Features of pass.input for its first `rows` images.
  void Forward(std::span<const float> parameters, size_t rows, ConvolutionPass& pass) const;
  void CopyOutput(const ConvolutionPass& pass, size_t row, std::span<float> features) const;
  // From derivatives of a scalar by the features of the last Forward, [rows][outputs], those by the
  // parameters, written to `gradient`, of size().
  void Backward(std::span<const float> parameters, std::span<const float> by_output,
                ConvolutionPass& pass, std::span<float> gradient) const;

 private:
  struct Map {
    size_t height, width, channels, row;  // row: floats of a pixel
    size_t pixels() const { return height * width; }
    size_t floats() const { return pixels() * row; }
  };
  Convolutions(NetworkDescription network, const kernel::Ops& ops);

  const float* Input(const ConvolutionPass& pass, size_t layer, size_t image) const;
  size_t ImagesAtOnce(size_t layer) const;
  template <typename Visit>
  void ForEachRun(size_t layer, const Visit& visit) const;
  void Gather(size_t layer, const float* image, float* patches) const;
  void Scatter(size_t layer, const float* patches, float* image) const;
  void DifferentiateImages(size_t layer, size_t first, size_t images, const float* by_output,
                           float* by_input, ConvolutionPass& pass, std::span<float> gradient) const;

  std::vector<Map> maps_;  // of the input, then of each layer's output
  const kernel::Ops* ops_;
};

}  // namespace samara
