// What every native environment promises, whatever it simulates.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/rng.h"
#include "env/registry.h"

namespace samara {
namespace {

struct Transition {
  StepResult result;
  std::vector<float> observation;
  bool operator==(const Transition& other) const {
    return result.reward == other.result.reward && result.terminated == other.result.terminated &&
           result.truncated == other.result.truncated && observation == other.observation;
  }
};

// One instance, driven by random actions that depend only on the action's number.
class Player {
 public:
  explicit Player(const EnvironmentFactory& factory)
      : environment_(factory().ValueOrThrow()),
        observation_(environment_->spec().observation.elements()) {}

  Environment& environment() { return *environment_; }
  const EnvironmentSpec& spec() const { return environment_->spec(); }

  std::vector<float> Reset(uint64_t seed, int64_t frames_max = 0) {
    // what an earlier observation left must not shine through
    std::ranges::fill(observation_, -12345.0f);
    environment_->Reset({.seed = seed, .frames_max = frames_max}, bytes());
    return observation_;
  }
  Transition Step(uint64_t number) {
    const CounterRng rng(99);
    const auto n = static_cast<uint64_t>(spec().action.n);
    std::ranges::fill(observation_, -12345.0f);
    Action action;
    std::vector<float> values(n);
    if (spec().action.discrete) {
      action.index = static_cast<int32_t>(rng.UniformInt(number, n));
    } else {
      for (uint64_t i = 0; i < n; ++i)
        values[i] = static_cast<float>(2 * rng.Uniform(number * n + i) - 1);
      action.values = values;
    }
    Transition out;
    out.result = environment_->Step(action, bytes());
    out.observation = observation_;
    return out;
  }

 private:
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(observation_)); }

  std::unique_ptr<Environment> environment_;
  std::vector<float> observation_;
};

class NativeContractTest : public testing::TestWithParam<std::string> {
 protected:
  NativeContractTest() : factory_(NativeEnvironment(GetParam()).ValueOrThrow()) {}
  const EnvironmentFactory factory_;
};

void ExpectSound(const Player& player, const std::vector<float>& observation) {
  for (const float v : observation) {
    ASSERT_TRUE(std::isfinite(v)) << player.spec().id;
    ASSERT_NE(v, -12345.0f) << player.spec().id << " left a gap in its observation";
  }
}

TEST_P(NativeContractTest, TheSpecificationIsComplete) {
  const EnvironmentSpec spec = Player(factory_).spec();
  EXPECT_EQ(spec.id, "native/" + GetParam());
  EXPECT_FALSE(spec.version.empty());
  EXPECT_EQ(spec.observation.dtype, DType::kFloat32);
  EXPECT_GT(spec.observation.elements(), 0u);
  EXPECT_GT(spec.action.n, 0);
  EXPECT_GT(spec.steps_max, 0);
  const size_t bounds = spec.action.discrete ? 0 : static_cast<size_t>(spec.action.n);
  EXPECT_EQ(spec.action.low.size(), bounds);
  EXPECT_EQ(spec.action.high.size(), bounds);
}

TEST_P(NativeContractTest, RandomPlayIsFiniteAndEndsOnce) {
  Player player(factory_);
  ExpectSound(player, player.Reset(1));
  int64_t steps = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const Transition t = player.Step(i);
    ++steps;
    ExpectSound(player, t.observation);
    ASSERT_TRUE(std::isfinite(t.result.reward));
    ASSERT_EQ(t.result.frames, 1u);
    ASSERT_FALSE(t.result.terminated && t.result.truncated);
    ASSERT_EQ(t.result.truncated, !t.result.terminated && steps == player.spec().steps_max);
    if (!t.result.terminated && !t.result.truncated) continue;
    ExpectSound(player, player.Reset(i));
    steps = 0;
  }
}

