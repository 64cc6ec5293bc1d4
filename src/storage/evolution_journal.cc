#include "storage/evolution_journal.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/log.h"
#include "evo/algorithms/registry.h"
#include "storage/checkpoint.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

// 1: without the algorithm's name; the state is the Deep GA's
// 2: without what follows the fitness
constexpr uint32_t kRecordVersion = 3;

// kBadData where a journal without a generation is not all that the run had: a checkpoint is
// damaged, or there is a result. A writer may save or prune checkpoints meanwhile.
Status CheckNothingLost(const RunFolder& folder) {
  for (const RootedPath& path : ListCheckpoints(folder.checkpoints())) {
    const Status why = ReadCheckpoint(path).status();
    if (!why.ok() && Exists(path))
      return {why.code(), why.message() + "; the journal holds no generation either"};
  }
  if (!Exists(folder.path() / "result.json")) return Status::Ok();
  return {Code::kBadData, folder.journal().string() + ": no generation, yet there is a result"};
}

// The journal of a run, which holds the generation of the latest checkpoint. Works next to a
// writer: the checkpoint is read first, the journal only grows.
Result<JournalContents> SoundJournal(const RunFolder& folder) {
  ASSIGN_OR_RETURN(const auto checkpoint,
                   LatestGoodCheckpoint(folder.checkpoints(), OnBadCheckpoint::kSkip));
  const std::string path = folder.journal().string();
  auto journal = ReadJournal(folder.journal());
  if (!journal.ok() && journal.status().code() == Code::kNoInput) {
    if (checkpoint) return Status(Code::kBadData, path + ": missing");
    RETURN_IF_ERROR(CheckNothingLost(folder));
    return JournalContents{};
  }
  if (!journal.ok()) return journal.status();
  RETURN_IF_ERROR(journal->damage);
  ASSIGN_OR_RETURN(const auto last, LastGeneration(*journal));
  if (!last && !checkpoint) RETURN_IF_ERROR(CheckNothingLost(folder));
  uint64_t reached = 0;
  if (last) {
    const auto summary = last->Describe();
    if (!summary.ok()) return journal;  // a resume mends nothing: for the caller to report
    reached = summary->generation;
  }
  if (checkpoint && checkpoint->info.step > reached) {
    return Status(Code::kBadData, path + ": lost its end, generations " +
                                      std::to_string(reached + 1) + " to " +
                                      std::to_string(checkpoint->info.step));
  }
  return journal;
}

}  // namespace

std::string GenerationRecord::Encode() const {
  ByteWriter out;
  out.Put(kRecordVersion)
      .PutBytes(algorithm)
      .Put(seconds)
      .PutBytes(state)
      .PutBytes(metrics)
      .Put(uint64_t{fitness.size()});
  for (double f : fitness) out.Put(f);
  out.PutBytes(archive).Put(evaluations).Put(solved_at);
  return out.PutVector(positions).Take();
}

Result<GenerationRecord> GenerationRecord::Decode(std::string_view bytes) {
  const Status damaged(Code::kBadData, "a generation record is damaged");
  ByteReader in(bytes);
  GenerationRecord record;
  const auto version = in.Get<uint32_t>();
  if (version < 1 || version > kRecordVersion) {
    return Status(Code::kBadData, "generation record version " + std::to_string(version) +
                                      ", expected " + std::to_string(kRecordVersion));
  }
  record.algorithm = version > 1 ? in.GetBytes() : "deep-ga";
  record.seconds = in.Get<double>();
  record.state = in.GetBytes();
  record.metrics = in.GetBytes();
  const auto count = in.Get<uint64_t>();
  for (uint64_t i = 0; i < count && in.ok(); ++i) record.fitness.push_back(in.Get<double>());
  if (version > 2) {
    record.archive = in.GetBytes();
    record.evaluations = in.Get<uint64_t>();
    record.solved_at = in.Get<uint64_t>();
    if (!in.GetVector(record.positions)) return damaged;
  }
  if (!in.AtEnd()) return damaged;
  return record;
}

