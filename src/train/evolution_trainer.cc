#include "train/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/log.h"
#include "core/rng.h"
#include "storage/build_info.h"
#include "storage/checkpoint.h"
#include "storage/evolution_journal.h"
#include "run/evolution_ranks.h"
#include "storage/journal.h"
#include "storage/metrics.h"
#include "play/saved_policy.h"
#include "view/progress.h"
#include "storage/retry.h"
#include "report/run_data.h"
#include "storage/run_folder.h"
#include "train/run_session.h"
#include "core/signals.h"
#include "core/statistics.h"

namespace samara {
namespace {

using nlohmann::json;

// The whole of one run, in the order things happen.
class EvolutionRun {
 public:
  EvolutionRun(ExperimentConfig config, const TrainOptions& options)
      : session_(std::move(config), options), config_(session_.config()), options_(options) {
    if (options.ranks != nullptr) ranks_.emplace(*options.ranks);
  }

  Result<json> Run() {
    Result<json> result = RunAlone();
    stop_.reset();
    if (!ranks_) return result;
    // the others may have left at once where this rank was still waiting for them
    if (result.status().code() == Code::kUnavailable && StopRequested())
      result = Status(Code::kTryAgain, "stopped; " + session_.HowToGoOn());
    const Status ended = EndRanks();
    return result.ok() && !ended.ok() ? ended : result;
  }

 private:
  Result<json> RunAlone() {
    RETURN_IF_ERROR(session_.Open());
    if (session_.resumed()) folder_ = &session_.folder();
    RETURN_IF_ERROR(RecallResult());
    if (finished_) return Finish();
    RETURN_IF_ERROR(SetTheStage());
    RETURN_IF_ERROR(Restore());
    stop_.emplace();
    RETURN_IF_ERROR(folder_->RemoveResult());  // of a smaller budget: the run goes on
    RETURN_IF_ERROR(PlayRandomPolicy());
    RETURN_IF_ERROR(Generations());
    return Finish();
  }
  // 1 folder and configuration: nothing is made before both are known to be good
  Status RecallResult();
  // 2 environments, network, algorithm
  Status SetTheStage();
  // 3 the newest state that is whole
  Status Restore();
  void OpenMetrics(const JournalContents& journal);
  std::vector<FinishedEpisodes> KeepFinishedEpisodes(const JournalContents& journal);
  // 4 what a policy that knows nothing gets
  Status PlayRandomPolicy();
  // 5 the generations, each durable before it is reported
  Status Generations();
  Status OneGeneration();
  Status MakeDurable();
  json MetricsLine(const GenerationReport& report, const StageSeconds& spent) const;
  void NotePhases(const GenerationReport& report, double episodes);
  Status WriteCheckpoint();
  Status SaveCheckpoint();
  // With several ranks: the others do what this one is about to do.
  Status Announce(Act act, std::string details = {}) {
    return ranks_ ? ranks_->Announce(act, std::move(details)) : Status::Ok();
  }
  Status EndRanks();
  // 6 test, video, curve, result
  Result<json> Finish();
  Result<std::vector<double>> FinalTest();

  double Seconds() const { return seconds_before_ + SecondsSince(start_); }
  bool TimeSpent() const {
    return config_.run.minutes > 0 && Seconds() >= config_.run.minutes * 60;
  }
  ProgressState Snapshot() const;
  Policy ElitePolicy() const;
  GenerationRecord Record() const {
    return {ga_->state(), fitness_, Seconds(), metrics_line_.dump()};
  }

