// Inference from images behind a torso: what slots remember.
#include "rl/learner/acting_torso.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/rng.h"

namespace samara::acting_torso_test {
namespace {

constexpr size_t kPixels = 6;
constexpr uint32_t kSlots = 3;

// A torso whose features are the pixels of a stack: a kernel of one pixel with weights 0 and 1.
struct Case {
  explicit Case(int64_t depth) {
    AgentSetup setup;
    setup.environment.observation = {DType::kUint8, {2, 3}};
    setup.stack = FrameStackRule{.depth = depth};
    setup.config.network.layers = "conv " + std::to_string(depth) + " 1x1 none, dense 4 tanh";
    torso = ImageTorso::Split(setup).ValueOrThrow();
    std::map<std::string, Tensor> tensors;
    const auto channels = static_cast<size_t>(depth);
    std::vector<float> weights(channels * channels), biases(channels);
    for (size_t c = 0; c < channels; ++c) weights[c * channels + c] = 1;
    tensors["conv1_weight"] = Tensor::OfFloats({depth, depth, 1, 1}, weights);
    tensors["conv1_bias"] = Tensor::OfFloats({depth}, biases);
    parameters.resize(torso->size());
    EXPECT_TRUE(torso->blocks().FromTensors(tensors, parameters).ok());
    acting.emplace(*torso, kSlots, kSlots);
  }
  std::unique_ptr<const ImageTorso> torso;
  std::vector<float> parameters;
  std::optional<ActingTorso> acting;
};

std::vector<uint8_t> Frame(uint64_t number) {
  std::vector<uint8_t> frame(kPixels);
  for (size_t i = 0; i < kPixels; ++i)
    frame[i] = static_cast<uint8_t>(CounterRng(number).UniformInt(i, 256));
  return frame;
}

// Plays slots whose episodes have other lengths and which are not in every batch; FrameStack gives
// what each should see, and the frames before it what it should keep.
void Play(Case& c, int64_t depth, int turns, std::span<const float> statistics = {}) {
  const FrameStackRule rule{.depth = depth};
  std::vector<FrameStack> stacks(kSlots, FrameStack(rule, kPixels));
  std::vector<std::vector<std::vector<uint8_t>>> seen(kSlots);
  ModelShape shape{.observation_bytes = kPixels,
                   .values = 0,
                   .history_bytes = static_cast<size_t>(depth - 1) * kPixels};
  InferenceBatch batch(shape, kSlots);
  for (int turn = 0; turn < turns; ++turn) {
    batch.rows.clear();
    std::vector<std::vector<uint8_t>> frames;
    for (uint32_t slot = 0; slot < kSlots; ++slot)
      if ((turn + static_cast<int>(slot)) % 4 > 0) {
        const bool first = seen[slot].size() == 2 + slot * 3 || seen[slot].empty();
        if (first) seen[slot].clear();
        frames.push_back(Frame(static_cast<uint64_t>(turn) * kSlots + slot));
        first ? stacks[slot].Reset(std::span<const uint8_t>(frames.back()))
              : stacks[slot].Push(std::span<const uint8_t>(frames.back()));
        batch.rows.push_back({.slot = slot, .first = first, .keeps = true, .observation = {}});
      }
    for (size_t i = 0; i < batch.rows.size(); ++i)
      batch.rows[i].observation = std::as_bytes(std::span(frames[i]));
    {
      const ActingTorso::Features features(*c.acting, c.parameters, statistics, batch);
      for (const InferenceRow& row : batch.rows) {
        std::vector<float> found(row.observation.size() / sizeof(float));
        std::memcpy(found.data(), row.observation.data(), row.observation.size());
        const auto input = stacks[row.slot].input();
        std::vector<float> expected(input.begin(), input.end());
        if (!statistics.empty())
          for (size_t k = 0; k < expected.size(); ++k) {
            const size_t pixel = k / static_cast<size_t>(depth);
            const float off = expected[k] - statistics[pixel],
                        deviation = std::max(0.1F, statistics[kPixels + pixel]);
            expected[k] = std::clamp(off / deviation, -5.0F, 5.0F);
          }
        EXPECT_EQ(found, expected) << turn;
      }
    }
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      EXPECT_EQ(batch.rows[i].observation.data(), std::as_bytes(std::span(frames[i])).data());
      auto& before = seen[batch.rows[i].slot];
      for (size_t age = 1; age < static_cast<size_t>(depth); ++age) {
        const std::vector<uint8_t> expected =
            age <= before.size() ? before[before.size() - age] : std::vector<uint8_t>(kPixels);
        EXPECT_EQ(std::memcmp(batch.history.data() + i * shape.history_bytes + (age - 1) * kPixels,
                              expected.data(), kPixels),
                  0)
            << turn << " " << age;
      }
      before.push_back(frames[i]);
    }
  }
}

TEST(ActingTorsoTest, EverySlotSeesItsOwnStack) {
  for (const int64_t depth : {1, 2, 4}) {
    Case c(depth);
    Play(c, depth, 60);
  }
}

TEST(ActingTorsoTest, FramesOfAStackAreNormalizedByTheSameStatistics) {
  std::vector<float> statistics(2 * kPixels);
  for (size_t i = 0; i < statistics.size(); ++i)
    statistics[i] = static_cast<float>(CounterRng(3).Uniform(i)) * (i < kPixels ? 1.0F : 0.3F);
  for (const int64_t depth : {1, 3}) {
    Case c(depth);
    Play(c, depth, 40, statistics);
  }
}

std::vector<std::string_view> Views(const std::vector<std::string>& records) {
  return {records.begin(), records.end()};
}

TEST(ActingTorsoTest, WhatSlotsRememberIsSaved) {
  Case c(4), other(4);
  Play(c, 4, 11);
  const std::vector<std::string> saved = c.acting->Save();
  ASSERT_EQ(saved.size(), kSlots);
  EXPECT_NE(saved, other.acting->Save());
  other.acting->Restore(other.acting->Parse(Views(saved)).ValueOrThrow());
  EXPECT_EQ(other.acting->Save(), saved);

  // of another depth, cut, or with a step that no episode has
  EXPECT_EQ(Case(2).acting->Parse(Views(saved)).status().code(), Code::kBadData);
  std::vector<std::string> bad = saved;
  bad[1].pop_back();
  EXPECT_EQ(c.acting->Parse(Views(bad)).status().code(), Code::kBadData);
  for (const int64_t step : {int64_t{-2}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    bad = saved;
    std::memcpy(bad[2].data(), &step, sizeof step);
    EXPECT_EQ(c.acting->Parse(Views(bad)).status().code(), Code::kBadData) << step;
  }
}

}  // namespace
}  // namespace samara::acting_torso_test
