// A run of an evolution: what a Trainer asks of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/device.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/rng.h"
#include "core/signals.h"
#include "core/statistics.h"
#include "evo/evaluate/reference.h"
#include "play/initial_policy.h"
#include "play/saved_policy.h"
#include "storage/evolution_journal.h"
#include "storage/journal.h"
#include "train/trainer.h"

namespace samara {
namespace {

using nlohmann::json;

// of the start state's files
constexpr char kState[] = "state.bin", kArchive[] = "archive.bin", kEvaluations[] = "evaluations",
               kFinished[] = "finished/", kReference[] = "reference";

// The least and the greatest of values that are numbers; NaN when none is.
std::pair<double, double> RangeOf(std::span<const double> values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::pair range{kNone, kNone};
  for (const double value : values) {
    range.first = std::fmin(range.first, value);  // fmin and fmax leave NaN out
    range.second = std::fmax(range.second, value);
  }
  return range;
}

// The entries that the generations of a journal added, one after the other.
Result<std::string> ArchiveOf(const JournalContents& contents) {
  std::string archive;
  for (const JournalRecord& record : contents.records) {
    if (record.type != kGenerationRecord) continue;
    ASSIGN_OR_RETURN(const GenerationRecord generation, GenerationRecord::Decode(record.payload));
    archive += generation.archive;
  }
  return archive;
}

class EvolutionTrainer final : public Trainer {
 public:
  EvolutionTrainer(ExperimentConfig config, const TrainOptions& options)
      : Trainer(std::move(config), options) {}

  Result<json> CheckOnly() override {
    ASSIGN_OR_RETURN(const EnvironmentSetup setup, SetUp());
    if (!config_.run.init_from.empty())
      RETURN_IF_ERROR(MakeInitialFile(config_, setup.network()).status());
    return json::object();
  }

 private:
  Result<bool> ResultStands(const json& result) override;
  Status Build() override;
  Description Describe() const override {
    Description run{network_.name, ToJson(network_), static_cast<int64_t>(network_.evolved_count)};
    run.more["device"] = DeviceName();
    if (!initial_identity_.is_null()) {
      run.more["initial_policy"] = initial_identity_;
      run.kept[RunFolder::kInitialPolicy] = start_.files.at(RunFolder::kInitialPolicy);
    }
    return run;
  }
  Result<Restored> Restore() override;
  Status Begin() override;
  Result<std::vector<EpisodeResult>> PlayRandomPolicy(size_t episodes) override;
  std::optional<uint64_t> AwaitedOver() const override;
  Status Loop() override;
  Status SaveLast() override;
  Result<std::vector<double>> Test() override;
  json ResultOf(const std::vector<double>& test) const override;
  Result<Policy> Trained() const override;
  Words words() const override { return {"generation", "every generation is saved", "elite.mp4"}; }

  // Where the population is evaluated, which changes no result.
  std::string DeviceName() const {
    return setup_.gpu ? NameOf({.cuda = true, .ordinal = *setup_.gpu}, FindGpus()) : "CPU";
  }

  // Known to be good before anything is made on disk.
  Result<EnvironmentSetup> SetUp() const {
    ASSIGN_OR_RETURN(const std::optional<int> gpu,
                     PopulationGpu(config_, sync_.rank(), sync_.ranks()));
    ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config_, /*render=*/false, gpu));
    RETURN_IF_ERROR(config_.evolution->Check(setup.network()));
    if (!config_.run.init_from.empty() && !config_.evolution->TakesInitialPolicy())
      return Status(Code::kConfig,
                    fmt::format("run.init_from={}: {} with these keys begins from "
                                "no policy; leave it out",
                                Shown(config_.run.init_from), config_.run.algorithm));
    return setup;
  }
  Status RestoreReference(const JournalContents& contents);
  Status TakeInitialPolicy();
  Status Generation();
  void NoteEvaluations(const GenerationReport& report);
  bool Solved(double fitness) const { return fitness >= setup_.environment.solved; }
  bool StopsAsSolved() const { return config_.run.stop_when_solved && solved_at_ > 0; }
  Status MakeDurable();
  json MetricsLine(const GenerationReport& report, const StageSeconds& spent) const;
  void NotePhases(const GenerationReport& report, double episodes);
  Status WriteCheckpoint();
  Status SaveCheckpoint();
  void KeepFinished();
  ProgressState Snapshot() const;
  GenerationRecord Record() const {
    return {.algorithm = config_.run.algorithm,
            .state = algorithm_->EncodeState(),
            .fitness = fitness_,
            .seconds = Seconds(),
            .metrics = metrics_line_.dump(),
            .archive = algorithm_->EncodeArchive(archive_journalled_),
            .positions = positions_,
            .evaluations = evaluations_,
            .solved_at = solved_at_};
  }

