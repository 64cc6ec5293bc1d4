#include "env/goal/point_reach.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr double kTime = 0.1, kDamping = 0.9, kForce = 0.1, kStart = 0.9;
constexpr size_t kVelocity = 0, kPosition = 2, kGoal = 4;  // x and y each, as observed

EnvironmentSpec Spec(bool render) {
  EnvironmentSpec spec;
  spec.id = "native/PointReach-v0";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {6}};
  spec.action = {.discrete = false, .n = 2, .low = {-1, -1}, .high = {1, 1}};
  spec.goal = {.size = 2, .threshold = 0.05};
  spec.steps_max = 50;
  spec.position = 2;
  DeclarePictures(spec, render, 200, 200, 25);
  return spec;
}

class PointReach final : public SimulatedEnvironment {
 public:
  explicit PointReach(bool render) : SimulatedEnvironment(Spec(render), 6) {}
  std::vector<double> CurrentState() const override { return {state_.begin(), state_.end()}; }
  void Position(std::span<float> out) const override {
    for (size_t i = 0; i < 2; ++i) out[i] = static_cast<float>(state_[kPosition + i]);
  }
  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    for (size_t i = 0; i < start.size(); ++i)
      start[i] = i < kPosition ? 0 : kStart * (2 * rng.Uniform(i) - 1);
  }
  void Place(std::span<const double> start) override { std::ranges::copy(start, state_.begin()); }
  Outcome Advance(const Action& action) override {
    for (size_t i = 0; i < 2; ++i) {
      double &velocity = state_[kVelocity + i], &position = state_[kPosition + i];
      velocity = kDamping * velocity + kForce * Rescale(action.values[i], -1, 1);
      position += kTime * velocity;
      if (std::abs(position) > 1) position = std::clamp(position, -1.0, 1.0), velocity = 0;
    }
    // of the numbers that are observed, so that a learner computes the same reward
    std::array<float, 6> seen;
    Observe(seen);
    return {spec().goal.Reached(seen) ? spec().goal.reached : spec().goal.missed, false};
  }
  void Observe(std::span<float> observation) const override {
    std::ranges::transform(state_, observation.begin(),
                           [](double x) { return static_cast<float>(x); });
  }

  std::array<double, 6> state_{};
};

// From above, y upward: the goal as large as its threshold, and the mass.
bool PointReach::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  const double scale = picture.width() / 2;
  const auto disc = [&](size_t at, double thickness, Colour colour) {
    const Point point{(1 + state_[at]) * scale, (1 - state_[at + 1]) * scale};
    picture.Line(point, point, thickness, colour);
  };
  picture.Fill(kPaper);
  disc(kGoal, 2 * spec().goal.threshold * scale, kWood);
  disc(kPosition, 6, kInk);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakePointReach(bool render) {
  return std::make_unique<PointReach>(render);
}

}  // namespace samara
