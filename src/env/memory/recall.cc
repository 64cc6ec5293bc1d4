#include "env/memory/recall.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/simulated.h"

namespace samara {
namespace {

EnvironmentSpec Spec(std::string_view id, const RecallOptions& options) {
  EnvironmentSpec spec;
  spec.id = fmt::format("native/{}", id);
  spec.version = "1";
  spec.observation = {DType::kFloat32, {options.cues + 1}};
  spec.action = {.discrete = true, .n = options.cues, .low = {}, .high = {}};
  for (int64_t cue = 0; cue < options.cues; ++cue)
    spec.action_names.push_back(fmt::format("CUE{}", cue));
  spec.steps_max = options.delay + 2;
  return spec;
}

class Recall final : public SimulatedEnvironment {
 public:
  Recall(std::string_view id, const RecallOptions& options)
      : SimulatedEnvironment(Spec(id, options), 2), query_(options.delay + 1) {}
  std::vector<double> CurrentState() const override {
    return {static_cast<double>(cue_), static_cast<double>(time_)};
  }

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    start[0] = static_cast<double>(rng.UniformInt(0, static_cast<uint64_t>(spec().action.n)));
    start[1] = 0;
  }
  void Place(std::span<const double> start) override {
    cue_ = Index(start[0], spec().action.n), time_ = Index(start[1], query_ + 2);
  }

  Outcome Advance(const Action& action) override {
    const bool asked = time_ == query_;
    time_ = std::min(time_ + 1, query_ + 1);
    if (!asked) return {0.0, false};
    return {action.index == cue_ ? 1.0 : -1.0, true};
  }

  void Observe(std::span<float> observation) const override {
    std::ranges::fill(observation, 0.0f);
    if (time_ == 0) observation[static_cast<size_t>(cue_)] = 1;
    if (time_ == query_) observation.back() = 1;
  }

  const int64_t query_;         // the time at which the flag is shown
  int64_t cue_ = 0, time_ = 0;  // time_: actions answered, at most query_ + 1
};

}  // namespace

std::unique_ptr<Environment> MakeRecall(std::string_view id, const RecallOptions& options) {
  CHECK(options.delay >= 0 && options.cues >= 2) << id;
  return std::make_unique<Recall>(id, options);
}

}  // namespace samara
