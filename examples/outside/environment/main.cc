// An environment of one's own in C++: a corridor whose exit is to the right, or to the left.
//
//   my-corridor train classic/cartpole-ga env.id=Corridor-v0 network.name=mlp-16-tanh
#include <memory>

#include "samara/environment.h"

namespace {

using samara::Action;
using samara::EnvironmentSpec;

constexpr int64_t kLength = 9, kSteps = 40;

EnvironmentSpec Spec() {
  EnvironmentSpec spec;
  spec.id = "my/Corridor-v0";
  spec.version = "1";  // changes whenever an episode does: a run resumes on the same version only
  spec.observation = {samara::DType::kFloat32, {2}};
  spec.action = {.discrete = true, .n = 2, .low = {}, .high = {}};
  spec.action_names = {"LEFT", "RIGHT"};
  spec.steps_max = kSteps;
  return spec;
}

// The observation says where the exit is and how far the agent has come; each step costs 1, and the
// exit pays 10.
class Corridor final : public samara::SimulatedEnvironment {
 public:
  Corridor() : SimulatedEnvironment(Spec(), 2) {}
  std::vector<double> CurrentState() const override {
    return {static_cast<double>(exit_), static_cast<double>(place_)};
  }

 private:
  void Draw(const samara::CounterRng& rng, std::span<double> start) const override {
    start[0] = static_cast<double>(rng.UniformInt(0, 2));
    start[1] = kLength / 2;
  }
  void Place(std::span<const double> start) override {
    exit_ = samara::Index(start[0], 2), place_ = samara::Index(start[1], kLength);
  }
  Outcome Advance(const Action& action) override {
    place_ += action.index == 1 ? 1 : -1;
    const bool right = place_ == kLength - 1, out = right || place_ == 0;
    return {right == (exit_ == 1) && out ? 10.0 : -1.0, out};
  }
  void Observe(std::span<float> observation) const override {
    observation[0] = exit_ == 1 ? 1 : -1;
    observation[1] = static_cast<float>(place_) / kLength;
  }

  int64_t exit_ = 0, place_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  samara::RegisterEnvironment("Corridor-v0", [](bool) { return std::make_unique<Corridor>(); });
  return samara::RunCommandLine(argc, argv);
}
