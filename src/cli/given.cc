#include "cli/given.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "config/presets.h"
#include "core/config.h"
#include "core/log.h"

namespace samara {
namespace {

constexpr std::string_view kTrainGame = "samara train atari/ppo-quick env.game=";

bool IsGame(const std::string& name) {
  const auto games = AtariGames();
  return games.ok() && std::ranges::count(*games, name) > 0;
}

}  // namespace

Result<std::string> GivenPreset(const std::string& preset_or_file) {
  auto text = PresetText(preset_or_file);
  if (text.status().code() != Code::kConfig || !IsGame(preset_or_file)) return text;
  return Status(Code::kConfig, fmt::format("{0}: an Atari game, expected a preset of atari/ with "
                                           "the game: {1}{0} ('samara list presets' shows all)",
                                           preset_or_file, kTrainGame));
}

Status CheckGame(const EnvironmentConfig& env, std::string_view toml,
                 const std::vector<std::string>& overrides) {
  const bool overridden = std::ranges::any_of(
      overrides, [](const std::string& word) { return word.starts_with("env.game="); });
  const std::string written = TextIn(toml, "env.game");
  const bool together =
      !TextIn(toml, "env.id").empty() && !written.empty() && written != EnvironmentConfig().game;
  if (env.id.empty() || !(overridden || together)) return Status::Ok();
  return {Code::kConfig,
          fmt::format("env.game={0} has no effect with env.id={1}; for an Atari game leave env.id "
                      "out or take a preset of atari/: {2}{0}",
                      Shown(env.game), Shown(env.id), kTrainGame)};
}

}  // namespace samara
