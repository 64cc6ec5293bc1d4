#include "cli/train_many.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "cli/command.h"
#include "core/format.h"
#include "core/log.h"
#include "core/sha256.h"
#include "core/shell.h"
#include "report/report.h"
#include "report/summary.h"
#include "storage/run_folder.h"
#include "train/run_session.h"

namespace samara {
namespace {

using nlohmann::json;

constexpr size_t kSettingsMax = 1000;   // each is parsed before the first run begins
constexpr size_t kFolderNameMax = 100;  // bytes, before a hash

// A key of --sweep and its values.
struct Axis {
  std::string key;
  std::vector<std::string> values;
};

std::string Trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

Result<Axis> ParseAxis(const std::string& text) {
  const size_t equals = text.find('=');
  const auto refuse = [&text](const std::string& why) {
    return Status(Code::kUsage, "--sweep " + Shown(text) + ": " + why);
  };
  if (equals == std::string::npos || equals == 0)
    return refuse("expected KEY=VALUE,VALUE, such as ga.population=50,100");
  Axis axis{Trimmed(text.substr(0, equals)), {}};
  if (axis.key == "run.seed") return refuse("expected another key; --seeds says which seeds run");
  std::string values = Trimmed(text.substr(equals + 1));
  const char separator = values.find(';') == std::string::npos ? ',' : ';';
  if (values.ends_with(';')) values.pop_back();  // of one value that has commas
  for (size_t at = 0; at <= values.size();) {
    const size_t end = std::min(values.find(separator, at), values.size());
    std::string value = Trimmed(values.substr(at, end - at));
    if (value.empty()) return refuse("a value is empty; expected VALUE,VALUE");
    if (std::ranges::count(axis.values, value) > 0)
      return refuse(Shown(value) + " is there twice; values that have commas end in ';'");
    axis.values.push_back(std::move(value));
    at = end + 1;
  }
  return axis;
}

Result<std::vector<Axis>> ParseSweep(const std::vector<std::string>& options) {
  std::vector<Axis> axes;
  for (const std::string& text : options) {
    ASSIGN_OR_RETURN(Axis axis, ParseAxis(text));
    if (std::ranges::count(axes, axis.key, &Axis::key) > 0)
      return Status(Code::kUsage, "--sweep " + Shown(text) + ": there are two for this key");
    axes.push_back(std::move(axis));
  }
  return axes;
}

// Every combination of values, those of the last key changing first.
std::vector<std::vector<std::string>> Combinations(const std::vector<Axis>& axes) {
  std::vector<std::vector<std::string>> all = {{}};
  for (const auto& [key, values] : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& words : all)
      for (const std::string& value : values) {
        longer.push_back(words);
        longer.back().push_back(fmt::format("{}={}", key, value));
      }
    all = std::move(longer);
  }
  return all;
}

// "population=50 sigma=0.1": without tables, where the keys differ without them.
std::string NameOf(const std::vector<std::string>& words, const std::vector<Axis>& axes) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> parts;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = last(axes[i].key);
    const bool alone =
        std::ranges::count_if(axes, [&](const Axis& axis) { return last(axis.key) == name; }) == 1;
    parts.push_back(alone ? name + words[i].substr(axes[i].key.size()) : words[i]);
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

// The words as a file name, with dashes for what it should not have. Where that changes or cuts
// them, the first digits of their hash tell names apart.
std::string FolderNameOf(const std::vector<std::string>& words) {
  const std::string whole = fmt::format("{}", fmt::join(words, ","));
  std::string name = whole.substr(0, kFolderNameMax);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && std::string_view("._=,-+").find(c) == std::string_view::npos) c = '-';
  }
  return name == whole ? name : name + "-" + Sha256Hex(whole).substr(0, 8);
}

std::vector<PlannedRun> RunsOf(const TrainPlan& plan) {
  std::vector<PlannedRun> runs;
  for (size_t i = 0; i < plan.settings.size(); ++i)
    for (const int64_t seed : plan.seeds) {
      const TrainSetting& setting = plan.settings[i];
      PlannedRun run{setting.name, setting.words, SeedFolder(setting.folder, seed), i};
      if (plan.seeds.size() > 1 || run.name.empty())
        run.name += fmt::format("{}seed {}", run.name.empty() ? "" : " ", seed);
      run.words.push_back(fmt::format("run.seed={}", seed));
      runs.push_back(std::move(run));
    }
  return runs;
}

// The command of every run, without what differs.
std::vector<std::string> CommonCommand(const TrainArguments& args) {
  std::error_code failed;
  std::vector<std::string> words = {
      std::filesystem::read_symlink("/proc/self/exe", failed).string(), "train"};
  words.insert(words.end(), args.words.begin(), args.words.end());
  if (args.trust) words.emplace_back("--trust");
  return words;
}

