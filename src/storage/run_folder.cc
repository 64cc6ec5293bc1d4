#include "storage/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "core/config.h"
#include "core/leave.h"
#include "core/log.h"
#include "core/parse_number.h"
#include "core/sha256.h"
#include "storage/quarantine.h"
#include "storage/sealed_json.h"

namespace samara {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr std::string_view kSeedPrefix = "seed-";
constexpr std::string_view kConfigHeader = "# samara run configuration, format 1, sha256 ";

const char* Describe(FileKind kind) {  // of what is there
  return kind == FileKind::kLink     ? "a symbolic link"
         : kind == FileKind::kFolder ? "a folder"
         : kind == FileKind::kFile   ? "a file"
                                     : "a pipe, socket or device";
}

// TOML whose first line, a comment, holds the digest of the rest.
std::string SealConfig(const std::string& toml) {
  return std::string(kConfigHeader) + Sha256Hex(toml) + "\n" + toml;
}

Result<std::string> ReadConfig(const RootedPath& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  const size_t line_end = text.find('\n');
  if (line_end == std::string::npos || !text.starts_with(kConfigHeader)) {
    return Status(Code::kBadData, path.string() + ": damaged: expected a first line '" +
                                      std::string(kConfigHeader) + "...'");
  }
  std::string toml = text.substr(line_end + 1);
  if (text != SealConfig(toml)) {
    return Status(Code::kBadData,
                  path.string() +
                      ": damaged or edited: it does not match the SHA-256 in its first "
                      "line; restore it, and pass changes as key=value to --resume");
  }
  return toml;
}

Status CheckSpace(const RootedPath& folder, uint64_t bytes_needed) {
  ASSIGN_OR_RETURN(const uint64_t bytes_free, FreeSpace(folder));
  if (bytes_free >= bytes_needed) return Status::Ok();
  return {Code::kIoError, folder.string() + ": disk full: " + std::to_string(bytes_free >> 20) +
                              " MiB free, expected at least " + std::to_string(bytes_needed >> 20) +
                              " MiB: free space or choose another --out"};
}

std::string IncarnationText(uint64_t incarnation) {
  return SealJson({{"format", 1}, {"incarnation", incarnation}});
}

// A file that must be there once the folder is a run folder: its absence is damage.
Result<nlohmann::json> ReadPart(const RootedPath& path) {
  auto json = ReadSealedJson(path);
  if (json.ok() || json.status().code() != Code::kNoInput) return json;
  return Status(Code::kBadData, json.status().message());
}

Status WriteContents(const RootedPath& folder, const std::string& config_toml,
                     const nlohmann::json& identity, const RunFolder::KeptFiles& kept) {
  nlohmann::json run = identity;
  run["format"] = 1;
  RETURN_IF_ERROR(MakeFolder(folder / "checkpoints"));
  RETURN_IF_ERROR(MakeFolder(folder / "videos"));
  RETURN_IF_ERROR(WriteNewFile(folder / "config.toml", SealConfig(config_toml)));
  RETURN_IF_ERROR(WriteNewFile(folder / "run.json", SealJson(run)));
  RETURN_IF_ERROR(WriteNewFile(folder / "incarnation.json", IncarnationText(1)));
  RETURN_IF_ERROR(WriteNewFile(folder / "log.txt", ""));
  for (const auto& [name, bytes] : kept) RETURN_IF_ERROR(WriteNewFile(folder / name, bytes));
  return SyncFolder(folder);
}

Status CannotCreate(const Path& target, const std::string& reason) {
  return {Code::kCannotCreate,
          target.string() + ": cannot be created: " + reason + ": choose another --out"};
}

// A full disk is its own category; all else means that the folder cannot be made here.
Status CannotCreate(const Path& target, const Status& why) {
  if (why.code() == Code::kIoError) return why;
  return CannotCreate(target, why.message().substr(why.message().rfind(": ") + 2));
}

// The process that has the run open for writing; empty: none.
std::string HolderOf(const RootedPath& run) {
  const int fd = ::open((run / "lock").string().c_str(),
                        O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {};
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  char pid[32] = {};
  const ssize_t n = held ? ::pread(fd, pid, sizeof pid - 1, 0) : 0;
  ::close(fd);
  if (!held) return {};
  return n > 0 ? Shown(std::string_view(pid, static_cast<size_t>(n))) : "unknown";
}

// Why `path` cannot become a new run.
Status Occupied(const Path& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    return CannotCreate(path, error.message());
  const RootedPath run = RootedPath::Root(path);
  std::string text = path.string() + ": exists; choose another --out";
  if (const std::string holder = HolderOf(run); !holder.empty())
    text += " (process " + holder + " trains there)";
  else if (Exists(run / "run.json"))
    text += ", or continue it by --resume " + path.string();
  return {Code::kCannotCreate, text};
}

// Whether a rename may put a new folder there.
bool IsFree(const Path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT;
  const auto names = ListFolder(path);
  return names.ok() && names->empty();
}

// "dir/" and "dir" are the same place; rename wants the latter.
Path WithoutTrailingSlash(const Path& path) {
  const Path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// One line when other users may change the run.
void WarnOfOthers(const RootedPath& run) {
  if (const auto trust = InspectTrust(run.path()); trust.ok() && !trust->trusted())
    LogWarning(trust->why + "; what they put there is resumed and played like the run's own");
}

bool IsEventFile(const std::string& name) { return name.starts_with("events.out.tfevents."); }

// Names of what a run makes at its end for people.
bool IsOutput(const std::string& name) {
  static const std::set<std::string> kOutputs = {"archive.csv", "archive.svg", "learning_curve.svg",
                                                 "map.svg", "report.html"};
  return kOutputs.contains(name);
}

// Whether a run makes the file of this path below it at its end.
bool IsMade(const Path& below) {
  return IsOutput(below.string()) || below == "videos/elite.mp4" || below == "videos/agent.mp4";
}

// Whether a run cannot do without the file or folder of this name.
bool IsKept(const std::string& name) {
  static const std::set<std::string> kNames = {
      "checkpoints",   "config.toml", "run.json", "incarnation.json",        "result.json",
      "metrics.jsonl", "log.txt",     "lock",     RunFolder::kInitialPolicy, RunFolder::kModule};
  return kNames.contains(name) || IsEventFile(name);
}

// Whether `result` is an object whose members that are read again have their types.
bool IsResult(const nlohmann::json& result) {
  if (!result.is_object()) return false;
  const auto is = [&result](const char* name, bool (nlohmann::json::*type)() const noexcept) {
    const auto member = result.find(name);
    return member == result.end() || ((*member).*type)();
  };
  using Json = nlohmann::json;
  return is("run", &Json::is_string) && is("parameter_hash", &Json::is_string) &&
         is("population_hash", &Json::is_string) && is("updates", &Json::is_number_unsigned) &&
         is("generation", &Json::is_number_unsigned) && is("frames", &Json::is_number) &&
         is("seconds", &Json::is_number);
}

// Empty where it is no folder.
std::vector<std::string> NamesIn(const Path& folder) {
  auto names = ListFolder(RootedPath::Root(folder));
  return names.ok() ? *std::move(names) : std::vector<std::string>();
}

// The runs "seed-N" in a folder, by seed.
std::vector<Path> RunsOfSeeds(const Path& folder) {
  std::map<int64_t, Path> by_seed;
  for (const std::string& name : NamesIn(folder)) {
    if (!name.starts_with(kSeedPrefix)) continue;
    const auto seed = ParseNumber<int64_t>(name.substr(kSeedPrefix.size()));
    if (seed && Exists(RootedPath::Root(folder / name) / "run.json"))
      by_seed[*seed] = folder / name;
  }
  std::vector<Path> runs;
  runs.reserve(by_seed.size());
  for (auto& [seed, run] : by_seed) runs.push_back(std::move(run));
  return runs;
}

}  // namespace

Path DefaultRunFolder(const std::string& name) {
  std::string flat = name;
  for (char& c : flat) c = std::isalnum(static_cast<unsigned char>(c)) || c == '.' ? c : '-';
  for (int number = 1;; ++number) {
    const std::string digits = (number < 10 ? "0" : "") + std::to_string(number);
    Path path = Path("runs") / (flat + "-" + digits);
    if (!Exists(path)) return path;
  }
}

Status CheckOutputFile(const Path& file, std::string_view makes) {
  std::error_code failed;
  const Path folder = file.parent_path().empty() ? Path(".") : file.parent_path();
  const Path parent = std::filesystem::canonical(folder, failed);
  if (failed || !std::filesystem::is_directory(parent, failed))
    return {Code::kCannotCreate, fmt::format("{}: no folder {}; make it first",
                                             Shown(file.string()), Shown(folder.string()))};
  if (::access(parent.c_str(), W_OK | X_OK) != 0)
    return {Code::kCannotCreate, fmt::format("{}: cannot be created: {}; choose another folder",
                                             Shown(file.string()), std::strerror(errno))};
  if (const FileKind kind = KindOf(RootedPath::Root(parent) / file.filename().string());
      kind != FileKind::kMissing && kind != FileKind::kFile)
    return {Code::kCannotCreate,
            fmt::format("{}: is {}; choose a file", Shown(file.string()), Describe(kind))};
  Path below = file.filename();  // from `run` on
  for (Path run = parent; run.has_relative_path(); run = run.parent_path()) {
    const std::string first = below.begin()->string();
    const bool again = !makes.empty() && (below == makes || first == makes);
    if (Exists(RootedPath::Root(run) / "run.json") && (IsKept(first) || (IsMade(below) && !again)))
      return {Code::kCannotCreate, fmt::format("{}: the run {} keeps it; choose another file",
                                               Shown(file.string()), Shown(run.string()))};
    below = run.filename() / below;
  }
  return Status::Ok();
}

Path SeedFolder(const Path& out, int64_t seed) {
  return out / (std::string(kSeedPrefix) + std::to_string(seed));
}

std::vector<Path> RunsIn(const Path& folder) {
  std::vector<Path> runs = RunsOfSeeds(folder);
  for (const std::string& name : NamesIn(folder)) {
    if (name.find('=') == name.npos) continue;  // of a setting: "ga.population=50"
    const std::vector<Path> more = RunsOfSeeds(folder / name);
    runs.insert(runs.end(), more.begin(), more.end());
  }
  return runs;
}

Status CheckKinds(const RootedPath& run) {
  static const std::set<std::string> kFolders = {"checkpoints", "videos"};
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(run));
  for (const std::string& name : names) {
    const bool folder = kFolders.contains(name);
    if (!folder && !IsKept(name) && !IsOutput(name)) continue;  // the user's own
    const FileKind kind = KindOf(run / name);
    if (kind == FileKind::kMissing || kind == (folder ? FileKind::kFolder : FileKind::kFile))
      continue;
    return {Code::kBadData, (run / name).string() + ": " + Describe(kind) + ", expected the " +
                                (folder ? "folder" : "file") +
                                " that samara wrote: put it back there, or remove this"};
  }
  return Status::Ok();
}

Status RunFolder::CheckRoom(const Path& out) {
  const Path target = WithoutTrailingSlash(out);
  if (!IsFree(target)) return Occupied(target);
  // the folder above that is there has to take a new one
  Path above = std::filesystem::absolute(target).parent_path();
  while (::access(above.c_str(), F_OK) != 0 && above != above.parent_path())
    above = above.parent_path();
  return ::access(above.c_str(), W_OK | X_OK) == 0 ? Status::Ok()
                                                   : CannotCreate(target, std::strerror(errno));
}

Result<std::unique_ptr<RunFolder>> RunFolder::Create(const Path& out, const std::string& name,
                                                     const std::string& config_toml,
                                                     const nlohmann::json& identity,
                                                     uint64_t bytes_needed, const KeptFiles& kept) {
  const Path target = WithoutTrailingSlash(out.empty() ? DefaultRunFolder(name) : out);
  if (!IsFree(target)) return Occupied(target);
  const RootedPath parent = RootedPath::Root(target.parent_path());
  if (!parent.empty())
    if (const Status made = CreateFolders(parent.path()); !made.ok())
      return CannotCreate(target, made);
  RETURN_IF_ERROR(CheckSpace(parent, bytes_needed));

  std::unique_ptr<RunFolder> run(new RunFolder);
  const RootedPath temporary = TemporaryName(target);
  const RemovedOnLeave half_made(temporary.path());
  const auto fill = [&]() -> Status {
    RETURN_IF_ERROR(MakeFolder(temporary));
    RETURN_IF_ERROR(WriteContents(temporary, config_toml, identity, kept));
    // locked before another process can see it
    ASSIGN_OR_RETURN(run->lock_, FileLock::Acquire(temporary / "lock"));
    return SyncFolder(temporary);
  };
  Status status = fill();
  if (status.ok()) status = RenamePath(temporary, target);
  if (!status.ok()) {
    (void)RemoveTree(temporary);
    // another process may have taken the same name meanwhile
    if (!IsFree(target))
      return out.empty() ? Create(out, name, config_toml, identity, bytes_needed, kept)
                         : Occupied(target);
    return CannotCreate(target, status);
  }
  RETURN_IF_ERROR(SyncFolder(parent));
  run->path_ = RootedPath::Root(target);
  RETURN_IF_ERROR(run->Load());
  WarnOfOthers(run->path_);
  return run;
}

Result<std::unique_ptr<RunFolder>> RunFolder::Open(const Path& path, Mode mode,
                                                   uint64_t bytes_needed) {
  std::unique_ptr<RunFolder> run(new RunFolder);
  run->path_ = RootedPath::Root(WithoutTrailingSlash(path));
  if (!Exists(run->path_ / "run.json")) {
    // what another user may not see looks missing
    if (const Status listed = ListFolder(run->path_).status(); listed.code() == Code::kNotPermitted)
      return Status(listed.code(), listed.message() + ": its owner can let you read it");
    const bool exists = Exists(run->path_);
    if (const auto runs = RunsIn(path); !runs.empty())
      return Status(Code::kNoInput, fmt::format("{}: holds {} runs: name one, such as {}",
                                                path.string(), runs.size(), runs[0].string()));
    return Status(Code::kNoInput,
                  path.string() +
                      (exists ? ": not a run folder (no run.json in it)" : ": no such run folder") +
                      ": give the path that samara train printed; 'ls runs' shows those here");
  }
  RETURN_IF_ERROR(CheckKinds(run->path_));
  if (mode == Mode::kWrite) {
    WarnOfOthers(run->path_);
    ASSIGN_OR_RETURN(run->lock_, FileLock::Acquire(run->path_ / "lock"));
    RETURN_IF_ERROR(CheckSpace(run->path_, bytes_needed));
  }
  RETURN_IF_ERROR(run->Load());
  if (mode == Mode::kWrite) {
    RemoveTemporaries(run->path_);
    RemoveTemporaries(run->checkpoints());
    RemoveTemporaries(run->videos());
    RETURN_IF_ERROR(run->StartIncarnation());
  }
  return run;
}

Status RunFolder::Load() {
  ASSIGN_OR_RETURN(identity_, ReadSealedJson(path_ / "run.json"));
  ASSIGN_OR_RETURN(const uint64_t format, CountMember(identity_, "format", "run.json"));
  if (format != 1) {
    return {Code::kConfig, path_.string() + ": run folder of format " + std::to_string(format) +
                               ", this samara reads format 1: use the samara that wrote it"};
  }
  auto config = ReadConfig(path_ / "config.toml");
  // without its configuration the folder is damaged, not absent
  if (config.status().code() == Code::kNoInput) return {Code::kBadData, config.status().message()};
  RETURN_IF_ERROR(config.status());
  config_toml_ = *config;

  if (KindOf(checkpoints()) != FileKind::kFolder) {
    return {Code::kBadData, checkpoints().string() +
                                ": missing, and with it all that the run had saved: restore it, or "
                                "start a new run with another --out"};
  }
  const RootedPath counter = path_ / "incarnation.json";
  ASSIGN_OR_RETURN(const nlohmann::json incarnation, ReadPart(counter));
  ASSIGN_OR_RETURN(incarnation_, CountMember(incarnation, "incarnation", counter.string()));
  return Status::Ok();
}

std::string RunFolder::Holder() const { return HolderOf(path_); }

Status RunFolder::StartIncarnation() {
  ++incarnation_;
  return WriteFileAtomic(path_ / "incarnation.json", IncarnationText(incarnation_));
}

// The file `name`, whose SHA-256 `digest_in` says.
Result<std::optional<std::string>> RunFolder::ReadKept(const char* name, const std::string& digest,
                                                       const char* digest_in) const {
  const RootedPath file = path_ / name;
  auto bytes = ReadFile(file);
  if (bytes.status().code() == Code::kNoInput)
    return Status(Code::kBadData, file.string() + ": missing; restore it from a copy");
  if (!bytes.ok()) return bytes.status();
  if (digest != Sha256Hex(*bytes))
    return Status(Code::kBadData, file.string() + ": damaged: it does not match the SHA-256 in " +
                                      digest_in + "; restore it from a copy");
  return std::optional(*std::move(bytes));
}

Result<std::optional<std::string>> RunFolder::ReadInitialPolicy() const {
  const auto digest = nlohmann::json::json_pointer("/initial_policy/file_sha256");
  if (!identity_.contains(digest)) return std::optional<std::string>();
  const nlohmann::json& text = identity_.at(digest);
  return ReadKept(kInitialPolicy, text.is_string() ? text.get<std::string>() : text.dump(),
                  "run.json");
}

Result<std::optional<std::string>> RunFolder::ReadModule() const {
  constexpr std::string_view kPrefix = kModuleDigest;
  const std::string module = TextIn(config_toml_, "network.module");
  if (module.empty()) return std::optional<std::string>();
  return ReadKept(kModule, module.substr(std::min(kPrefix.size(), module.size())), "config.toml");
}

Status RunFolder::UpdateConfig(const std::string& config_toml) {
  CHECK(lock_ != nullptr) << "the run folder is open for reading";
  RETURN_IF_ERROR(WriteFileAtomic(path_ / "config.toml", SealConfig(config_toml)));
  config_toml_ = config_toml;
  return Status::Ok();
}

Status RunFolder::SaveResult(const nlohmann::json& result) {
  CHECK(lock_ != nullptr) << "the run folder is open for reading";
  const RootedPath path = path_ / "result.json";
  const Status saved = WriteFileAtomic(path, SealJson({{"format", 1}, {"result", result}}));
  // one that may not last is none
  if (!saved.ok()) (void)RemoveTree(path);
  return saved;
}

Status RunFolder::RemoveResult() {
  CHECK(lock_ != nullptr) << "the run folder is open for reading";
  if (!Exists(path_ / "result.json")) return Status::Ok();
  RETURN_IF_ERROR(RemoveTree(path_ / "result.json"));
  return SyncFolder(path_);
}

Result<std::optional<nlohmann::json>> RunFolder::ReadResult() const {
  const RootedPath path = path_ / "result.json";
  auto sealed = ReadSealedJson(path);
  if (!sealed.ok() && sealed.status().code() == Code::kNoInput)
    return std::optional<nlohmann::json>();
  if (!sealed.ok()) return sealed.status();
  const auto result = sealed->find("result");
  if (result == sealed->end() || !IsResult(*result))
    return Status(Code::kBadData, path.string() + ": no result in it");
  return std::optional(*result);
}

}  // namespace samara
