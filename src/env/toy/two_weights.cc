#include "env/toy/two_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

struct State {
  float x0, x1, y0, y1;
};
struct Answer {
  State state;
  std::array<double, 2> outputs;
};
struct Task {
  const char* id;
  std::vector<State> states;
};

const Task& TaskOf(TwoWeightsTask task) {
  static const Task easy{"native/ToyEasy-v0", {{0, 1, 0, 1}}};
  static const Task medium{"native/ToyMedium-v0", {{1, 1, 1, 1}}};
  static const Task washout{"native/ToyWashout-v0", {{1, 1, 1, 1}, {-1, -1, -1, -1}}};
  return task == TwoWeightsTask::kEasy ? easy : task == TwoWeightsTask::kMedium ? medium : washout;
}

EnvironmentSpec Spec(const Task& task, bool render) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  EnvironmentSpec spec;
  spec.id = task.id;
  spec.version = "1";
  spec.observation = {DType::kFloat32, {2}};
  spec.action = {
      .discrete = false, .n = 2, .low = {-kInfinite, -kInfinite}, .high = {kInfinite, kInfinite}};
  spec.action.raw = true;
  spec.steps_max = static_cast<int64_t>(task.states.size());
  spec.solved = -0.01;
  spec.solved_once = true;
  DeclarePictures(spec, render, 80, 240, 1);
  return spec;
}

class TwoWeights final : public SimulatedEnvironment {
 public:
  TwoWeights(const Task& task, bool render)
      : SimulatedEnvironment(Spec(task, render), 1), task_(task) {}
  std::vector<double> CurrentState() const override { return {static_cast<double>(at_)}; }
  bool Render(std::span<std::byte> pixels) override;

 private:
  int64_t states() const { return static_cast<int64_t>(task_.states.size()); }
  const State& state() const { return task_.states[static_cast<size_t>(at_)]; }

  void Draw(const CounterRng&, std::span<double> start) const override { start[0] = 0; }
  void Place(std::span<const double> start) override {
    at_ = Index(start[0], states());
    answered_.reset();
  }

  Outcome Advance(const Action& action) override {
    answered_ = {state(), {action.values[0], action.values[1]}};
    const double e0 = double{action.values[0]} - state().y0;
    const double e1 = double{action.values[1]} - state().y1;
    const bool ends = at_ + 1 == states();
    if (!ends) ++at_;
    return {-(e0 * e0 + e1 * e1) / static_cast<double>(2 * states()), ends};
  }

  void Observe(std::span<float> observation) const override {
    observation[0] = 100 * state().x0;
    observation[1] = 0.1F * state().x1;
  }

  const Task& task_;
  int64_t at_ = 0;
  std::optional<Answer> answered_;  // the last one, for the picture; none since Place
};

// A line for each output, from -2 to 2: the target as a box, what was answered as a disc. Before
// the first answer the targets of the first state.
bool TwoWeights::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  const double scale = picture.width() / 4;
  const State& shown = answered_ ? answered_->state : state();
  for (size_t i = 0; i < 2; ++i) {
    const auto at = [&](double value) {
      return Point{scale * (2 + std::clamp(value, -2.0, 2.0)), i == 0 ? 20.0 : 60.0};
    };
    picture.Line(at(-2), at(2), 2, kSteel);
    const Point target = at(i == 0 ? shown.y0 : shown.y1);
    picture.Box({target.x - 8, target.y - 8}, {target.x + 8, target.y + 8}, kWood);
    if (!answered_) continue;
    const double output = answered_->outputs[i];
    const Point answer = at(std::isnan(output) ? 0 : output);
    picture.Line(answer, answer, 10, kInk);
  }
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeTwoWeights(TwoWeightsTask task, bool render) {
  return std::make_unique<TwoWeights>(TaskOf(task), render);
}

}  // namespace samara