  NetworkDescription network_;
  std::string reference_;                 // of a network with statistics, as the journal holds it
  std::optional<InitialPolicy> initial_;  // what run.init_from says
  json initial_identity_;                 // of a new run: initial_policy of run.json
  std::string initial_about_;             // and its line of the log
  std::unique_ptr<Evaluator> evaluator_;
  PolicyModel* model_ = nullptr;  // the evaluator's
  std::unique_ptr<EvolutionAlgorithm> algorithm_;
  EvolutionSummary summary_;  // of its state
  std::unique_ptr<Journal> journal_;
  bool other_journal_ = false;          // than the one that the last checkpoint pins
  uint64_t journalled_ = 0;             // the last generation that the journal holds
  json metrics_line_ = json::object();  // of the last generation
  std::vector<double> fitness_;         // of the last generation
  std::vector<float> positions_;        // the same
  size_t archive_journalled_ = 0;       // entries of the algorithm's archive in the journal
  uint64_t evaluations_ = 0;            // episodes of the population so far
  uint64_t solved_at_ = 0;              // such episodes until the task was solved; 0 = it is not
  mutable Mutex mu_;                    // against the live view
  SteadyTime generation_began_ GUARDED_BY(mu_) = Now();
  double frames_before_ GUARDED_BY(mu_) = 0;               // counted frames then
  GenerationPace::Spent last_generation_ GUARDED_BY(mu_);  // since the start or the resume
  // of the last generation's phases
  std::vector<std::pair<std::string, double>> last_seconds_ GUARDED_BY(mu_);
  std::atomic<double> best_{ProgressState::kUnknown}, elite_{ProgressState::kUnknown};
  std::atomic<int64_t> scored_{0};  // generation that best_ is of
};

Result<bool> EvolutionTrainer::ResultStands(const json& result) {
  const auto newest = FindGeneration(session_.folder().path().path());
  if (!newest.ok()) return false;  // Restore looks further
  const double seconds = newest->record.seconds;
  const bool spent = config_.evolution->budget.Spent(newest->summary) ||
                     (config_.run.stop_when_solved && newest->record.solved_at > 0) ||
                     (config_.run.minutes > 0 && seconds >= config_.run.minutes * 60);
  if (!spent || result.value("generation", uint64_t{0}) != newest->summary.generation) return false;
  // another run.final_test_episodes was asked for: the test is played again, nothing else
  const auto tested = result.find("elite_returns");
  if (tested != result.end() && tested->size() != FinalTestEpisodes(config_)) return false;
  // without its last checkpoint the run ends once more, which saves that again
  ASSIGN_OR_RETURN(const auto checkpoint,
                   LatestGoodCheckpoint(session_.folder().checkpoints(), OnBadCheckpoint::kSkip));
  return checkpoint && checkpoint->info.step == newest->summary.generation;
}

Status EvolutionTrainer::Build() {
  ASSIGN_OR_RETURN(setup_, SetUp());
  network_ = setup_.network();
  if (config_.run.stop_when_solved && std::isnan(setup_.environment.solved) && sync_.is_main())
    LogWarning(
        fmt::format("run.stop_when_solved: {} has no published criterion; the run ends at "
                    "its budget",
                    setup_.environment.id));
  model_ = setup_.model.get();
  if (network_.needs_reference() && !config_.evolution->KeepsStatistics(network_)) {
    ASSIGN_OR_RETURN(const auto inputs,
                     CollectReference(setup_, static_cast<uint64_t>(config_.run.seed)));
    reference_ = EncodeReference(*model_, inputs);
  }
  ASSIGN_OR_RETURN(evaluator_, MakeEvaluator(config_, setup_));
  if (!sync_.alone()) evaluator_ = MakeSharedEvaluator(std::move(evaluator_), sync_);
  RETURN_IF_ERROR(TakeInitialPolicy());
  algorithm_ =
      config_.evolution->Make({static_cast<uint64_t>(config_.run.seed), network_, *evaluator_,
                               setup_.episodes, initial_ ? &*initial_ : nullptr});
  return Status::Ok();
}

