#include "train/agent_interval.h"

#include <algorithm>

#include "core/statistics.h"

namespace samara {

using nlohmann::json;

void AgentInterval::Add(const RankStatistics& statistics) {
  frames_ += statistics.frames;
  for (const RankStatistics::Episode& episode : statistics.episodes) {
    returns_.push_back(episode.score);
    lengths_.push_back(episode.steps);
  }
  lags_ += statistics.lags;
}

void AgentInterval::Add(const UpdateReport& update) {
  ++updates_;
  sum_.seconds_batch += update.seconds_batch, sum_.seconds_forward += update.seconds_forward;
  sum_.seconds_backward += update.seconds_backward, sum_.seconds_step += update.seconds_step;
  sum_.learning_rate = update.learning_rate, sum_.coefficients = update.coefficients;
  const bool counts = update.applied && update.steps > 0;  // a replay that fills up has no steps
  for (const auto& [name, value] : update.numbers) sum_.numbers[name] += counts ? value : 0;
  if (!counts) return;
  ++applied_;
  sum_.gradient_norm += update.gradient_norm;
}

json AgentInterval::Line() const {
  const double elapsed = seconds();
  const auto per_update = [&](double sum) {
    return applied_ > 0 ? json(sum / static_cast<double>(applied_)) : json();
  };
  const auto mean = [](const std::vector<double>& x) { return x.empty() ? json() : json(Mean(x)); };
  json line = {
      {"return_mean", mean(returns_)},
      {"return_max", returns_.empty() ? json() : json(*std::ranges::max_element(returns_))},
      {"length_mean", mean(lengths_)},
      {"gradient_norm", per_update(sum_.gradient_norm)},
      {"learning_rate", sum_.learning_rate},
      {"lag_min", lags_.count > 0 ? json(lags_.min) : json()},
      {"lag_mean", lags_.count > 0 ? json(lags_.mean()) : json()},
      {"lag_max", lags_.count > 0 ? json(lags_.max) : json()},
      {"lag_histogram", lags_.buckets},
      {"frames_per_second", static_cast<double>(frames_) / elapsed},
      {"updates_per_second", static_cast<double>(updates_) / elapsed},
      {"seconds_learner_batch", sum_.seconds_batch},
      {"seconds_learner_forward", sum_.seconds_forward},
      {"seconds_learner_backward", sum_.seconds_backward},
      {"seconds_learner_step", sum_.seconds_step},
      {"seconds_learner_wait", learner_wait_}};
  for (const auto& [name, value] : sum_.numbers) line[name] = per_update(value);
  for (const auto& [name, value] : sum_.coefficients) line[name] = value;
  return line;
}

}  // namespace samara