  Session session_;
  const ExperimentConfig& config_;
  const TrainOptions& options_;
  std::optional<EvolutionRanks> ranks_;
  bool ranks_ended_ = false;
  std::optional<GracefulStop> stop_;  // while episodes are played, which look at it
  std::optional<json> finished_;      // the result of a run that was finished before
  RunFolder* folder_ = nullptr;       // the session's
  Stage stage_;
  NetworkDescription network_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<DeepGa> ga_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::optional<CheckpointSchedule> schedule_;
  SteadyTime start_ = Now();
  double seconds_before_ = 0;
  uint64_t journalled_ = 0;             // the last generation that the journal holds
  json metrics_line_ = json::object();  // of the last generation
  std::vector<double> fitness_;         // of the last generation
  std::vector<double> random_returns_;
  mutable std::mutex mu_;
  // guarded by mu_ against the live view
  SteadyTime generation_began_ = Now();
  double frames_before_ = 0;                                  // counted frames then
  GenerationPace::Spent last_generation_;                     // since the start or the resume
  std::vector<std::pair<std::string, double>> last_seconds_;  // of the last generation's phases
  std::atomic<double> best_{ProgressState::kUnknown}, random_mean_{ProgressState::kUnknown},
      elite_{ProgressState::kUnknown};
};

// A budget that was spent and not raised: the result stands, and nothing is started for it.
Status EvolutionRun::RecallResult() {
  if (!session_.resumed()) return Status::Ok();
  ASSIGN_OR_RETURN(std::optional<json> result, session_.ReadResult());
  if (!result) return Status::Ok();
  const auto newest = FindGeneration(folder_->path().path());
  if (!newest.ok()) return Status::Ok();  // Restore looks further
  const bool spent = BudgetSpent(config_.ga, newest->state) ||
                     (config_.run.minutes > 0 && newest->seconds >= config_.run.minutes * 60);
  if (spent && result->value("generation", uint64_t{0}) == newest->state.generation)
    finished_ = std::move(result);
  return Status::Ok();
}

// What is known to be good before anything is made on disk.
Result<Stage> EvolutionStage(const ExperimentConfig& config) {
  ASSIGN_OR_RETURN(Stage stage, MakeStage(config));
  RETURN_IF_ERROR(CheckSize(config.ga, stage.network()));
  return stage;
}

Status EvolutionRun::SetTheStage() {
  ASSIGN_OR_RETURN(stage_, EvolutionStage(config_));
  network_ = stage_.network();
  RETURN_IF_ERROR(session_.Create(ToJson(network_), stage_));
  folder_ = &session_.folder();
  RETURN_IF_ERROR(session_.CheckEnvironment(stage_));
  ASSIGN_OR_RETURN(evaluator_, MakeEvaluator(config_, stage_));
  if (ranks_) evaluator_ = MakeSharedEvaluator(std::move(evaluator_), *ranks_);
  ga_ = std::make_unique<DeepGa>(GaConfigOf(config_), static_cast<uint64_t>(config_.run.seed),
                                 network_, *evaluator_, stage_.episodes);
  session_.LogHeader(network_.name, network_.parameter_count, stage_);
  return Status::Ok();
}

void EvolutionRun::OpenMetrics(const JournalContents& journal) {
  std::vector<json> saved;
  for (const JournalRecord& record : journal.records) {
    if (record.type != kGenerationRecord) continue;
    const auto generation = GenerationRecord::Decode(record.payload);
    if (!generation.ok()) continue;
    json line = json::parse(generation->metrics, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) saved.push_back(std::move(line));
  }
  metrics_ = std::make_unique<MetricsWriter>(folder_->path(), folder_->incarnation(),
                                             ga_->state().generation, saved);
}

// The episodes of a generation that was cut short, and those of the ones to come.
std::vector<FinishedEpisodes> EvolutionRun::KeepFinishedEpisodes(const JournalContents& journal) {
  std::vector<FinishedEpisodes> reused;
  for (const JournalRecord& record : journal.records) {
    if (record.type != kFinishedRecord) continue;
    const auto finished = FinishedEpisodes::Decode(record.payload);
    if (!finished.ok()) {
      LogWarning(finished.status().message() + ": they are played again");
      continue;
    }
    if (finished->generation != ga_->state().generation + 1) continue;
    LogInfo(fmt::format("{} finished episodes of generation {} are reused",
                        finished->results.size(), finished->generation));
    ga_->Reuse(*finished);
    reused.push_back(*finished);
  }
  // the thread that runs Step is waiting meanwhile: nobody else appends
  ga_->KeepFinished(config_.run.checkpoint_seconds, [this](const FinishedEpisodes& finished) {
    const Status kept = journal_->Append(kFinishedRecord, finished.Encode());
    if (!kept.ok()) LogError("finished episodes are not saved yet: " + kept.message());
    return kept.ok();
  });
  return reused;
}

Status EvolutionRun::Restore() {
  ASSIGN_OR_RETURN(const std::optional<Checkpoint> checkpoint,
                   LatestGoodCheckpoint(folder_->checkpoints(), OnBadCheckpoint::kSetAside));
  JournalContents contents;
  ASSIGN_OR_RETURN(journal_,
                   Journal::Open(folder_->journal(), Journal::OnDamage::kKeepGoodPart, &contents,
                                 checkpoint ? checkpoint->info.journal : std::nullopt));
  checkpoints_ = std::make_unique<CheckpointWriter>(folder_->checkpoints());
  ASSIGN_OR_RETURN(std::optional<GenerationRecord> newest, LastGeneration(contents));
  // a checkpoint is newer only when the journal lost its end: the journal gets that back
  if (checkpoint && (!newest || checkpoint->info.step > newest->state.generation)) {
    const auto found = checkpoint->files.find("state.bin");
    if (found == checkpoint->files.end())
      return {Code::kBadData,
              checkpoint->path.string() + ": holds no state.bin: another program's"};
    const std::string& state = found->second;
    ASSIGN_OR_RETURN(newest, GenerationRecord::Decode(state));
    RETURN_IF_ERROR(journal_->Append(kGenerationRecord, state));
    contents.records.push_back({.type = kGenerationRecord, .payload = state});
  }
  if (newest) {
    journalled_ = newest->state.generation;
    seconds_before_ = newest->seconds;
    fitness_ = newest->fitness;
    metrics_line_ = json::parse(newest->metrics, nullptr, /*allow_exceptions=*/false);
    elite_ = newest->state.elite_mean;
    if (!fitness_.empty()) best_ = *std::max_element(fitness_.begin(), fitness_.end());
    ga_->Restore(newest->state);
    LogInfo(fmt::format("resumed after generation {}, {} frames", newest->state.generation,
                        newest->state.frames));
  }
  std::vector<FinishedEpisodes> finished = KeepFinishedEpisodes(contents);
  OpenMetrics(contents);
  if (session_.resumed())
    metrics_->Write(
        {{"event", "resumed"}, {"generation", ga_->state().generation}, {"time", WallTimeIso()}});
  RETURN_IF_ERROR(Announce(Act::kStart, EvolutionStart{MakeRankZero(session_.table(), stage_),
                                                       ga_->state(), std::move(finished)}
                                            .Encode()));
  start_ = Now();
  schedule_.emplace(config_.run.checkpoint_seconds,
                    RetryLimits{.give_up_seconds = config_.run.disk_retry_seconds});
  schedule_->Saved(Seconds(), 0);
  // another journal took over: from now on a checkpoint pins that one
  const auto pin = checkpoint ? checkpoint->info.journal : std::nullopt;
  return pin && pin->id != journal_->tip().id ? SaveCheckpoint() : Status::Ok();
}

Status EvolutionRun::PlayRandomPolicy() {
  const auto episodes = static_cast<size_t>(config_.run.random_episodes);
  if (episodes == 0) return Status::Ok();
  if (session_.resumed()) random_returns_ = RandomReturns(folder_->metrics());
  if (random_returns_.size() == episodes) {
    random_mean_ = Mean(random_returns_);
    return Status::Ok();
  }
  random_returns_.clear();
  RETURN_IF_ERROR(Announce(Act::kRandomPolicy));
  const std::vector<Task> tasks = RandomPolicyTasks(config_.run, stage_.episodes);
  LocalWork work(tasks, StopRequested);
  const FixedParameters none(std::span<const float>{});
  RETURN_IF_ERROR(evaluator_->Play(none, work));
  if (work.posted() < episodes)
    return {Code::kTryAgain, "stopped while playing the random policy; " + session_.HowToGoOn()};
  for (const auto& r : work.TakeResults()) random_returns_.push_back(r.fitness);
  random_mean_ = Mean(random_returns_);
  metrics_->Write({{"event", "random_policy"},
                   {"returns", random_returns_},
                   {"mean", Mean(random_returns_)},
                   {"median", Median(random_returns_)}});
  return Status::Ok();
}

ProgressState EvolutionRun::Snapshot() const {
  const GaProgress p = ga_->progress();
  const StageSeconds stages = evaluator_->seconds();
  ProgressState s;
  s.title = fmt::format("{}, {}, {}, seed {}", config_.run.name, stage_.environment.id,
                        network_.name, config_.run.seed);
  s.generation = static_cast<int64_t>(p.generation);
  s.generations = config_.ga.generations;
  s.frames = static_cast<int64_t>(p.frames);
  s.frames_budget = config_.ga.frames;
  s.seconds = Seconds();
  s.seconds_budget = config_.run.minutes * 60;
  s.pace.emplace();
  s.pace->now.episodes = static_cast<double>(p.episodes_done);
  s.pace->episodes_total = static_cast<double>(p.episodes_total);
  s.phase = p.phase;
  s.phase_done = static_cast<int64_t>(p.done);
  s.phase_total = static_cast<int64_t>(p.total);
  s.stages = WorkShares({{"materialise", stages.materialise},
                         {"inference", stages.inference},
                         {"environment", stages.environment}});
  {
    const std::lock_guard lock(mu_);
    s.last_seconds = last_seconds_;
    s.pace->before = last_generation_;
    s.pace->now.seconds = SecondsSince(generation_began_);
    s.pace->now.frames = std::max(static_cast<double>(p.frames) - frames_before_, 0.0);
  }
  s.best = std::isnan(best_) ? p.best : best_.load();
  s.elite = elite_;
  s.random = random_mean_;
  s.respawns = static_cast<int64_t>(evaluator_->counters().respawns);
  return s;
}

Status EvolutionRun::Generations() {
  generation_began_ = Now();
  frames_before_ = static_cast<double>(ga_->state().frames);
  std::optional<Progress> progress;
  if (!options_.quiet) progress.emplace([this] { return Snapshot(); }, stderr);
  Status status;
  while (status.ok() && !ga_->BudgetSpent() && !TimeSpent()) status = OneGeneration();
  // stopped or failed: what is reported is in the journal; the checkpoint saves the next start some
  // work, unless the journal could not take this generation
  if (!status.ok() && ga_->state().generation > 0 && ga_->state().generation == journalled_) {
    if (const Status saved = WriteCheckpoint(); !saved.ok())
      LogWarning(saved.message() + "; the journal has every generation");
  }
  if (!status.ok()) stop_.reset();  // what could be saved is
  if (status.code() == Code::kTryAgain) {
    return {Code::kTryAgain, fmt::format("stopped in generation {}, all before it is saved; {}",
                                         ga_->state().generation + 1, session_.HowToGoOn())};
  }
  return status;
}

// Once: a second time nothing is said.
Status EvolutionRun::EndRanks() {
  if (!ranks_ || std::exchange(ranks_ended_, true)) return Status::Ok();
  return Announce(Act::kEnd);
}

Status EvolutionRun::OneGeneration() {
  const StageSeconds before = evaluator_->seconds();
  const auto episodes = static_cast<double>(ga_->EpisodesOfNext());
  RETURN_IF_ERROR(Announce(Act::kGeneration));
  ASSIGN_OR_RETURN(const GenerationReport report, ga_->Step(StopRequested));
  if (ranks_) RETURN_IF_ERROR(ranks_->Agree(ga_->state()));
  NotePhases(report, episodes);
  const StageSeconds after = evaluator_->seconds();
  fitness_ = report.fitness;
  best_ = *std::max_element(fitness_.begin(), fitness_.end());
  elite_ = report.elite_mean;
  metrics_line_ = MetricsLine(
      report, {after.materialise - before.materialise, after.inference - before.inference,
               after.environment - before.environment});
  RETURN_IF_ERROR(MakeDurable());
  metrics_->Write(metrics_line_);
  const GaState& s = ga_->state();
  LogInfo(fmt::format(
      "generation {}: frames {}, fitness best {:g} mean {:.1f}, elite {:.1f} in validation, {} "
      "mutation{}, {:.0f} frames/s",
      s.generation, s.frames, best_.load(), Mean(fitness_), s.elite_mean, s.elite.mutations.size(),
      s.elite.mutations.size() == 1 ? "" : "s",
      static_cast<double>(report.frames) /
          (report.seconds_population + report.seconds_validation)));
  if (TakeCheckpointRequest() || schedule_->Due(Seconds())) return SaveCheckpoint();
  return Status::Ok();
}

// How long each phase of the generation took. What no phase has is between them: breeding,
// selection, and what followed the generation before.
void EvolutionRun::NotePhases(const GenerationReport& r, double episodes) {
  const std::lock_guard lock(mu_);
  last_generation_ = {SecondsSince(generation_began_), static_cast<double>(r.frames), episodes};
  const double between =
      last_generation_.seconds - r.seconds_population - r.seconds_validation - r.seconds_test;
  generation_began_ = Now();
  frames_before_ = static_cast<double>(ga_->state().frames);
  last_seconds_ = {{"population", r.seconds_population}};
  if (r.seconds_validation > 0) last_seconds_.emplace_back("validation", r.seconds_validation);
  if (!r.test_returns.empty()) last_seconds_.emplace_back("test", r.seconds_test);
  last_seconds_.emplace_back("between", between);
}

// The generation into the journal. On a full disk the run waits for space, so that an hour's work
// is not thrown away for it.
Status EvolutionRun::MakeDurable() {
  const std::string record = Record().Encode();
  RETURN_IF_ERROR(session_.MakeDurable(
      fmt::format("generation {} is not saved, all before it are", ga_->state().generation),
      [&] { return journal_->Append(kGenerationRecord, record); }));
  journalled_ = ga_->state().generation;
  return Status::Ok();
}

json EvolutionRun::MetricsLine(const GenerationReport& r, const StageSeconds& spent) const {
  const GaState& s = ga_->state();
  const auto [min, max] = std::minmax_element(r.fitness.begin(), r.fitness.end());
  json line = {{"time", WallTimeIso()},
               {"seconds", Seconds()},
               {"generation", s.generation},
               {"frames", s.frames},
               {"frames_test", s.frames_test},
               {"steps", s.steps},
               {"episodes", s.episodes},
               {"fitness_mean", Mean(r.fitness)},
               {"fitness_median", Median(r.fitness)},
               {"fitness_max", *max},
               {"fitness_min", *min},
               {"fitness_std", Std(r.fitness)},
               {"elite_validation_mean", s.elite_mean},
               {"elite_mutations", s.elite.mutations.size()},
               {"lineages", r.lineages},
               {"parents_distinct", r.parents_distinct},
               {"population_hash", Hex(s.population_hash)},
               {"frames_per_second",
                static_cast<double>(r.frames) / (r.seconds_population + r.seconds_validation)},
               {"seconds_population", r.seconds_population},
               {"seconds_validation", r.seconds_validation},
               {"seconds_test", r.seconds_test},
               {"seconds_between", last_seconds_.back().second},
               {"seconds_materialise", spent.materialise},
               {"seconds_inference", spent.inference},
               {"seconds_environment", spent.environment},
               {"respawns", evaluator_->counters().respawns}};
  if (!r.test_returns.empty()) {
    line["elite_test_mean"] = Mean(r.test_returns);
    line["elite_test_median"] = Median(r.test_returns);
    line["elite_test_returns"] = r.test_returns;
  }
  return line;
}

Policy EvolutionRun::ElitePolicy() const {
  Policy policy;
  policy.config = config_;
  policy.network = network_;
  policy.genome = ga_->state().elite;
  policy.parameters.resize(network_.parameter_count);
  Materialise(*policy.genome, network_, policy.parameters);
  policy.source =
      fmt::format("{}, elite of generation {}", folder_->path().string(), ga_->state().generation);
  return policy;
}

Status EvolutionRun::WriteCheckpoint() {
  const std::string state = Record().Encode();
  const std::vector<CheckpointFile> files = {{"state.bin", state}};
  CheckpointInfo info;
  info.step = ga_->state().generation;
  info.incarnation = folder_->incarnation();
  info.run_seconds = static_cast<uint64_t>(Seconds());
  info.build_id = ThisBuild().build_id;
  info.config_hash = session_.table().Hash();
  info.journal = journal_->tip();
  return checkpoints_->Save(info, files).status();
}

// While the run goes on a full disk does not stop it at once: the journal has every generation.
Status EvolutionRun::SaveCheckpoint() {
  const SteadyTime begin = Now();
  if (const Status saved = WriteCheckpoint(); !saved.ok())
    return schedule_->Failed(Seconds(), saved, checkpoints_->last().path());
  schedule_->Saved(Seconds(), SecondsSince(begin));
  return Status::Ok();
}

Result<std::vector<double>> EvolutionRun::FinalTest() {
  RETURN_IF_ERROR(Announce(Act::kTest));
  ASSIGN_OR_RETURN(const auto results, ga_->Play(ga_->state().elite, Purpose::kEpisodeTest,
                                                 FinalTestEpisodes(config_), StopRequested));
  std::vector<double> returns;
  for (const auto& r : results) returns.push_back(r.fitness);
  return returns;
}

Result<json> EvolutionRun::Finish() {
  if (finished_) {
    Session::Show(*finished_);
    return *finished_;
  }
  if (ga_->state().generation == 0)
    return Status(
        Code::kConfig,
        "the budgets allow no generation: raise ga.generations, ga.frames or run.minutes");
  RETURN_IF_ERROR(session_.MakeDurable("the last checkpoint is not saved, every generation is",
                                       [&] { return WriteCheckpoint(); }));
  auto test = FinalTest();
  if (!test.ok())
    return test.status().code() == Code::kTryAgain
               ? Status(Code::kTryAgain, "stopped in the final test, every generation is saved; " +
                                             session_.HowToGoOn())
               : test.status();
  stop_.reset();                // pictures are made again by a resume
  RETURN_IF_ERROR(EndRanks());  // pictures need one rank only
  if (StopRequested())          // what comes next does not look at it
    return Status(Code::kTryAgain, "stopped after the final test, every generation is saved; " +
                                       session_.HowToGoOn());
  const GaState& s = ga_->state();
  const double cores = Cores();
  json result = {
      {"run", folder_->path().string()},
      {"generation", s.generation},
      {"frames", s.frames},
      {"population_hash", Hex(s.population_hash)},
      {"elite_mean", Mean(*test)},
      {"elite_median", Median(*test)},
      {"elite_returns", *test},
      {"random_returns", random_returns_},
      {"random_mean", random_returns_.empty() ? json() : json(Mean(random_returns_))},
      {"seconds", Seconds()},
      {"cores", cores},
      {"ranks", ranks_ ? ranks_->ranks() : 1},
      {"frames_per_core_second", static_cast<double>(s.frames) / (Seconds() * cores)},
      {"hours_per_billion_frames", 1e9 / (static_cast<double>(s.frames) / Seconds()) / 3600}};
  return session_.Finish(std::move(result), *metrics_, ElitePolicy(), "elite.mp4");
}

}  // namespace

void TakeAlgorithm(ExperimentConfig& config, const TrainOptions& options) {
  if (!options.resume) return;
  // what is wrong with the folder is found by whoever opens it
  if (const auto toml = ReadFile(RootedPath::Root(*options.resume) / "config.toml"); toml.ok())
    config.ChooseAlgorithm(*toml);
}

Result<EffectiveConfig> CheckTrain(ExperimentConfig config, const TrainOptions& options) {
  Session session(std::move(config), options);
  RETURN_IF_ERROR(session.CheckNew());
  ExperimentConfig one = session.config();
  one.fleet.actors = one.fleet.slots = one.fleet.threads = 1;
  RETURN_IF_ERROR(one.Learns() ? CheckAgent(one, options) : EvolutionStage(one).status());
  return EffectiveConfig{session.table().ToToml(), session.table().Hash()};
}

Result<json> Train(ExperimentConfig config, const TrainOptions& options) {
  TakeAlgorithm(config, options);
  if (options.ranks != nullptr)
    RETURN_IF_ERROR(
        options.ranks->Exchange("run", config.Learns() ? "agent" : "evolution").status());
  if (config.Learns()) return TrainAgent(std::move(config), options);
  EvolutionRun run(std::move(config), options);
  return run.Run();
}

Result<Code> FollowRuns(RankGroup& ranks) {
  for (;;) {
    ASSIGN_OR_RETURN(const auto said, ranks.Exchange("run", ""));
    if (said[0].size() == 1) return static_cast<Code>(said[0][0]);
    const Status followed = said[0] == "agent" ? FollowAgent(ranks) : FollowEvolution(ranks);
    if (followed.ok()) continue;
    ranks.Fail(followed);
    return followed;
  }
}

void EndRuns(RankGroup& ranks, Code code) {
  (void)ranks.Exchange("run", std::string(1, static_cast<char>(code)));
}

}  // namespace samara
