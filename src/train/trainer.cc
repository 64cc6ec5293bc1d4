#include "train/trainer.h"

#include <fmt/format.h>
#include <malloc.h>

#include <utility>

#include "core/cpu.h"
#include "core/format.h"
#include "core/log.h"
#include "core/statistics.h"
#include "fleet/named_environment.h"
#include "play/endless.h"
#include "report/run_data.h"
#include "storage/build_info.h"
#include "view/terminal.h"

namespace samara {

using nlohmann::json;

std::unique_ptr<Trainer> MakeTrainer(ExperimentConfig config, const TrainOptions& options) {
  return config.Learns() ? MakeAgentTrainer(std::move(config), options)
                         : MakeEvolutionTrainer(std::move(config), options);
}

Result<json> Trainer::Run() {
  const Status open = Open();
  if (!open.ok() || finished_) {
    const Status released = sync_.FromMain(kStart, "").status();  // the others have nothing to do
    RETURN_IF_ERROR(open);
    RETURN_IF_ERROR(released);
    LogInfo(session_.folder().path().string() + ": " + std::string(kFinishedBefore) +
            HowToExtend(config_, *finished_) + " to go on");
    session_.Show(*finished_);
    return *finished_;
  }
  Result<json> result = RunOpened();
  endless_.reset(), stop_.reset();
  const Code code = result.status().code();
  // the others may have left at once where this rank was still waiting for them
  if (code == Code::kUnavailable && !sync_.alone() && StopRequested()) return Stopped("stopped");
  if (!result.ok() && code != Code::kTryAgain) sync_.Fail(result.status());
  if (code == Code::kUnavailable && sync_.alone())  // such as an environment that fails
    return Status(code, result.status().message() + "; " + session_.folder().log().string() +
                            " has all that was printed");
  return result;
}

Status Trainer::Open() {
  RETURN_IF_ERROR(session_.Open());
  RETURN_IF_ERROR(LoadFinishedResult());
  if (finished_) return Status::Ok();
  RETURN_IF_ERROR(Build());
  RETURN_IF_ERROR(OpenFolder());
  checkpoints_ = std::make_unique<CheckpointWriter>(session_.folder().checkpoints());
  ASSIGN_OR_RETURN(Restored restored, Restore());
  start_.run = MakeRunDescriptor(session_.table(), config_, setup_, KindOfDevice());
  metrics_ = std::make_unique<MetricsWriter>(
      session_.folder().path(), session_.folder().incarnation(), restored.step, restored.lines);
  RETURN_IF_ERROR(session_.RecordChanges());
  if (session_.resumed())
    metrics_->Write({{"event", "resumed"},
                     {words().step, restored.step},
                     {"changes", session_.changes()},
                     {"time", WallTimeIso()}});
  // of a resumed run, from its metrics
  const auto episodes = static_cast<size_t>(config_.run.random_episodes);
  if (session_.resumed()) random_returns_ = RandomReturns(session_.folder().metrics());
  start_.random_policy = episodes > 0 && random_returns_.size() != episodes;
  if (start_.random_policy) random_returns_.clear();
  schedule_.emplace(config_.run.checkpoint_seconds,
                    RetryLimits{.give_up_seconds = config_.run.disk_retry_seconds});
  return session_.folder().RemoveResult();  // of a smaller budget: the run goes on
}

// A budget that was spent and not raised: the result stands, and nothing is started for it.
Status Trainer::LoadFinishedResult() {
  if (!session_.resumed()) return Status::Ok();
  ASSIGN_OR_RETURN(std::optional<json> result, session_.ReadResult());
  if (!result) return Status::Ok();
  ASSIGN_OR_RETURN(const bool stands, ResultStands(*result));
  if (stands) finished_ = std::move(result);
  return Status::Ok();
}

Status Trainer::OpenFolder() {
  const Description run = Describe();
  RETURN_IF_ERROR(session_.Create(run.network_json, setup_, run.more, run.kept));
  RETURN_IF_ERROR(session_.CheckEnvironment(setup_));
  session_.LogHeader(run.network, run.parameters, setup_);
  const std::string faster = NativeAlternative(config_.env.id, GymOptionsOf(config_.env));
  if (!faster.empty() && !session_.resumed()) LogInfo(faster);
  start_.incarnation = session_.folder().incarnation();
  return Status::Ok();
}

Result<json> Trainer::RunOpened() {
  RETURN_IF_ERROR(sync_.FromMain(kStart, sync_.alone() ? "" : start_.Encode()).status());
  RETURN_IF_ERROR(BeginRun());
  return Finish();
}

Status Trainer::Follow(StartState start) {
  start_ = std::move(start);
  RETURN_IF_ERROR(Build());
  RETURN_IF_ERROR(start_.run.Check(setup_, KindOfDevice(), sync_.rank()));
  RETURN_IF_ERROR(BeginRun());
  RETURN_IF_ERROR(SaveLast());
  return Test().status();
}

Status Trainer::BeginRun() {
  sync_.BeginRun();
  seconds_before_ = agreed_.seconds = start_.seconds;
  started_ = Now();
  if (schedule_) schedule_->Saved(Seconds(), 0);
  RETURN_IF_ERROR(Begin());
  start_.files.clear();
  malloc_trim(0);  // a learner keeps its memory: what a replay was read from would stay
  stop_.emplace();
  if (sync_.is_main())
    endless_ = WatchForEndlessEpisodes(setup_, Played::kAll, [this] { return AwaitedOver(); });
  RETURN_IF_ERROR(RandomBaseline());
  return Loop();
}

Status Trainer::RandomBaseline() {
  if (!start_.random_policy) return Status::Ok();
  if (sync_.is_main())  // it may take long, and shows nothing
    LogInfo(fmt::format("random policy: {} to compare with",
                        CountText(static_cast<double>(config_.run.random_episodes), "episode")));
  const auto results =
      sync_.Gather(PlayRandomPolicy(static_cast<size_t>(config_.run.random_episodes)));
  if (results.status().code() == Code::kTryAgain)
    return Stopped("stopped while playing the random policy");
  RETURN_IF_ERROR(results.status());
  for (const EpisodeResult& r : *results) random_returns_.push_back(r.fitness);
  if (sync_.is_main())
    metrics_->Write({{"event", "random_policy"},
                     {"returns", random_returns_},
                     {"mean", Mean(random_returns_)},
                     {"median", Median(random_returns_)}});
  return Status::Ok();
}

Result<json> Trainer::Finish() {
  RETURN_IF_ERROR(SaveLast());
  const size_t episodes = config_.Learns()
                              ? static_cast<size_t>(config_.learning.learn.test_episodes)
                              : FinalTestEpisodes(config_);
  LogInfo("final test: " + CountText(static_cast<double>(episodes), "episode"));
  ASSIGN_OR_RETURN(const std::vector<double> test, Test());
  endless_.reset();
  stop_.reset();        // pictures are made again by a resume
  if (StopRequested())  // what comes next does not look at it, and needs no other rank
    return Stopped(std::string("stopped after the final test, ") + words().saved);
  json result = ResultOf(test);
  result.update({{"run", session_.folder().path().string()},
                 {"random_returns", random_returns_},
                 {"random_mean", MeanOrNull(random_returns_)},
                 {"cores", static_cast<double>(Cores())},
                 {"ranks", sync_.ranks()}});
  return session_.Finish(std::move(result), *metrics_, Trained(), words().video);
}

Status Trainer::Stopped(const std::string& done) const {
  return {Code::kTryAgain, done + (sync_.is_main() ? "; " + session_.HowToGoOn() : "")};
}

Status Trainer::EndGraceful(const std::string& done) {
  stop_.reset();
  return sync_.alone() && StopRequested() ? Stopped(done) : Status::Ok();
}

CheckpointInfo Trainer::MakeCheckpointInfo(uint64_t step) const {
  CheckpointInfo info;
  info.step = step;
  info.incarnation = session_.folder().incarnation();
  info.run_seconds = static_cast<uint64_t>(Seconds());
  info.build_id = ThisBuild().build_id;
  info.config_hash = session_.table().Hash();
  return info;
}

json Trainer::MeanOrNull(const std::vector<double>& x) const {
  return x.empty() ? json() : json(Mean(x));
}

bool Trainer::DrawsLive() const {
  return !options_.quiet && !options_.progress_lines && IsTerminal(stderr);
}

std::unique_ptr<Progress> Trainer::ShowLive(std::function<ProgressState()> snapshot) const {
  if (!sync_.is_main() || options_.quiet) return nullptr;
  ProgressOptions options;
  if (session_.resumed()) options.earlier = Scores(session_.folder().metrics());
  if (options_.progress_lines) options.mode = ProgressOptions::Mode::kJson;
  return std::make_unique<Progress>(std::move(snapshot), options_.progress_lines ? stdout : stderr,
                                    options);
}

std::string Trainer::Title(const std::string& network) const {
  return fmt::format("{}, {}, {}, seed {}", config_.run.name, setup_.environment.id, network,
                     config_.run.seed);
}

}  // namespace samara