// From the policy that the configuration names, once: a resumed run and the other ranks have the
// file that came of it.
Status EvolutionTrainer::TakeInitialPolicy() {
  if (config_.run.init_from.empty()) return Status::Ok();
  if (sync_.is_main() && session_.resumed()) {
    ASSIGN_OR_RETURN(const auto kept, session_.folder().ReadInitialPolicy());
    if (!kept)
      return {Code::kBadData, session_.folder().path().string() +
                                  ": run.json does not say which policy the run began from"};
    start_.files[RunFolder::kInitialPolicy] = *kept;
  } else if (sync_.is_main()) {
    ASSIGN_OR_RETURN(InitialFile made, MakeInitialFile(config_, network_));
    start_.files[RunFolder::kInitialPolicy] = std::move(made.bytes);
    initial_identity_ = std::move(made.identity);
    initial_about_ = std::move(made.about);
  }
  ASSIGN_OR_RETURN(initial_, ParseInitialPolicy(start_.files[RunFolder::kInitialPolicy], network_));
  return Status::Ok();
}

Result<Trainer::Restored> EvolutionTrainer::Restore() {
  RunFolder& folder = session_.folder();
  if (!initial_about_.empty()) LogInfo(initial_about_);
  const bool had_checkpoints = !ListCheckpoints(folder.checkpoints()).empty();
  ASSIGN_OR_RETURN(const std::optional<StoredCheckpoint> checkpoint,
                   LatestGoodCheckpoint(folder.checkpoints(), OnBadCheckpoint::kQuarantine));
  const auto pin = checkpoint ? checkpoint->info.journal : std::nullopt;
  JournalContents contents;
  ASSIGN_OR_RETURN(
      journal_, Journal::Open(folder.journal(), Journal::OnDamage::kKeepGoodPart, &contents, pin));
  other_journal_ = pin && pin->id != journal_->tip().id;
  ASSIGN_OR_RETURN(std::optional<GenerationRecord> newest, LastGeneration(contents));
  EvolutionSummary summary;
  std::string archive;  // what every generation added to it, in order
  if (newest) {
    ASSIGN_OR_RETURN(summary, newest->Describe());
    ASSIGN_OR_RETURN(archive, ArchiveOf(contents));
  }
  // a checkpoint is newer only when the journal lost its end: the journal gets that back
  if (checkpoint && checkpoint->info.step > summary.generation) {
    const auto found = checkpoint->files.find(kState);
    if (found == checkpoint->files.end())
      return Status(Code::kBadData,
                    checkpoint->path.string() + ": holds no state.bin: another program's");
    ASSIGN_OR_RETURN(newest, GenerationRecord::Decode(found->second));
    ASSIGN_OR_RETURN(summary, newest->Describe());
    // what the lost generations added too
    const auto whole = checkpoint->files.find(kArchive);
    const std::string known = whole == checkpoint->files.end() ? "" : whole->second;
    const bool grows = algorithm_->ArchiveOnlyGrows();
    if (grows && !known.starts_with(archive))
      return Status(Code::kBadData,
                    checkpoint->path.string() + ": its archive is not the journal's");
    newest->archive = grows ? known.substr(archive.size()) : known;
    archive = known;
    const std::string state = newest->Encode();
    RETURN_IF_ERROR(journal_->Append(kGenerationRecord, state));
    contents.records.push_back({.type = kGenerationRecord, .payload = state});
  }
  if (had_checkpoints && !newest)
    LogWarning(folder.checkpoints().string() +
               ": no valid generation is left, the run begins again; what was damaged is kept as "
               "*.corrupt");
  RETURN_IF_ERROR(RestoreReference(contents));
  const uint64_t generation = summary.generation;
  if (newest) {
    journalled_ = generation;
    start_.seconds = newest->seconds;
    start_.files[kState] = newest->state;
    start_.files[kArchive] = std::move(archive);
    // older records do not say: one episode a member, then
    const uint64_t evaluations =
        newest->evaluations > 0 ? newest->evaluations : generation * newest->fitness.size();
    ByteWriter counts;
    start_.files[kEvaluations] = counts.Put(evaluations).Put(newest->solved_at).Take();
    positions_ = newest->positions;
    fitness_ = newest->fitness;
    metrics_line_ = json::parse(newest->metrics, nullptr, /*allow_exceptions=*/false);
    elite_ = summary.best_mean;
    if (!fitness_.empty()) best_ = RangeOf(fitness_).second;
    scored_ = static_cast<int64_t>(generation);
    LogInfo(fmt::format("resumed after generation {}, {} frames", generation, summary.frames));
  }
  Restored restored{generation, {}};
  for (const JournalRecord& record : contents.records) {
    if (record.type == kGenerationRecord) {
      const auto saved = GenerationRecord::Decode(record.payload);
      if (!saved.ok()) continue;
      json line = json::parse(saved->metrics, nullptr, /*allow_exceptions=*/false);
      if (line.is_object()) restored.lines.push_back(std::move(line));
    } else if (record.type == kFinishedRecord) {
      const auto finished = FinishedEpisodes::Decode(record.payload);
      if (!finished.ok()) {
        LogWarning(finished.status().message() + ": they are played again");
      } else if (finished->generation == generation + 1) {
        LogInfo(fmt::format("{} finished episodes of generation {} are reused",
                            finished->results.size(), finished->generation));
        start_.files[kFinished + std::to_string(start_.files.size())] = record.payload;
      }
    }
  }
  return restored;
}

