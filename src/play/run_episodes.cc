#include "play/run_episodes.h"

#include "core/cpu.h"
#include "rl/algorithms/registry.h"

namespace samara {

Result<std::vector<EpisodeResult>> PlayEpisodes(Fleet& fleet, Model& model,
                                                const PlayOptions& options) {
  const size_t slots = options.share.all > 0 ? options.share.all : fleet.slots();
  const auto index = [&](uint32_t slot, uint64_t number) {
    return number * slots + options.share.first + slot;
  };
  std::vector<EpisodeResult> results(options.episodes);
  InferenceServer* running = nullptr;
  bool stopped = false;
  const auto stop = [&] {
    stopped = true;
    running->Stop();
  };
  ServerHooks hooks;
  hooks.next = [&](uint32_t slot, uint64_t number) -> std::optional<EpisodeSpec> {
    const size_t episode = index(slot, number);
    if (episode >= options.episodes) return std::nullopt;
    return options.spec(episode);
  };
  const auto note = [&](const EpisodeRecord& record, bool done) {
    results[index(record.slot, record.number)] = {.fitness = record.score,
                                                  .frames = record.frames,
                                                  .steps = record.steps,
                                                  .truncated = record.truncated,
                                                  .done = done};
  };
  hooks.ended = [&](const EpisodeRecord& record) {
    note(record, true);
    if (options.ended) options.ended();
  };
  hooks.shown = [&](const EpisodeRecord& record) {
    const bool enough = options.shown && !options.shown(record);
    if (enough) note(record, false);
    if (enough || (options.stop && options.stop())) stop();
  };
  InferenceServer server(fleet, model, nullptr,
                         {.rewards = options.rewards,
                          .life_loss = options.life_loss,
                          .seed = options.seed,
                          .greedy = options.greedy || model.explores(),
                          .share = options.share,
                          .ordered = true,
                          .shards = options.shards},
                         std::move(hooks));
  running = &server;
  RETURN_IF_ERROR(server.Serve());
  if (stopped && options.stop && options.stop()) return Status(Code::kTryAgain, "stopped");
  return results;
}

Result<std::unique_ptr<Agent>> MakePolicyAgent(const Policy& policy, const EnvironmentSetup& on,
                                               uint32_t slots) {
  AgentSetup setup;
  setup.config = policy.config.learning;
  // the parameters are float32 whatever they were learned with
  if (!HasBf16Products()) setup.config.network.precision = Precision::kFloat32;
  setup.environment = on.environment;
  setup.stack = on.stack;
  setup.slots = setup.rows_max = slots;
  ASSIGN_OR_RETURN(auto agent, MakeAgent(setup));
  const Status restored = agent->Restore(policy.agent_files, Agent::Part::kWeights);
  if (!restored.ok() && policy.overridden)
    return Status(Code::kConfig, policy.source + ": " + restored.message() +
                                     "; leave network.* and env.* as the policy has them");
  if (!restored.ok()) return restored.Annotate(policy.source);
  return agent;
}

}  // namespace samara
