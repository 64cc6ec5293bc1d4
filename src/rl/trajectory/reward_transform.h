// Rewards as learners see them; scores are always raw.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/enum_names.h"

namespace samara {

enum class RewardMode : uint8_t {
  kRaw,
  kClip,        // into [-1, 1]
  kSign,        // -1, 0 or 1
  kAsymmetric,  // 5 tanh(r / 5), negative ones times 0.3: IMPALA's "soft asymmetric" clipping
};
inline constexpr EnumName<RewardMode> kRewardModeNames[] = {
    {RewardMode::kRaw, "raw"},
    {RewardMode::kClip, "clip"},
    {RewardMode::kSign, "sign"},
    {RewardMode::kAsymmetric, "asymmetric"}};

inline float LearnersReward(RewardMode mode, double reward) {
  switch (mode) {
    case RewardMode::kClip:
      return static_cast<float>(std::fmax(-1, std::fmin(1, reward)));
    case RewardMode::kSign:
      return static_cast<float>((reward > 0) - (reward < 0));
    case RewardMode::kAsymmetric: {
      const double squeezed = 5 * std::tanh(reward / 5);
      return static_cast<float>(reward < 0 ? 0.3 * squeezed : squeezed);
    }
    case RewardMode::kRaw:
      break;
  }
  return static_cast<float>(reward);
}

}  // namespace samara
