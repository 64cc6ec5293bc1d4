// Generations and checkpoints of an evolution: saved, restored.
#include <fmt/format.h>

#include "core/bytes.h"
#include "core/log.h"
#include "core/statistics.h"
#include "evo/evaluate/reference.h"
#include "report/run_data.h"
#include "train/evolution_trainer.h"

namespace samara {

using nlohmann::json;

namespace {

// of the start state's files
constexpr char kState[] = "state.bin", kArchive[] = "archive.bin", kEvaluations[] = "evaluations",
               kFinished[] = "finished/", kReference[] = "reference";

// The generation's line of metrics.jsonl, where it has a whole one.
void AddLine(const GenerationRecord& generation, std::vector<json>& lines) {
  json line = json::parse(generation.metrics, nullptr, /*allow_exceptions=*/false);
  if (line.is_object()) lines.push_back(std::move(line));
}

}  // namespace

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
  ASSIGN_OR_RETURN(Saved saved, SavedIn(contents));
  if (checkpoint && checkpoint->info.step > saved.summary.generation)
    RETURN_IF_ERROR(TakeLostEnd(*checkpoint, saved));
  if (had_checkpoints && !saved.newest)
    LogWarning(folder.checkpoints().string() +
               ": no valid generation is left, the run begins again; what was damaged is kept as "
               "*.corrupt");
  RETURN_IF_ERROR(RestoreReference(contents));
  Restored restored{saved.summary.generation, std::move(saved.lines)};
  if (saved.newest) GoOnFrom(std::move(saved));
  ReuseFinished(contents, restored.step);
  return restored;
}

Result<EvolutionTrainer::Saved> EvolutionTrainer::SavedIn(const JournalContents& contents) {
  Saved saved;
  for (const JournalRecord& record : contents.records) {
    if (record.type != kGenerationRecord) continue;
    ASSIGN_OR_RETURN(saved.newest, GenerationRecord::Decode(record.payload));
    saved.archive += saved.newest->archive;
    AddLine(*saved.newest, saved.lines);
  }
  if (saved.newest) {
    ASSIGN_OR_RETURN(saved.summary, saved.newest->Describe());
  }
  return saved;
}

// A checkpoint is newer only when the journal lost its end: the journal gets that back.
Status EvolutionTrainer::TakeLostEnd(const StoredCheckpoint& checkpoint, Saved& saved) {
  const auto found = checkpoint.files.find(kState);
  if (found == checkpoint.files.end())
    return {Code::kBadData, checkpoint.path.string() + ": holds no state.bin: another program's"};
  ASSIGN_OR_RETURN(saved.newest, GenerationRecord::Decode(found->second));
  ASSIGN_OR_RETURN(saved.summary, saved.newest->Describe());
  // what the lost generations added too
  const auto whole = checkpoint.files.find(kArchive);
  const std::string known = whole == checkpoint.files.end() ? "" : whole->second;
  const bool grows = algorithm_->ArchiveOnlyGrows();
  if (grows && !known.starts_with(saved.archive))
    return {Code::kBadData, checkpoint.path.string() + ": its archive is not the journal's"};
  saved.newest->archive = grows ? known.substr(saved.archive.size()) : known;
  saved.archive = known;
  AddLine(*saved.newest, saved.lines);
  return journal_->Append(kGenerationRecord, saved.newest->Encode());
}

// REQUIRES: it has a newest one.
void EvolutionTrainer::GoOnFrom(Saved saved) {
  const GenerationRecord& record = *saved.newest;
  const uint64_t generation = saved.summary.generation;
  journalled_ = generation;
  start_.seconds = record.seconds;
  start_.files[kState] = record.state;
  start_.files[kArchive] = std::move(saved.archive);
  // older records do not say: one episode a member, then
  const uint64_t evaluations =
      record.evaluations > 0 ? record.evaluations : generation * record.fitness.size();
  ByteWriter counts;
  start_.files[kEvaluations] = counts.Put(evaluations).Put(record.solved_at).Take();
  positions_ = record.positions;
  fitness_ = record.fitness;
  metrics_line_ = json::parse(record.metrics, nullptr, /*allow_exceptions=*/false);
  if (const double by = NumberOr(metrics_line_, "solved_individual"); !std::isnan(by))
    solver_ = Solver{static_cast<uint64_t>(NumberOr(metrics_line_, "solved_generation")),
                     static_cast<uint64_t>(by)};
  elite_ = saved.summary.best_mean;
  if (!fitness_.empty()) best_ = RangeOf(fitness_).second;
  scored_ = static_cast<int64_t>(generation);
  LogInfo(fmt::format("resumed after generation {}, {} frames", generation, saved.summary.frames));
}

// Finished episodes of the generation after `generation`.
void EvolutionTrainer::ReuseFinished(const JournalContents& contents, uint64_t generation) {
  for (const JournalRecord& record : contents.records) {
    if (record.type != kFinishedRecord) continue;
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

GenerationRecord EvolutionTrainer::Record() const {
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

}  // namespace samara