Result<std::vector<json>> TrainAtOnce(const TrainArguments& args, const TrainPlan& plan,
                                      mode_t umask) {
  const ExperimentConfig& config = plan.settings[0].config;
  std::string what;
  for (const std::string& sweep : args.sweep) what += (what.empty() ? "" : ", ") + sweep;
  if (!args.seeds.empty()) what += (what.empty() ? "seeds " : ", seeds ") + args.seeds;
  return TrainRuns({.title = config.run.name + ": " + what,
                    .kind = args.sweep.empty() ? "seeds" : "runs",
                    .runs = plan.runs,
                    .out = plan.out,
                    .command = CommonCommand(args),
                    .how_to_extend =
                        [&](const json& result) {
                          return args.sweep.empty() ? HowToExtend(config, result)
                                                    : "raise a budget, or add values";
                        },
                    .at_once = args.parallel,
                    .umask = umask,
                    .quiet = args.quiet});
}

// In this process.
Result<std::vector<json>> TrainInTurn(const TrainPlan& plan, const TrainOptions& given) {
  std::vector<json> results;
  for (const PlannedRun& run : plan.runs) {
    const size_t at = results.size();
    const TrainSetting& setting = plan.settings[run.setting];
    ExperimentConfig config = setting.config;
    config.run.seed = plan.seeds[at % plan.seeds.size()];
    TrainOptions options = given;
    options.overrides.insert(options.overrides.end(), setting.words.begin(), setting.words.end());
    options.resume_auto = true;
    options.out = run.folder;
    LogInfo(fmt::format("{}, {} of {}", run.name, at + 1, plan.runs.size()));
    auto result = Train(std::move(config), options);
    if (!result.ok())
      return Status(result.status().code(),
                    fmt::format("{}: {}; {} of {} are done, the same command with --out {} goes on",
                                run.name, result.status().message(), at, plan.runs.size(),
                                ShellWord(plan.out.string())));
    results.push_back(*std::move(result));
  }
  return results;
}

// Names the commands that go on when all runs are done: watch one, train with larger budgets, or
// without the score that ended all.
std::string NextSteps(const TrainArguments& args, const TrainPlan& plan,
                      const std::vector<json>& results) {
  const ExperimentConfig& config = plan.settings[0].config;
  const auto best = std::ranges::max_element(results, std::less(), [](const json& result) {
    const double score = HeadlineScore(result);
    return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
  });
  std::string text =
      HowToWatch(config, *best, plan.runs[static_cast<size_t>(best - results.begin())].folder);
  std::vector<std::string> budgets = RaisedBudgets(config);
  const auto by_score = [&config](const json& result) {
    return !EndedByScore(config, result).empty();
  };
  if (std::ranges::all_of(results, by_score)) budgets = {EndedByScore(config, results[0])};
  // a key that is swept has no single value to raise
  std::erase_if(budgets, [&args](const std::string& budget) {
    const std::string key = budget.substr(0, budget.find('=') + 1);
    return std::ranges::any_of(args.sweep, [&key](const auto& s) { return s.starts_with(key); });
  });
  if (budgets.empty()) return text;
  text += "  go on    samara train";
  for (const std::string& word : args.words) {
    const std::string key = word.substr(0, word.find('=') + 1);
    const auto raised = [&key](const std::string& b) { return !key.empty() && b.starts_with(key); };
    if (std::ranges::none_of(budgets, raised)) text += " " + ShellWord(word);
  }
  text += fmt::format(" {}", fmt::join(budgets, " "));
  for (const std::string& sweep : args.sweep) text += " --sweep " + ShellWord(sweep);
  if (!args.seeds.empty()) text += " --seeds " + args.seeds;
  return text + fmt::format(" --out {}\n", ShellWord(plan.out.string()));
}

json KeysOf(const TrainSetting& setting) {
  json keys = json::object();
  for (const std::string& word : setting.words)
    keys[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return keys;
}

json SettingsObject(const TrainPlan& plan, const std::vector<json>& results) {
  json settings = json::array();
  for (size_t i = 0; i < plan.settings.size(); ++i) {
    json scores = json::array(), runs = json::array();
    for (const json& result :
         std::span(results).subspan(i * plan.seeds.size(), plan.seeds.size())) {
      scores.push_back(HeadlineScore(result));  // null where it is none
      runs.push_back(result.at("run"));
    }
    settings.push_back({{"keys", KeysOf(plan.settings[i])}, {"scores", scores}, {"runs", runs}});
  }
  return settings;
}

// Refuses what does not go with several runs; warns of words that --seeds and --sweep override.
Status CheckMany(const TrainArguments& args, const TrainOptions& options,
                 const std::vector<Axis>& axes) {
  const std::string option = args.seeds.empty() ? "--sweep" : "--seeds";
  if (options.resume)
    return {Code::kUsage, option + " makes runs of a preset: expected no --resume DIR"};
  if (!args.out.empty() && Exists(RootedPath::Root(args.out) / "run.json"))
    return {Code::kCannotCreate, Shown(args.out) + ": a run; " + option +
                                     " makes a folder of runs: choose another --out"};
  for (const std::string& word : options.overrides) {
    const std::string key = word.substr(0, word.find('='));
    if (key == "run.seed" && !args.seeds.empty())
      LogWarning(Shown(word) + " changes nothing: --seeds " + Shown(args.seeds) +
                 " says which seeds run");
    if (std::ranges::count(axes, key, &Axis::key) > 0)
      LogWarning(Shown(word) + " changes nothing: --sweep says which values run");
  }
  return Status::Ok();
}

}  // namespace

