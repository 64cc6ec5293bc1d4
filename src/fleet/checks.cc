#include "fleet/checks.h"

#include <algorithm>
#include <cmath>

#include "fleet/slot.h"

namespace samara {

void CheckAction(const ActionSpec& spec, const Action& action) {
  if (spec.discrete) {
    CHECK(action.index >= 0 && action.index < spec.n) << action.index << " of " << spec.n;
  } else {
    CHECK_EQ(static_cast<int64_t>(action.values.size()), spec.n);
  }
}

void ClampAction(std::span<const float> values, float* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    const float v = values[i];
    // comparisons with NaN are false
    out[i] = v >= 1 ? 1.0F : v <= -1 ? -1.0F : v > -1 && v < 1 ? v : 0.0F;
  }
}

std::string NotFinite(double reward, const ObservationSpec& spec,
                      std::span<const std::byte> observation) {
  if (!std::isfinite(reward)) return "the reward is not a finite number";
  if (spec.dtype != DType::kFloat32) return {};
  // both kinds of buffers are aligned for floats
  const std::span values{reinterpret_cast<const float*>(observation.data()), spec.elements()};
  const size_t i = FirstNonFinite(values);
  if (i == values.size()) return {};
  return "observation[" + std::to_string(i) + "] is not a finite number";
}

bool WithinRange(double reward, const ObservationSpec& spec,
                 std::span<const std::byte> observation) {
  const auto within = [](double value) { return std::abs(value) <= kMagnitudeMax; };
  if (!within(reward)) return false;
  if (spec.dtype != DType::kFloat32) return true;
  const std::span values{reinterpret_cast<const float*>(observation.data()), spec.elements()};
  return std::all_of(values.begin(), values.end(), within);
}

}  // namespace samara