// The batch with which the run began: the journal's, or what was collected now.
Status EvolutionTrainer::RestoreReference(const JournalContents& contents) {
  if (reference_.empty()) return Status::Ok();
  bool kept = false;
  for (const JournalRecord& record : contents.records) {
    if (record.type == kReferenceRecord) reference_ = record.payload, kept = true;
  }
  start_.files[kReference] = reference_;
  return kept ? Status::Ok() : journal_->Append(kReferenceRecord, reference_);
}

Status EvolutionTrainer::Begin() {
  if (!reference_.empty()) {
    reference_ = start_.files.at(kReference);
    ASSIGN_OR_RETURN(auto inputs, DecodeReference(*model_, reference_));
    model_->SetReference(std::move(inputs));
  }
  if (const auto state = start_.files.find(kState); state != start_.files.end()) {
    RETURN_IF_ERROR(algorithm_->RestoreArchive(start_.files.at(kArchive)));
    RETURN_IF_ERROR(algorithm_->RestoreState(state->second));
    ByteReader counts(start_.files.at(kEvaluations));
    evaluations_ = counts.Get<uint64_t>(), solved_at_ = counts.Get<uint64_t>();
  }
  archive_journalled_ = algorithm_->ArchiveSize();
  summary_ = algorithm_->summary();
  for (const auto& [name, bytes] : start_.files) {
    if (!name.starts_with(kFinished)) continue;
    ASSIGN_OR_RETURN(const FinishedEpisodes finished, FinishedEpisodes::Decode(bytes));
    algorithm_->Reuse(finished);
  }
  if (!sync_.is_main()) return Status::Ok();
  // the thread that runs Step is waiting meanwhile: nothing else appends
  algorithm_->KeepFinished(
      config_.run.checkpoint_seconds, [this](const FinishedEpisodes& finished) {
        const Status kept = journal_->Append(kFinishedRecord, finished.Encode());
        if (!kept.ok()) LogError("finished episodes are not saved yet: " + kept.message());
        return kept.ok();
      });
  // from now on a checkpoint pins the journal that is written
  return other_journal_ ? SaveCheckpoint() : Status::Ok();
}

Result<std::vector<EpisodeResult>> EvolutionTrainer::PlayRandomPolicy(size_t episodes) {
  std::vector<Task> tasks;
  for (uint64_t e = 0; e < episodes; ++e) {
    const uint64_t key =
        DeriveKey(static_cast<uint64_t>(config_.run.seed), Purpose::kRandomPolicy, 0, 0, e);
    tasks.push_back({kRandomHandle, Role::kEvaluate, setup_.episodes.Make(key, /*test=*/true)});
  }
  LocalWork work(tasks, StopRequested);
  work.OnPost([this](uint32_t, const EpisodeResult&) { ++over_; });
  awaits_ = true;
  const Status played = evaluator_->Play(FixedParameters(std::span<const float>{}), work);
  awaits_ = false;
  RETURN_IF_ERROR(played);
  if (work.posted() < episodes) return Status(Code::kTryAgain, "stopped");
  return work.TakeResults();
}

