// Parameters of an inference server.
#pragma once

#include <cstdint>

#include "env/atari_preset.h"
#include "rl/trajectory/reward_transform.h"
#include "rl/trajectory/slot_records.h"

namespace samara {

struct InferenceConfig {
  uint32_t batch_max = 64;   // rows
  double wait = 0.002;       // s that the oldest ready row waits at most
  double low_mark = 0.5;     // of the live slots: run once so many are ready
  uint32_t rows_wanted = 0;  // run once so many are ready, if that is less; 0 = no such mark
  RewardMode rewards = RewardMode::kRaw;
  LifeLoss life_loss = LifeLoss::kIgnored;
  uint64_t seed = 0;    // of the draws of actions
  bool greedy = false;  // the most probable action instead of a draw
  SlotShare share{};    // which of the run's slots these are: draws belong to a slot of the run

  // Batches in lock-step (lockstep_batching.h), an episode that its actor lost is played again with
  // the actions it had; otherwise asynchronous (async_batching.h), and it is dropped.
  bool ordered = false;
  uint64_t lag = 1;                 // ordered: rounds between acting and learning
  uint32_t unroll_length = 0;       // ordered: entries of a round
  uint32_t unrolls_per_update = 0;  // ordered: of these slots
  uint32_t shards = 1;              // ordered: equal parts of these slots that share no batch
};

}  // namespace samara
