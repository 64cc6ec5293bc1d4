#include "train/runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/exit_status.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/shell.h"
#include "core/signals.h"
#include "replica/rendezvous/child.h"
#include "report/run_data.h"
#include "report/summary.h"
#include "storage/run_folder.h"
#include "train/run_session.h"
#include "view/live_lines.h"
#include "view/runs_view.h"

namespace samara {
namespace {

using nlohmann::json;
using std::string_literals::operator""s;

constexpr int kPollMs = 100;

// One thread but for Picture.
class AllRuns {
 public:
  explicit AllRuns(const RunsOptions& options)
      : options_(options),
        all_(options.runs.size()),
        places_(std::min<size_t>(options.at_once > 0 ? options.at_once : Cores(), all_)),
        results_(all_) {
    const MutexLock lock(mu_);
    state_.title = options.title, state_.kind = options.kind;
    state_.at_once = static_cast<uint32_t>(places_);
    for (const PlannedRun& run : options.runs)
      state_.runs.emplace_back().name = EscapeControl(run.name);
  }

  Result<std::vector<json>> Run();
  LivePicture Picture();

 private:
  struct Running {
    size_t index;
    std::unique_ptr<Child> child;
    json last;             // the last object that is no progress: the result, or the error
    bool stopped = false;  // by this process
  };
  Status Begin();
  void NoteFailure(const Status& failure);
  void Stop(Running& run);
  Status Start(size_t index);
  ChildCommand Command(const PlannedRun& run) const;
  void Sleep() const;
  void Forward();
  void Collect();
  void End(Running& run, int wait_status);
  void TakeLine(Running& run, std::string_view line);
  void Update(size_t index, const json& progress);

  const RunsOptions& options_;
  const size_t all_, places_;  // runs, and how many of them at once
  const SteadyTime began_ = Now();
  size_t next_ = 0;  // the first that was not begun
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<json> results_;
  size_t finished_before_ = 0;
  Status failure_;             // the first
  std::set<size_t> hopeless_;  // settings of which other runs would fail in the same way
  bool cannot_start_ = false;  // processes

