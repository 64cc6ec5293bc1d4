#include "env/toy/two_weights.h"

#include "env/simulated.h"

namespace samara {
namespace {

struct State {
  float x0, x1, y0, y1;
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

EnvironmentSpec Spec(const Task& task) {
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
  return spec;
}

class TwoWeights final : public SimulatedEnvironment {
 public:
  explicit TwoWeights(const Task& task) : SimulatedEnvironment(Spec(task), 1), task_(task) {}
  std::vector<double> CurrentState() const override { return {static_cast<double>(at_)}; }

 private:
  int64_t states() const { return static_cast<int64_t>(task_.states.size()); }
  const State& state() const { return task_.states[static_cast<size_t>(at_)]; }

  void Draw(const CounterRng&, std::span<double> start) const override { start[0] = 0; }
  void Place(std::span<const double> start) override { at_ = Index(start[0], states()); }

  Outcome Advance(const Action& action) override {
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
};

}  // namespace

std::unique_ptr<Environment> MakeTwoWeights(TwoWeightsTask task) {
  return std::make_unique<TwoWeights>(TaskOf(task));
}

}  // namespace samara
