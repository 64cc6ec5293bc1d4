#include "env/classic/mountain_car.h"

#include <algorithm>

#include "core/math.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr double kPositionMin = -1.2, kPositionMax = 0.6, kSpeedMax = 0.07;
constexpr double kGoal = 0.5;
constexpr double kForce = 0.001, kGravity = 0.0025;

EnvironmentSpec Spec(bool render) {
  EnvironmentSpec spec;
  spec.id = "native/MountainCar-v0";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {2}};
  spec.action = {.discrete = true, .n = 3, .low = {}, .high = {}};
  spec.action_names = {"LEFT", "COAST", "RIGHT"};
  spec.steps_max = 200;
  spec.solved = -110;
  DeclarePictures(spec, render, 200, 300);
  return spec;
}

class MountainCar final : public SimulatedEnvironment {
 public:
  explicit MountainCar(bool render) : SimulatedEnvironment(Spec(render), 2) {}
  std::vector<double> CurrentState() const override { return {position_, velocity_}; }

  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    start[0] = -0.6 + 0.2 * rng.Uniform(0);
    start[1] = 0;
  }
  void Place(std::span<const double> start) override { position_ = start[0], velocity_ = start[1]; }

  Outcome Advance(const Action& action) override {
    velocity_ += (action.index - 1) * kForce + Cos(3 * position_) * (-kGravity);
    velocity_ = std::clamp(velocity_, -kSpeedMax, kSpeedMax);
    position_ += velocity_;
    position_ = std::clamp(position_, kPositionMin, kPositionMax);
    if (position_ == kPositionMin && velocity_ < 0) velocity_ = 0;  // the left wall stops the car
    return {-1.0, position_ >= kGoal && velocity_ >= 0};
  }

  void Observe(std::span<float> observation) const override {
    observation[0] = static_cast<float>(position_);
    observation[1] = static_cast<float>(velocity_);
  }

  double position_ = 0, velocity_ = 0;
};

bool MountainCar::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  const auto at = [&](double position) -> Point {
    return {(position - kPositionMin) / (kPositionMax - kPositionMin) * picture.width(),
            (0.9 - 0.75 * (1 + Sin(3 * position)) / 2) * picture.height()};
  };
  constexpr int kParts = 60;
  for (int i = 0; i < kParts; ++i) {
    const double step = (kPositionMax - kPositionMin) / kParts;
    picture.Line(at(kPositionMin + step * i), at(kPositionMin + step * (i + 1)), 2, kInk);
  }
  const Point goal = at(kGoal), car = at(position_);
  picture.Line(goal, {goal.x, goal.y - 25}, 2, kSteel);
  picture.Line({car.x, car.y - 7}, {car.x, car.y - 7}, 12, kWood);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeMountainCar(bool render) {
  return std::make_unique<MountainCar>(render);
}

}  // namespace samara
