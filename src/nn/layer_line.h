// SPDX-License-Identifier: Apache-2.0 OR MIT
// The hidden layers of a network as one line of text, and the table of networks that have a name.
//
//   line      [COUNT x] LAYER, [COUNT x] LAYER, ...
//   LAYER     normalize                    (x - mean) / deviation, clipped to +-5
//             conv CHANNELS KxK[/STRIDE] [same|valid] [vbn|vbn_affine] ACTIVATION
//             residual CHANNELS            a convolution 3x3, max pooling 3x3 at stride 2, two
//                                          residual blocks of two convolutions 3x3 (IMPALA)
//             dense UNITS [vbn|vbn_affine|layer_norm] ACTIVATION
//             rnn UNITS tanh|relu          PyTorch's nn.RNN, nn.LSTM and nn.GRU, whose state an
//             lstm UNITS                   episode begins with zeros
//             gru UNITS
//             out [no_bias] ACTIVATION     the output layer, which has a bias and no activation
//                                          otherwise
//             out diagonal                 one that multiplies each input by a weight of its own
//   ACTIVATION relu, tanh, none, sigmoid, elu, selu, silu, gelu, lrelu (slope 0.01), lrelu0.2
//
// A stride is 1 and a convolution `valid` unless the line says otherwise. `65 x dense 125 tanh` is
// 65 layers. normalize comes first, then residual stacks, then convolutions, then dense and
// recurrent layers. Examples, DQN's and a recurrent one:
//   conv 32 8x8/4 relu, conv 64 4x4/2 relu, conv 64 3x3 relu, dense 512 relu
//   dense 32 tanh, 2 x lstm 16
// doc/networks.md describes the same for users.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "nn/network.h"

namespace samara {

// Help of the key network.layers.
inline constexpr char kLayersHelp[] =
    "instead of network.name: conv 16 8x8/4 relu, dense 256 relu, ... (doc/networks.md)";

// Name of the output layer.
inline constexpr char kOutputName[] = "out";
// Whether the last of `layers` is an output layer that a line has described: its number of outputs
// is 0, and for the environment to say.
inline bool EndsWithOutput(const std::vector<Layer>& layers) {
  return !layers.empty() && layers.back().name == kOutputName;
}

// The layers of a line, named by kind and number: stack1, conv1, fc1, lstm1; the only dense layer
// after a map is "fc". kConfig names the column, what it holds and what was expected.
Result<std::vector<Layer>> ParseLayers(std::string_view line);

// The line of dense layers. REQUIRES: they are.
std::string LineOfDense(std::span<const Layer> layers);

struct NetworkRow {
  std::string name;
  std::string about;   // one line
  std::string layers;  // the line; empty: no hidden layer
  std::string source;  // where the network was published, or empty
};

// Published networks, and what RegisterNetwork has added, in this order.
const std::vector<NetworkRow>& Networks();
// Makes a network known by name, for a program's own. Its descriptions hold the line, so that
// policy files and actors need no registration. kConfig on a bad line, a name that is taken, or one
// with other than letters, digits, '-', '_' and '.'. Call before runs begin: not thread-safe.
Status RegisterNetwork(NetworkRow row);

// A network as a configuration gives it: a name of Networks(), "mlp-64-64-tanh" and the like, or a
// line.
struct NamedLayers {
  std::string name;  // what a NetworkDescription stores: of a published network its name
  std::string line;
  std::vector<Layer> layers;
};
// kConfig: ParseLayers', or the nearest name.
Result<NamedLayers> FindLayers(std::string_view name_or_line);
// The line behind a leading `normalize`, "linear" where nothing is there; nothing where it does not
// begin so.
Result<std::optional<std::string>> BehindNormalize(std::string_view name_or_line);

}  // namespace samara
