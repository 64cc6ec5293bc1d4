// An agent that plays noise and learns from it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "rl/algorithms/registry.h"
#include "rl/algorithms/vtrace_config.h"
#include "rl/inference/chosen_entry.h"
#include "rl/learner/agent.h"

namespace samara {

inline constexpr int64_t kSide = 36;

inline EnvironmentSpec Images(int64_t actions, int64_t channels = 0) {
  EnvironmentSpec spec;
  spec.observation = {DType::kUint8, {kSide, kSide}};
  if (channels > 0) spec.observation.shape.push_back(channels);
  spec.action.n = actions;
  return spec;
}

inline EnvironmentSpec Vectors(int64_t elements, bool discrete, int64_t actions) {
  EnvironmentSpec spec;
  spec.observation = {DType::kFloat32, {elements}};
  spec.action.discrete = discrete;
  spec.action.n = actions;
  return spec;
}

// Slots that play noise, through the agent and into a store: episodes of many lengths, every other
// one truncated.
class Play {
 public:
  Play(AgentSetup setup, uint32_t length, uint32_t overlap = 0, float reward = 0)
      : setup_(std::move(setup)),
        agent_(MakeAgent(setup_).ValueOrThrow()),
        store_(Shape(agent_->shape()), {.slots = setup_.slots,
                                        .length = length,
                                        .overlap = overlap,
                                        .buffers = 64 * setup_.slots}),
        batch_(agent_->shape(), setup_.rows_max),
        reward_(reward),
        slots_(setup_.slots) {}

  static EntryShape Shape(const ModelShape& s) {
    return {.observation_bytes = s.observation_bytes,
            .action_values = s.action_values,
            .behaviour = s.behaviour,
            .values = s.values,
            .state = s.state,
            .history_bytes = s.history_bytes};
  }

  // One step of every slot, in batches of `rows`.
  void Step(uint32_t rows) {
    const size_t bytes = agent_->shape().observation_bytes;
    for (uint32_t first = 0; first < slots_.size(); first += rows) {
      batch_.rows.clear();
      batch_.version = InferenceBatch::kNewest;
      for (uint32_t s = first; s < std::min<size_t>(first + rows, slots_.size()); ++s) {
        Slot& slot = slots_[s];
        slot.observation = Noise(bytes);
        InferenceRow& row = batch_.rows.emplace_back();
        ASSERT_TRUE(store_.Reserve(s));
        row.slot = s;
        row.first = slot.step == 0;
        row.keeps = store_.NeedsState(s);
        row.previous_action = slot.action;
        row.reward = slot.header.reward;
        row.step = slot.step;
        row.key = s;
        row.observation = slot.observation;
      }
      batch_.padded = rows;
      ASSERT_TRUE(agent_->Infer(batch_).ok());
      for (size_t i = 0; i < batch_.rows.size(); ++i) Append(i);
    }
  }

  std::vector<UnrollStore::Loan> Take(size_t n) {
    auto taken = store_.Take(n);
    CHECK_EQ(taken.size(), n);
    return taken;
  }
  Agent& agent() { return *agent_; }
  const InferenceBatch& batch() const { return batch_; }

 private:
  struct Slot {
    std::vector<std::byte> observation, final;
    uint32_t step = 0, length = 7;
    int32_t action = 0;
    EntryHeader header;
  };
  std::vector<std::byte> Noise(size_t bytes) {
    std::vector<std::byte> noise(bytes);
    const bool floats = setup_.environment.observation.dtype == DType::kFloat32;
    for (size_t i = 0; i < (floats ? bytes / 4 : bytes); ++i) {
      if (floats) {
        const float x = reward_ != 0 ? 1.0F : static_cast<float>(rng_.Uniform(draw_++));
        std::memcpy(noise.data() + 4 * i, &x, 4);
      } else {
        noise[i] = static_cast<std::byte>(rng_.Bits(draw_++));
      }
    }
    return noise;
  }
  void Append(size_t i) {
    const InferenceRow& row = batch_.rows[i];
    Slot& slot = slots_[row.slot];
    EXPECT_EQ(batch_.status[i], InferenceBatch::RowStatus::kOk);
    slot.header.action = batch_.index[i];
    slot.header.previous_action = slot.action;
    slot.header.episode_step = slot.step;
    slot.header.policy_version = batch_.version;
    Entry entry = ChosenEntry(slot.header, batch_, i, agent_->shape());
    if (slot.header.truncated) entry.final_observation = slot.final;
    store_.Append(row.slot, entry);
    slot.action = batch_.index[i];
    slot.header = {};
    slot.header.reward = reward_ != 0 ? reward_ : static_cast<float>(rng_.Uniform(draw_++) - 0.5);
    if (++slot.step < slot.length) return;
    slot.header.truncated = reward_ != 0 || slot.length % 2 == 1;
    slot.header.terminated = !slot.header.truncated;
    slot.final = Noise(agent_->shape().observation_bytes);
    slot.step = 0, slot.action = 0;
    slot.length = 1 + (slot.length * 5 + 2) % 11;
  }

  const AgentSetup setup_;
  std::unique_ptr<Agent> agent_;
  UnrollStore store_;
  InferenceBatch batch_;
  const float reward_;
  std::vector<Slot> slots_;
  const CounterRng rng_{77};
  uint64_t draw_ = 0;
};

inline VtraceParameters& Vtrace(AgentSetup& setup) {
  return dynamic_cast<VtraceParameters&>(*setup.config.own);
}

inline AgentSetup MakeSetup(EnvironmentSpec environment, const std::string& network, int64_t lstm,
                            double learning_rate = 0) {
  AgentSetup setup;
  setup.environment = std::move(environment);
  setup.slots = setup.rows_max = 4;
  LearningConfig& c = setup.config;
  ChooseAlgorithm(c, "vtrace");
  c.network.name = network;
  c.network.lstm = lstm;
  c.network.reward_input = lstm > 0;
  c.network.action_input = lstm > 0 && setup.environment.action.discrete;
  c.optimizer.kind = OptimizerKind::kAdamTorch;
  c.optimizer.epsilon = 1e-8;
  c.optimizer.learning_rate = learning_rate;
  c.learn.batch = 4;
  return setup;
}

inline void Set(AgentSetup& setup, const std::vector<std::pair<const char*, const char*>>& keys) {
  ConfigTable table;
  Bind(table, setup.config);
  for (const auto& [key, value] : keys) EXPECT_TRUE(table.Set(key, value).ok()) << key;
}

inline AgentSetup R2d2Setup() {
  AgentSetup setup = MakeSetup(Images(4), "impala_shallow", 8, 1e-3);
  ChooseAlgorithm(setup.config, "r2d2");
  Set(setup, {{"learn.unroll", "5"},
              {"r2d2.burn_in", "2"},
              {"replay.batch", "20"},
              {"replay.capacity", "1000"},
              {"replay.start", "10"},
              {"replay.ratio", "4"},
              {"network.action_input", "true"}});
  return setup;
}

}  // namespace samara