  Mutex mu_;
  RunsState state_ GUARDED_BY(mu_);
};

Result<std::vector<json>> AllRuns::Run() {
  for (;;) {
    if (!StopRequested() && !cannot_start_) {
      const Status begun = Begin();
      cannot_start_ = !begun.ok();
      NoteFailure(begun);
    }
    if (running_.empty()) break;
    Sleep();
    for (const auto& run : running_) run->child->ReadLines();
    Forward();
    Collect();
  }
  const auto missing = std::ranges::count_if(results_, [](const json& r) { return r.is_null(); });
  const std::string go_on =
      fmt::format("continue with the same command and --out {}", ShellWord(options_.out.string()));
  if (!failure_.ok())
    return Status(failure_.code(),
                  fmt::format("{}; {} of {} {} are done{}", failure_.message(),
                              all_ - static_cast<size_t>(missing), all_, options_.kind,
                              failure_.code() == Code::kConfig ? "" : ", " + go_on));
  if (missing > 0) return Status(Code::kTryAgain, "stopped; " + go_on);
  if (finished_before_ == all_)
    LogInfo(options_.out.string() + ": " + std::string(kFinishedBefore) +
            options_.how_to_extend(results_[0]) + " to go on");
  return std::move(results_);
}

// Keeps the first failure.
void AllRuns::NoteFailure(const Status& failure) {
  if (failure_.ok()) failure_ = failure;
}

// Fills the places that are free.
Status AllRuns::Begin() {
  for (; next_ < all_ && running_.size() < places_; ++next_)
    if (!hopeless_.contains(options_.runs[next_].setting)) RETURN_IF_ERROR(Start(next_));
  return Status::Ok();
}

void AllRuns::Stop(Running& run) {
  if (!std::exchange(run.stopped, true)) run.child->Signal(SIGTERM);
}

ChildCommand AllRuns::Command(const PlannedRun& run) const {
  ChildCommand command;
  command.program = options_.command;
  command.umask = options_.umask;
  command.program.insert(command.program.end(), run.words.begin(), run.words.end());
  for (const std::string& word :
       {"--out"s, run.folder.string(), "--resume"s, "auto"s, "--json"s, "--progress"s})
    command.program.push_back(word);
  const size_t share = (Cores() + places_ - 1) / places_;
  const bool threads_chosen = ::getenv("OMP_NUM_THREADS") != nullptr;
  command.variables = OwnVariables([](std::string_view name) { return name == "SAMARA_CORES"; });
  command.variables.push_back(fmt::format("SAMARA_CORES={}", share));
  if (!threads_chosen) command.variables.push_back(fmt::format("OMP_NUM_THREADS={}", share));
  return command;
}

Status AllRuns::Start(size_t index) {
  ChildCommand command = Command(options_.runs[index]);
  ASSIGN_OR_RETURN(OutputPipe pipe, MakeOutputPipe());
  command.err = OwnedFd(::fcntl(pipe.childs.get(), F_DUPFD_CLOEXEC, 0));
  command.out = std::move(pipe.childs);
  auto run = std::make_unique<Running>(Running{index, nullptr, {}});
  const auto take = [this, there = run.get()](std::string_view line) { TakeLine(*there, line); };
  ASSIGN_OR_RETURN(run->child, Child::Start(command, std::move(pipe.ours), take));
  running_.push_back(std::move(run));
  const MutexLock lock(mu_);
  state_.runs[index].phase = RunState::Phase::kRunning;
  return Status::Ok();
}

// Until a run prints or ends, or a stop is asked for.
void AllRuns::Sleep() const {
  std::vector<pollfd> polls;
  if (!StopRequested()) polls.push_back({StopDescriptor(), POLLIN, 0});
  for (const auto& run : running_)
    if (run->child->output() >= 0) polls.push_back({run->child->output(), POLLIN, 0});
  (void)::poll(polls.data(), polls.size(), kPollMs);
}

void AllRuns::Forward() {
  if (TakeCheckpointRequest())
    for (const auto& run : running_) run->child->Signal(SIGUSR1);
  for (const auto& run : running_)
    if (StopRequested() || cannot_start_ || hopeless_.contains(options_.runs[run->index].setting))
      Stop(*run);
}

void AllRuns::Collect() {
  std::erase_if(running_, [this](const std::unique_ptr<Running>& run) {
    const std::optional<int> ended = run->child->Ended();
    if (ended) End(*run, *ended);
    return ended.has_value();
  });
}

void AllRuns::End(Running& run, int wait_status) {
  run.child->ReadRest();
  const int code = LaunchExitCode(wait_status, run.stopped);
  const MutexLock lock(mu_);
  RunState& shown = state_.runs[run.index];
  if (code == 0 && run.last.is_object()) {
    shown.phase = RunState::Phase::kDone;
    shown.score = HeadlineScore(run.last);
    shown.seconds = NumberOr(run.last, "seconds");
    results_[run.index] = std::move(run.last);
    return;
  }
  const bool stopped = code == static_cast<int>(Code::kTryAgain) && run.stopped;
  shown.phase = stopped ? RunState::Phase::kWaiting : RunState::Phase::kFailed;
  if (stopped) return;
  const std::string why = TextOr(run.last, "error", DescribeExit(wait_status));
  const Code failed = code == 0 ? Code::kInternal : static_cast<Code>(code);
  NoteFailure({failed, fmt::format("{}: {}", options_.runs[run.index].name, why)});
  if (failed == Code::kUsage || failed == Code::kConfig || failed == Code::kNoInput)
    hopeless_.insert(options_.runs[run.index].setting);
}

// Handles a line that a run prints: an object, or a line of its log, of which warnings are shown.
void AllRuns::TakeLine(Running& run, std::string_view line) {
  constexpr std::string_view kWarning = "samara: warning: ";
  if (line.starts_with(kWarning)) {
    LogWarning(fmt::format("{}: {}", options_.runs[run.index].name, line.substr(kWarning.size())));
    return;
  }
  if (line.find(kFinishedBefore) != line.npos) ++finished_before_;
  if (!line.starts_with('{')) return;
  json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return;
  if (const auto progress = object.find("progress"); progress != object.end())
    Update(run.index, *progress);
  else
    run.last = std::move(object);
}

void AllRuns::Update(size_t index, const json& progress) {
  const MutexLock lock(mu_);
  RunState& run = state_.runs[index];
  run.step = TextOr(progress, "step", "");
  run.trend = TextOr(progress, "trend", "");
  run.fraction = NumberOr(progress, "fraction"), run.seconds = NumberOr(progress, "seconds");
  run.left = NumberOr(progress, "left"), run.score = NumberOr(progress, "score");
}

LivePicture AllRuns::Picture() {
  const MutexLock lock(mu_);
  state_.seconds = SecondsSince(began_);
  return {[state = state_](int columns, bool colour) { return RunsLines(state, columns, colour); },
          RunsPlainLine(state_)};
}

}  // namespace

Result<std::vector<json>> TrainRuns(const RunsOptions& options) {
  const GracefulStop looked_at;
  AllRuns runs(options);
  std::optional<LiveLines> view;
  if (!options.quiet) view.emplace([&runs] { return runs.Picture(); }, stderr);
  return runs.Run();
}

}  // namespace samara
