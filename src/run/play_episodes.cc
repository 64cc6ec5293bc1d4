#include "run/play_episodes.h"

namespace samara {

Result<std::vector<EpisodeResult>> PlayEpisodes(Fleet& fleet, Model& model,
                                                const PlayOptions& options) {
  const size_t slots = fleet.slots();
  std::vector<EpisodeResult> results(options.episodes);
  InferenceServer* running = nullptr;
  bool stopped = false;
  const auto stop = [&] {
    stopped = true;
    running->Stop();
  };
  ServerHooks hooks;
  hooks.next = [&](uint32_t slot, uint64_t number) -> std::optional<EpisodeSpec> {
    const size_t episode = number * slots + slot;
    if (episode >= options.episodes) return std::nullopt;
    return options.spec(episode);
  };
  hooks.ended = [&](const EpisodeRecord& record) {
    results[record.number * slots + record.slot] = {.fitness = record.score,
                                                    .frames = record.frames,
                                                    .steps = record.steps,
                                                    .truncated = record.truncated,
                                                    .done = true};
  };
  hooks.shown = [&](uint32_t slot) {
    if ((options.shown && !options.shown(slot)) || (options.stop && options.stop())) stop();
  };
  InferenceServer server(fleet, model, nullptr,
                         {.life_loss = options.life_loss,
                          .seed = options.seed,
                          .greedy = options.greedy,
                          .ordered = true},
                         std::move(hooks));
  running = &server;
  RETURN_IF_ERROR(server.Serve());
  if (stopped && options.stop && options.stop()) return Status(Code::kTryAgain, "stopped");
  return results;
}

}  // namespace samara
