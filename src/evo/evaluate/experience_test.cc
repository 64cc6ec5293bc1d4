// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/evaluate/experience.h"

#include <gtest/gtest.h>

#include <set>

#include "core/bytes.h"
#include "evo/evaluate/evaluate_test_util.h"

namespace samara::experience_test {
namespace {

// States 0, 1, 2, ... of two numbers, the second a copy.
Experience After(size_t states, uint64_t key, bool recurrent = false) {
  ExperienceRecorder recorder(2, recurrent);
  recorder.Start();
  for (size_t i = 0; i < states; ++i) {
    const float state[] = {static_cast<float>(i), static_cast<float>(i)};
    recorder.See(state, i % 4 == 0);
  }
  return recorder.Draw(key);
}

TEST(Experience, IsAllOfAShortEpisode) {
  const Experience all = After(100, 1);
  ASSERT_EQ(all.inputs.size(), 200u);
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(all.inputs[i], static_cast<float>(i / 2));
  EXPECT_TRUE(After(0, 1).inputs.empty());
}

TEST(Experience, IsDrawnFromTheNewestStatesWithoutRepetition) {
  std::set<float> seen;
  for (uint64_t key = 0; key < 50; ++key) {
    const Experience some = After(1000, key);
    ASSERT_EQ(some.inputs.size(), 200u);
    for (size_t i = 0; i < 200; i += 2) {
      ASSERT_EQ(some.inputs[i], some.inputs[i + 1]);
      ASSERT_GE(some.inputs[i], 600);
      ASSERT_LT(some.inputs[i], 1000);
      if (i > 0) {
        ASSERT_GT(some.inputs[i], some.inputs[i - 2]);
      }
      seen.insert(some.inputs[i]);
    }
    EXPECT_EQ(some.Hash(), After(1000, key).Hash());
    EXPECT_NE(some.Hash(), After(1000, key + 1).Hash());
  }
  EXPECT_EQ(seen.size(), 400u);  // none of them is never drawn
}

TEST(Experience, OfARecurrentNetworkIsConsecutive) {
  const Experience window = After(1000, 3, true);
  ASSERT_EQ(window.begins.size(), 100u);
  EXPECT_EQ(window.begins[0], 1);
  for (size_t i = 1; i < 100; ++i) {
    EXPECT_EQ(window.inputs[2 * i], window.inputs[2 * i - 2] + 1);
    EXPECT_EQ(window.begins[i], static_cast<int>(window.inputs[2 * i]) % 4 == 0);
  }
}

TEST(Experience, TravelsAsBytes) {
  for (const Experience& sent : {After(50, 1), After(500, 2, true), Experience()}) {
    const Experience received = Experience::Decode(sent.Encode()).ValueOrThrow();
    EXPECT_EQ(received.inputs, sent.inputs);
    EXPECT_EQ(received.begins, sent.begins);
    EXPECT_EQ(received.Hash(), sent.Hash());
  }
  const std::string part = ByteWriter().PutBytes("abc").PutBytes("").Take();  // of a number
  for (const std::string& bytes :
       {After(50, 1).Encode().substr(1), After(50, 1).Encode() + "x", part, std::string()}) {
    const Status status = Experience::Decode(bytes).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), "states of an episode are damaged");
  }
}

// An environment that counts the steps of all its instances.
class Counted : public Environment {
 public:
  Counted(std::unique_ptr<Environment> environment, std::atomic<size_t>& steps)
      : environment_(std::move(environment)), steps_(steps) {}
  const EnvironmentSpec& spec() const override { return environment_->spec(); }
  void Reset(const EpisodeSpec& episode, std::span<std::byte> observation) override {
    environment_->Reset(episode, observation);
  }
  StepResult Step(const Action& action, std::span<std::byte> observation) override {
    ++steps_;
    return environment_->Step(action, observation);
  }

 private:
  std::unique_ptr<Environment> environment_;
  std::atomic<size_t>& steps_;
};

// The states that slots and threads send back are those of the episode, and cost no step.
TEST(Experience, ComesBackFromEveryEvaluatorWithoutAnExtraStep) {
  std::atomic<size_t> steps{0};
  const EnvironmentFactory counted = [&]() -> Result<std::unique_ptr<Environment>> {
    return std::unique_ptr<Environment>(
        std::make_unique<Counted>(Native("CartPole-v1")().ValueOrThrow(), steps));
  };
  const NetworkDescription network = Network("linear", 4, 2);
  std::vector<float> parameters(network.parameter_count, 0.1F);
  std::vector<Task> tasks;
  for (uint64_t i = 0; i < 20; ++i)
    tasks.push_back({.policy = {0, 0}, .episode = {.seed = 40 + i}, .experience = i != 3});

  std::vector<uint64_t> hashes[2];
  for (const bool direct : {true, false}) {
    steps = 0;
    const auto evaluator =
        direct ? MakeDirectEvaluator(counted, ModelFor(counted, "linear"), 2).ValueOrThrow()
               : MakeSlotEvaluator(MakeThreadFleet(counted, 3, 2).ValueOrThrow(),
                                   ModelFor(counted, "linear"), 2);
    EXPECT_TRUE(evaluator->records());
    LocalWork work(tasks, nullptr);
    ASSERT_TRUE(evaluator->Play(FixedParameters(parameters), work).ok());
    const auto results = work.TakeResults();
    const auto experiences = work.TakeExperiences();
    size_t played = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      played += results[i].steps;
      ASSERT_EQ(experiences[i] == nullptr, !tasks[i].experience);
      if (!experiences[i]) continue;
      EXPECT_EQ(experiences[i]->inputs.size(), 4 * std::min<size_t>(results[i].steps, 100));
      hashes[direct].push_back(experiences[i]->Hash());
    }
    EXPECT_EQ(steps, played);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace samara::experience_test
