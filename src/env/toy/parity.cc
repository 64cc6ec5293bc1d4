#include "env/toy/parity.h"

#include <bit>

#include "core/math.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr int64_t kBits = 4, kStrings = 16, kSteps = kBits * kStrings;

EnvironmentSpec ParitySpec(bool render) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  EnvironmentSpec spec;
  spec.id = "native/Parity-v0";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {1}};
  spec.action = {
      .discrete = false, .n = 2, .low = {-kInfinite, -kInfinite}, .high = {kInfinite, kInfinite}};
  spec.action.raw = true;
  spec.steps_max = kSteps;
  spec.solved = 0;
  spec.solved_once = true;
  DeclarePictures(spec, render, 80, 160, 5);
  return spec;
}

// ln of the probability of class `right` under softmax.
double LogLikelihood(std::span<const float> logits, size_t right) {
  const double margin = double{logits[right]} - logits[1 - right];
  // ln(1 / (1 + e^-margin)), whose exponential never overflows
  return margin > 0 ? -Log(1 + Exp(-margin)) : margin - Log(1 + Exp(margin));
}

class Parity final : public SimulatedEnvironment {
 public:
  explicit Parity(bool render) : SimulatedEnvironment(ParitySpec(render), 2) {}
  std::vector<double> CurrentState() const override {
    return {static_cast<double>(step_), static_cast<double>(wrong_)};
  }
  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng&, std::span<double> start) const override { start[0] = start[1] = 0; }
  void Place(std::span<const double> start) override {
    step_ = Index(start[0], kSteps + 1);
    wrong_ = Index(start[1], kStrings + 1);
  }

  Outcome Advance(const Action& action) override {
    if (step_ == kSteps) return {0, true};  // played beyond its end
    const auto string = static_cast<uint32_t>(step_ / kBits);
    const bool last = ++step_ % kBits == 0;
    Outcome outcome{0, step_ == kSteps, last && step_ < kSteps};
    if (!last) return outcome;
    const size_t right = std::popcount(string) % 2;
    const size_t chosen = action.values[1] > action.values[0] ? 1 : 0;
    wrong_ += chosen == right ? 0 : 1;
    outcome.reward = LogLikelihood(action.values, right) / kStrings;
    if (step_ == kSteps && wrong_ == 0) outcome.reward += 1;
    return outcome;
  }

  // Whether a one is read in `step`: strings are numbers, read from the highest bit.
  static bool IsOne(int64_t step) {
    const int64_t string = step / kBits, bit = kBits - 1 - step % kBits;
    return (string >> bit & 1) != 0;
  }
  void Observe(std::span<float> observation) const override {
    observation[0] = IsOne(std::min(step_, kSteps - 1)) ? 1 : 0;
  }

  int64_t step_ = 0, wrong_ = 0;
};

// The bits of the string that are read so far, a one dark; below, the 16 strings: those answered
// wrongly first, then those answered rightly.
bool Parity::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  const auto box = [&](int64_t column, double y, double size, Colour colour) {
    const double x = static_cast<double>(column) * size;
    picture.Box({x + 1, y + 1}, {x + size - 1, y + size - 1}, colour);
  };
  const int64_t now = std::min(step_, kSteps - 1), first = now - now % kBits;
  for (int64_t step = first; step <= now; ++step)
    box(step - first, 10, picture.width() / kBits, IsOne(step) ? kInk : kSteel);
  for (int64_t string = 0; string < step_ / kBits; ++string)
    box(string, 60, picture.width() / kStrings, string < wrong_ ? kWood : kSteel);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeParity(bool render) { return std::make_unique<Parity>(render); }

}  // namespace samara
