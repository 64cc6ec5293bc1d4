// Evaluations of an agent while it trains, for learn.evaluate_every and run.stop_at.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/log.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "rl/algorithms/registry.h"
#include "train/agent_trainer.h"

namespace samara {
namespace {

// Where agents explore, one good episode of the newest is enough to look, so looks are rarer.
constexpr uint64_t kTrainingEpisodes = 5, kExploringEpisodes = 20;

}  // namespace

// Every learn.evaluate_every frames; and with run.stop_at where a few training episodes are over
// and their mean return reaches it (the best one's, where agents explore). A function of the run's
// state: a resumed run evaluates where it would have without.
bool AgentTrainer::EvaluationDue(uint64_t frames_before, uint64_t episodes_before) const {
  if (agent_state().solved) return false;
  const auto period = [&](uint64_t frames) {
    return std::floor(static_cast<double>(frames) / learn_.evaluate_every);
  };
  if (learn_.evaluate_every > 0 && period(agent_state().frames) != period(frames_before))
    return true;
  const uint64_t every = agent_->explores() ? kExploringEpisodes : kTrainingEpisodes;
  if (!config_.run.stop_at || agent_state().episodes / every == episodes_before / every)
    return false;
  const auto& last = agent_state().last_returns;
  const std::vector<double> newest(
      last.end() - static_cast<ptrdiff_t>(std::min<size_t>(last.size(), kTrainingEpisodes)),
      last.end());
  return (agent_->explores() ? *std::ranges::max_element(newest) : Mean(newest)) >=
         *config_.run.stop_at;
}

// Plays fresh episodes; keeps the best agent so far, and ends the run where run.stop_at is reached.
Status AgentTrainer::Evaluate() {
  const SteadyTime began = Now();
  ASSIGN_OR_RETURN(const std::vector<double> returns, PlayEvaluation());
  const AgentEvaluation evaluation = {agent_state().frames, Seconds(), Mean(returns)};
  if (sync_.is_main())
    metrics_->Write({{"event", "evaluation"},
                     {"update", agent_state().updates},
                     {"frames", evaluation.frames},
                     {"seconds", evaluation.seconds},
                     {"seconds_evaluation", SecondsSince(began)},
                     {"returns", returns},
                     {"mean", evaluation.mean}});
  const std::optional<double> score = config_.run.stop_at;
  const bool solved = score && evaluation.mean >= *score;
  const bool best = !agent_state().best || evaluation.mean > agent_state().best->mean;
  if (best) best_weights_ = agent_->Save(Agent::Part::kWeights).at(Agent::kWeightsFile);
  if (solved && sync_.is_main())
    LogInfo(fmt::format("run.stop_at={}: reached after {} frames, {:.1f} in {} episodes", *score,
                        evaluation.frames, evaluation.mean, returns.size()));
  const MutexLock lock(mu_);
  last_evaluation_ = evaluation;
  if (best) state_.best = evaluation;
  if (solved) state_.solved = evaluation;
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
  PlayOptions play =
      FreshEpisodes(Purpose::kEpisodeEval, agent_state().updates,
                    static_cast<size_t>(learn_.evaluate_episodes), evaluation_.setup);
  play.shown = [this, said = false](const EpisodeRecord&) mutable {
    TurnWatchdog();
    if (StopRequested() && !std::exchange(said, true))
      LogInfo("stopping after this evaluation; a second signal ends the run at once");
    return true;
  };
  const auto results = sync_.Gather(Play(*evaluation_.setup.fleet, *evaluation_.agent, play));
  RETURN_IF_ERROR(results.status());
  std::vector<double> returns;
  for (const EpisodeResult& r : *results) returns.push_back(r.fitness);
  return returns;
}

}  // namespace samara
