// Rewards as learners see them; scores are always raw.
#pragma once

#include <cmath>
#include <string_view>

#include "core/status.h"

namespace samara {

enum class RewardMode : uint8_t {
  kRaw,
  kClip,        // into [-1, 1]
  kSign,        // -1, 0 or 1
  kAsymmetric,  // 5 tanh(r / 5), negative ones times 0.3: IMPALA's "soft asymmetric" clipping
};
inline Result<RewardMode> ParseRewardMode(std::string_view name) {
  if (name == "raw") return RewardMode::kRaw;
  if (name == "clip") return RewardMode::kClip;
  if (name == "sign") return RewardMode::kSign;
  if (name == "asymmetric") return RewardMode::kAsymmetric;
  return Status(Code::kConfig,
                "rewards '" + std::string(name) + "': expected raw, clip, sign or asymmetric");
}

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
