#include "train/run_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/cpu.h"
#include "core/format.h"
#include "core/log.h"
#include "core/rng.h"
#include "core/shell.h"
#include "core/signals.h"
#include "env/registry.h"
#include "play/network_module.h"
#include "play/playback.h"
#include "report/report.h"
#include "report/run_data.h"
#include "report/summary.h"
#include "storage/build_info.h"
#include "storage/quarantine.h"
#include "storage/retry.h"
#include "storage/sealed_json.h"
#include "view/animation.h"
#include "view/terminal.h"
#include "view/text_line.h"

namespace samara {

using nlohmann::json;

namespace {

void LogAll(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) LogWarning(warning);
}

}  // namespace

// Whether --resume auto finds a run.
bool Session::GoesOn() const {
  return options_.out && options_.resume_auto &&
         Exists(RootedPath::Root(*options_.out) / "config.toml");
}

Status Session::CheckNew() {
  RETURN_IF_ERROR(TakeModule(config_.learning.network));
  LogAll(Settle(config_));
  return GoesOn() ? Status::Ok() : CheckRoom();
}

Status Session::Open() {
  if (options_.resume) return OpenExisting(*options_.resume);
  RETURN_IF_ERROR(TakeModule(config_.learning.network));
  if (GoesOn()) return OpenExisting(*options_.out);
  warnings_ = Settle(config_);
  return CheckRoom();
}

Status Session::CheckRoom() const {
  return options_.out ? RunFolder::CheckRoom(*options_.out) : Status::Ok();
}

namespace {

// Configuration of a run folder before it is opened; `given` where that cannot be read, which Open
// refuses.
ExperimentConfig RecordedIn(const Path& path, const ExperimentConfig& given) {
  ExperimentConfig recorded = given;
  const auto toml = ReadFile(RootedPath::Root(path) / "config.toml");
  if (!toml.ok()) return recorded;
  recorded.ChooseAlgorithm(*toml);
  const Status parsed =
      recorded.Table().ParseToml(*toml, "config.toml", ConfigTable::Origin::kRecorded);
  return parsed.ok() ? recorded : given;
}

}  // namespace

Status Session::OpenExisting(const Path& path) {
  resumed_ = true;
  Settle(config_);
  const std::string wanted = table_.Hash();
  const bool exists = Exists(RootedPath::Root(path) / "run.json");
  const auto check_trusted = [&](const ExperimentConfig& config) {
    const bool trusted = !exists || options_.trust || ChoosesAllCode(config, options_.overrides);
    return trusted ? Status::Ok() : CheckOwn(path);
  };
  RETURN_IF_ERROR(check_trusted(RecordedIn(path, config_)));  // before anything is changed in it
  ASSIGN_OR_RETURN(folder_, RunFolder::Open(path, RunFolder::Mode::kWrite));
  RETURN_IF_ERROR(AttachLog());
  SetStopAdvice(HowToGoOn());
  const Status another(Code::kConfig, path.string() +
                                          ": holds another configuration; choose another --out, or "
                                          "continue what it holds by --resume " +
                                          path.string());
  const Status parsed = table_.ParseToml(folder_->config_toml(), (path / "config.toml").string(),
                                         ConfigTable::Origin::kRecorded);
  if (!parsed.ok() && options_.resume_auto &&
      TextIn(folder_->config_toml(), "run.algorithm") != config_.run.algorithm)
    return another;  // whose keys this one has not
  RETURN_IF_ERROR(parsed);
  RETURN_IF_ERROR(check_trusted(config_));  // which may have changed since
  RETURN_IF_ERROR(TakeModule(*folder_, config_.learning.network));
  Settle(config_);
  if (options_.resume_auto && table_.Hash() != wanted) return another;
  return ApplyOverridesOnResume();
}

namespace {

// Whether a budget that was not reached yet would become smaller; 0 is no bound.
bool Shrinks(const std::string& before, const std::string& after) {
  const double had = std::stod(before), has = std::stod(after);
  return has > 0 && (had == 0 || has < had);
}

}  // namespace

