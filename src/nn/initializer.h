// SPDX-License-Identifier: Apache-2.0 OR MIT
// How kernels of a learner's network start (nn/torch/agent_network.h). Torch-free.
#pragma once

#include <cstdint>

#include "core/enum_names.h"

namespace samara {

// kGlorot: uniform within sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010, 16; SEED RL's on
// Atari). kOrthogonal: with gain sqrt 2, 0.01 of the policy's and 1 of the value's head (PPO's).
// kLecunNormal: normal with variance 1 / fan in, truncated at two standard deviations of the
// untruncated normal (Keras' lecun_normal; SEED RL's on football).
enum class Initializer : uint8_t { kGlorot, kOrthogonal, kLecunNormal };
inline constexpr EnumName<Initializer> kInitializerNames[] = {
    {Initializer::kGlorot, "glorot"},
    {Initializer::kOrthogonal, "orthogonal"},
    {Initializer::kLecunNormal, "lecun_normal"}};

}  // namespace samara
