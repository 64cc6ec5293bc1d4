#include "storage/fsck.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "storage/agent_state.h"
#include "storage/checkpoint.h"
#include "storage/evolution_journal.h"
#include "storage/journal.h"
#include "storage/metrics.h"
#include "storage/quarantine.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

constexpr const char* kJournal = "journal.bin";

// One pass over checkpoints/.
class Checker {
 public:
  explicit Checker(const RootedPath& checkpoints) : checkpoints_(checkpoints) {}

  FsckReport Run() {
    const std::vector<RootedPath> known = ListCheckpoints(checkpoints_);
    const std::set<RootedPath> checkpoints(known.begin(), known.end());
    for (const std::string& name : List(checkpoints_)) {
      const RootedPath path = checkpoints_ / name;
      if (IsTemporaryName(name))
        report_.notes.push_back(path.string() +
                                ": temporary: of a save that goes on, or was interrupted");
      else if (IsCorruptName(name))
        report_.set_aside.push_back(path.string());
      else if (checkpoints.contains(path))
        CheckCheckpoint(path);
      else if (name != kJournal)
        report_.problems.push_back(path.string() + ": unknown: samara did not write it");
    }
    CheckJournal(checkpoints_ / kJournal);
    return std::move(report_);
  }

 private:
  std::vector<std::string> List(const RootedPath& folder) {
    auto names = ListFolder(folder);
    if (names.ok()) return *std::move(names);
    // one that is missing was found missing before
    if (names.status().code() != Code::kNoInput)
      report_.problems.push_back(names.status().message());
    return {};
  }

  void CheckCheckpoint(const RootedPath& path) {
    const auto checkpoint = ReadCheckpoint(path);
    if (!checkpoint.ok()) {
      // a writer may prune while we look
      if (Exists(path)) report_.problems.push_back(checkpoint.status().message());
      return;
    }
    report_.files_verified += static_cast<int>(checkpoint->files.size()) + 1;
    if (checkpoint->info.journal) pins_.emplace_back(path, *checkpoint->info.journal);
    for (const std::string& name : List(path))
      if (name != "manifest.json" && !checkpoint->files.contains(name))
        report_.problems.push_back((path / name).string() + ": unknown: not in the manifest");
  }

  // After the checkpoints: what they pin is at most what the journal holds now.
  void CheckJournal(const RootedPath& path) {
    const auto journal = ReadJournal(path);
    if (!journal.ok()) {
      const bool missing = journal.status().code() == Code::kNoInput;
      if (!missing || !pins_.empty()) report_.problems.push_back(journal.status().message());
      return;
    }
    ++report_.files_verified;
    if (!journal->damage.ok()) report_.problems.push_back(journal->damage.message());
    if (journal->torn_bytes > 0) {
      report_.notes.push_back(path.string() + ": " + std::to_string(journal->torn_bytes) +
                              " bytes of an interrupted append");
    }
    for (const auto& [checkpoint, pin] : pins_) {
      Status status = CheckPin(*journal, pin);
      // another journal took over: right only after the first one was quarantined, or when a later
      // checkpoint says so
      if (pin.id != journal->id && !JournalWasQuarantined() &&
          !PinnedAfter(checkpoint, journal->id))
        status = {Code::kBadData, "the journal is not the one it was saved with"};
      if (!status.ok()) report_.problems.push_back(status.Annotate(checkpoint.string()).message());
    }
  }

  bool JournalWasQuarantined() const {
    return std::any_of(report_.set_aside.begin(), report_.set_aside.end(),
                       [](const std::string& path) {
                         return Path(path).filename().string().starts_with(kJournal);
                       });
  }

  // Whether a checkpoint later than `checkpoint` pins the journal `id`.
  bool PinnedAfter(const RootedPath& checkpoint, const std::string& id) const {
    for (const RootedPath& later : ListCheckpoints(checkpoints_)) {
      if (later == checkpoint) return false;
      for (const auto& [path, pin] : pins_)
        if (path == later && pin.id == id) return true;
    }
    return false;
  }

