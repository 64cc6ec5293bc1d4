#include "env/classic/pendulum.h"

#include <algorithm>
#include <cmath>

#include "core/math.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr double kPi = 3.141592653589793;
constexpr double kSpeedMax = 8, kTorqueMax = 2, kStep = 0.05;
constexpr double kGravity = 10, kMass = 1, kLength = 1;

// The angle in [-pi, pi). std::fmod is exact.
double Normalised(double angle) {
  double rest = std::fmod(angle + kPi, 2 * kPi);
  if (rest < 0) rest += 2 * kPi;
  return rest - kPi;
}

EnvironmentSpec Spec(bool render) {
  EnvironmentSpec spec;
  spec.id = "native/Pendulum-v1";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {3}};
  spec.action = {.discrete = false, .n = 1, .low = {-2.0f}, .high = {2.0f}};
  spec.steps_max = 200;
  DeclarePictures(spec, render, 200, 200);
  return spec;
}

class Pendulum final : public SimulatedEnvironment {
 public:
  explicit Pendulum(bool render) : SimulatedEnvironment(Spec(render), 2) {}
  std::vector<double> CurrentState() const override { return {angle_, speed_}; }

  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    start[0] = -kPi + 2 * kPi * rng.Uniform(0);
    start[1] = -1 + 2 * rng.Uniform(1);
  }
  void Place(std::span<const double> start) override { angle_ = start[0], speed_ = start[1]; }

  Outcome Advance(const Action& action) override {
    const double torque = Rescale(action.values[0], -kTorqueMax, kTorqueMax);
    const double angle = Normalised(angle_);
    const double cost = angle * angle + 0.1 * (speed_ * speed_) + 0.001 * (torque * torque);
    const double pull = 3 * kGravity / (2 * kLength) * Sin(angle_);
    const double speed = speed_ + (pull + 3.0 / (kMass * (kLength * kLength)) * torque) * kStep;
    speed_ = std::clamp(speed, -kSpeedMax, kSpeedMax);
    angle_ = angle_ + speed_ * kStep;
    return {-cost, false};
  }

  void Observe(std::span<float> observation) const override {
    observation[0] = static_cast<float>(Cos(angle_));
    observation[1] = static_cast<float>(Sin(angle_));
    observation[2] = static_cast<float>(speed_);
  }

  double angle_ = 0, speed_ = 0;  // rad from upright, rad/s
};

bool Pendulum::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  const Point pivot{picture.width() / 2, picture.height() / 2};
  const double length = 0.42 * picture.height();
  const Point tip{pivot.x - length * Sin(angle_), pivot.y - length * Cos(angle_)};
  picture.Line(pivot, tip, 12, kWood);
  picture.Line(pivot, pivot, 6, kInk);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakePendulum(bool render) {
  return std::make_unique<Pendulum>(render);
}

}  // namespace samara
