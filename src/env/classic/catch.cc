#include "env/classic/catch.h"

#include <algorithm>

#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr int64_t kRows = 10, kColumns = 5;
constexpr int64_t kBottom = kRows - 1, kMiddle = kColumns / 2;

EnvironmentSpec Spec(bool render) {
  EnvironmentSpec spec;
  spec.id = "native/Catch-v0";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {kRows * kColumns}};
  spec.action = {.discrete = true, .n = 3, .low = {}, .high = {}};
  spec.action_names = {"LEFT", "STAY", "RIGHT"};
  spec.steps_max = kBottom;
  DeclarePictures(spec, render, 200, 100, 10);
  return spec;
}

class Catch final : public SimulatedEnvironment {
 public:
  explicit Catch(bool render) : SimulatedEnvironment(Spec(render), 3) {}
  std::vector<double> CurrentState() const override {
    return {static_cast<double>(ball_), static_cast<double>(row_), static_cast<double>(paddle_)};
  }

  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    start[0] = static_cast<double>(rng.UniformInt(0, static_cast<uint64_t>(kColumns)));
    start[1] = 0;
    start[2] = kMiddle;
  }
  void Place(std::span<const double> start) override {
    ball_ = Index(start[0], kColumns), row_ = Index(start[1], kRows);
    paddle_ = Index(start[2], kColumns);
  }

  Outcome Advance(const Action& action) override {
    paddle_ = std::clamp(paddle_ + action.index - 1, int64_t{0}, kColumns - 1);
    row_ = std::min(row_ + 1, kBottom);
    if (row_ < kBottom) return {0.0, false};
    return {paddle_ == ball_ ? 1.0 : -1.0, true};
  }

  void Observe(std::span<float> observation) const override {
    std::ranges::fill(observation, 0.0f);
    observation[static_cast<size_t>(row_ * kColumns + ball_)] = 1;
    observation[static_cast<size_t>(kBottom * kColumns + paddle_)] = 1;
  }

  int64_t ball_ = 0, row_ = 0;  // the ball's column and row, from the top left
  int64_t paddle_ = 0;          // column
};

bool Catch::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  const double cell = picture.height() / static_cast<double>(kRows);
  const auto box = [&](int64_t row, int64_t column, Colour colour) {
    const Point corner{static_cast<double>(column) * cell, static_cast<double>(row) * cell};
    picture.Box({corner.x + 1, corner.y + 1}, {corner.x + cell - 1, corner.y + cell - 1}, colour);
  };
  box(row_, ball_, kWood);
  box(kBottom, paddle_, kInk);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeCatch(bool render) { return std::make_unique<Catch>(render); }

}  // namespace samara
