// A network of one's own by a name: a line of layers, for evolution and learning alike.
//
//   samara::ThrowIfError(samara::RegisterNetwork(
//       {.name = "tiny", .about = "", .layers = "dense 8 tanh", .source = ""}));
//   return samara::RunCommandLine(argc, argv);
#pragma once

#include "nn/layer_line.h"
#include "samara/command.h"