// Budgets may grow and the fleet may change; what decides the numbers may not. What counts is what
// all overrides together make of the configuration.
Status Session::ApplyOverridesOnResume() {
  std::vector<std::string> before;
  for (const ConfigField& field : table_.fields()) before.push_back(field.get());
  for (const std::string& assignment : options_.overrides)
    RETURN_IF_ERROR(table_.Override(assignment));
  RETURN_IF_ERROR(TakeModule(config_.learning.network));
  const std::vector<std::string> warnings = Settle(config_);
  for (size_t i = 0; i < before.size(); ++i) {
    const ConfigField& field = table_.fields()[i];
    const bool smaller = field.on_resume == OnResume::kMayGrow && Shrinks(before[i], field.get());
    // a requeued command repeats the budget that the run had before it was raised
    if (smaller && options_.resume_auto) RETURN_IF_ERROR(field.set(before[i]));
    if (field.get() == before[i]) continue;
    changes_.push_back(fmt::format("{}={}", field.key, field.get()));
    if (smaller) {
      const bool limited = std::stod(before[i]) > 0;
      return {Code::kConfig,
              fmt::format("{}={}: the run has {}={}{}, and a budget can only grow; leave it out{}",
                          field.key, field.get(), field.key, before[i],
                          limited ? "" : ", which is no limit", limited ? " or raise it" : "")};
    }
    if (field.on_resume == OnResume::kMustMatch || field.on_resume == OnResume::kMustMatchAdded) {
      return {Code::kConfig,
              fmt::format("{}={}: the run has {}={}, which a resumed run cannot change; start a "
                          "new run",
                          field.key, field.get(), field.key, before[i])};
    }
  }
  LogAll(warnings);
  return Status::Ok();
}

Status Session::RecordChanges() {
  return changes_.empty() ? Status::Ok() : folder_->UpdateConfig(table_.ToToml());
}

Result<std::optional<json>> Session::ReadResult() const {
  auto read = folder_->ReadResult();
  // what it says can be found out again
  if (read.status().code() == Code::kBadData) {
    RETURN_IF_ERROR(Quarantine(folder_->path() / "result.json", read.status()));
    return std::optional<json>();
  }
  ASSIGN_OR_RETURN(std::optional<json> result, std::move(read));
  if (!result) return result;
  // the folder may have been moved since
  const std::string before = result->value("run", std::string());
  for (json& value : *result) {
    if (!value.is_string() || before.empty()) continue;
    const std::string text = value.get<std::string>();
    if (text == before || text.starts_with(before + "/"))
      value = folder_->path().string() + text.substr(before.size());
  }
  return result;
}

Status Session::Create(const json& network, const EnvironmentSetup& setup, const json& more,
                       const RunFolder::KeptFiles& kept) {
  if (folder_ != nullptr) return Status::Ok();
  json identity = MakeIdentity(table_.Hash(), config_.run.seed, options_.command);
  identity.update(more);
  identity["network"] = network;
  identity["environment"] = {{"id", setup.environment.id},
                             {"version", setup.environment.version},
                             {"preset", setup.header},
                             {"actions", setup.environment.action_names}};
  ASSIGN_OR_RETURN(folder_, RunFolder::Create(options_.out.value_or(Path()), config_.run.name,
                                              table_.ToToml(), identity, kRunBytesNeeded, kept));
  SetStopAdvice(HowToGoOn());
  RETURN_IF_ERROR(AttachLog());
  LogAll(warnings_);
  return Status::Ok();
}

// A full disk leaves the run without log lines; a log that is no file is not the run's own.
Status Session::AttachLog() const {
  const Status attached = AttachLogFile(folder_->log());
  if (attached.code() == Code::kBadData) return attached;
  if (!attached.ok()) LogWarning(attached.message() + "; going on without a log");
  return Status::Ok();
}