  const RootedPath checkpoints_;
  FsckReport report_;
  std::vector<std::pair<RootedPath, JournalPin>> pins_;  // of the good checkpoints
};

// A learning run has no journal to notice that its last checkpoint is gone; its result does.
void CheckAgentOfResult(const RunFolder& run, const nlohmann::json& result, FsckReport& report) {
  const auto updates = result.find("updates"), hash = result.find("parameter_hash");
  if (updates == result.end() || hash == result.end()) return;
  const std::vector<RootedPath> known = ListCheckpoints(run.checkpoints());
  if (known.empty()) return;  // said already, as is a manifest that is damaged
  const auto manifest = ReadManifest(known[0]);
  if (!manifest.ok()) return;
  const auto last = updates->get<uint64_t>();
  const auto saved = ParameterHash(manifest->info, known[0]);
  if (manifest->info.step < last)
    report.problems.push_back(known[0].string() + ": is the latest, yet the result is of update " +
                              std::to_string(last));
  else if (manifest->info.step == last && (!saved.ok() || nlohmann::json(*saved) != *hash))
    report.problems.push_back(known[0].string() + ": holds other parameters than the result names");
}

// The last generation of the journal is the one that the result speaks of.
void CheckGenerationOfResult(const RunFolder& run, const nlohmann::json& result,
                             FsckReport& report) {
  const auto generation = result.find("generation"), hash = result.find("population_hash");
  if (generation == result.end() || hash == result.end()) return;
  const std::string file = (run.path() / "result.json").string();
  const auto journal = ReadJournal(run.journal());
  if (!journal.ok() || !journal->damage.ok()) return;  // said already
  const auto last = LastGeneration(*journal);
  if (!last.ok()) return report.problems.push_back(last.status().Annotate(file).message());
  if (!*last) return report.problems.push_back(file + ": the journal holds no generation");
  const auto summary = (*last)->Describe();
  if (!summary.ok()) return report.notes.push_back(file + ": " + summary.status().message());
  if (generation->get<uint64_t>() != summary->generation)
    report.problems.push_back(fmt::format("{}: of generation {}, the journal ends with {}", file,
                                          generation->get<uint64_t>(), summary->generation));
  else if (hash->get<std::string>() != Hex(summary->population_hash))
    report.problems.push_back(file + ": names another population hash than the journal has");
}

}  // namespace

Status FsckReport::status() const {
  if (problems.empty()) return Status::Ok();
  const size_t more = problems.size() - 1;
  return {Code::kBadData,
          problems[0] + (more == 0 ? "" : " (and " + std::to_string(more) + " more)")};
}

Result<FsckReport> Fsck(const Path& path) {
  const auto run = RunFolder::Open(path, RunFolder::Mode::kRead);
  if (!run.ok() && run.status().code() == Code::kNoInput) return run.status();
  FsckReport report = Checker(RootedPath::Root(path) / "checkpoints").Run();
  if (!run.ok()) {
    report.problems.insert(report.problems.begin(), run.status().message());
  } else {
    report.files_verified += 3;
    for (const auto& kept : {(*run)->ReadInitialPolicy(), (*run)->ReadModule()}) {
      if (!kept.ok()) report.problems.push_back(kept.status().message());
      if (kept.ok() && kept->has_value()) ++report.files_verified;
    }
    const auto result = (*run)->ReadResult();
    if (!result.ok()) report.problems.push_back(result.status().message());
    if (result.ok() && result->has_value()) {
      ++report.files_verified;
      if (!Exists((*run)->journal()) && ListCheckpoints((*run)->checkpoints()).empty())
        report.problems.push_back((*run)->checkpoints().string() +
                                  ": holds neither journal nor checkpoint, yet there is a result");
      CheckAgentOfResult(**run, **result, report);
      CheckGenerationOfResult(**run, **result, report);
    }
  }
  // a resume relies on none of it: a note
  const auto metrics = ReadMetrics(RootedPath::Root(path) / "metrics.jsonl");
  if (!metrics.ok() && metrics.status().code() != Code::kNoInput)
    report.notes.push_back(metrics.status().message() + ": reports of this run fail");
  return report;
}

}  // namespace samara
