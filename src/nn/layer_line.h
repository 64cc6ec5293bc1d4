// SPDX-License-Identifier: Apache-2.0 OR MIT
// The hidden layers of a network as one line of text, and the table of networks that have a name.
//
//   line      LAYER, LAYER, ...
//   LAYER     conv CHANNELS KxK[/STRIDE] [same|valid] ACTIVATION
//             residual CHANNELS            a convolution 3x3, max pooling 3x3 at stride 2, two
//                                          residual blocks of two convolutions 3x3 (IMPALA)
//             dense UNITS ACTIVATION
//   ACTIVATION relu, tanh or none
//
// A stride is 1 and a convolution `valid` unless the line says otherwise. Residual stacks come
// first, then convolutions, then dense layers. Example, DQN's:
//   conv 32 8x8/4 relu, conv 64 4x4/2 relu, conv 64 3x3 relu, dense 512 relu
// doc/networks.md describes the same for users.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "nn/network.h"

namespace samara {

// Help of the key network.layers.
inline constexpr char kLayersHelp[] =
    "instead of network.name: conv 16 8x8/4 relu, dense 256 relu, ... (doc/networks.md)";

// The layers of a line, named by kind and number: stack1, conv1, fc1; the only dense layer after a
// map is "fc". kConfig names the column, what it holds and what was expected.
Result<std::vector<Layer>> ParseLayers(std::string_view line);

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
  std::vector<Layer> layers;
};
// kConfig: ParseLayers', or the nearest name.
Result<NamedLayers> FindLayers(std::string_view name_or_line);

}  // namespace samara
