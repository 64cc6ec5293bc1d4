// The deceptive traps: walls hold the body, and the return is the way forward.
#include <gtest/gtest.h>

#include "env/registry.h"
#include "env/simulated.h"

namespace samara::trap_test {
namespace {

// Throws a body at the trap; where it is after each step.
class Thrown {
 public:
  explicit Thrown(const std::string& id)
      : owner_(NativeEnvironment(id).ValueOrThrow()().ValueOrThrow()),
        environment_(dynamic_cast<SimulatedEnvironment&>(*owner_)),
        observation_(environment_.spec().observation.bytes()),
        rest_(static_cast<size_t>(environment_.spec().action.n), 0.0F) {
    environment_.Reset({.seed = 3}, observation_);
  }

  // From (x, y), with a speed along x and along y.
  void Throw(double x, double y, double along_x, double along_y, size_t positions) {
    std::vector<double> state = environment_.CurrentState();
    state[0] = x, state[1] = y;
    state[positions] = along_x, state[positions + 1] = along_y;
    environment_.ResetTo(state, observation_);
    sum_ = 0;
    start_ = x;
    for (int i = 0; i < 100; ++i) {
      const StepResult step = environment_.Step({0, rest_}, observation_);
      sum_ += step.reward;
      if (step.terminated || step.truncated) break;
    }
    environment_.Position(at_);
    EXPECT_NEAR(sum_, at_[0] - start_, 1e-5);
  }
  float x() const { return at_[0]; }
  float y() const { return at_[1]; }

 private:
  std::unique_ptr<Environment> owner_;
  SimulatedEnvironment& environment_;
  std::vector<std::byte> observation_;
  std::vector<float> rest_;
  float at_[2] = {};
  double sum_ = 0, start_ = 0;
};

constexpr size_t kAntPositions = 15;

TEST(AntTrapTest, TheEndIsClosed) {
  Thrown ant("AntTrap");
  ant.Throw(7, 0, 9, 0, kAntPositions);
  EXPECT_GT(ant.x(), 8);
  EXPECT_LT(ant.x(), 10.8);
}

TEST(AntTrapTest, TheSidesAreClosed) {
  Thrown ant("AntTrap");
  for (const double side : {-1.0, 1.0}) {
    ant.Throw(8, 0, 0, 9 * side, kAntPositions);
    EXPECT_LT(std::abs(ant.y()), 2.8);
  }
}

TEST(AntTrapTest, TheMouthAndTheWayAroundAreOpen) {
  Thrown ant("AntTrap");
  ant.Throw(2, 0, 9, 0, kAntPositions);
  EXPECT_GT(ant.x(), 5);
  ant.Throw(10.5, 5, 9, 0, kAntPositions);
  EXPECT_GT(ant.x(), 11);
}

TEST(AntTrapTest, WallsAndStepsArePartOfTheVersion) {
  const auto ant = NativeEnvironment("AntTrap").ValueOrThrow()().ValueOrThrow();
  const std::string& version = ant->spec().version;
  EXPECT_NE(version.find("ant.xml cd5f83ef0ea3, walls "), std::string::npos) << version;
  EXPECT_NE(version.find(", 1000 steps"), std::string::npos) << version;
}

TEST(SwimmerTrapTest, TheStepsArePartOfTheVersion) {
  const auto swimmer = NativeEnvironment("SwimmerTrap").ValueOrThrow()().ValueOrThrow();
  EXPECT_NE(swimmer->spec().version.find(", solid, 2000 steps"), std::string::npos)
      << swimmer->spec().version;
}

// Straight, its parts reach from 1.5 m behind where it is to 1.5 m before.
constexpr size_t kSwimmerPositions = 5;

TEST(SwimmerTrapTest, TheEndIsClosed) {
  Thrown swimmer("SwimmerTrap");
  swimmer.Throw(8.5, 0, 30, 0, kSwimmerPositions);
  EXPECT_GT(swimmer.x(), 7.5);         // it bounces off
  EXPECT_LT(swimmer.x() + 1.5, 10.9);  // the wall begins at 10.8
  swimmer.Throw(8.5, 6, 30, 0, kSwimmerPositions);
  EXPECT_GT(swimmer.x() + 1.5, 11.2);  // next to the trap
}

TEST(SwimmerTrapTest, TheSidesAreClosed) {
  Thrown swimmer("SwimmerTrap");
  for (const double side : {-1.0, 1.0}) {
    swimmer.Throw(8, 2.4 * side, 0, 40 * side, kSwimmerPositions);
    EXPECT_LT(std::abs(swimmer.y()), 2.8);  // where the wall begins
    swimmer.Throw(0, 2.4 * side, 0, 40 * side, kSwimmerPositions);
    EXPECT_GT(std::abs(swimmer.y()), 3.0);  // before the trap
  }
}

TEST(HumanoidTrapTest, TheEndIsClosed) {
  Thrown humanoid("HumanoidTrap");
  humanoid.Throw(4.6, 0, 6, 0, 24);
  EXPECT_LT(humanoid.x(), 5.4);
}

}  // namespace
}  // namespace samara::trap_test
