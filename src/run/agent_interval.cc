#include "train/agent_interval.h"

#include <algorithm>

#include "core/statistics.h"

namespace samara {

using nlohmann::json;

void AgentInterval::Add(const Harvest& harvest) {
  frames_ += harvest.frames;
  for (const Harvest::Episode& episode : harvest.episodes) {
    returns_.push_back(episode.score);
    lengths_.push_back(episode.steps);
  }
  lags_ += harvest.lags;
}

void AgentInterval::Add(const UpdateReport& update) {
  ++updates_;
  sum_.seconds_batch += update.seconds_batch, sum_.seconds_forward += update.seconds_forward;
  sum_.seconds_backward += update.seconds_backward, sum_.seconds_step += update.seconds_step;
  sum_.learning_rate = update.learning_rate, sum_.entropy_cost = update.entropy_cost;
  if (!update.applied) return;
  ++applied_;
  sum_.loss += update.loss, sum_.policy_loss += update.policy_loss;
  sum_.value_loss += update.value_loss, sum_.entropy += update.entropy;
  sum_.kl += update.kl, sum_.rho += update.rho;
  sum_.explained_variance += update.explained_variance;
  sum_.gradient_norm += update.gradient_norm;
}

json AgentInterval::Line() const {
  const double elapsed = seconds();
  const auto per_update = [&](double sum) {
    return applied_ > 0 ? json(sum / static_cast<double>(applied_)) : json();
  };
  const auto mean = [](const std::vector<double>& x) { return x.empty() ? json() : json(Mean(x)); };
  return {{"return_mean", mean(returns_)},
          {"return_max", returns_.empty() ? json() : json(*std::ranges::max_element(returns_))},
          {"length_mean", mean(lengths_)},
          {"loss", per_update(sum_.loss)},
          {"policy_loss", per_update(sum_.policy_loss)},
          {"value_loss", per_update(sum_.value_loss)},
          {"entropy", per_update(sum_.entropy)},
          {"entropy_cost", sum_.entropy_cost},
          {"kl", per_update(sum_.kl)},
          {"importance_weight", per_update(sum_.rho)},
          {"explained_variance", per_update(sum_.explained_variance)},
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
}

}  // namespace samara
