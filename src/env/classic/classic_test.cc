// One step of each classic-control task computed by hand, and the edges that random play misses.
#include <gtest/gtest.h>

#include <cmath>

#include "env/picture_test_util.h"
#include "env/registry.h"
#include "env/simulated.h"

namespace samara::classic_test {
namespace {

// A task, its observation buffer and shorthand for one step.
class Played {
 public:
  explicit Played(const char* id, bool render = false)
      : owner_(NativeEnvironment(id, render).ValueOrThrow()().ValueOrThrow()),
        environment_(dynamic_cast<SimulatedEnvironment&>(*owner_)),
        observation_(environment_.spec().observation.elements()) {}

  SimulatedEnvironment& operator*() { return environment_; }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(observation_)); }
  void Start(std::vector<double> state) { environment_.ResetTo(state, bytes()); }
  StepResult Step(int32_t index) { return environment_.Step({index, {}}, bytes()); }
  StepResult Step(float value) { return environment_.Step({0, {&value, 1}}, bytes()); }
  std::vector<double> state() const { return environment_.CurrentState(); }
  const std::vector<float>& observation() const { return observation_; }

 private:
  std::unique_ptr<Environment> owner_;
  SimulatedEnvironment& environment_;
  std::vector<float> observation_;
};

TEST(CartPoleTest, OnePushFromRest) {
  // upright: push = 10/1.1, spin rate = -push / (.5 (4/3 - .1/1.1)), x'' = push - .05 rate / 1.1
  Played cart("CartPole-v1");
  cart.Start({0, 0, 0, 0});
  const StepResult step = cart.Step(int32_t{1});
  const double push = 10 / 1.1, rate = -push / (0.5 * (4.0 / 3 - 0.1 / 1.1));
  EXPECT_EQ(step.reward, 1);
  EXPECT_FALSE(step.terminated);
  EXPECT_NEAR(cart.state()[1], 0.02 * (push - 0.05 * rate / 1.1), 1e-15);
  EXPECT_NEAR(cart.state()[3], 0.02 * rate, 1e-15);
  EXPECT_EQ(cart.state()[0], 0);
  EXPECT_EQ(cart.state()[2], 0);
}

TEST(CartPoleTest, EndsBeyondTwelveDegreesOrTheTrack) {
  Played cart("CartPole-v1");
  const double limit = 12 * 2 * std::acos(-1.0) / 360;
  cart.Start({0, 0, limit, 0.001});
  EXPECT_TRUE(cart.Step(int32_t{0}).terminated);
  cart.Start({0, 0, limit, -0.001});
  EXPECT_FALSE(cart.Step(int32_t{0}).terminated);
  cart.Start({-2.39, -1, 0, 0});
  EXPECT_TRUE(cart.Step(int32_t{0}).terminated);
}

TEST(CartPoleTest, DrawsAPictureWhenAskedTo) {
  Played plain("CartPole-v1"), drawn("CartPole-v1", true);
  EXPECT_EQ((*plain).spec().render_height, 0);
  const EnvironmentSpec& spec = (*drawn).spec();
  std::vector<std::byte> pixels(static_cast<size_t>(spec.render_height * spec.render_width * 3));
  EXPECT_FALSE((*plain).Render(pixels));
  // a fallen pole beyond the edge is clipped, not written outside
  for (const double x : {0.0, 2.39, -9.0}) {
    drawn.Start({x, 0, 3, 0});
    EXPECT_TRUE((*drawn).Render(pixels));
  }
  drawn.Start({0, 0, 0, 0});
  // the pole stands in the middle column, paper next to it
  EXPECT_EQ(RedAt(*drawn, spec.render_height / 2, spec.render_width / 2), 202);
  EXPECT_EQ(RedAt(*drawn, spec.render_height / 2, spec.render_width / 4), 255);
}

// RedAt of the picture of a state.
int Red(const char* id, const std::vector<double>& state, int64_t y, int64_t x) {
  Played drawn(id, true);
  drawn.Start(state);
  return RedAt(*drawn, y, x);
}

