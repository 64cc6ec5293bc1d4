#include "env/memory/recall.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

constexpr int64_t kCell = 40, kRows = 3;  // pixels of a cue; what is seen, the answer, the cue

EnvironmentSpec Spec(std::string_view id, const RecallOptions& options, bool render) {
  EnvironmentSpec spec;
  spec.id = fmt::format("native/{}", id);
  spec.version = "1";
  spec.observation = {DType::kFloat32, {options.cues + 1}};
  spec.action = {.discrete = true, .n = options.cues, .low = {}, .high = {}};
  for (int64_t cue = 0; cue < options.cues; ++cue)
    spec.action_names.push_back(fmt::format("CUE{}", cue));
  spec.steps_max = options.delay + 2;
  DeclarePictures(spec, render, kRows * kCell, (options.cues + 1) * kCell, 5);
  return spec;
}

class Recall final : public SimulatedEnvironment {
 public:
  Recall(std::string_view id, const RecallOptions& options, bool render)
      : SimulatedEnvironment(Spec(id, options, render), 2), query_(options.delay + 1) {}
  std::vector<double> CurrentState() const override {
    return {static_cast<double>(cue_), static_cast<double>(time_)};
  }
  bool Render(std::span<std::byte> pixels) override;

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override {
    start[0] = static_cast<double>(rng.UniformInt(0, static_cast<uint64_t>(spec().action.n)));
    start[1] = 0;
  }
  void Place(std::span<const double> start) override {
    cue_ = Index(start[0], spec().action.n), time_ = Index(start[1], query_ + 2);
    answer_ = -1;
  }

  Outcome Advance(const Action& action) override {
    const bool asked = time_ == query_;
    answer_ = action.index;
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
  int64_t answer_ = -1;         // the last one, for the picture; -1: none since Place
};

// Draws what is seen (a cue or, in the column behind the cues, the flag), below it the last answer,
// then the cue that should be known.
bool Recall::Render(std::span<std::byte> pixels) {
  if (spec().render_height == 0) return false;
  Picture picture(pixels, spec().render_height, spec().render_width);
  picture.Fill(kPaper);
  const auto box = [&](int64_t row, int64_t column, Colour colour) {
    const Point corner{static_cast<double>(column * kCell), static_cast<double>(row * kCell)};
    picture.Box({corner.x + 2, corner.y + 2}, {corner.x + kCell - 2, corner.y + kCell - 2}, colour);
  };
  if (time_ == 0) box(0, cue_, kWood);
  if (time_ == query_) box(0, spec().action.n, kSteel);
  if (answer_ >= 0) box(1, answer_, kInk);
  box(2, cue_, kWood);
  return true;
}

}  // namespace

std::unique_ptr<Environment> MakeRecall(std::string_view id, const RecallOptions& options,
                                        bool render) {
  CHECK(options.delay >= 0 && options.cues >= 2) << id;
  return std::make_unique<Recall>(id, options, render);
}

}  // namespace samara
