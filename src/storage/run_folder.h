// A run folder: everything one run needs, leaves and resumes from. doc/run_folder_format.md has the
// layout.
//
// Thread safety: none; one owner. Invariants: (1) a folder is seen only complete: it appears by one
// rename with its configuration inside; (2) at most one process has it open for writing; (3) the
// incarnation on disk is at least that of every process that ever wrote; (4) no absolute path
// inside, so it can be moved and copied while no process writes; (5) there are no symbolic links,
// pipes or devices under the names that samara uses: a folder with such is refused.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/status.h"

namespace samara {

constexpr uint64_t kRunBytesNeeded = uint64_t{64} << 20;  // least free space to start a run with

// kBadData when what has the name of a file or folder of a run in `run` is something else: a link,
// a pipe. For readers that take no RunFolder.
Status CheckKinds(const RootedPath& run);

// kCannotCreate when a command may not write its output to `file`: its folder is missing or denied,
// or it is a file that samara keeps or makes in a run folder. `makes`: the one, named from the run
// folder on, that the command may make again ("report.html"); "videos": every file there.
Status CheckOutputFile(const Path& file, std::string_view makes = {});

// Folder of a seed's run of `samara train --seeds`, in the folder of all or of a setting of
// --sweep.
Path SeedFolder(const Path& out, int64_t seed);
// The runs that such a command has in `folder`, by seed, of a sweep by setting first; none where it
// is something else.
std::vector<Path> RunsIn(const Path& folder);

// Where a run of that name goes by default: "runs/<name>-NN" with the first free number; slashes in
// `name` become dashes.
Path DefaultRunFolder(const std::string& name);

class RunFolder {
 public:
  // Files that a run gets when it is made and keeps as they are.
  static constexpr char kInitialPolicy[] = "initial.safetensors";
  static constexpr char kModule[] = "module.pt";
  using KeptFiles = std::map<std::string, std::string>;  // name to bytes

  enum class Mode {
    kRead,   // eval, report, fsck: takes no lock, changes nothing, works next to a writer
    kWrite,  // resume: takes the lock, starts a new incarnation, removes left-over temporaries
  };

  // A new run, open for writing, incarnation 1. `out` empty: DefaultRunFolder(name). `out` may be
  // an empty folder. `config_toml` is the effective configuration, `identity` comes from
  // MakeIdentity. Of `kept`, identity.initial_policy.file_sha256 is the SHA-256 of the initial
  // policy, network.module of the configuration that of the module. kCannotCreate: `out` is
  // anything else than free; kIoError: less than `bytes_needed` free.
  static Result<std::unique_ptr<RunFolder>> Create(const Path& out, const std::string& name,
                                                   const std::string& config_toml,
                                                   const nlohmann::json& identity,
                                                   uint64_t bytes_needed = kRunBytesNeeded,
                                                   const KeptFiles& kept = {});
  // Whether Create could make a run in `out`, as far as that shows without writing.
  // kCannotCreate.
  static Status CheckRoom(const Path& out);
  // An existing run. kNoInput: not a run folder; kBadData: damaged; kCannotCreate: held by another
  // process (kWrite); kIoError: less than `bytes_needed` free (kWrite). Create and kWrite warn of a
  // folder that other users may change (InspectTrust).
  static Result<std::unique_ptr<RunFolder>> Open(const Path& path, Mode mode,
                                                 uint64_t bytes_needed = kRunBytesNeeded);

  // The root of all that is below: it may be a link.
  const RootedPath& path() const { return path_; }
  RootedPath checkpoints() const { return path_ / "checkpoints"; }
  RootedPath journal() const { return checkpoints() / "journal.bin"; }
  RootedPath videos() const { return path_ / "videos"; }
  RootedPath log() const { return path_ / "log.txt"; }
  RootedPath metrics() const { return path_ / "metrics.jsonl"; }
  // The policy that the run began from; nothing where it began from none. kBadData: damaged.
  Result<std::optional<std::string>> ReadInitialPolicy() const;
  // The module of its network (network.module); as above.
  Result<std::optional<std::string>> ReadModule() const;
  // Before the digest, in hexadecimal digits, that network.module of a run has.
  static constexpr char kModuleDigest[] = "sha256:";

  const std::string& config_toml() const { return config_toml_; }
  const nlohmann::json& identity() const { return identity_; }
  // The process that has the run open for writing, as text; empty: none has. Takes and releases the
  // lock, shared.
  std::string Holder() const;
  // How often the folder was opened for writing; of this process in kWrite.
  uint64_t incarnation() const { return incarnation_; }

  // Replaces the stored configuration (larger budgets on resume). REQUIRES: kWrite.
  Status UpdateConfig(const std::string& config_toml);
  // The result of a finished run; written after all that it speaks of. REQUIRES of the first two:
  // kWrite.
  Status SaveResult(const nlohmann::json& result);
  Status RemoveResult();  // of a run that goes on; ok when there is none
  Result<std::optional<nlohmann::json>> ReadResult() const;  // nothing: not finished yet

 private:
  RunFolder() = default;
  Status Load();
  Status StartIncarnation();
  Result<std::optional<std::string>> ReadKept(const char* name, const std::string& digest,
                                              const char* digest_in) const;

  RootedPath path_;
  std::string config_toml_;
  nlohmann::json identity_;
  uint64_t incarnation_ = 0;
  std::unique_ptr<FileLock> lock_;  // null in kRead
};

}  // namespace samara