TEST(ClassicTest, DrawsWhereThingsAre) {
  const double pi = std::acos(-1.0);
  // hanging links reach down from the pivot in the middle, lifted ones up
  EXPECT_EQ(Red("Acrobot-v1", {0, 0, 0, 0}, 150, 100), 202);
  EXPECT_EQ(Red("Acrobot-v1", {0, 0, 0, 0}, 40, 100), 255);
  EXPECT_EQ(Red("Acrobot-v1", {pi, 0, 0, 0}, 40, 100), 202);
  EXPECT_EQ(Red("Acrobot-v1", {0, pi / 2, 0, 0}, 145, 130), 202) << "the second link to the right";
  EXPECT_EQ(Red("Pendulum-v1", {0, 0}, 50, 100), 202);
  EXPECT_EQ(Red("Pendulum-v1", {0, 0}, 150, 100), 255);
  EXPECT_EQ(Red("Pendulum-v1", {pi / 2, 0}, 100, 50), 202) << "a quarter turn to the left";
  // the valley's lowest point is at -pi / 6, at nine tenths of the height
  EXPECT_EQ(Red("MountainCar-v0", {-pi / 6, 0}, 173, 112), 202);
  EXPECT_EQ(Red("MountainCar-v0", {0.4, 0}, 173, 112), 255);
  // cells of 20 pixels: the ball in row 3 and column 1, the paddle in the last row and column 4
  EXPECT_EQ(Red("Catch-v0", {1, 3, 4}, 70, 30), 202);
  EXPECT_EQ(Red("Catch-v0", {1, 3, 4}, 190, 90), 30);
  EXPECT_EQ(Red("Catch-v0", {1, 3, 4}, 70, 50), 255);
}

TEST(MountainCarTest, CoastsDownAndStopsAtTheWall) {
  Played car("MountainCar-v0");
  car.Start({0, 0});
  car.Step(int32_t{1});
  EXPECT_EQ(car.state()[1], -0.0025);  // cos 0 = 1
  car.Start({-1.19, -0.05});
  car.Step(int32_t{0});
  EXPECT_EQ(car.state(), (std::vector<double>{-1.2, 0}));
}

TEST(MountainCarTest, EndsAtTheGoal) {
  Played car("MountainCar-v0");
  car.Start({0.46, 0.07});
  const StepResult step = car.Step(int32_t{2});
  EXPECT_TRUE(step.terminated);
  EXPECT_EQ(step.reward, -1);
}

TEST(AcrobotTest, RestsWhenHangingAndEndsAboveTheLine) {
  Played acrobot("Acrobot-v1");
  // hanging still without torque is an equilibrium, up to cos(-pi/2)
  acrobot.Start({0, 0, 0, 0});
  EXPECT_EQ(acrobot.Step(int32_t{1}).reward, -1);
  for (const double s : acrobot.state()) EXPECT_NEAR(s, 0, 1e-15);
  // standing nearly upright the tip is at height 2 > 1
  acrobot.Start({3.1, 0, 0, 0});
  const StepResult step = acrobot.Step(int32_t{1});
  EXPECT_TRUE(step.terminated);
  EXPECT_EQ(step.reward, 0);
}

TEST(AcrobotTest, AnglesWrapAndSpeedsAreBounded) {
  Played acrobot("Acrobot-v1");
  acrobot.Start({3.1, 0, 12, -27});
  for (int i = 0; i < 50; ++i) {
    acrobot.Step(int32_t{i % 3});
    const auto s = acrobot.state();
    ASSERT_LE(std::abs(s[0]), M_PI);
    ASSERT_LE(std::abs(s[1]), M_PI);
    ASSERT_LE(std::abs(s[2]), 4 * M_PI);
    ASSERT_LE(std::abs(s[3]), 9 * M_PI);
  }
}

// The board as text, a row a line: '#' where there is something.
std::string Board(const std::vector<float>& observation) {
  std::string text;
  for (size_t i = 0; i < observation.size(); ++i) {
    text += observation[i] == 1 ? '#' : observation[i] == 0 ? '.' : '?';
    if (i % 5 == 4) text += '\n';
  }
  return text;
}