std::optional<uint64_t> EvolutionTrainer::AwaitedOver() const {
  const EvolutionProgress p = algorithm_->progress();
  if (p.phase.empty()) return Trainer::AwaitedOver();
  return p.generation + p.frames + p.done;
}

ProgressState EvolutionTrainer::Snapshot() const {
  const EvolutionProgress p = algorithm_->progress();
  const EvolutionBudget& budget = config_.evolution->budget;
  const StageSeconds stages = evaluator_->seconds();
  ProgressState s;
  s.title = Title(network_.name);
  s.generation = static_cast<int64_t>(p.generation);
  s.generations = budget.generations;
  s.frames = static_cast<int64_t>(p.frames);
  s.frames_budget = budget.frames;
  s.seconds = Seconds();
  s.seconds_budget = config_.run.minutes * 60;
  s.pace.emplace();
  s.pace->now.episodes = static_cast<double>(p.episodes_done);
  s.pace->episodes_total = static_cast<double>(p.episodes_total);
  s.phase = p.phase;
  s.phase_done = static_cast<int64_t>(p.done);
  s.phase_total = static_cast<int64_t>(p.total);
  s.stages = WorkShares({{"decode", stages.decode},
                         {"inference", stages.inference},
                         {"environment", stages.environment}});
  {
    const MutexLock lock(mu_);
    s.last_seconds = last_seconds_;
    s.pace->before = last_generation_;
    s.pace->now.seconds = SecondsSince(generation_began_);
    s.pace->now.frames = std::max(static_cast<double>(p.frames) - frames_before_, 0.0);
  }
  s.best_name = "last best";  // peak is the best of all
  s.best = std::isnan(best_) ? p.best : best_.load();
  s.scored = scored_;  // before best_, which is written first
  s.score = best_;
  s.elite = elite_;
  s.random = random_returns().empty() ? ProgressState::kUnknown : Mean(random_returns());
  s.respawns = static_cast<int64_t>(evaluator_->counters().respawns);
  return s;
}

// With several ranks all have the same state and the same requests: they leave the loop together.
Status EvolutionTrainer::Loop() {
  {
    const MutexLock lock(mu_);
    generation_began_ = Now();
    frames_before_ = static_cast<double>(summary_.frames);
  }
  const auto progress = ShowLive([this] { return Snapshot(); });
  Status status;
  while (status.ok()) {
    const bool save = sync_.is_main() && summary_.generation > 0 && SaveRequested();
    const auto agreed = sync_.Decide({.stop = StopRequested(), .save = save, .seconds = Seconds()});
    status = agreed.status();
    if (!status.ok()) break;
    agreed_ = *agreed;
    if (config_.evolution->budget.Spent(summary_) || TimeSpent() || StopsAsSolved())
      return Status::Ok();
    if (save) status = SaveCheckpoint();
    if (status.ok()) status = Generation();
  }
  // stopped or failed: what is reported is in the journal; the checkpoint saves the next start some
  // work, unless the journal could not take this generation
  const uint64_t generation = summary_.generation;
  if (sync_.is_main() && generation > 0 && generation == journalled_) {
    if (const Status saved = WriteCheckpoint(); !saved.ok())
      LogWarning(saved.message() + "; the journal has every generation");
  }
  stop_.reset();  // what could be saved is
  return status.code() == Code::kTryAgain
             ? Stopped(
                   fmt::format("stopped in generation {}, all before it is saved", generation + 1))
             : status;
}

Status EvolutionTrainer::Generation() {
  if (agreed_.stop) return {Code::kTryAgain, "stopped"};
  const StageSeconds before = evaluator_->seconds();
  const auto episodes = static_cast<double>(algorithm_->EpisodesOfNext());
  ASSIGN_OR_RETURN(const GenerationReport report, algorithm_->Step(StopRequested));
  summary_ = algorithm_->summary();
  NoteEvaluations(report);
  const EvolutionSummary& s = summary_;
  RETURN_IF_ERROR(
      sync_.CheckSame(fmt::format("generation {}: not saved, all before it are: ", s.generation),
                      {{"the state", algorithm_->EncodeState()}}));
  if (!sync_.is_main()) return Status::Ok();
  NotePhases(report, episodes);
  const StageSeconds after = evaluator_->seconds();
  fitness_ = report.fitness;
  positions_ = report.positions;
  best_ = RangeOf(fitness_).second;
  scored_ = static_cast<int64_t>(s.generation);
  elite_ = s.best_mean;
  metrics_line_ =
      MetricsLine(report, {after.decode - before.decode, after.inference - before.inference,
                           after.environment - before.environment});
  RETURN_IF_ERROR(MakeDurable());
  metrics_->Write(metrics_line_);
  // a display says the same
  Log(DrawsLive() ? LogLevel::kDebug : LogLevel::kInfo,
      fmt::format("generation {}: frames {}, fitness best {:g} mean {:.1f}, elite {:.1f}{}, {}, "
                  "{:.0f} frames/s",
                  s.generation, s.frames, best_.load(), Mean(fitness_), s.best_mean,
                  report.validated > 0 ? " in validation" : "", report.note,
                  static_cast<double>(report.frames - report.frames_reused) /
                      (report.seconds_population + report.seconds_validation)));
  return Status::Ok();
}

