#include "play/endless.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/log.h"
#include "fleet/named_environment.h"

namespace samara {

std::unique_ptr<Reminder> WatchForEndlessEpisodes(const EnvironmentSetup& setup, Played played,
                                                  Reminder::Count awaited) {
  constexpr double kSeconds = 30;
  const EpisodeRule& rule = setup.episodes;
  const bool tests_end = rule.frames_max_test > 0;
  const bool others_end = played == Played::kTests || rule.frames_max > 0;
  if (setup.environment.steps_max > 0 || (tests_end && others_end)) return nullptr;
  const std::string warning = fmt::format(
      "no episode has ended for {:.0f} s, and {} names no limit of steps: if they never end, they "
      "are awaited for ever; stop, and give them an end by {}, or in the environment",
      kSeconds, setup.environment.id, kTimeLimit);
  return std::make_unique<Reminder>(
      kSeconds, [warning] { LogWarning(warning); }, std::move(awaited));
}

}  // namespace samara
