// The keys that evolution strategies share, in the table `es`.
#pragma once

#include <cstdint>
#include <string>

#include "core/config.h"
#include "evo/algorithms/algorithm.h"
#include "evo/algorithms/ascent.h"
#include "evo/algorithms/cutoff.h"
#include "evo/algorithms/schedule.h"
#include "evo/algorithms/shaping.h"
#include "nn/network.h"

namespace samara {

// kReference: g is divided by the members N, as in the program of Salimans et al.; kTextbook: by
// N sigma, which makes it the gradient of the smoothed fitness. Adam does not notice; the balance
// against the weight decay, and the step of SGD, do.
enum class GradientScale : uint8_t { kReference, kTextbook };
constexpr EnumName<GradientScale> kGradientScaleNames[] = {{GradientScale::kReference, "reference"},
                                                           {GradientScale::kTextbook, "textbook"}};

// Units of the schedules of sigma and the learning rate.
enum class ScheduleUnit : uint8_t { kGenerations, kFrames, kSteps };
constexpr EnumName<ScheduleUnit> kScheduleUnitNames[] = {
    {ScheduleUnit::kGenerations, "generations"},
    {ScheduleUnit::kFrames, "frames"},
    {ScheduleUnit::kSteps, "steps"}};

struct EsSettings {
  int64_t population = 1000;  // members: pairs of a perturbation and its opposite
  int64_t episodes = 1;       // per fitness
  int64_t min_steps = 0;      // of a generation's population: more pairs play until it has them
  std::string cutoff = "env_default";
  double sigma = 0.02;  // of the perturbations
  Schedule sigma_schedule = Schedule::kConstant, learning_rate_schedule = Schedule::kConstant;
  double sigma_end = 0.02, learning_rate_end = 0.01;
  ScheduleUnit schedule_unit = ScheduleUnit::kGenerations;
  int64_t schedule_length = 1000;
  NoiseKind noise = NoiseKind::kNormal;
  Shaping shaping = Shaping::kCentredRank;
  double shift = 0;  // subtracted from the reward of every step, for the update
  GradientScale grad_scale = GradientScale::kReference;
  AscentRule ascent{.kind = AscentKind::kAdam, .momentum = 0.9, .weight_decay = 0.005};
  double learning_rate = 0.01;
  InitKind init = InitKind::kFanIn;
  double action_noise = 0;           // of the population's continuous actions
  int64_t validation_episodes = 30;  // of the centre

  // The rows that every evolution strategy has; those of batches, cut-offs and schedules.
  void Bind(ConfigTable& table);
  void BindBatch(ConfigTable& table);
  // One line for each key that has another value than the default and that nothing uses.
  std::vector<std::string> Unused() const;
  Status Check(const NetworkDescription& network) const;
  // kConfig: noise on discrete actions.
  Status CheckActions(const EnvironmentSpec& environment) const;
  uint32_t members() const { return static_cast<uint32_t>(population); }
  uint32_t pairs() const { return members() / 2; }
  // Sigma and the learning rate of the generation after `counters`.
  double SigmaAfter(const EvolutionCounters& counters) const;
  double LearningRateAfter(const EvolutionCounters& counters) const;
  // How the centre of `network` moves.
  AscentRule RuleFor(const NetworkDescription& network) const;
  // Returns the divisor of Ascend, for `count` members.
  double Divisor(size_t count, double of_sigma) const;
  // Pairs that play next when `pairs` have played `steps`: as many as their mean length lets expect
  // to reach min_steps, at most a population; 0 when it is reached. A function of what all ranks
  // know, so the batch closes at the same member everywhere.
  uint32_t FurtherPairs(uint64_t pairs, uint64_t steps) const;
};

}  // namespace samara