// A task in which nothing is random is solved by the first member that reaches the criterion; any
// other by the mean of what the run hands over: of its test, or, in generations without one, of the
// validation.
void EvolutionTrainer::NoteEvaluations(const GenerationReport& report) {
  const uint64_t before = evaluations_;
  const uint64_t played = std::max<uint64_t>(report.evaluations, report.fitness.size());
  evaluations_ += played;
  if (solved_at_ > 0) return;
  if (setup_.environment.solved_once && report.fitness_is_return) {
    const auto first = std::ranges::find_if(report.fitness, [this](double f) { return Solved(f); });
    const auto members = static_cast<uint64_t>(first - report.fitness.begin()) + 1;
    if (first != report.fitness.end())
      solved_at_ = before + members * played / report.fitness.size();
  }
  const bool tested = !report.test_returns.empty();
  const double mean = tested ? Mean(report.test_returns) : summary_.best_mean;
  if (solved_at_ == 0 && (tested || report.validated > 0) && Solved(mean))
    solved_at_ = evaluations_;
}

// How long each phase of the generation took. What no phase has is between them: breeding,
// selection, and what followed the generation before.
void EvolutionTrainer::NotePhases(const GenerationReport& r, double episodes) {
  const MutexLock lock(mu_);
  last_generation_ = {SecondsSince(generation_began_), static_cast<double>(r.frames), episodes};
  const double between =
      last_generation_.seconds - r.seconds_population - r.seconds_validation - r.seconds_test;
  generation_began_ = Now();
  frames_before_ = static_cast<double>(summary_.frames);
  last_seconds_ = {{"population", r.seconds_population}};
  if (r.seconds_validation > 0) last_seconds_.emplace_back("validation", r.seconds_validation);
  if (!r.test_returns.empty()) last_seconds_.emplace_back("test", r.seconds_test);
  last_seconds_.emplace_back("between", between);
}

// The generation into the journal. On a full disk the run waits for space, so that an hour's work
// is not thrown away for it.
Status EvolutionTrainer::MakeDurable() {
  const std::string record = Record().Encode();
  RETURN_IF_ERROR(session_.MakeDurable(
      fmt::format("generation {} is not saved, all before it are", summary_.generation),
      [&] { return journal_->Append(kGenerationRecord, record); }));
  journalled_ = summary_.generation;
  archive_journalled_ = algorithm_->ArchiveSize();
  return Status::Ok();
}

json EvolutionTrainer::MetricsLine(const GenerationReport& r, const StageSeconds& spent) const {
  const EvolutionSummary& s = summary_;
  const MutexLock lock(mu_);
  const auto [min, max] = RangeOf(r.fitness);
  json line = {{"time", WallTimeIso()},
               {"seconds", Seconds()},
               {"generation", s.generation},
               {"frames", s.frames},
               {"frames_test", s.frames_test},
               {"steps", s.steps},
               {"episodes", s.episodes},
               {"evaluations", evaluations_},
               {"solved_at", solved_at_ > 0 ? json(solved_at_) : json()},
               {"fitness_mean", Mean(r.fitness)},
               {"fitness_median", Median(r.fitness)},
               {"fitness_max", max},
               {"fitness_min", min},
               {"fitness_std", Std(r.fitness)},
               {"elite_validation_mean", s.best_mean},
               {"population_hash", Hex(s.population_hash)},
               {"frames_per_second", static_cast<double>(r.frames - r.frames_reused) /
                                         (r.seconds_population + r.seconds_validation)},
               {"seconds_population", r.seconds_population},
               {"seconds_validation", r.seconds_validation},
               {"seconds_test", r.seconds_test},
               {"seconds_between", last_seconds_.back().second},
               {"seconds_materialise", spent.decode},
               {"seconds_inference", spent.inference},
               {"seconds_environment", spent.environment},
               {"respawns", evaluator_->counters().respawns}};
  line.update(r.metrics);
  if (!r.test_returns.empty()) {
    line["elite_test_mean"] = Mean(r.test_returns);
    line["elite_test_median"] = Median(r.test_returns);
    line["elite_test_returns"] = r.test_returns;
  }
  return line;
}