Status Session::CheckEnvironment(const EnvironmentSetup& setup) const {
  ASSIGN_OR_RETURN(const std::string built_on,
                   TextMember(folder_->identity().value("environment", json()), "version",
                              (folder_->path() / "run.json").string()));
  if (built_on == setup.environment.version) return Status::Ok();
  return {Code::kConfig,
          fmt::format("{}: was made with '{}', this machine has '{}'; a resumed run cannot change "
                      "its environment",
                      folder_->path().string(), built_on, setup.environment.version)};
}

void Session::LogHeader(const std::string& network_name, int64_t parameters,
                        const EnvironmentSetup& setup) const {
  LogInfo(fmt::format("samara {} ({}), {}, kernels {}", ThisBuild().version,
                      ThisBuild().git_revision, CpuName(), Name(ActiveIsa())));
  LogInfo(fmt::format("run {}: {} on {}, {} parameters, seed {}", folder_->path().string(),
                      config_.run.algorithm, setup.environment.id,
                      Grouped(static_cast<double>(parameters)), config_.run.seed));
  Log(LogLevel::kDebug, "network: " + network_name);
  for (size_t at = 0; at < setup.header.size();) {  // a line of log.txt each
    const size_t end = std::min(setup.header.find('\n', at), setup.header.size());
    Log(LogLevel::kDebug, setup.header.substr(at, end - at));
    at = end + 1;
  }
}

void Session::Show(const json& result) const { ShowEnd(FinalSummary(result), NextSteps(result)); }

void ShowEnd(const std::string& summary, const std::string& next_steps) {
  constexpr int kIndent = 11;  // of what a row says
  const int columns = ColumnsOf(stderr);
  std::fprintf(stderr, "%s%s\n", Folded(summary, columns, kIndent).c_str(),
               Folded(next_steps, columns, kIndent, " \\").c_str());
}

Status Session::MakeDurable(const std::string& missing,
                            const std::function<Status()>& write) const {
  const Status status =
      RetryIo(write, WaitForStop, {.give_up_seconds = config_.run.disk_retry_seconds});
  if (status.ok()) return status;
  return {status.code(), fmt::format("{}; {}; {}", status.message(), missing, HowToGoOn())};
}

namespace {

// The film where those look who follow several runs. Without it nothing else is missing.
void WriteAnimation(const json& result, MetricsWriter& metrics) {
  const std::string file = result["video"];
  const Result<Animation> film = AnimationOf(RootedPath(file));
  if (!film.ok())
    return Log(LogLevel::kDebug, "TensorBoard shows no video: " + film.status().message());
  metrics.WriteImage("video", static_cast<uint64_t>(NumberOr(result, "frames", 0)),
                     {.encoded = film->gif, .width = film->width, .height = film->height});
}

}  // namespace

Result<json> Session::Finish(json result, MetricsWriter& metrics, const Result<Policy>& policy,
                             const std::string& video) const {
  const auto add = [&](const char* name, const char* what, const RootedPath& file,
                       const Status& made) {
    if (made.ok())
      result[name] = file.string();
    else
      LogWarning(fmt::format("no {}: {}", what, made.message()));
  };
  if (config_.run.video) {
    const RootedPath file = folder_->videos() / video;
    const uint64_t episode =
        DeriveKey(static_cast<uint64_t>(config_.run.seed), Purpose::kEpisodeEval);
    // of a run of a second a longer film would be half of its time
    const double longest = std::clamp(10 * NumberOr(result, "seconds", 30), 5.0, 300.0);
    add("video", "video", file,
        policy.ok() ? RecordVideo(*policy, episode, file, longest).status() : policy.status());
  }
  const std::vector<Path> runs = {folder_->path().path()};
  const RootedPath curve = folder_->path() / "learning_curve.svg";
  add("learning_curve", "learning curve", curve, WriteLearningCurve(runs, curve));
  const RootedPath map = folder_->path() / "map.svg", archive = folder_->path() / "archive.svg";
  if (const Result<bool> drawn = WriteMap(runs[0], map); !drawn.ok() || *drawn)
    add("map", "map", map, drawn.status());
  if (const Result<bool> drawn = WriteArchive(runs[0], archive); !drawn.ok() || *drawn)
    add("archive", "picture of the archive", archive, drawn.status());
  json line = result;
  line["event"] = "finished";
  metrics.Write(line);
  if (result.contains("video")) WriteAnimation(result, metrics);
  const RootedPath report = folder_->path() / "report.html";
  add("report", "report", report, WriteReport(runs, report));  // of the line too
  RETURN_IF_ERROR(MakeDurable("the result is not saved, all that it speaks of is",
                              [&] { return folder_->SaveResult(result); }));
  Show(result);
  return result;
}

