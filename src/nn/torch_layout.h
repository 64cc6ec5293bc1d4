// SPDX-License-Identifier: Apache-2.0 OR MIT
// The canonical vector as named tensors in the layout of PyTorch's modules, and back. Torch-free.
//
//   convolution  "conv1.weight" [out][in][ky][kx]   canonical [ky][kx][in][out]
//   dense        "fc.weight"    [out][in]           canonical [in][out]
//   both         "fc.bias"      [out]
//   recurrent    "lstm1.weight_ih" [gates * units][in], "lstm1.weight_hh" [gates * units][units],
//                "lstm1.bias_ih", "lstm1.bias_hh" [gates * units], those of nn.RNNCell, nn.LSTMCell
//                and nn.GRUCell
//
//   normalize    "normalize.mean", "normalize.std" [in]
//   vbn          "conv1_vbn.running_mean", "conv1_vbn.running_var" [out]; affine, also
//                "conv1_vbn.weight" (scales) and "conv1_vbn.bias" (shifts): those of nn.BatchNorm2d
//                with eps = 1e-3 in evaluation. Without them "conv1.bias" is that module's bias,
//                and the convolution has none.
//
// A dense or recurrent layer that reads a map (a convolution's output or the image) flattens it
// rows, columns, channels in canonical order and channels, rows, columns in PyTorch's: the columns
// of its weight are permuted accordingly, so that
//   nn.Sequential(nn.ZeroPad2d((left, right, top, bottom)), nn.Conv2d(..), nn.ReLU(), ..,
//                 nn.Flatten(), nn.Linear(..), ..)
// fed with [batch][channels][rows][columns] computes the same function. TorchPadding gives the
// zeros of ZeroPad2d, which differ between sides where SAME padding is odd.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "nn/network.h"

namespace samara {

struct TorchTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
};

// REQUIRES: canonical.size() == network.parameter_count.
std::vector<TorchTensor> ToTorchLayout(const NetworkDescription& network,
                                       std::span<const float> canonical);
// The canonical vector. kBadData when a tensor is missing, unknown, repeated or of another shape.
Result<std::vector<float>> FromTorchLayout(const NetworkDescription& network,
                                           std::span<const TorchTensor> tensors);
// Zeros around a convolution's input: left, right, top, bottom.
std::array<int64_t, 4> TorchPadding(const Layer& layer);

}  // namespace samara