Result<Policy> EvolutionTrainer::Trained() const {
  Policy policy;
  policy.config = config_;
  policy.network = network_;
  RETURN_IF_ERROR(TakeCandidate(summary_.best, policy, initial_ ? &*initial_ : nullptr));
  if (!reference_.empty()) {
    PolicyWorkspace workspace(*model_);
    model_->ComputeStatistics(workspace, policy.parameters);
  }
  policy.source = fmt::format("{}, elite of generation {}", session_.folder().path().string(),
                              summary_.generation);
  return policy;
}

Status EvolutionTrainer::WriteCheckpoint() {
  const std::string state = Record().Encode(), archive = algorithm_->EncodeArchive(0);
  std::vector<CheckpointFile> files = {{kState, state}};
  if (!archive.empty()) files.push_back({kArchive, archive});
  CheckpointInfo info = MakeCheckpointInfo(summary_.generation);
  info.journal = journal_->tip();
  return checkpoints_->Save(info, files).status();
}

// While the run goes on a full disk does not stop it at once: the journal has every generation.
Status EvolutionTrainer::SaveCheckpoint() {
  const SteadyTime begin = Now();
  if (const Status saved = WriteCheckpoint(); !saved.ok())
    return schedule_->Failed(Seconds(), saved, checkpoints_->last().path());
  schedule_->Saved(Seconds(), SecondsSince(begin));
  return Status::Ok();
}

Status EvolutionTrainer::SaveLast() {
  if (summary_.generation == 0)
    return {Code::kConfig, "the budgets allow no generation: raise " + BudgetKeys(config_)};
  if (!sync_.is_main()) return Status::Ok();
  RETURN_IF_ERROR(session_.MakeDurable("the last checkpoint is not saved, every generation is",
                                       [&] { return WriteCheckpoint(); }));
  const RootedPath csv = session_.folder().path() / "archive.csv";
  if (const std::string archive = algorithm_->ArchiveCsv(); !archive.empty())
    if (const Status saved = WriteFileAtomic(csv, archive); !saved.ok())
      LogWarning("no archive.csv: " + saved.message());
  return Status::Ok();
}

Result<std::vector<double>> EvolutionTrainer::Test() {
  const auto results =
      algorithm_->PlayBest(Purpose::kEpisodeTest, FinalTestEpisodes(config_), StopRequested);
  if (results.status().code() == Code::kTryAgain)
    return Stopped(std::string("stopped in the final test, ") + words().saved);
  RETURN_IF_ERROR(results.status());
  std::vector<double> returns;
  for (const auto& r : *results) returns.push_back(r.fitness);
  return returns;
}

json EvolutionTrainer::ResultOf(const std::vector<double>& test) const {
  const EvolutionSummary& s = summary_;
  const auto frames = static_cast<double>(s.frames);
  const uint64_t solved_at = solved_at_ == 0 && Solved(Mean(test)) ? evaluations_ : solved_at_;
  return {{"generation", s.generation},
          {"evaluations", evaluations_},
          {"solved_at", solved_at > 0 ? json(solved_at) : json()},
          {"frames", s.frames},
          {"population_hash", Hex(s.population_hash)},
          {"elite_mean", Mean(test)},
          {"elite_median", Median(test)},
          {"elite_returns", test},
          {"seconds", Seconds()},
          {"device", DeviceName()},
          {"frames_per_core_second", frames / (Seconds() * Cores())},
          {"hours_per_billion_frames", 1e9 / (frames / Seconds()) / 3600}};
}

}  // namespace

std::unique_ptr<Trainer> MakeEvolutionTrainer(ExperimentConfig config,
                                              const TrainOptions& options) {
  return std::make_unique<EvolutionTrainer>(std::move(config), options);
}

}  // namespace samara