Result<TrainPlan> PlanMany(
    const TrainArguments& args, const TrainOptions& options, const Path& out,
    const std::function<Result<ExperimentConfig>(const std::vector<std::string>& more)>&
        configure) {
  TrainPlan plan{.out = out, .seeds = {}, .settings = {}, .runs = {}};
  ASSIGN_OR_RETURN(const std::vector<Axis> axes, ParseSweep(args.sweep));
  if (!args.seeds.empty()) {
    ASSIGN_OR_RETURN(plan.seeds, ParseRange("--seeds", args.seeds, 1'000'000));
  }
  RETURN_IF_ERROR(CheckMany(args, options, axes));
  size_t settings = 1;
  for (const Axis& axis : axes) {
    settings *= axis.values.size();
    if (settings > kSettingsMax)
      return Status(
          Code::kUsage,
          fmt::format("--sweep: more than {} settings; expected fewer values", kSettingsMax));
  }
  std::map<std::string, std::string> names;  // by what the words mean
  for (auto& words : Combinations(axes)) {
    auto config = configure(words);
    const std::string given = fmt::format("--sweep {}", fmt::join(words, " "));
    if (!config.ok()) return words.empty() ? config.status() : config.status().Annotate(given);
    const auto [same, fresh] = names.emplace(config->Table().ToToml(), given);
    if (!fresh) return Status(Code::kUsage, given + ": the same setting as " + same->second);
    const Path folder = axes.empty() ? out : out / FolderNameOf(words);
    const std::string name = NameOf(words, axes);
    plan.settings.push_back({std::move(words), name, folder, *std::move(config)});
  }
  if (plan.seeds.empty()) plan.seeds = {static_cast<int64_t>(plan.settings[0].config.run.seed)};
  plan.runs = RunsOf(plan);
  return plan;
}

std::string ListMany(const TrainArguments& args, const TrainPlan& plan, json& object) {
  std::string text;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const PlannedRun& run = plan.runs[i];
    const std::string folder = run.folder.string();
    text += fmt::format("# {}: {}\n", run.name, folder);
    json listed = {{"seed", plan.seeds[i % plan.seeds.size()]}, {"run", folder}};
    if (!args.sweep.empty()) listed["keys"] = KeysOf(plan.settings[run.setting]);
    object[args.sweep.empty() ? "seeds" : "runs"].push_back(std::move(listed));
  }
  return text + fmt::format("# the configuration of {}; the others differ in {} alone:\n",
                            args.sweep.empty() ? plan.runs[0].name : "the first",
                            args.sweep.empty() ? "run.seed" : "what --sweep and --seeds name");
}

Status TrainMany(const TrainArguments& args, const TrainPlan& plan, const TrainOptions& options,
                 mode_t umask) {
  const auto make = [](const Path& folder) -> Status {
    const Status made = CreateFolders(folder);
    return made.ok() ? made : Status(made.code(), made.message() + ": choose another --out");
  };
  RETURN_IF_ERROR(make(plan.out));
  ASSIGN_OR_RETURN(const auto lock, FileLock::Acquire(RootedPath::Root(plan.out) / "lock"));
  const Path report = plan.out / "report.html";
  RETURN_IF_ERROR(CheckOutputFile(report, "report.html"));
  for (const TrainSetting& setting : plan.settings) RETURN_IF_ERROR(make(setting.folder));
  const bool at_once = options.ranks == nullptr && options.remote.address.empty();
  ASSIGN_OR_RETURN(const auto results,
                   at_once ? TrainAtOnce(args, plan, umask) : TrainInTurn(plan, options));
  std::vector<Path> folders;
  for (const PlannedRun& run : plan.runs) folders.push_back(run.folder);
  RETURN_IF_ERROR(WriteReport(folders, report));
  if (args.json) {
    json object = {{"runs", results}, {"report", report.string()}};
    if (!args.sweep.empty()) object["settings"] = SettingsObject(plan, results);
    PrintJson(object);
    return Status::Ok();
  }
  std::string summary;
  if (args.sweep.empty()) {
    summary = SeedsSummary(results);
  } else {
    std::vector<std::string> names;
    for (const TrainSetting& setting : plan.settings) names.push_back(setting.name);
    summary = SettingsSummary(names, results);
  }
  ShowEnd(summary, NextSteps(args, plan, results));
  std::printf(
      "report over %s: %s\n",
      CountText(static_cast<double>(folders.size()), args.sweep.empty() ? "seed" : "run").c_str(),
      report.c_str());
  return Status::Ok();
}

}  // namespace samara
