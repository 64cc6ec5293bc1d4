#include "env/dummy.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/rng.h"

namespace samara {
namespace {

constexpr uint32_t kFramesPerStep = 4;
constexpr uint64_t kActions = 4;
constexpr int64_t kDimensions = 2;
constexpr int64_t kSide = 84;
constexpr uint64_t kDrawLength = uint64_t{1} << 40;  // index of the draw that no step uses

EnvironmentSpec MakeSpec(const DummyOptions& options) {
  EnvironmentSpec spec;
  spec.id = "dummy/guess";
  spec.version = "1";
  spec.observation.dtype = options.bytes ? DType::kUint8 : DType::kFloat32;
  spec.observation.shape = options.bytes ? std::vector{kSide, kSide} : std::vector<int64_t>{4};
  spec.action.discrete = options.discrete;
  spec.action.n = options.discrete ? static_cast<int64_t>(kActions) : kDimensions;
  if (options.discrete) {
    spec.action_names = {"zero", "one", "two", "three"};
  } else {
    spec.action.low.assign(kDimensions, -1);
    spec.action.high.assign(kDimensions, 1);
  }
  spec.frames_per_step = kFramesPerStep;
  spec.steps_max = options.length;
  spec.position = 2;
  return spec;
}

class DummyEnvironment : public Environment {
 public:
  explicit DummyEnvironment(const DummyOptions& options)
      : options_(options), spec_(MakeSpec(options)) {}

  const EnvironmentSpec& spec() const override { return spec_; }

  // 1. an episode is decided by its key, the no-ops and the actions, and by nothing else
  void Reset(const EpisodeSpec& episode, std::span<std::byte> observation) override {
    state_ = {};
    state_.episode = episode;
    const uint64_t half = static_cast<uint64_t>(options_.length) / 2;
    state_.length = half + CounterRng(episode.seed).UniformInt(kDrawLength, half + 1);
    Observe(observation);
  }

  // 2. a step answers one action; the observation it writes is the final one if it ends the episode
  StepResult Step(const Action& action, std::span<std::byte> observation) override {
    StepResult result;
    result.reward = Reward(action);
    ++state_.step;
    Observe(observation);
    if (options_.not_finite && state_.step == 3)
      result.reward = std::numeric_limits<double>::quiet_NaN();
    const auto frames = static_cast<int64_t>(state_.step * kFramesPerStep);
    result.terminated = state_.step >= state_.length;
    result.truncated =
        !result.terminated && state_.episode.frames_max > 0 && frames >= state_.episode.frames_max;
    result.life_lost = state_.step % 7 == 0;
    result.frames = kFramesPerStep;
    return result;
  }

  void Position(std::span<float> out) const override {
    out[0] = static_cast<float>(state_.step), out[1] = static_cast<float>(state_.last);
  }

  // 3. optional: the whole state, such that another instance continues with the same bits
  std::string SaveState() const override {
    return {reinterpret_cast<const char*>(&state_), sizeof(state_)};
  }
  Status RestoreState(const std::string& bytes) override {
    if (bytes.size() != sizeof(state_))
      return {Code::kBadData, "dummy/guess: a saved state has " + std::to_string(sizeof(state_)) +
                                  " bytes, given " + std::to_string(bytes.size())};
    std::memcpy(&state_, bytes.data(), sizeof(state_));
    return Status::Ok();
  }

 private:
  struct State {
    EpisodeSpec episode;
    uint64_t length = 0, step = 0;
    double last = 0;  // first value of the last action
  };

  double Target() const {
    const CounterRng rng(state_.episode.seed);
    const uint64_t index = static_cast<uint64_t>(state_.episode.noops) + state_.step;
    if (options_.discrete) return static_cast<double>(rng.UniformInt(index, kActions));
    return rng.Uniform(index) * 2.0 - 1.0;
  }

  double Reward(const Action& action) {
    const double target = Target();
    if (options_.discrete) {
      state_.last = action.index;
      return state_.last == target ? 1.0 : 0.0;
    }
    state_.last = action.values[0];
    return 1.0 - std::abs(state_.last - target) -
           std::abs(static_cast<double>(action.values[1]) - target);
  }

  void Observe(std::span<std::byte> out) const {
    const double target = Target();
    if (options_.bytes) {
      const auto base = static_cast<int64_t>(target * 60.0) + static_cast<int64_t>(state_.step);
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<std::byte>((static_cast<int64_t>(i) * 7 + base) & 255);
    } else {
      const float values[4] = {static_cast<float>(target), static_cast<float>(state_.step),
                               static_cast<float>(state_.length), static_cast<float>(state_.last)};
      std::memcpy(out.data(), values, sizeof(values));
    }
  }

  const DummyOptions options_;
  const EnvironmentSpec spec_;
  State state_;
};

}  // namespace

Result<std::unique_ptr<Environment>> MakeDummyEnvironment(const DummyOptions& options) {
  if (options.length < 1)
    return Status(Code::kConfig, "dummy/guess: length " + std::to_string(options.length) +
                                     ", expected at least 1");
  return std::unique_ptr<Environment>(std::make_unique<DummyEnvironment>(options));
}

}  // namespace samara