TEST_P(NativeContractTest, AnEpisodeMayBeShortened) {
  Player player(factory_);
  player.Reset(1, 3);
  EXPECT_FALSE(player.Step(0).result.truncated);
  EXPECT_FALSE(player.Step(1).result.truncated);
  const StepResult last = player.Step(2).result;
  EXPECT_EQ(last.truncated, !last.terminated);
}

TEST_P(NativeContractTest, TheSeedDecidesTheEpisode) {
  Player used(factory_), fresh(factory_);
  // a history: one episode played far beyond its end, another broken off
  used.Reset(5);
  for (uint64_t i = 0; i < 300; ++i) used.Step(i);
  used.Reset(6);
  used.Step(7);

  ASSERT_EQ(used.Reset(42), fresh.Reset(42));
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(used.Step(i), fresh.Step(i)) << "step " << i;
  EXPECT_NE(used.Reset(43), fresh.Reset(42));
}

TEST_P(NativeContractTest, ARestoredStateContinuesWithTheSameBits) {
  Player original(factory_), copy(factory_);
  copy.Reset(8);
  for (const uint64_t moment : {0u, 1u, 10u, 150u}) {
    original.Reset(9);
    for (uint64_t i = 0; i < moment; ++i) original.Step(i);
    const std::string saved = original.environment().SaveState();
    ASSERT_FALSE(saved.empty());
    ASSERT_TRUE(copy.environment().RestoreState(saved).ok());
    ASSERT_EQ(copy.environment().SaveState(), saved);
    // the copy steps first: nothing is shared
    std::vector<Transition> copied;
    for (uint64_t i = 0; i < 100; ++i) copied.push_back(copy.Step(moment + i));
    for (uint64_t i = 0; i < 100; ++i)
      ASSERT_EQ(original.Step(moment + i), copied[i]) << "step " << i << " after " << moment;
  }
}

TEST_P(NativeContractTest, ForeignStatesAreRefused) {
  Player player(factory_);
  player.Reset(1);
  const std::string saved = player.environment().SaveState();
  for (const std::string& bad : {std::string(), std::string("Frog-v1\n"), "x" + saved,
                                 saved.substr(0, saved.size() - 1), saved + "x"}) {
    const Status status = player.environment().RestoreState(bad);
    EXPECT_EQ(status.code(), Code::kBadData) << bad.size();
  }
  EXPECT_TRUE(player.environment().RestoreState(saved).ok());
}

TEST_P(NativeContractTest, InstancesMayBeMadeAndUsedOnAnyThread) {
  std::vector<std::vector<Transition>> played(3);
  {
    std::vector<std::jthread> threads;
    for (auto& transitions : played)
      threads.emplace_back([&] {
        Player player(factory_);
        player.Reset(3);
        for (uint64_t i = 0; i < 50; ++i) transitions.push_back(player.Step(i));
      });
  }
  EXPECT_EQ(played[0], played[1]);
  EXPECT_EQ(played[0], played[2]);
}

INSTANTIATE_TEST_SUITE_P(Every, NativeContractTest, testing::ValuesIn(NativeEnvironmentIds()),
                         [](const auto& id) {
                           std::string name = id.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(RegistryTest, AnUnknownIdNamesTheNearest) {
  const auto factory = NativeEnvironment("CartPol-v1");
  ASSERT_FALSE(factory.ok());
  EXPECT_EQ(factory.status().code(), Code::kConfig);
  EXPECT_NE(factory.status().message().find("'CartPole-v1'"), std::string::npos);
}

TEST(RegistryTest, WithoutVenvMujocoSaysWhatToDoAndTheRestWorks) {
  setenv("SAMARA_VENV", "/nonexistent", 1);
  const auto hopper = NativeEnvironment("Hopper-v5");
  const auto cartpole = NativeEnvironment("CartPole-v1");
  unsetenv("SAMARA_VENV");
  EXPECT_EQ(hopper.status().code(), Code::kNoInput);
  EXPECT_NE(hopper.status().message().find("make setup"), std::string::npos);
  EXPECT_TRUE(cartpole.ok());
}

}  // namespace
}  // namespace samara
