#include "run/evaluate_policy.h"

#include "core/rng.h"

namespace samara {

Result<std::vector<EpisodeResult>> EvaluatePolicy(const Policy& policy,
                                                  const EvaluationOptions& options,
                                                  const StopToken& stop) {
  ASSIGN_OR_RETURN(Stage stage, MakeStage(policy.config));
  if (policy.parameters.size() != stage.network().parameter_count) {
    return Status(Code::kBadData, policy.source + ": " + std::to_string(policy.parameters.size()) +
                                      " parameters, expected " +
                                      std::to_string(stage.network().parameter_count) + " for " +
                                      stage.network().name + " on " + stage.environment.id);
  }
  ASSIGN_OR_RETURN(const auto evaluator, MakeEvaluator(policy.config, stage));
  const size_t count =
      options.noops.empty() ? static_cast<size_t>(options.episodes) : options.noops.size();
  std::vector<Task> tasks;
  for (size_t e = 0; e < count; ++e) {
    EpisodeSpec episode =
        stage.episodes.Make(DeriveKey(options.seed, Purpose::kEpisodeEval, 0, 0, e), /*test=*/true);
    if (!options.noops.empty()) episode.noops = options.noops[e];
    tasks.push_back(
        {options.random ? kRandomHandle : PolicyHandle{0, 0}, Role::kEvaluate, episode});
  }
  LocalWork work(tasks, stop);
  RETURN_IF_ERROR(evaluator->Play(FixedParameters(policy.parameters), work));
  if (work.posted() < count)
    return Status(Code::kTryAgain, "stopped after " + std::to_string(work.posted()) + " episodes");
  return work.TakeResults();
}

}  // namespace samara