Result<EvolutionSummary> GenerationRecord::Describe() const {
  if (const EvolutionRow* row = FindEvolutionAlgorithm(algorithm)) return row->describe(state);
  return Status(Code::kBadData,
                "a generation of run.algorithm=" + Shown(algorithm) +
                    ", which this program does not have: use the one that wrote it");
}

Result<std::optional<GenerationRecord>> LastGeneration(const JournalContents& journal) {
  std::optional<GenerationRecord> last;
  for (auto it = journal.records.rbegin(); it != journal.records.rend() && !last; ++it) {
    if (it->type != kGenerationRecord) continue;
    ASSIGN_OR_RETURN(last, GenerationRecord::Decode(it->payload));
  }
  return last;
}

namespace {

std::string Resume(const Path& run) { return "'samara train --resume " + run.string() + "'"; }

Result<JournalContents> JournalOf(const Path& run) {
  ASSIGN_OR_RETURN(const auto folder, RunFolder::Open(run, RunFolder::Mode::kRead));
  auto sound = SoundJournal(*folder);
  if (sound.status().code() != Code::kBadData) return sound;
  return Status(Code::kBadData, sound.status().message() + "; 'samara fsck " + run.string() +
                                    "' lists all damage, " + Resume(run) +
                                    " continues with the valid part, if there is one");
}

// `last`: the last generation that there is; 0: none.
Status NoGeneration(const Path& run, int64_t generation, uint64_t last) {
  const std::string which = last == 0
                                ? "no finished generation yet"
                                : fmt::format("no generation {}, the last is {}", generation, last);
  ASSIGN_OR_RETURN(const auto folder, RunFolder::Open(run, RunFolder::Mode::kRead));
  if (generation > 0 && static_cast<uint64_t>(generation) < last)
    return {Code::kNoInput, fmt::format("{}: no generation {}: it was lost with the end of a "
                                        "journal; the last is {}",
                                        run.string(), generation, last)};
  const std::string holder = folder->Holder();
  const auto result = folder->ReadResult();
  const bool finished = result.ok() && result->has_value();
  const std::string then = !holder.empty() ? "process " + holder + " trains it: wait for the next"
                           : finished      ? "the run is finished, and a larger budget continues it"
                                           : "let it run on with " + Resume(run);
  return {Code::kNoInput, run.string() + ": " + which + "; " + then};
}

}  // namespace

Result<FoundGeneration> FindGeneration(const Path& run, int64_t generation) {
  ASSIGN_OR_RETURN(const JournalContents journal, JournalOf(run));
  std::string reference;
  uint64_t last = 0;
  for (const JournalRecord& record : journal.records)
    if (record.type == kReferenceRecord) reference = record.payload;
  for (auto it = journal.records.rbegin(); it != journal.records.rend(); ++it) {
    if (it->type != kGenerationRecord) continue;
    FoundGeneration found;
    found.reference = reference;
    ASSIGN_OR_RETURN(found.record, GenerationRecord::Decode(it->payload));
    ASSIGN_OR_RETURN(found.summary, found.record.Describe());
    if (generation < 0 || found.summary.generation == static_cast<uint64_t>(generation))
      return found;
    last = std::max(last, found.summary.generation);
    if (found.summary.generation < static_cast<uint64_t>(generation)) break;
  }
  return NoGeneration(run, generation, last);
}

Result<std::vector<GenerationRecord>> ReadGenerations(const Path& run, int64_t generation) {
  ASSIGN_OR_RETURN(const JournalContents journal, JournalOf(run));
  std::vector<GenerationRecord> records;
  uint64_t last = 0;
  for (const JournalRecord& entry : journal.records) {
    if (entry.type != kGenerationRecord) continue;
    ASSIGN_OR_RETURN(GenerationRecord record, GenerationRecord::Decode(entry.payload));
    ASSIGN_OR_RETURN(const EvolutionSummary summary, record.Describe());
    if (generation >= 0 && summary.generation > static_cast<uint64_t>(generation)) break;
    if (summary.generation <= last) continue;  // played again after the journal lost its end
    last = summary.generation;
    records.push_back(std::move(record));
  }
  if (records.empty() || (generation >= 0 && last != static_cast<uint64_t>(generation)))
    return NoGeneration(run, generation, last);
  return records;
}

}  // namespace samara