// A second signal may still come before the process has ended: its line keeps the advice.
Session::~Session() {
  if (!StopRequested()) SetStopAdvice("");
}

namespace {

std::vector<std::string> BudgetsTimes(double factor, const ExperimentConfig& config) {
  ExperimentConfig bound = config;
  const ConfigTable table = bound.Table();
  std::vector<std::string> budgets;
  for (const ConfigField& field : table.fields()) {
    if (field.on_resume != OnResume::kMayGrow || field.key.find("schedule") != field.key.npos)
      continue;
    if (const double value = std::stod(field.get()); value > 0)
      budgets.push_back(fmt::format("{}={:.15g}", field.key, factor * value));
  }
  return budgets;
}

}  // namespace

std::vector<std::string> Budgets(const ExperimentConfig& config) { return BudgetsTimes(1, config); }

std::vector<std::string> RaisedBudgets(const ExperimentConfig& config) {
  std::vector<std::string> budgets = BudgetsTimes(2, config);
  const OptimizerConfig& optimizer = config.learning.optimizer;
  const double frames = 2 * config.learning.learn.frames;
  if (config.Learns() && optimizer.schedule == RateSchedule::kLinear &&
      frames > optimizer.schedule_frames)
    budgets.push_back(fmt::format("optimizer.schedule_frames={:.15g}", frames));
  return budgets;
}

std::string EndedByScore(const ExperimentConfig& config, const json& result) {
  const auto has = [&result](const char* field) {
    const auto found = result.find(field);
    return found != result.end() && !found->is_null();
  };
  if (config.Learns()) return config.run.stop_at && has("solved_frames") ? "run.stop_at=none" : "";
  return config.run.stop_when_solved && has("solved_at") ? "run.stop_when_solved=false" : "";
}

std::string HowToExtend(const ExperimentConfig& config, const json& result) {
  if (const std::string key = EndedByScore(config, result); !key.empty()) return "set " + key;
  const std::vector<std::string> budgets = Budgets(config);
  return budgets.empty() ? "raise a budget" : fmt::format("raise {}", fmt::join(budgets, " or "));
}

std::string HowToWatch(const ExperimentConfig& config, const json& result, const Path& run) {
  const auto drawn = [&config] {
    if (config.run.video) return false;  // none could be made
    const auto spec = NativeSpec(config.env.id, /*render=*/true);
    return !spec || spec->render_height > 0;
  };
  if (!result.contains("video") && !drawn()) return {};
  return fmt::format("  watch    samara play {}\n", ShellWord(EscapeControl(run.string())));
}

std::string Session::NextSteps(const json& result) const {
  const std::string run = ShellWord(EscapeControl(folder_->path().string()));
  std::string text = HowToWatch(config_, result, folder_->path().path());
  const std::string score = EndedByScore(config_, result);
  const auto budgets = score.empty() ? RaisedBudgets(config_) : std::vector{score};
  if (!budgets.empty())
    text += fmt::format("  go on    samara train --resume {} {}\n", run, fmt::join(budgets, " "));
  return text;
}

std::string Session::HowToGoOn() const {
  return "continue with 'samara train --resume " + folder_->path().string() + "'";
}

}  // namespace samara
