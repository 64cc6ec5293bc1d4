// The hard maze by cases computed by hand; tests/test_mazes.py compares whole episodes with an
// independent implementation.
#include "env/maze/maze.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/rng.h"
#include "core/sha256.h"
#include "env/maze/maze_environment.h"
#include "env/maze/maze_picture.h"
#include "env/maze/path.h"
#include "env/registry.h"
#include "env/simulated.h"

namespace samara::maze_test {
namespace {

// A room of 100 x 100 with the goal in the middle of its right half.
constexpr std::array<MazeWall, 4> kRoomWalls{
    {{{0, 0}, {100, 0}}, {{100, 0}, {100, 100}}, {{100, 100}, {0, 100}}, {{0, 100}, {0, 0}}}};
constexpr Maze kRoom{.walls = kRoomWalls, .start = {30, 50}, .goal = {75, 50}};

std::array<float, kRobotSensors> Sense(const Robot& robot) {
  std::array<float, kRobotSensors> out;
  SenseMaze(kRoom, robot, out);
  return out;
}

TEST(RobotTest, SpeedAndTurnApproachTheirTargets) {
  Robot robot = RobotAtStart(kRoom);
  MoveRobot(kRoom, -3, 0.1, robot);
  EXPECT_EQ(robot.turn, -0.2);
  EXPECT_EQ(robot.speed, 0.1);
  EXPECT_DOUBLE_EQ(robot.at.x, 30.1);
  EXPECT_EQ(robot.heading, 360 - 0.2);
  for (int i = 0; i < 100; ++i) MoveRobot(kRoom, -7, 0, robot);
  EXPECT_EQ(robot.turn, -3);  // never beyond
  EXPECT_EQ(robot.speed, 0);
}

TEST(RobotTest, MovesAlongTheHeadingItHadThenTurns) {
  Robot robot{.at = {50, 50}, .heading = 90, .speed = 2, .turn = 1};
  MoveRobot(kRoom, 1, 2, robot);
  EXPECT_NEAR(robot.at.x, 50, 1e-12);
  EXPECT_DOUBLE_EQ(robot.at.y, 52);
  EXPECT_EQ(robot.heading, 91);
}

TEST(RobotTest, AMoveIntoAWallIsDroppedAndTheTurnIsNot) {
  Robot robot{.at = {91, 50}, .heading = 0, .speed = 3, .turn = 3};
  MoveRobot(kRoom, 3, 3, robot);
  EXPECT_EQ(robot.at, (MazePoint{91, 50}));
  EXPECT_EQ(robot.heading, 3);
  // exactly the radius from a wall is no contact
  robot = {.at = {91, 50}, .heading = 0, .speed = 1};
  MoveRobot(kRoom, 0, 1, robot);
  EXPECT_EQ(robot.at, (MazePoint{92, 50}));
}

TEST(RobotTest, SensesWallsAndTheGoalsQuarter) {
  // heading along x: -90 looks up at y = 0, 90 down; at 45 degrees the ray of 50 across is
  // 50 sqrt(2) long
  const auto ahead = Sense({.at = {30, 50}, .heading = 0});
  const double diagonal = 0.5 * std::sqrt(2.0);
  const double expected[] = {1, 0.5, diagonal, 0.7, diagonal, 0.5, 0.3, 1, 0, 0, 0};
  for (size_t i = 0; i < kRobotSensors; ++i) EXPECT_NEAR(ahead[i], expected[i], 1e-6) << i;
  // heading down: the goal to the east is at -90 = 270 degrees
  const auto down = Sense({.at = {30, 50}, .heading = 90});
  const double turned[] = {1, 0.7, diagonal, 0.5, 0.3 * std::sqrt(2.0), 0.3, 0.5, 0, 0, 0, 1};
  for (size_t i = 0; i < kRobotSensors; ++i) EXPECT_NEAR(down[i], turned[i], 1e-6) << i;
  EXPECT_EQ(Sense({.at = {30, 50}, .heading = 180})[9], 1);
  EXPECT_EQ(Sense({.at = {30, 50}, .heading = 270})[8], 1);
}

TEST(RobotTest, NothingIsSeenBeyondTheRange) {
  std::array<float, kRobotSensors> out;
  SenseMaze({.walls = {}, .start = {}, .goal = {1, 0}}, {}, out);
  for (size_t i = 1; i <= 6; ++i) EXPECT_EQ(out[i], 1);
}

TEST(MazePathsTest, CountsCellsAroundCorners) {
  const MazePaths paths(kRoom);
  EXPECT_EQ(paths.Length({75.9, 50.1}), 0);
  EXPECT_EQ(paths.Length({30, 50}), 45);
  EXPECT_EQ(paths.Length({30, 40}), 55);
  // the corner farthest from the goal: cells 7 and 92 touch what the robot can reach
  EXPECT_EQ(paths.longest(), 75 - 7 + 50 - 7);
}

TEST(MazePathsTest, ASealedCellIsWorseThanAnyOther) {
  // the published table held 0, the best value, in cells that cannot be reached
  std::vector<MazeWall> walls(kRoomWalls.begin(), kRoomWalls.end());
  walls.push_back({{40, 0}, {40, 100}});
  const MazePaths sealed({.walls = walls, .start = {20, 50}, .goal = {75, 50}});
  EXPECT_EQ(sealed.Length({20, 50}), sealed.unreachable());
  EXPECT_GT(sealed.unreachable(), sealed.longest());
  const MazePaths hard(HardMaze());
  for (const MazePoint outside : {MazePoint{300, 300}, {1, 1}, {-5, 50}, {50, 1e9}, {NAN, 3}})
    EXPECT_EQ(hard.Length(outside), hard.unreachable());
}

TEST(MazePathsTest, TheHardMazeLeadsFromTheStartToTheGoal) {
  const MazePaths paths(HardMaze());
  EXPECT_EQ(paths.Length(HardMaze().goal), 0);
  EXPECT_GT(paths.Length(HardMaze().start), 500);
  EXPECT_LT(paths.Length(HardMaze().start), paths.longest());
}

class Played {
 public:
  explicit Played(const std::string& id)
      : owner_(NativeEnvironment(id).ValueOrThrow()().ValueOrThrow()),
        environment_(dynamic_cast<SimulatedEnvironment&>(*owner_)),
        observation_(environment_.spec().observation.bytes()) {
    environment_.Reset({.seed = 1}, observation_);
  }
  SimulatedEnvironment& operator*() { return environment_; }
  SimulatedEnvironment* operator->() { return &environment_; }
  void Start(const std::vector<double>& state) { environment_.ResetTo(state, observation_); }
  StepResult Step(float turn, float speed) {
    const float values[] = {turn, speed};
    return environment_.Step({0, values}, observation_);
  }
  StepResult Step(int32_t index) { return environment_.Step({index, {}}, observation_); }
  std::span<const std::byte> observation() const { return observation_; }

