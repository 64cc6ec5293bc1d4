// The contract of every native environment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/rng.h"
#include "env/registry.h"

namespace samara::native_contract_test {
namespace {

// As a float a number of the order of -1e-12, as a gray level one that no environment observes.
constexpr std::byte kGap{0xAB};

struct Transition {
  StepResult result;
  std::vector<std::byte> observation;
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
        observation_(environment_->spec().observation.bytes()) {}

  Environment& environment() { return *environment_; }
  const EnvironmentSpec& spec() const { return environment_->spec(); }

  std::vector<std::byte> Reset(uint64_t seed, int64_t frames_max = 0) {
    // what an earlier observation left must not shine through
    std::ranges::fill(observation_, kGap);
    environment_->Reset({.seed = seed, .frames_max = frames_max}, observation_);
    return observation_;
  }
  Transition Step(uint64_t number) {
    const CounterRng rng(99);
    const auto n = static_cast<uint64_t>(spec().action.n);
    std::ranges::fill(observation_, kGap);
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
    out.result = environment_->Step(action, observation_);
    out.observation = observation_;
    return out;
  }

 private:
  std::unique_ptr<Environment> environment_;
  std::vector<std::byte> observation_;
};

class NativeContractTest : public testing::TestWithParam<std::string> {
 protected:
  NativeContractTest() : factory_(NativeEnvironment(GetParam()).ValueOrThrow()) {}
  const EnvironmentFactory factory_;
};

void ExpectSound(const Player& player, const std::vector<std::byte>& observation) {
  const size_t size = SizeOf(player.spec().observation.dtype);
  // any gray level may be a mean of others (pixel_observations_test.cc compares them)
  if (NativeTaskOf(player.spec().id) != player.spec().id) return;
  for (size_t at = 0; at < observation.size(); at += size) {
    const auto element = std::span(observation).subspan(at, size);
    ASSERT_FALSE(std::ranges::all_of(element, [](std::byte b) { return b == kGap; }))
        << player.spec().id << " left a gap in its observation";
    if (size == 1) continue;
    float value;
    std::memcpy(&value, element.data(), size);
    ASSERT_TRUE(std::isfinite(value)) << player.spec().id;
  }
}

// Mazes and the toy tasks draw nothing at random: the seed changes nothing.
bool StartsAlike(const std::string& id) {
  const bool maze = id.find("Maze") != id.npos && id != "TMaze-v0";
  return maze || id.starts_with("Toy") || id == "Parity-v0";
}

TEST_P(NativeContractTest, TheSpecIsComplete) {
  const EnvironmentSpec spec = Player(factory_).spec();
  EXPECT_EQ(spec.id, "native/" + GetParam());
  EXPECT_FALSE(spec.version.empty());
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

TEST_P(NativeContractTest, ThePositionIsWhatTheSpecSays) {
  Player player(factory_);
  player.Reset(1);
  std::vector<float> before(static_cast<size_t>(player.spec().position) + 1, -12345.0f);
  std::vector<float> after = before;
  const auto position = [&](std::vector<float>& out) {
    player.environment().Position(std::span(out).first(out.size() - 1));
    EXPECT_EQ(out.back(), -12345.0f);
  };
  position(before);
  for (uint64_t i = 0; i < 20; ++i) player.Step(i);
  position(after);
  for (size_t i = 0; i + 1 < after.size(); ++i) EXPECT_TRUE(std::isfinite(after[i]));
  EXPECT_EQ(before == after, player.spec().position == 0);
}

TEST_P(NativeContractTest, PicturesAreWhatTheSpecSays) {
  const auto drawn = NativeEnvironment(GetParam(), /*render=*/true).ValueOrThrow()().ValueOrThrow();
  const EnvironmentSpec& spec = drawn->spec();
  const auto size = static_cast<size_t>(spec.render_height * spec.render_width * 3);
  std::vector<std::byte> observation(spec.observation.bytes()), picture(size, kGap);
  drawn->Reset({.seed = 1}, observation);
  ASSERT_GT(size, 0u);
  ASSERT_TRUE(drawn->Render(picture));
  EXPECT_FALSE(factory_().ValueOrThrow()->Render({}));
  EXPECT_EQ(spec.render_frames, 1);
  // a picture has paper and something on it, and is whole
  EXPECT_EQ(std::ranges::count(picture, kGap), 0);
  EXPECT_LT(std::ranges::count(picture, picture[0]), static_cast<ptrdiff_t>(size));
}

// Rewards and ends that a learner computes from observations are those of the environment.
TEST_P(NativeContractTest, RewardsOfGoalsFollowTheRuleThatIsDeclared) {
  Player player(factory_);
  const GoalSpec goal = player.spec().goal;
  if (goal.size == 0) return;
  const auto floats = [](const std::vector<std::byte>& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const auto desired = [&](const std::vector<float>& observation) {
    return std::vector<float>(observation.end() - goal.size, observation.end());
  };
  std::vector<float> wanted = desired(floats(player.Reset(1)));
  for (uint64_t i = 0; i < 3000; ++i) {
    const Transition t = player.Step(i);
    const std::vector<float> seen = floats(t.observation);
    ASSERT_EQ(desired(seen), wanted);
    const bool reached = goal.Reached(seen);
    ASSERT_EQ(t.result.reward, reached ? goal.reached : goal.missed);
    ASSERT_EQ(t.result.terminated, reached && goal.terminates);
    if (t.result.terminated || t.result.truncated) wanted = desired(floats(player.Reset(i)));
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
  EXPECT_EQ(used.Reset(43) == fresh.Reset(42), StartsAlike(GetParam()));
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

// And tasks by their pictures.
std::vector<std::string> Every() {
  std::vector<std::string> ids = NativeEnvironmentIds();
  ids.emplace_back("Pendulum-v1?pixels=42");
  return ids;
}

INSTANTIATE_TEST_SUITE_P(Every, NativeContractTest, testing::ValuesIn(Every()), [](const auto& id) {
  std::string name = id.param;
  std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
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
}  // namespace samara::native_contract_test