TEST(CatchTest, TheBallFallsAndThePaddleMoves) {
  Played game("Catch-v0");
  game.Start({4, 0, 2});
  std::string empty = ".....\n.....\n.....\n.....\n.....\n.....\n.....\n";
  EXPECT_EQ(Board(game.observation()), "....#\n.....\n" + empty + "..#..\n");
  const StepResult step = game.Step(int32_t{0});
  EXPECT_EQ(step.reward, 0);
  EXPECT_FALSE(step.terminated);
  EXPECT_EQ(Board(game.observation()), ".....\n....#\n" + empty + ".#...\n");
}

TEST(CatchTest, TheNinthStepDecides) {
  for (const int32_t last : {0, 1, 2}) {
    Played game("Catch-v0");
    game.Start({0, 0, 2});
    // left three times: the wall holds it at column 0; then to column 1
    for (const int32_t action : {0, 0, 0, 1, 1, 1, 1, 2}) {
      const StepResult step = game.Step(action);
      ASSERT_EQ(step.reward, 0);
      ASSERT_FALSE(step.terminated || step.truncated);
    }
    const StepResult step = game.Step(last);
    EXPECT_TRUE(step.terminated);
    EXPECT_FALSE(step.truncated);
    EXPECT_EQ(step.reward, last == 0 ? 1 : -1);
    EXPECT_EQ(game.state()[2], last);
  }
}

// Mean return of 1,000 drawn games.
template <typename Policy>
double CatchMean(Policy policy) {
  Played game("Catch-v0");
  double total = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    (*game).Reset({.seed = seed}, game.bytes());
    for (StepResult step; !step.terminated; total += step.reward)
      step = game.Step(policy(game.state()));
  }
  return total / 1000;
}

TEST(CatchTest, AScriptCatchesEveryBallAndChanceOneInFive) {
  EXPECT_EQ(CatchMean([](const std::vector<double>& s) {
              return int32_t{s[0] < s[2] ? 0 : s[0] > s[2] ? 2 : 1};
            }),
            1);
  // the ball's column is independent of the paddle: 1/5 - 4/5; four standard deviations
  const CounterRng rng(3);
  uint64_t draws = 0;
  EXPECT_NEAR(
      CatchMean([&](const auto&) { return static_cast<int32_t>(rng.UniformInt(draws++, 3)); }),
      -0.6, 0.11);
}

TEST(PendulumTest, OneStepByHand) {
  Played pendulum("Pendulum-v1");
  // horizontal at rest, full torque: speed .05 (15 sin(pi/2) + 3 * 2), cost (pi/2)^2 + .001 * 4
  const double quarter = std::acos(-1.0) / 2;
  pendulum.Start({quarter, 0});
  const StepResult step = pendulum.Step(1.0f);
  EXPECT_NEAR(step.reward, -(quarter * quarter + 0.004), 1e-15);
  EXPECT_NEAR(pendulum.state()[1], 0.05 * 21, 1e-15);
  EXPECT_NEAR(pendulum.state()[0], quarter + 0.05 * 0.05 * 21, 1e-15);
}

TEST(PendulumTest, ActionsAreRescaledClampedAndNeverNaN) {
  const auto reward = [](float value) {
    Played pendulum("Pendulum-v1");
    pendulum.Start({0, 0});
    return pendulum.Step(value).reward;
  };
  EXPECT_NEAR(reward(0.5f), -0.001, 1e-18);
  EXPECT_EQ(reward(7.0f), reward(1.0f));
  EXPECT_EQ(reward(-7.0f), reward(-1.0f));
  EXPECT_EQ(reward(NAN), reward(0.0f));
}

TEST(RescaleTest, CoversUnequalBounds) {
  EXPECT_EQ(Rescale(-1, -3, 5), -3);
  EXPECT_EQ(Rescale(1, -3, 5), 5);
  EXPECT_EQ(Rescale(0, -3, 5), 1);
}

}  // namespace
}  // namespace samara::classic_test
