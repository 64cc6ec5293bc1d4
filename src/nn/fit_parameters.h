// SPDX-License-Identifier: Apache-2.0 OR MIT
// The parameters of one network as the beginning of another that is as large or larger.
#pragma once

#include <span>

#include "core/status.h"
#include "nn/network.h"

namespace samara {

// Copies every tensor of `from` onto the tensor of the same name in `to`, onto its leading part
// where that is larger (first rows, columns, channels, units); the rest of `out` stays. A dense
// layer that reads a map is a tensor of rows, columns, channels and units. Returns the number of
// parameters copied. kConfig names the tensor that has no place, or the
// layer of another activation. REQUIRES: sizes are the networks'.
Result<size_t> FitParameters(const NetworkDescription& from, std::span<const float> parameters,
                             const NetworkDescription& to, std::span<float> out);

}  // namespace samara
