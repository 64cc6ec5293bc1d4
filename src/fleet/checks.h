// Checks of all kinds of fleets on what a caller and a simulator pass.
#pragma once

#include <cstring>
#include <span>
#include <string>

#include "env/interface.h"

namespace samara {

// REQUIRES of Fleet::Act: an index below n, or one value per dimension. Breaking it is a bug.
void CheckAction(const ActionSpec& spec, const Action& action);

// Copies `values` to `out`, each forced into [-1, 1]: a policy that diverged (NaN counts as 0) is a
// bad policy, not a broken fleet. REQUIRES: out holds values.size().
void ClampAction(std::span<const float> values, float* out);

// Why a step is refused: "the reward is not a finite
// number", "observation[3] is not a finite number"; empty when all is well.
std::string NotFinite(double reward, const ObservationSpec& spec,
                      std::span<const std::byte> observation);

// The largest magnitude that a peer may send as reward or observation: what a network makes of it
// can still be squared and summed in float32. No simulator in use comes near it.
inline constexpr double kMagnitudeMax = 1e6;
bool WithinRange(double reward, const ObservationSpec& spec,
                 std::span<const std::byte> observation);

}  // namespace samara
