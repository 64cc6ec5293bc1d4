#include "report/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/statistics.h"
#include "core/toml.h"
#include "storage/metrics.h"
#include "storage/run_folder.h"
#include "storage/sealed_json.h"

namespace samara {
namespace {

using nlohmann::json;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

std::string TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  std::ostringstream out;
  if (const auto* number = node.as_floating_point())
    return fmt::format("{}", number->get());
  else if (const auto* integer = node.as_integer())
    return fmt::format("{}", integer->get());
  else if (const auto* boolean = node.as_boolean())
    return boolean->get() ? "true" : "false";
  else if (const auto* array = node.as_array())
    out << *array;
  return out.str();
}

void Flatten(const toml::table& table, const std::string& prefix,
             std::vector<std::pair<std::string, std::string>>& out) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = node.as_table())
      Flatten(*inner, name + ".", out);
    else
      out.emplace_back(name, TextOf(node));
  }
}

Status ReadConfig(const RootedPath& path, RunData& run) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed)
    return {Code::kBadData,
            fmt::format("{}, line {}: not TOML ({})", path.string(),
                        parsed.error().source().begin.line, parsed.error().description())};
  Flatten(parsed.table(), "", run.config);
  return Status::Ok();
}

Status ReadIdentity(const RootedPath& path, RunData& run) {
  Result<std::string> text = ReadFile(path);
  if (text.status().code() == Code::kNoInput) return Status::Ok();
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(run.identity, ParseJson(*text, path.string()));
  if (!run.identity.is_object())
    return {Code::kBadData, path.string() + ": expected a JSON object"};
  return Status::Ok();
}

void TakeChanges(const json& resumed, RunData& run) {
  const auto changes = resumed.find("changes");
  if (changes == resumed.end() || !changes->is_array()) return;
  for (const json& change : *changes) {
    if (!change.is_string()) continue;
    const auto text = change.get<std::string>();
    run.changes.insert(text.substr(0, text.find('=')));
  }
}

void TakeLine(json line, RunData& run, std::map<int64_t, json>& steps) {
  const std::string event = TextOr(line, "event", "");
  if (event == "random_policy") {
    run.random_policy = std::move(line);
  } else if (event == "finished") {
    run.finished = std::move(line);
  } else if (event == "resumed") {
    ++run.resumes;
    run.finished = json::object();  // no longer the end
    TakeChanges(line, run);
  } else if (const auto step = StepOf(line); event.empty() && step) {
    // what was repeated after a crash: the last line counts
    steps[static_cast<int64_t>(*step)] = std::move(line);
  }
}

Status TakeMetrics(const RootedPath& path, RunData& run) {
  auto lines = ReadMetrics(path);
  if (lines.status().code() == Code::kNoInput) return Status::Ok();
  RETURN_IF_ERROR(lines.status());
  std::map<int64_t, json> steps;
  for (json& line : *lines) TakeLine(std::move(line), run, steps);
  for (auto& [step, line] : steps) run.lines.push_back(std::move(line));
  return Status::Ok();
}

// The preset as the command line named it: what follows "train".
std::string PresetOfCommand(const json& identity) {
  if (!identity.contains("command") || !identity["command"].is_array()) return "";
  const json& words = identity["command"];
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "train" && words[i + 1].is_string() &&
        !words[i + 1].get<std::string>().starts_with('-'))
      return words[i + 1];
  return "";
}

void Describe(RunData& run) {
  const bool learns = !run.Config("learn.frames").empty() ||
                      (!run.lines.empty() && run.lines.back().contains(kLearningKind.step));
  run.kind = learns ? &kLearningKind : &kEvolutionKind;
  const auto first_of = [](std::initializer_list<std::string> candidates) {
    for (const std::string& text : candidates)
      if (!text.empty()) return text;
    return std::string();
  };
  const json& id = run.identity;
  run.preset = first_of({TextOr(id, "preset", ""), run.Config("run.preset"), PresetOfCommand(id),
                         run.Config("run.name")});
  run.game = first_of({TextOr(id, "game", ""), run.Config("env.id"), run.Config("env.game"),
                       run.Config("env.name")});
  const double seed = NumberOr(id, "seed");
  run.seed = first_of({run.Config("run.seed"), std::isnan(seed) ? "" : fmt::format("{}", seed)});
}

}  // namespace

const RunKind kEvolutionKind = {
    .step = "generation",
    .steps_total = "generation",
    .agent = "elite",
    .test_returns = {"elite_test_returns", "elite_returns"},
    .test_means = {"elite_mean", "elite_test_mean"},
    .curve = "elite_validation_mean",
    .curve_name = "Elite's validation mean",
    .curve_short = "elite in validation",
    .frames = "frames (population and validation)",
};
const RunKind kLearningKind = {
    .step = "update",
    .steps_total = "updates",
    .agent = "agent",
    .test_returns = {"test_returns", "test_returns"},
    .test_means = {"test_mean", "test_mean"},
    .curve = "return_last100",
    .curve_name = "Return, mean of the last 100 episodes",
    .curve_short = "last 100 episodes",
    .frames = "frames",
};

