#include "env/maze/maze_environment.h"

#include <algorithm>
#include <cmath>

#include "env/maze/maze_picture.h"
#include "env/maze/path.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr int64_t kMoves = 400;  // of the robot in an episode
constexpr int32_t kLevels = 5;   // of a discrete output

EnvironmentSpec Spec(const MazeOptions& options, bool render) {
  EnvironmentSpec spec;
  spec.id = "native/" + options.id;
  spec.version = "1";
  spec.observation = options.picture
                         ? ObservationSpec{DType::kUint8, {kMazeView, kMazeView}}
                         : ObservationSpec{DType::kFloat32, {static_cast<int64_t>(kRobotSensors)}};
  if (options.outputs == MazeOutputs::kDiscrete)
    spec.action = {.discrete = true, .n = kLevels * kLevels, .low = {}, .high = {}};
  else
    spec.action = {.discrete = false, .n = 2, .low = {-1, -1}, .high = {1, 1}};
  spec.steps_max = (kMoves + options.action_repeat - 1) / options.action_repeat;
  spec.solved = options.path_reward ? 0 : -kGoalRadius;
  spec.solved_once = true;
  spec.position = 2;
  DeclarePictures(spec, render, kMazePictureHeight, kMazePictureWidth);
  return spec;
}

const MazeView& HardMazeView() {
  static const MazeView view(HardMaze());
  return view;
}
const MazePaths& HardMazePaths() {
  static const MazePaths paths(HardMaze());
  return paths;
}

// 6 (o - 0.5) for the output o of [0, 1].
double Target(float action, MazeOutputs outputs) {
  const double a = Rescale(action, -1, 1);
  const double o = std::clamp(outputs == MazeOutputs::kUnit ? a : a + 0.5, 0.0, 1.0);
  return 2 * kRobotSpeed * (o - 0.5);
}
double TargetOfLevel(int32_t level) {
  return 2 * kRobotSpeed * (static_cast<double>(level) / (kLevels - 1) - 0.5);
}

class MazeEnvironment final : public SimulatedEnvironment {
 public:
  MazeEnvironment(const MazeOptions& options, bool render)
      : SimulatedEnvironment(Spec(options, render), 6),
        outputs_(options.outputs),
        repeat_(options.action_repeat),
        view_(options.picture ? &HardMazeView() : nullptr),
        paths_(options.path_reward ? &HardMazePaths() : nullptr) {}

  std::vector<double> CurrentState() const override {
    return {robot_.at.x,  robot_.at.y, robot_.heading,
            robot_.speed, robot_.turn, static_cast<double>(moves_)};
  }
  void Position(std::span<float> out) const override {
    out[0] = static_cast<float>(robot_.at.x), out[1] = static_cast<float>(robot_.at.y);
  }
  bool Render(std::span<std::byte> pixels) override {
    if (spec().render_height == 0) return false;
    Picture picture(pixels, spec().render_height, spec().render_width);
    DrawMaze(maze_, robot_, picture);
    return true;
  }

 private:
  void Draw(const CounterRng&, std::span<double> start) const override {
    std::ranges::fill(start, 0.0);
    start[0] = maze_.start.x, start[1] = maze_.start.y, start[2] = maze_.heading;
  }
  void Place(std::span<const double> start) override {
    const auto within = [&](size_t i, double low, double high) {
      return start[i] >= low && start[i] <= high ? start[i] : low;  // of a forged saved state
    };
    robot_.at = {within(0, 0, kMazeExtent), within(1, 0, kMazeExtent)};
    robot_.heading = within(2, 0, 360);
    robot_.speed = within(3, -kRobotSpeed, kRobotSpeed);
    robot_.turn = within(4, -kRobotSpeed, kRobotSpeed);
    moves_ = Index(start[5], kMoves + 1);
  }

  bool AtGoal() const { return GoalDistance(maze_, robot_) < kGoalRadius; }

  Outcome Advance(const Action& action) override {
    const bool discrete = outputs_ == MazeOutputs::kDiscrete;
    const double turn =
        discrete ? TargetOfLevel(action.index / kLevels) : Target(action.values[0], outputs_);
    const double speed =
        discrete ? TargetOfLevel(action.index % kLevels) : Target(action.values[1], outputs_);
    bool reached = AtGoal();
    for (int64_t i = 0; i < repeat_ && moves_ < kMoves && !reached; ++i) {
      MoveRobot(maze_, turn, speed, robot_);
      ++moves_;
      reached = AtGoal();
    }
    return {reached || LastStep() ? Fitness(reached) : 0.0, reached};
  }

  double Fitness(bool reached) const {
    if (paths_ == nullptr) return -GoalDistance(maze_, robot_);
    // a point next to the goal's disc may share the cell of one within
    return reached ? 0.0 : -std::max(1.0, static_cast<double>(paths_->Length(robot_.at)));
  }

  void Observe(std::span<float> observation) const override {
    SenseMaze(maze_, robot_, observation);
  }
  void ObserveBytes(std::span<std::byte> observation) const override {
    view_->Draw(robot_, observation);
  }

  const Maze& maze_ = HardMaze();
  const MazeOutputs outputs_;
  const int64_t repeat_;
  const MazeView* const view_;    // null: sensors
  const MazePaths* const paths_;  // null: the straight distance
  Robot robot_;
  int64_t moves_ = 0;
};

}  // namespace

std::unique_ptr<Environment> MakeMaze(const MazeOptions& options, bool render) {
  return std::make_unique<MazeEnvironment>(options, render);
}

}  // namespace samara
