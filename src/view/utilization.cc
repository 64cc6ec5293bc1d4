#include "view/utilization.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace samara {

std::vector<StageShare> BusyShares(const std::function<double(const char*)>& seconds,
                                   double workers) {
  const auto sum = [&](std::initializer_list<const char*> names) {
    double total = 0;
    for (const char* name : names) total += seconds(name);
    return total;
  };
  const double server = sum({"seconds_inference", "seconds_server"});
  const double server_time = server + seconds("seconds_server_wait");
  const double learner = sum({"seconds_learner_batch", "seconds_learner_forward",
                              "seconds_learner_backward", "seconds_learner_step"});
  const double learner_time = learner + seconds("seconds_learner_wait");

  std::vector<StageShare> stages;
  const auto add = [&](const char* name, double busy, double time) {
    if (time > 0 && std::isfinite(busy / time))
      stages.push_back({name, std::clamp(busy / time, 0.0, 1.0)});
  };
  // the server's thread lives as long as its environments step
  if (workers > 0) add("environment", seconds("seconds_environment"), workers * server_time);
  add("inference", server, server_time);
  add("learner", learner, learner_time);
  return stages;
}

std::vector<StageShare> WorkShares(std::vector<StageShare> seconds) {
  double total = 0;
  for (const StageShare& stage : seconds) total += stage.share;
  if (total <= 0) return {};
  for (StageShare& stage : seconds) stage.share /= total;
  return seconds;
}

std::string Bottleneck(const std::vector<StageShare>& stages) {
  const auto largest = std::max_element(
      stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.share < b.share; });
  return largest == stages.end() ? "" : largest->name;
}

}  // namespace samara
