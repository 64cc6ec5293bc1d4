#include "cli/given.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/command.h"
#include "config/presets.h"
#include "core/config.h"
#include "core/log.h"
#include "core/shell.h"

namespace samara {
namespace {

constexpr std::string_view kTrain = "samara train atari/ppo-quick ";

// MsPacman, "ms pacman" and ms_pacman are one name.
std::string Letters(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '_' && c != ' ')
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

}  // namespace

std::string GameMeant(std::string_view name) {
  for (const std::string_view folder : {"atari/", "ALE/"})
    if (name.starts_with(folder)) name.remove_prefix(folder.size());
  const size_t version = name.rfind("-v");
  if (version != name.npos) name = name.substr(0, version);
  for (const std::string_view kind : {"NoFrameskip", "Deterministic"})
    if (name.ends_with(kind)) name.remove_suffix(kind.size());
  const auto games = AtariGames();
  if (!games.ok()) return {};
  const auto meant = std::ranges::find(*games, Letters(name), Letters);
  return meant == games->end() ? std::string() : *meant;
}

Result<std::string> GivenPreset(const std::string& preset_or_file) {
  auto text = PresetText(preset_or_file);
  if (text.status().code() != Code::kConfig) return text;
  const std::string game = GameMeant(preset_or_file);
  if (game.empty()) return text;
  return Status(Code::kConfig,
                fmt::format("{}: an Atari game, expected a preset of atari/ with the "
                            "game: {}env.game={} ('samara list presets' shows all)",
                            Shown(preset_or_file), kTrain, game));
}

Status CheckGame(const EnvironmentConfig& env, std::string_view toml,
                 const std::vector<std::string>& overrides) {
  const auto given = [&overrides](std::string_view key) {
    return std::ranges::any_of(overrides,
                               [key](const std::string& word) { return word.starts_with(key); });
  };
  const std::string written = TextIn(toml, "env.game");
  const bool together =
      !TextIn(toml, "env.id").empty() && !written.empty() && written != EnvironmentConfig().game;
  const bool game = given("env.game=") || together;
  if (env.id.empty() || !(game || given("env.preset="))) return Status::Ok();
  const std::string key = game ? "env.game" : "env.preset", value = game ? env.game : env.preset;
  return {Code::kConfig,
          fmt::format("{}={} has no effect with env.id={}; for an Atari game leave env.id out or "
                      "take a preset of atari/: {}{}",
                      key, Shown(value), Shown(env.id), kTrain, ShellWord(key + "=" + value))};
}

}  // namespace samara
