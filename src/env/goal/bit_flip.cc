#include "env/goal/bit_flip.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr int64_t kCell = 20;  // pixels of a bit

EnvironmentSpec Spec(std::string_view id, int64_t bits, bool render) {
  EnvironmentSpec spec;
  spec.id = fmt::format("native/{}", id);
  spec.version = "1";
  spec.observation = {DType::kFloat32, {2 * bits}};
  spec.action = {.discrete = true, .n = bits, .low = {}, .high = {}};
  for (int64_t bit = 0; bit < bits; ++bit) spec.action_names.push_back(fmt::format("FLIP{}", bit));
  spec.goal = {.size = bits, .threshold = 0, .terminates = true};
  spec.steps_max = bits;
  DeclarePictures(spec, render, 3 * kCell, (bits + 1) * kCell, 5);
  return spec;
}

class BitFlip final : public SimulatedEnvironment {
 public:
  BitFlip(std::string_view id, int64_t bits, bool render)
      : SimulatedEnvironment(Spec(id, bits, render), static_cast<size_t>(2 * bits)),
        n_(static_cast<size_t>(bits)),
        strings_(2 * n_) {}
  std::vector<double> CurrentState() const override { return strings_; }
  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<double>(rng.UniformInt(i, 2));
  }
  void Place(std::span<const double> start) override {
    std::ranges::transform(start, strings_.begin(),
                           [](double bit) { return bit == 1 ? 1.0 : 0.0; });
  }
  Outcome Advance(const Action& action) override {
    double& bit = strings_[static_cast<size_t>(action.index)];
    bit = 1 - bit;
    const bool reached =
        std::equal(strings_.begin(), strings_.begin() + bits(), strings_.begin() + bits());
    return {reached ? spec().goal.reached : spec().goal.missed, reached};
  }
  void Observe(std::span<float> observation) const override {
    std::ranges::transform(strings_, observation.begin(),
                           [](double bit) { return static_cast<float>(bit); });
  }
  ptrdiff_t bits() const { return static_cast<ptrdiff_t>(n_); }

  const size_t n_;
  std::vector<double> strings_;  // the bits, then the target
};

// The bits above the target.
bool BitFlip::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  for (size_t i = 0; i < 2 * n_; ++i) {
    const double x = (0.5 + static_cast<double>(i % n_)) * kCell;
    const double y = i < n_ ? 0.4 * kCell : 1.6 * kCell;
    picture.Box({x, y}, {x + 0.9 * kCell, y + kCell}, strings_[i] == 1 ? kInk : kSteel);
  }
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeBitFlip(std::string_view id, int64_t bits, bool render) {
  CHECK(bits >= 2) << id;
  return std::make_unique<BitFlip>(id, bits, render);
}

}  // namespace samara