double NumberOr(const json& object, const char* key, double otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string TextOr(const json& object, const char* key, const std::string& otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

std::vector<double> NumbersOf(const json& object, const char* key) {
  std::vector<double> numbers;
  if (!object.is_object() || !object.contains(key) || !object[key].is_array()) return numbers;
  for (const json& value : object[key])
    if (value.is_number()) numbers.push_back(value.get<double>());
  return numbers;
}

std::vector<double> RandomReturns(const RootedPath& metrics) {
  std::vector<double> returns;
  const auto lines = ReadMetrics(metrics);
  for (const json& line : lines.ok() ? *lines : std::vector<json>())
    if (TextOr(line, "event", "") == "random_policy") returns = NumbersOf(line, "returns");
  return returns;
}

std::vector<double> Scores(const RootedPath& metrics) {
  std::vector<double> scores;
  const auto lines = ReadMetrics(metrics);
  for (const json& line : lines.ok() ? *lines : std::vector<json>())
    for (const char* key : {"fitness_max", "return_last100"})
      if (const double score = NumberOr(line, key); std::isfinite(score)) scores.push_back(score);
  return scores;
}

std::string RunData::Config(const std::string& key) const {
  const auto found = std::find_if(config.begin(), config.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  return found == config.end() ? "" : found->second;
}

std::vector<double> RunData::Column(const char* column) const {
  std::vector<double> values;
  values.reserve(lines.size());
  for (const json& line : lines) values.push_back(NumberOr(line, column));
  return values;
}

double RunData::Total(const char* column) const {
  double total = kMissing;
  for (const json& line : lines)
    if (const double value = NumberOr(line, column); std::isfinite(value))
      total = std::isnan(total) ? value : total + value;
  return total;
}

double RunData::Final(const char* column) const { return NumberOr(finished, column, Last(column)); }

double RunData::Steps() const { return NumberOr(finished, kind->steps_total, Last(kind->step)); }

double RunData::Last(const char* column) const {
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (const double value = NumberOr(*line, column); !std::isnan(value)) return value;
  return kMissing;
}

std::vector<double> RunData::TestReturns() const {
  for (const char* key : kind->test_returns)
    if (auto returns = NumbersOf(finished, key); !returns.empty()) return returns;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (auto returns = NumbersOf(*line, kind->test_returns[0]); !returns.empty()) return returns;
  return {};
}

std::vector<double> RunData::RandomReturns() const { return NumbersOf(random_policy, "returns"); }

double RunData::TestMean() const {
  if (const auto returns = TestReturns(); !returns.empty()) return Mean(returns);
  const double mean = NumberOr(finished, kind->test_means[0]);
  return std::isnan(mean) ? Last(kind->test_means[1]) : mean;
}

double RunData::RandomMean() const {
  if (const auto returns = RandomReturns(); !returns.empty()) return Mean(returns);
  const double mean = NumberOr(random_policy, "mean");
  return std::isnan(mean) ? NumberOr(finished, "random_mean") : mean;
}

Result<RunData> LoadRun(const Path& folder) {
  RunData run;
  run.folder = RootedPath::Root(folder);
  if (const Status listed = ListFolder(run.folder).status(); listed.code() == Code::kNotPermitted)
    return Status(listed.code(), listed.message() + ": its owner can let you read it");
  if (KindOf(run.folder) != FileKind::kFolder)
    return Status(Code::kNoInput,
                  fmt::format("no run folder {}: expected the folder that samara train wrote",
                              folder.string()));
  if (!Exists(run.folder / "config.toml")) {
    const bool damaged = Exists(run.folder / "run.json");
    return damaged ? Status(Code::kBadData, (run.folder / "config.toml").string() +
                                                ": missing; restore it from a copy of the run")
                   : Status(Code::kNoInput, folder.string() +
                                                " holds no run: expected the folder that samara "
                                                "train wrote, with config.toml in it");
  }
  RETURN_IF_ERROR(CheckKinds(run.folder));
  const Path clean = folder.lexically_normal();
  run.name = (clean.has_filename() ? clean : clean.parent_path()).filename().string();
  RETURN_IF_ERROR(ReadConfig(run.folder / "config.toml", run));
  RETURN_IF_ERROR(ReadIdentity(run.folder / "run.json", run));
  RETURN_IF_ERROR(TakeMetrics(run.folder / "metrics.jsonl", run));
  const RootedPath videos = run.folder / "videos";
  const auto names = ListFolder(videos);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>())
    if (name.ends_with(".mp4")) run.videos.push_back(videos / name);
  // the line may be missing where the disk refused it; the result is durable
  if (run.finished.empty()) {
    const auto result = ReadSealedJson(run.folder / "result.json");
    if (result.ok() && result->contains("result")) run.finished = (*result)["result"];
  }
  Describe(run);
  return run;
}

}  // namespace samara
