#include "env/classic/acrobot.h"

#include <algorithm>
#include <array>

#include "core/math.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr double kPi = 3.141592653589793;
constexpr double kStep = 0.2;  // seconds an action
constexpr double kGravity = 9.8;
constexpr double kMass1 = 1, kMass2 = 1, kLength1 = 1, kCentre1 = 0.5, kCentre2 = 0.5;
constexpr double kInertia1 = 1, kInertia2 = 1;
constexpr double kSpeedMax1 = 4 * kPi, kSpeedMax2 = 9 * kPi;

using State = std::array<double, 4>;  // angle of link 1 from hanging, of link 2 from link 1; speeds

State Derivative(const State& s, double torque) {
  const double angle1 = s[0], angle2 = s[1], speed1 = s[2], speed2 = s[3];
  const double cosine2 = Cos(angle2), sine2 = Sin(angle2);
  const double d1 =
      kMass1 * (kCentre1 * kCentre1) +
      kMass2 * (kLength1 * kLength1 + kCentre2 * kCentre2 + 2 * kLength1 * kCentre2 * cosine2) +
      kInertia1 + kInertia2;
  const double d2 = kMass2 * (kCentre2 * kCentre2 + kLength1 * kCentre2 * cosine2) + kInertia2;
  const double phi2 = kMass2 * kCentre2 * kGravity * Cos(angle1 + angle2 - kPi / 2);
  const double phi1 = -kMass2 * kLength1 * kCentre2 * (speed2 * speed2) * sine2 -
                      2 * kMass2 * kLength1 * kCentre2 * speed2 * speed1 * sine2 +
                      (kMass1 * kCentre1 + kMass2 * kLength1) * kGravity * Cos(angle1 - kPi / 2) +
                      phi2;
  const double rate2 =
      (torque + d2 / d1 * phi1 - kMass2 * kLength1 * kCentre2 * (speed1 * speed1) * sine2 - phi2) /
      (kMass2 * (kCentre2 * kCentre2) + kInertia2 - d2 * d2 / d1);
  const double rate1 = -(d2 * rate2 + phi1) / d1;
  return {speed1, speed2, rate1, rate2};
}

State Move(const State& s, double time, const State& slope) {
  State out;
  for (size_t i = 0; i < 4; ++i) out[i] = s[i] + time * slope[i];
  return out;
}

State RungeKutta(const State& s, double torque) {
  const State k1 = Derivative(s, torque);
  const State k2 = Derivative(Move(s, kStep / 2, k1), torque);
  const State k3 = Derivative(Move(s, kStep / 2, k2), torque);
  const State k4 = Derivative(Move(s, kStep, k3), torque);
  State sum;
  for (size_t i = 0; i < 4; ++i) sum[i] = k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i];
  return Move(s, kStep / 6, sum);
}

double Wrap(double angle) {
  while (angle > kPi) angle = angle - 2 * kPi;
  while (angle < -kPi) angle = angle + 2 * kPi;
  return angle;
}

EnvironmentSpec Spec(bool render) {
  EnvironmentSpec spec;
  spec.id = "native/Acrobot-v1";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {6}};
  spec.action = {.discrete = true, .n = 3, .low = {}, .high = {}};
  spec.action_names = {"TORQUE-1", "TORQUE0", "TORQUE+1"};
  spec.steps_max = 500;
  spec.solved = -100;
  DeclarePictures(spec, render, 200, 200, 15);
  return spec;
}

class Acrobot final : public SimulatedEnvironment {
 public:
  explicit Acrobot(bool render) : SimulatedEnvironment(Spec(render), 4) {}
  std::vector<double> CurrentState() const override { return {state_.begin(), state_.end()}; }

  bool Render(std::span<std::byte> pixels) override;

 private:
  // Gymnasium rounds the drawn state to float32
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    for (size_t i = 0; i < 4; ++i) start[i] = static_cast<float>(-0.1 + 0.2 * rng.Uniform(i));
  }
  void Place(std::span<const double> start) override { std::ranges::copy(start, state_.begin()); }

  Outcome Advance(const Action& action) override {
    state_ = RungeKutta(state_, action.index - 1.0);
    state_[0] = Wrap(state_[0]);
    state_[1] = Wrap(state_[1]);
    state_[2] = std::clamp(state_[2], -kSpeedMax1, kSpeedMax1);
    state_[3] = std::clamp(state_[3], -kSpeedMax2, kSpeedMax2);
    const bool up = -Cos(state_[0]) - Cos(state_[1] + state_[0]) > 1.0;
    return {up ? 0.0 : -1.0, up};
  }

  void Observe(std::span<float> observation) const override {
    for (size_t link = 0; link < 2; ++link) {
      observation[2 * link] = static_cast<float>(Cos(state_[link]));
      observation[2 * link + 1] = static_cast<float>(Sin(state_[link]));
      observation[4 + link] = static_cast<float>(state_[2 + link]);
    }
  }

  State state_{};
};

bool Acrobot::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  // two links of length 1 on a scale of 2.2 each way; the line is what the tip must reach
  const double scale = picture.height() / 4.4;
  const Point pivot{picture.width() / 2, picture.height() / 2};
  const Point joint{pivot.x + scale * Sin(state_[0]), pivot.y + scale * Cos(state_[0])};
  const double angle = state_[0] + state_[1];
  const Point tip{joint.x + scale * Sin(angle), joint.y + scale * Cos(angle)};
  picture.Line({0, pivot.y - scale}, {picture.width(), pivot.y - scale}, 1, kInk);
  picture.Line(pivot, joint, 8, kWood);
  picture.Line(joint, tip, 8, kWood);
  for (const Point& at : {pivot, joint}) picture.Line(at, at, 6, kSteel);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeAcrobot(bool render) { return std::make_unique<Acrobot>(render); }

}  // namespace samara
