#include "env/memory/tmaze.h"

#include <algorithm>
#include <array>

#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr int64_t kJunction = 10;
constexpr int64_t kCell = 20;  // pixels
constexpr double kGoal = 4, kStill = -0.1, kWrong = -0.1;
enum Direction : int32_t { kNorth, kEast, kSouth, kWest };

using Sight = std::array<float, 3>;
constexpr Sight kSignNorth{0, 1, 1}, kSignSouth{1, 1, 0}, kCorridor{1, 0, 1}, kTurn{0, 1, 0};

EnvironmentSpec Spec(bool render) {
  EnvironmentSpec spec;
  spec.id = "native/TMaze-v0";
  spec.version = "1";
  spec.observation = {DType::kFloat32, {3}};
  spec.action = {.discrete = true, .n = 4, .low = {}, .high = {}};
  spec.action_names = {"NORTH", "EAST", "SOUTH", "WEST"};
  spec.steps_max = 200;
  DeclarePictures(spec, render, 3 * kCell, (kJunction + 1) * kCell, 5);
  return spec;
}

class TMaze final : public SimulatedEnvironment {
 public:
  explicit TMaze(bool render) : SimulatedEnvironment(Spec(render), 2) {}
  std::vector<double> CurrentState() const override {
    return {static_cast<double>(position_), south_ ? 1.0 : 0.0};
  }
  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    start[0] = 0;
    start[1] = static_cast<double>(rng.UniformInt(0, 2));
  }
  void Place(std::span<const double> start) override {
    position_ = Index(start[0], kJunction + 1), south_ = start[1] != 0;
  }

  Outcome Advance(const Action& action) override {
    const bool across = action.index == kNorth || action.index == kSouth;
    // the arms have no observation of their own: the last one is the junction's
    if (across && position_ == kJunction)
      return {(action.index == kSouth) == south_ ? kGoal : kWrong, true};
    const int64_t along = across ? 0 : (action.index == kEast ? 1 : -1);
    const int64_t reached = std::clamp(position_ + along, int64_t{0}, kJunction);
    const bool still = reached == position_;
    position_ = reached;
    return {still ? kStill : 0.0, false};
  }

  void Observe(std::span<float> observation) const override {
    const Sight& seen = position_ == 0           ? (south_ ? kSignSouth : kSignNorth)
                        : position_ == kJunction ? kTurn
                                                 : kCorridor;
    std::ranges::copy(seen, observation.begin());
  }

  int64_t position_ = 0;  // cells east of the start
  bool south_ = false;    // where the goal is
};

// From above: the walls, the goal behind its arm, the sign at the start while it is seen, and who
// walks.
bool TMaze::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kInk);
  const auto cell = [&](int64_t row, int64_t column, double edge, Colour colour) {
    const Point corner{static_cast<double>(column * kCell), static_cast<double>(row * kCell)};
    picture.Box({corner.x + edge, corner.y + edge},
                {corner.x + kCell - edge, corner.y + kCell - edge}, colour);
  };
  for (int64_t column = 0; column <= kJunction; ++column) cell(1, column, 0, kPaper);
  for (const int64_t row : {0, 2}) cell(row, kJunction, 0, kPaper);
  const int64_t side = south_ ? 2 : 0;
  cell(side, kJunction, 4, kWood);
  if (position_ == 0) cell(side, 0, 4, kWood);
  cell(1, position_, 4, kSteel);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeTMaze(bool render) { return std::make_unique<TMaze>(render); }

}  // namespace samara
