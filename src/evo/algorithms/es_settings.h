// The keys that evolution strategies share, in the table `es`.
#pragma once

#include <cstdint>

#include "core/config.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/shaping.h"
#include "nn/network.h"

namespace samara {

// kReference: g is divided by the members N, as in the program of Salimans et al.; kTextbook: by
// N sigma, which makes it the gradient of the smoothed fitness. Adam does not notice; the balance
// against the weight decay, and the step of SGD, do.
enum class GradientScale : uint8_t { kReference, kTextbook };
constexpr EnumName<GradientScale> kGradientScaleNames[] = {{GradientScale::kReference, "reference"},
                                                           {GradientScale::kTextbook, "textbook"}};

struct EsSettings {
  int64_t population = 1000;  // members: pairs of a perturbation and its opposite
  int64_t episodes = 1;       // per fitness
  double sigma = 0.02;        // of the perturbations
  NoiseKind noise = NoiseKind::kNormal;
  Shaping shaping = Shaping::kCentredRank;
  GradientScale grad_scale = GradientScale::kReference;
  AscentRule ascent{.kind = AscentKind::kAdam, .momentum = 0.9, .weight_decay = 0.005};
  double learning_rate = 0.01;
  int64_t validation_episodes = 30;  // of the centre

  void Bind(ConfigTable& table);
  Status Check(const NetworkDescription& network) const;
  uint32_t members() const { return static_cast<uint32_t>(population); }
  uint32_t pairs() const { return members() / 2; }
  // What Ascend divides by.
  double Divisor() const;
};

}  // namespace samara
