#include "env/classic/cartpole.h"

#include "core/math.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1, kTotalMass = kPoleMass + 1.0;
constexpr double kHalfLength = 0.5;
constexpr double kPoleMoment = kPoleMass * kHalfLength;
constexpr double kForce = 10.0;
constexpr double kTau = 0.02;  // seconds a step
constexpr double kAngleMax = 12 * 2 * 3.141592653589793 / 360;
constexpr double kPositionMax = 2.4;

EnvironmentSpec Spec(bool render) {
  EnvironmentSpec spec;
  spec.id = "native/CartPole-v1";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {4}};
  spec.action = {.discrete = true, .n = 2, .low = {}, .high = {}};
  spec.action_names = {"LEFT", "RIGHT"};
  spec.steps_max = 500;
  spec.solved = 475;
  DeclarePictures(spec, render, 200, 300, 1 / kTau);
  return spec;
}

class CartPole final : public SimulatedEnvironment {
 public:
  explicit CartPole(bool render) : SimulatedEnvironment(Spec(render), 4) {}

  std::vector<double> CurrentState() const override {
    return {position_, velocity_, angle_, spin_};
  }
  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    for (size_t i = 0; i < 4; ++i) start[i] = -0.05 + 0.1 * rng.Uniform(i);
  }
  void Place(std::span<const double> start) override {
    position_ = start[0], velocity_ = start[1], angle_ = start[2], spin_ = start[3];
  }
  Outcome Advance(const Action& action) override;
  void Observe(std::span<float> observation) const override {
    observation[0] = static_cast<float>(position_);
    observation[1] = static_cast<float>(velocity_);
    observation[2] = static_cast<float>(angle_);
    observation[3] = static_cast<float>(spin_);
  }

  double position_ = 0, velocity_ = 0;  // m, m/s
  double angle_ = 0, spin_ = 0;         // rad from upright, rad/s
};

SimulatedEnvironment::Outcome CartPole::Advance(const Action& action) {
  const double force = action.index == 1 ? kForce : -kForce;
  const double cosine = Cos(angle_), sine = Sin(angle_);
  // equations of motion without friction (Florian 2007)
  const double push = (force + kPoleMoment * (spin_ * spin_) * sine) / kTotalMass;
  const double spin_rate = (kGravity * sine - cosine * push) /
                           (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
  const double acceleration = push - kPoleMoment * spin_rate * cosine / kTotalMass;
  // explicit Euler: positions move with the old velocities
  position_ = position_ + kTau * velocity_;
  velocity_ = velocity_ + kTau * acceleration;
  angle_ = angle_ + kTau * spin_;
  spin_ = spin_ + kTau * spin_rate;
  const bool fallen = position_ < -kPositionMax || position_ > kPositionMax ||
                      angle_ < -kAngleMax || angle_ > kAngleMax;
  return {1.0, fallen};
}

bool CartPole::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  const double scale = static_cast<double>(spec().render_width) / (2 * kPositionMax);
  const Point axle{picture.width() / 2 + position_ * scale, 0.72 * picture.height()};
  const Point tip{axle.x + 2 * kHalfLength * scale * Sin(angle_),
                  axle.y - 2 * kHalfLength * scale * Cos(angle_)};
  picture.Fill(kPaper);
  picture.Line({0, axle.y + 9}, {picture.width(), axle.y + 9}, 1, kInk);
  picture.Box({axle.x - 13, axle.y - 4}, {axle.x + 13, axle.y + 8}, kInk);
  picture.Line(axle, tip, 5, kWood);
  picture.Line(axle, axle, 4, kSteel);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeCartPole(bool render) {
  return std::make_unique<CartPole>(render);
}

}  // namespace samara
