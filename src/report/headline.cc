#include "report/headline.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "core/files.h"
#include "core/format.h"
#include "core/shell.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

constexpr size_t kNamesMax = 3;  // more are counted

std::string TaskOf(const RunData& run) { return run.game.empty() ? run.name : run.game; }

std::string Names(const std::set<std::string>& names, const char* plural) {
  if (names.size() > kNamesMax) return fmt::format("{} {}", names.size(), plural);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string Headline(const RunData& run) {
  const std::string task = TaskOf(run);
  const bool tested = !std::isnan(run.TestMean());
  const double score = tested ? run.TestMean() : run.Last(run.kind->curve);
  if (std::isnan(score)) return task + ": nothing to show yet";
  std::string text = fmt::format("{}: {}", task, ScoreText(score));
  if (const double frames = run.Final("frames"); !std::isnan(frames))
    text += fmt::format(" after {} frames", ShortNumber(frames));
  if (const double seconds = run.Final("seconds"); !std::isnan(seconds))
    text += " and " + DurationText(seconds);
  if (!std::isnan(run.RandomMean()))
    text += fmt::format("; a random policy gets {}", ScoreText(run.RandomMean()));
  return text;
}

std::string Headline(std::span<const RunData> runs) {
  std::set<std::string> tasks, presets;
  for (const RunData& run : runs) {
    tasks.insert(TaskOf(run));
    if (!run.preset.empty()) presets.insert(run.preset);
  }
  return fmt::format("{} runs: {}{}", runs.size(), Names(tasks, "tasks"),
                     presets.empty() ? "" : " by " + Names(presets, "presets"));
}

std::string CommandLine(const RunData& run) {
  const auto words = run.identity.find("command");
  if (words == run.identity.end() || !words->is_array()) return "";
  const RootedPath kept_module = run.folder / RunFolder::kModule;
  std::vector<std::string> shown;
  for (const auto& word : *words) {
    if (!word.is_string()) continue;
    auto text = word.get<std::string>();
    // the file may have been a temporary one; the run keeps a copy
    if (text.starts_with("network.module=") && Exists(kept_module))
      text = "network.module=" + kept_module.string();
    if (!run.changes.contains(text.substr(0, text.find('=')))) shown.push_back(ShellWord(text));
  }
  for (const std::string& key : run.changes)
    shown.push_back(ShellWord(key + "=" + run.Config(key)));
  return fmt::format("{}", fmt::join(shown, " "));
}

}  // namespace samara
