// Evaluations of an agent while it trains, for run.stop_at.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/log.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "rl/algorithms/registry.h"
#include "train/agent_trainer.h"

namespace samara {
namespace {

// Where agents explore, one good episode of the newest is enough to look, so looks are rarer.
constexpr uint64_t kEvaluationEpisodes = 20, kTrainingEpisodes = 5, kExploringEpisodes = 20;

}  // namespace

Result<std::optional<double>> StopAt(const RunConfig& run) {
  if (run.stop_at == "none") return std::optional<double>();
  char* end = nullptr;
  const double score = std::strtod(run.stop_at.c_str(), &end);
  if (run.stop_at.empty() || *end != '\0' || !std::isfinite(score))
    return Status(Code::kConfig, "run.stop_at=" + run.stop_at + ": expected a number, or none");
  return std::optional<double>(score);
}

// Where a few training episodes are over since the last time, and their mean return reaches
// run.stop_at (the best one's, where agents explore), the agent plays fresh ones. `before`:
// episodes before the last update. A function of the run's state: a resumed run evaluates where it
// would have without.
Status AgentTrainer::MaybeEvaluate(uint64_t before) {
  const uint64_t now = agent_state().episodes;
  const uint64_t every = agent_->explores() ? kExploringEpisodes : kTrainingEpisodes;
  if (!stop_at_ || agent_state().solved || now / every == before / every) return Status::Ok();
  const auto& last = agent_state().last_returns;
  const std::vector<double> newest(
      last.end() - static_cast<ptrdiff_t>(std::min<size_t>(last.size(), kTrainingEpisodes)),
      last.end());
  const double reached = agent_->explores() ? *std::ranges::max_element(newest) : Mean(newest);
  if (reached < *stop_at_) return Status::Ok();
  const SteadyTime began = Now();
  ASSIGN_OR_RETURN(const std::vector<double> returns, PlayEvaluation());
  const double mean = Mean(returns);
  if (sync_.is_main())
    metrics_->Write({{"event", "evaluation"},
                     {"update", agent_state().updates},
                     {"frames", agent_state().frames},
                     {"seconds", Seconds()},
                     {"seconds_evaluation", SecondsSince(began)},
                     {"returns", returns},
                     {"mean", mean}});
  if (mean < *stop_at_) return Status::Ok();
  if (sync_.is_main())
    LogInfo(fmt::format("run.stop_at={}: reached after {} frames, {:.1f} in {} episodes",
                        config_.run.stop_at, agent_state().frames, mean, kEvaluationEpisodes));
  const MutexLock lock(mu_);
  state_.solved = {state_.frames, Seconds(), mean};
  return Status::Ok();
}

// Returns of fresh episodes of a copy of the agent in environments of its own: training goes on as
// if there were none. A stop waits for them: where a run ends must not depend on when it was asked.
Result<std::vector<double>> AgentTrainer::PlayEvaluation() {
  if (!evaluation_.agent) {
    ASSIGN_OR_RETURN(evaluation_.setup, SetUpLearning(config_, slots_.size()));
    ASSIGN_OR_RETURN(evaluation_.agent, MakeAgent(Setup()));
  }
  RETURN_IF_ERROR(
      evaluation_.agent->Restore(agent_->Save(Agent::Part::kWeights), Agent::Part::kWeights));
  PlayOptions play = FreshEpisodes(Purpose::kEpisodeEval, agent_state().updates,
                                   kEvaluationEpisodes, evaluation_.setup);
  play.shown = [this](uint32_t) {
    TurnWatchdog();
    return true;
  };
  const auto results =
      sync_.Gather(PlayEpisodes(*evaluation_.setup.fleet, *evaluation_.agent, play));
  RETURN_IF_ERROR(results.status());
  std::vector<double> returns;
  for (const EpisodeResult& r : *results) returns.push_back(r.fitness);
  return returns;
}

}  // namespace samara
