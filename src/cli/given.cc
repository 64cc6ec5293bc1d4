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

constexpr std::string_view kTrainGame = "samara train atari/ppo-quick env.game=";

}  // namespace

std::string GameMeant(std::string_view name) {
  for (const std::string_view folder : {"atari/", "ALE/"})
    if (name.starts_with(folder)) name.remove_prefix(folder.size());
  const size_t version = name.rfind("-v");
  if (version != name.npos) name = name.substr(0, version);
  for (const std::string_view kind : {"NoFrameskip", "Deterministic"})
    if (name.ends_with(kind)) name.remove_suffix(kind.size());
  std::string game;  // MsPacman, "ms pacman" -> ms_pacman
  for (const char c : name) {
    const bool begins = std::isupper(static_cast<unsigned char>(c)) != 0 && !game.empty();
    if (begins && game.back() != '_') game += '_';
    game += c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto games = AtariGames();
  return games.ok() && std::ranges::count(*games, game) > 0 ? game : "";
}

Result<std::string> GivenPreset(const std::string& preset_or_file) {
  auto text = PresetText(preset_or_file);
  if (text.status().code() != Code::kConfig) return text;
  const std::string game = GameMeant(preset_or_file);
  if (game.empty()) return text;
  return Status(Code::kConfig,
                fmt::format("{}: an Atari game, expected a preset of atari/ with the "
                            "game: {}{} ('samara list presets' shows all)",
                            Shown(preset_or_file), kTrainGame, game));
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
  return {Code::kConfig,
          fmt::format("{}={} has no effect with env.id={}; for an Atari game leave env.id out or "
                      "take a preset of atari/: {}{}",
                      game ? "env.game" : "env.preset", Shown(game ? env.game : env.preset),
                      Shown(env.id), kTrainGame, ShellWord(env.game))};
}

}  // namespace samara
