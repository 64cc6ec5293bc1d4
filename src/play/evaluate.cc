#include "play/evaluate.h"

#include <algorithm>
#include <atomic>

#include "core/rng.h"
#include "core/signals.h"
#include "play/endless.h"
#include "play/environment_setup.h"
#include "play/run_episodes.h"

namespace samara {
namespace {

EpisodeSpec EpisodeOf(const EpisodeRule& rule, const EvaluationOptions& options, size_t e) {
  EpisodeSpec episode =
      rule.Make(DeriveKey(options.seed, Purpose::kEpisodeEval, 0, 0, e), /*test=*/true);
  if (!options.noops.empty()) episode.noops = options.noops[e];
  return episode;
}

size_t Count(const EvaluationOptions& options) {
  return options.noops.empty() ? static_cast<size_t>(options.episodes) : options.noops.size();
}

Result<std::vector<EpisodeResult>> EvaluateAgent(const Policy& policy,
                                                 const EvaluationOptions& options,
                                                 const StopToken& stop) {
  const LearnConfig& learn = policy.config.learning.learn;
  PlayOptions play;
  play.episodes = Count(options);
  const auto slots = std::min(play.episodes, static_cast<size_t>(learn.environments));
  ASSIGN_OR_RETURN(const EnvironmentSetup setup,
                   SetUpLearning(policy.config, static_cast<uint32_t>(slots)));
  play.spec = [&](size_t e) { return EpisodeOf(setup.episodes, options, e); };
  play.seed = DeriveKey(options.seed, Purpose::kEpisodeEval);
  play.greedy = learn.test_greedy;
  play.rewards = learn.rewards;
  if (setup.preset) play.life_loss = setup.preset->life_loss;
  play.stop = stop;
  std::atomic<uint64_t> over{0};
  play.ended = [&over] { ++over; };
  const auto endless =
      WatchForEndlessEpisodes(setup, Played::kTests, [&over] { return over.load(); });
  RandomModel random(setup.environment);
  if (options.random) {
    const GracefulStop looked_at;
    return PlayEpisodes(*setup.fleet, random, play);
  }
  ASSIGN_OR_RETURN(const auto agent, MakePolicyAgent(policy, setup, setup.fleet->slots()));
  const GracefulStop looked_at;
  return PlayEpisodes(*setup.fleet, *agent, play);
}

}  // namespace

Result<std::vector<EpisodeResult>> EvaluatePolicy(const Policy& policy,
                                                  const EvaluationOptions& options,
                                                  const StopToken& stop) {
  if (policy.config.Learns()) return EvaluateAgent(policy, options, stop);
  ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(policy.config));
  RETURN_IF_ERROR(CheckFits(policy, setup));
  ASSIGN_OR_RETURN(const auto evaluator, MakeEvaluator(policy.config, setup));
  const size_t count = Count(options);
  std::vector<Task> tasks;
  for (size_t e = 0; e < count; ++e) {
    const EpisodeSpec episode = EpisodeOf(setup.episodes, options, e);
    tasks.push_back(
        {options.random ? kRandomHandle : PolicyHandle{0, 0}, Role::kEvaluate, episode});
  }
  LocalWork work(tasks, stop);
  const auto endless =
      WatchForEndlessEpisodes(setup, Played::kTests, [&work] { return work.posted(); });
  const GracefulStop looked_at;
  RETURN_IF_ERROR(evaluator->Play(FixedParameters(policy.parameters), work));
  if (work.posted() < count)
    return Status(Code::kTryAgain, "stopped after " + std::to_string(work.posted()) + " episodes");
  return work.TakeResults();
}

}  // namespace samara
