// Full checkpoints: folders of files that are verified as a whole before anything is used.
//
//   checkpoints/ckpt-<step>-<incarnation>/    8 and 4 digits or more: unique, ordered like time
//     <files>                                 opaque to this module
//     manifest.json                           written last; names each file, its length and SHA-256
//
// A checkpoint appears by one rename after everything in it is on disk, disappears by one rename to
// a temporary name, and never changes in between. A file that is as in the checkpoint before is one
// file with two names (a hard link): each folder is whole, and the bytes are there once. "Latest"
// is judged by step and incarnation, never by a clock. doc/run_folder_format.md has the fields of
// the manifest.
//
// Thread safety: none; one writer, which holds the lock of the run folder. Readers may read
// meanwhile.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"
#include "core/status.h"
#include "storage/journal.h"

namespace samara {

struct CheckpointInfo {
  uint64_t step = 0;         // generation or learner step
  uint64_t incarnation = 0;  // RunFolder::incarnation()
  uint64_t run_seconds =
      0;  // running time so far, summed over resumes: decides what is kept per hour
  std::string build_id = {};
  std::string config_hash = {};
  std::optional<JournalPin> journal = {};          // what the journal held when this was saved
  nlohmann::json note = nlohmann::json::object();  // the caller's own small numbers
};

struct CheckpointFile {
  std::string name;  // letters, digits, '.', '_', '-'; does not begin with '.'
  std::string_view bytes;
  bool kept = false;  // the file of CheckpointWriter::Kept that has this name; no bytes are given
};

struct StoredCheckpoint {
  RootedPath path;
  CheckpointInfo info;
  std::map<std::string, std::string> files;  // name -> bytes, all verified
};

// The info of a manifest and what it says about files.
struct CheckpointManifest {
  struct File {
    std::string name;
    uint64_t bytes = 0;
    std::string sha256;
  };
  CheckpointInfo info;
  std::vector<File> files;
};

// Folders in `checkpoints` whose name is that of a checkpoint, latest first. Empty when there is no
// such folder.
std::vector<RootedPath> ListCheckpoints(const RootedPath& checkpoints);
// kBadData: damaged, or the folder's name is not that of the manifest; kConfig: a later format.
Result<CheckpointManifest> ReadManifest(const RootedPath& checkpoint);
// Reads and verifies everything.
Result<StoredCheckpoint> ReadCheckpoint(const RootedPath& checkpoint);

enum class OnBadCheckpoint {
  kSkip,        // fall back to the next older one with a warning, change nothing (readers)
  kQuarantine,  // the same, and rename the bad one to *.corrupt (the writer, on resume)
  kRefuse,      // kBadData (--strict)
};
// The latest checkpoint that verifies, and has a file named `with` unless that is empty; nothing
// when there is none.
Result<std::optional<StoredCheckpoint>> LatestGoodCheckpoint(const RootedPath& checkpoints,
                                                             OnBadCheckpoint on_bad,
                                                             std::string_view with = {});

class CheckpointWriter {
 public:
  struct Options {
    size_t keep_last = 3;
    bool keep_hourly = true;  // the oldest of each hour of running time
  };

  CheckpointWriter(RootedPath checkpoints, Options options)
      : checkpoints_(std::move(checkpoints)), options_(options) {}
  explicit CheckpointWriter(RootedPath checkpoints)
      : CheckpointWriter(std::move(checkpoints), Options{}) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter() { DropAhead(); }

  // Returns the new checkpoint once it is durable, then prunes. A second save of the same step and
  // incarnation finds the first and does nothing. On failure no temporary is left but kept files
  // that were written ahead, earlier checkpoints are as before and the call may be repeated;
  // kIoError also when less than 1.1 times the bytes that are written is free, or a kept file can
  // no longer be read (then it is not kept any more).
  Result<RootedPath> Save(const CheckpointInfo& info, std::span<const CheckpointFile> files);

  // Names of the files that the next save, of `info`, may keep: those of the last checkpoint, and
  // those that were written ahead.
  std::set<std::string> Kept(const CheckpointInfo& info) const;
  // Writes a file that the next save may keep, which then takes less long. It is removed by that
  // save, and with this writer. On failure, kIoError also when less than 1.1 times the bytes is
  // free, all that was written ahead is removed.
  Status WriteAhead(const std::string& name, std::string_view bytes);
  // The last checkpoint is this one, which was read and verified.
  void ContinueFrom(const RootedPath& checkpoint);
  // The last checkpoint that Save returned or that the run continues from; empty before.
  const RootedPath& last() const { return last_; }

 private:
  RootedPath PathOf(const CheckpointInfo& info) const;
  Status Write(const RootedPath& target, const CheckpointInfo& info,
               std::span<const CheckpointFile> files);
  Result<CheckpointManifest::File> WriteOrKeep(const RootedPath& folder,
                                               const CheckpointFile& file);
  void Prune(const std::string& config_hash) const;
  Status CheckRoom(const RootedPath& target, uint64_t bytes) const;
  void DropAhead();
  void DropUnkept(std::span<const CheckpointFile> files);

  // A file that may be kept.
  struct Lasting {
    CheckpointManifest::File file;
    RootedPath path;
  };
  const RootedPath checkpoints_;
  const Options options_;
  RootedPath last_;
  RootedPath ahead_;  // folder of what was written ahead; empty: nothing was
  std::map<std::string, Lasting> lasting_;
};

}  // namespace samara