 private:
  std::unique_ptr<Environment> owner_;
  SimulatedEnvironment& environment_;
  std::vector<std::byte> observation_;
};

TEST(HardMazeTest, PaysMinusTheDistanceInTheLastOf400Steps) {
  Played maze("HardMaze");
  for (int i = 1; i < 400; ++i) {
    const StepResult step = maze.Step(0, 0);
    ASSERT_EQ(step.reward, 0);
    ASSERT_FALSE(step.terminated || step.truncated);
  }
  const StepResult last = maze.Step(0, 0);
  EXPECT_TRUE(last.truncated);
  EXPECT_DOUBLE_EQ(last.reward, -std::hypot(36 - 31, 184 - 20));
  EXPECT_LT(last.reward, maze->spec().solved);
}

TEST(HardMazeTest, EndsWhenTheGoalIsReached) {
  Played maze("HardMaze");
  maze.Start({31, 31, 270, 3, 0, 0});
  const StepResult step = maze.Step(0, 0.5F);
  EXPECT_TRUE(step.terminated);
  EXPECT_DOUBLE_EQ(step.reward, -8);
  EXPECT_GE(step.reward, maze->spec().solved);
  float position[2];
  maze->Position(position);
  EXPECT_FLOAT_EQ(position[0], 31);
  EXPECT_FLOAT_EQ(position[1], 28);
}

TEST(HardMazeTest, AnEpisodeThatIsShortenedPaysInItsLastStep) {
  Played maze("HardMaze");
  std::vector<std::byte> observation(maze->spec().observation.bytes());
  maze->Reset({.seed = 1, .frames_max = 2}, observation);
  EXPECT_EQ(maze.Step(0, 0).reward, 0);
  EXPECT_LT(maze.Step(0, 0).reward, -100);
}

// Speed after one step from rest, and the target after many.
std::pair<double, double> SpeedsOf(const std::string& id, float action) {
  Played maze(id);
  maze.Start({100, 60, 0, 0, 0, 0});
  maze.Step(0, action);
  const double first = maze->CurrentState()[3];
  for (int i = 0; i < 30; ++i) maze.Step(0, action);
  return {first, maze->CurrentState()[3]};
}

TEST(HardMazeTest, ActionsBecomeTargets) {
  EXPECT_EQ(SpeedsOf("HardMaze", 0.25F), (std::pair{0.2, 1.5}));
  EXPECT_EQ(SpeedsOf("HardMaze", 0.5F).second, 3);
  EXPECT_EQ(SpeedsOf("HardMaze", 1).second, 3);
  EXPECT_EQ(SpeedsOf("HardMaze", -1).second, -3);
  EXPECT_EQ(SpeedsOf("HardMaze", NAN).second, 0);
  EXPECT_EQ(SpeedsOf("HardMazeSigmoid", 0.75F), (std::pair{0.2, 1.5}));
  EXPECT_EQ(SpeedsOf("HardMazeSigmoid", 1).second, 3);
  EXPECT_EQ(SpeedsOf("HardMazeSigmoid", -0.3F).second, -3);
}

TEST(HardMazeTest, DiscreteActionsAreFiveLevelsOfTurnTimesFiveOfSpeed) {
  for (int32_t index = 0; index < 25; ++index) {
    Played maze("HardMazeDiscrete");
    for (int i = 0; i < 20; ++i) maze.Step(index);
    EXPECT_NEAR(maze->CurrentState()[4], -3 + 1.5 * (index / 5), 1e-12);
    EXPECT_NEAR(maze->CurrentState()[3], -3 + 1.5 * (index % 5), 1e-12);
  }
}

TEST(BreadcrumbMazeTest, HoldsAnActionForThreeStepsOf400) {
  Played maze("BreadcrumbMaze");
  EXPECT_EQ(maze->spec().steps_max, 134);
  maze.Step(0.5F, 1);
  EXPECT_NEAR(maze->CurrentState()[3], 0.6, 1e-12);
  EXPECT_NEAR(maze->CurrentState()[0], 36 + 0.2 + 0.4 + 0.6, 1e-12);
  StepResult last;
  for (int i = 1; i < 134; ++i) last = maze.Step(0.5F, 0);
  EXPECT_TRUE(last.truncated);
  EXPECT_EQ(maze->CurrentState()[5], 400);
}

TEST(BreadcrumbMazeTest, PaysMinusTheLengthOfThePath) {
  const MazePaths paths(HardMaze());
  Played maze("BreadcrumbMaze");
  StepResult last;
  for (int i = 0; i < 134; ++i) last = maze.Step(0.5F, 0.5F);
  EXPECT_EQ(last.reward, -static_cast<double>(paths.Length(HardMaze().start)));
  maze.Start({31, 31, 270, 0, 0, 0});
  last = {};
  for (int i = 0; i < 134 && !last.terminated; ++i) last = maze.Step(0.5F, 1);
  EXPECT_TRUE(last.terminated);
  EXPECT_EQ(last.reward, 0);
  EXPECT_GE(last.reward, maze->spec().solved);
}

TEST(ImageMazeTest, ShowsGoalWallsRobotAndItsHeading) {
  const MazeView view(HardMaze());
  std::vector<std::byte> pixels(kMazeView * kMazeView);
  view.Draw({.at = {100, 60}, .heading = 0}, pixels);
  const auto gray = [&](double x, double y) {
    const auto row = static_cast<size_t>(y / 2.5), column = static_cast<size_t>(x / 2.5);
    return std::to_integer<int>(pixels[row * kMazeView + column]);
  };
  EXPECT_EQ(gray(31, 20), 64);
  EXPECT_EQ(gray(56, 100), 128);
  EXPECT_EQ(gray(100, 60), 192);
  EXPECT_EQ(gray(94, 60), 192);
  EXPECT_EQ(gray(105, 60), 255);
  EXPECT_EQ(gray(150, 60), 0);
  EXPECT_EQ(gray(200, 205), 0);
}

TEST(ImageMazeTest, ARobotAtTheEdgeIsClipped) {
  const MazeView view(HardMaze());
  std::vector<std::byte> pixels(kMazeView * kMazeView);
  for (const MazePoint at : {MazePoint{0, 0}, {210, 210}, {-1e6, 1e12}})
    view.Draw({.at = at, .heading = 45}, pixels);
}

// Random play of 300 steps; the same bits on every machine and with every compiler.
std::string Digest(const std::string& id) {
  Played maze(id);
  const CounterRng rng(5);
  std::string bytes;
  for (uint64_t i = 0; i < 300; ++i) {
    const bool discrete = maze->spec().action.discrete;
    const StepResult step = discrete
                                ? maze.Step(static_cast<int32_t>(rng.UniformInt(i, 25)))
                                : maze.Step(static_cast<float>(2 * rng.Uniform(2 * i) - 1),
                                            static_cast<float>(2 * rng.Uniform(2 * i + 1) - 0.6));
    bytes.append(reinterpret_cast<const char*>(&step.reward), sizeof step.reward);
    const std::vector<double> state = maze->CurrentState();
    bytes.append(reinterpret_cast<const char*>(state.data()), state.size() * sizeof(double));
    const auto seen = maze.observation();
    bytes.append(reinterpret_cast<const char*>(seen.data()), seen.size());
  }
  return Sha256Hex(bytes).substr(0, 16);
}

TEST(MazeGoldenTest, TrajectoriesKeepTheirBits) {
  EXPECT_EQ(Digest("HardMaze"), "ca13dbe6f2a47f98");
  EXPECT_EQ(Digest("HardMazeSigmoid"), "5e16cad8d5c93e0a");
  EXPECT_EQ(Digest("HardMazeDiscrete"), "159267d4057afde2");
  EXPECT_EQ(Digest("BreadcrumbMaze"), "ba0fd0262c5ad2f5");
  EXPECT_EQ(Digest("ImageMaze"), "612e150138c47f71");
  EXPECT_EQ(Digest("ImageMazeDiscrete"), "cabc91fbe3b2fe96");
}

}  // namespace
}  // namespace samara::maze_test
