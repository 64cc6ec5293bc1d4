#include "storage/checkpoint.h"

#include <algorithm>
#include <set>

#include "core/clock.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/parse_number.h"
#include "core/sha256.h"
#include "storage/quarantine.h"
#include "storage/sealed_json.h"

namespace samara {
namespace {

constexpr uint64_t kManifestFormat = 1;
constexpr const char* kManifest = "manifest.json";
constexpr size_t kFilesMax = 4096;
constexpr int kListingsMax = 1000;  // times a reader looks again when checkpoints vanish under it

std::string Padded(uint64_t value, size_t digits) {
  const std::string text = std::to_string(value);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

std::string NameOf(uint64_t step, uint64_t incarnation) {
  return "ckpt-" + Padded(step, 8) + "-" + Padded(incarnation, 4);
}

struct Order {
  uint64_t step, incarnation;
  auto operator<=>(const Order&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Step and incarnation of a checkpoint's folder; nothing for any other name.
std::optional<Order> ParseName(const std::string& name) {
  constexpr std::string_view kPrefix = "ckpt-";
  const size_t dash = name.rfind('-');
  if (!name.starts_with(kPrefix) || dash < kPrefix.size()) return {};
  const auto step = ParseNumber<uint64_t>(name.substr(kPrefix.size(), dash - kPrefix.size()));
  const auto incarnation = ParseNumber<uint64_t>(name.substr(dash + 1));
  if (!step || !incarnation || name != NameOf(*step, *incarnation)) return {};
  return Order{*step, *incarnation};
}

bool IsFileName(const std::string& name) {
  static constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name != kManifest &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

std::string ManifestText(const CheckpointManifest& saved) {
  const CheckpointInfo& info = saved.info;
  nlohmann::json list = nlohmann::json::array();
  for (const CheckpointManifest::File& file : saved.files)
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  nlohmann::json manifest = {{"format", kManifestFormat},
                             {"step", info.step},
                             {"incarnation", info.incarnation},
                             {"run_seconds", info.run_seconds},
                             {"build_id", info.build_id},
                             {"config_hash", info.config_hash},
                             {"note", info.note},
                             {"saved", WallTimeIso()},
                             {"files", std::move(list)}};
  if (info.journal) {
    manifest["journal"] = {
        {"id", info.journal->id}, {"bytes", info.journal->bytes}, {"digest", info.journal->digest}};
  }
  return SealJson(std::move(manifest));
}

Result<CheckpointManifest> ParseManifest(const nlohmann::json& json, const std::string& source) {
  CheckpointManifest manifest;
  CheckpointInfo& info = manifest.info;
  ASSIGN_OR_RETURN(info.step, CountMember(json, "step", source));
  ASSIGN_OR_RETURN(info.incarnation, CountMember(json, "incarnation", source));
  ASSIGN_OR_RETURN(info.run_seconds, CountMember(json, "run_seconds", source));
  ASSIGN_OR_RETURN(info.build_id, TextMember(json, "build_id", source));
  ASSIGN_OR_RETURN(info.config_hash, TextMember(json, "config_hash", source));
  if (json.contains("note")) info.note = json["note"];
  if (json.contains("journal")) {
    JournalPin pin;
    ASSIGN_OR_RETURN(pin.id, TextMember(json["journal"], "id", source));
    ASSIGN_OR_RETURN(pin.bytes, CountMember(json["journal"], "bytes", source));
    ASSIGN_OR_RETURN(pin.digest, TextMember(json["journal"], "digest", source));
    info.journal = pin;
  }
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array() || files->size() > kFilesMax) {
    return Status(Code::kBadData, source + ": damaged: no list of files");
  }
  for (const nlohmann::json& entry : *files) {
    CheckpointManifest::File file;
    ASSIGN_OR_RETURN(file.name, TextMember(entry, "name", source));
    ASSIGN_OR_RETURN(file.bytes, CountMember(entry, "bytes", source));
    ASSIGN_OR_RETURN(file.sha256, TextMember(entry, "sha256", source));
    if (!IsFileName(file.name)) {
      return Status(Code::kBadData, source + ": damaged: bad file name '" + file.name + "'");
    }
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

// A part that the checkpoint needs and that is missing makes it a bad one.
Status AsDamage(const Status& status) {
  return status.code() == Code::kNoInput ? Status(Code::kBadData, status.message()) : status;
}

Result<std::string> ReadVerified(const RootedPath& path, const CheckpointManifest::File& file) {
  auto bytes = ReadFile(path, file.bytes);
  if (!bytes.ok()) return AsDamage(bytes.status());
  if (bytes->size() != file.bytes) {
    return Status(Code::kBadData, path.string() + ": damaged: " + std::to_string(bytes->size()) +
                                      " bytes, expected " + std::to_string(file.bytes));
  }
  if (const std::string found = Sha256Hex(*bytes); found != file.sha256) {
    return Status(Code::kBadData, path.string() + ": damaged: its SHA-256 is " + found +
                                      ", expected " + file.sha256);
  }
  return bytes;
}

// Whether the checkpoint holds what was saved. Files that another one has too are not read: they
// stay.
bool OwnFilesVerify(const RootedPath& path, const CheckpointManifest& manifest) {
  return std::ranges::all_of(manifest.files, [&](const CheckpointManifest::File& file) {
    const auto facts = FactsOf(path / file.name);
    if (!facts.ok() || facts->bytes != file.bytes) return false;
    return facts->links > 1 || ReadVerified(path / file.name, file).ok();
  });
}

// Whether a checkpoint with a readable manifest has no file of this name.
bool Lacks(const RootedPath& checkpoint, std::string_view file) {
  const auto manifest = ReadManifest(checkpoint);
  return manifest.ok() &&
         std::ranges::find(manifest->files, file, &CheckpointManifest::File::name) ==
             manifest->files.end();
}

}  // namespace

std::vector<RootedPath> ListCheckpoints(const RootedPath& checkpoints) {
  std::vector<std::pair<Order, RootedPath>> found;
  const auto names = ListFolder(checkpoints);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>())
    if (const auto order = ParseName(name)) found.emplace_back(*order, checkpoints / name);
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<RootedPath> paths;
  paths.reserve(found.size());
  for (auto& [order, path] : found) paths.push_back(std::move(path));
  return paths;
}

Result<CheckpointManifest> ReadManifest(const RootedPath& checkpoint) {
  const RootedPath path = checkpoint / kManifest;
  auto json = ReadSealedJson(path);
  if (!json.ok()) return AsDamage(json.status());
  ASSIGN_OR_RETURN(const uint64_t format, CountMember(*json, "format", path.string()));
  if (format != kManifestFormat) {
    return Status(Code::kConfig, path.string() + ": checkpoint of format " +
                                     std::to_string(format) + ", this samara reads format " +
                                     std::to_string(kManifestFormat) +
                                     ": use the samara that wrote it");
  }
  ASSIGN_OR_RETURN(CheckpointManifest manifest, ParseManifest(*json, path.string()));
  const std::string name = NameOf(manifest.info.step, manifest.info.incarnation);
  if (checkpoint.name() != name) {
    return Status(Code::kBadData, checkpoint.string() + ": renamed: its manifest says " + name);
  }
  return manifest;
}

Result<StoredCheckpoint> ReadCheckpoint(const RootedPath& path) {
  ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadManifest(path));
  StoredCheckpoint checkpoint{.path = path, .info = std::move(manifest.info), .files = {}};
  for (const CheckpointManifest::File& file : manifest.files) {
    ASSIGN_OR_RETURN(checkpoint.files[file.name], ReadVerified(path / file.name, file));
  }
  return checkpoint;
}

namespace {

// False where this process has warned of `path` already: several parts of it may read a run.
bool IsFirstWarningOf(const Path& path) {
  static Mutex mu;
  static std::set<Path> warned;
  const MutexLock lock(mu);
  return warned.insert(path).second;
}

}  // namespace

Result<std::optional<StoredCheckpoint>> LatestGoodCheckpoint(const RootedPath& checkpoints,
                                                             OnBadCheckpoint on_bad,
                                                             std::string_view with) {
  for (int listing = 0; listing < kListingsMax; ++listing) {
    bool vanished = false;
    for (const RootedPath& path : ListCheckpoints(checkpoints)) {
      if (!with.empty() && Lacks(path, with)) continue;
      auto checkpoint = ReadCheckpoint(path);
      if (checkpoint.ok()) return std::optional(std::move(*checkpoint));
      // the writer pruned it under a reader: newer ones exist, look again
      vanished = !Exists(path);
      if (vanished) break;
      const Status& why = checkpoint.status();
      const bool bad = why.code() == Code::kBadData || why.code() == Code::kIoError;
      if (!bad || on_bad == OnBadCheckpoint::kRefuse) return why;
      if (on_bad == OnBadCheckpoint::kQuarantine && why.code() == Code::kBadData) {
        RETURN_IF_ERROR(Quarantine(path, why));
      } else if (IsFirstWarningOf(path.path())) {
        LogWarning(why.message() + "; trying the checkpoint before it");
      }
    }
    if (!vanished) return std::optional<StoredCheckpoint>();
  }
  return Status(Code::kIoError, checkpoints.string() + ": checkpoints vanish while they are read");
}

Result<RootedPath> CheckpointWriter::Save(const CheckpointInfo& info,
                                          std::span<const CheckpointFile> files) {
  const RootedPath target = PathOf(info);
  bool present = Exists(target);
  if (present) {
    // one process has one state per step: a good one is this one
    const auto earlier = ReadCheckpoint(target);
    if (!earlier.ok()) {
      RETURN_IF_ERROR(Quarantine(target, earlier.status()));
      present = false;
    }
  }
  if (!present) {
    RETURN_IF_ERROR(Write(target, info, files));
    Prune(info.config_hash);
  }
  ContinueFrom(target);
  return target;
}

RootedPath CheckpointWriter::PathOf(const CheckpointInfo& info) const {
  return checkpoints_ / NameOf(info.step, info.incarnation);
}

void CheckpointWriter::ContinueFrom(const RootedPath& checkpoint) {
  DropAhead();
  last_ = checkpoint, lasting_.clear();
  auto manifest = ReadManifest(checkpoint);
  if (!manifest.ok()) return;  // then nothing is kept
  for (CheckpointManifest::File& file : manifest->files) {
    const std::string name = file.name;
    lasting_[name] = {std::move(file), checkpoint / name};
  }
}

std::set<std::string> CheckpointWriter::Kept(const CheckpointInfo& info) const {
  std::set<std::string> kept;
  if (last_ == PathOf(info)) return kept;  // it would replace itself, if it is damaged
  for (const auto& [name, lasting] : lasting_)
    if (const auto facts = FactsOf(lasting.path); facts.ok() && facts->bytes == lasting.file.bytes)
      kept.insert(name);
  return kept;
}

Status CheckpointWriter::WriteAhead(const std::string& name, std::string_view bytes) {
  CHECK(IsFileName(name)) << name;
  const auto write = [&]() -> Status {
    RETURN_IF_ERROR(CheckRoom(checkpoints_, bytes.size()));
    if (ahead_.empty()) {
      ahead_ = TemporaryName(checkpoints_ / "ahead");
      RETURN_IF_ERROR(MakeFolder(ahead_));
    }
    return WriteNewFile(ahead_ / name, bytes);
  };
  if (Status status = write(); !status.ok()) {
    DropAhead();
    return status;
  }
  lasting_[name] = {{name, bytes.size(), Sha256Hex(bytes)}, ahead_ / name};
  return Status::Ok();
}

void CheckpointWriter::DropAhead() {
  if (ahead_.empty()) return;
  std::erase_if(lasting_, [&](const auto& each) { return each.second.path.parent() == ahead_; });
  if (const Status status = RemoveTree(ahead_); !status.ok()) LogWarning(status.message());
  ahead_ = {};
}

// Removes what was written ahead and left the replay before this save.
void CheckpointWriter::DropUnkept(std::span<const CheckpointFile> files) {
  std::set<std::string> kept;
  for (const CheckpointFile& file : files)
    if (file.kept) kept.insert(file.name);
  std::erase_if(lasting_, [&](const auto& each) {
    const auto& [name, lasting] = each;
    if (lasting.path.parent() != ahead_ || kept.contains(name)) return false;
    if (const Status status = RemoveTree(lasting.path); !status.ok()) LogWarning(status.message());
    return true;
  });
}

Status CheckpointWriter::CheckRoom(const RootedPath& target, uint64_t bytes) const {
  ASSIGN_OR_RETURN(const uint64_t bytes_free, FreeSpace(checkpoints_));
  if (bytes_free >= bytes + bytes / 10) return Status::Ok();
  return {Code::kIoError, target.string() + ": cannot save " + std::to_string(bytes) +
                              " bytes: disk full, " + std::to_string(bytes_free) +
                              " bytes free: free space on the disk"};
}

// Writes a file, or links an existing one; where links are refused, copies it.
Result<CheckpointManifest::File> CheckpointWriter::WriteOrKeep(const RootedPath& folder,
                                                               const CheckpointFile& file) {
  if (!file.kept) {
    RETURN_IF_ERROR(WriteNewFile(folder / file.name, file.bytes));
    return CheckpointManifest::File{file.name, file.bytes.size(), Sha256Hex(file.bytes)};
  }
  const auto before = lasting_.find(file.name);
  if (before == lasting_.end())
    return Status(Code::kIoError,
                  (folder / file.name).string() + ": the last checkpoint has no such file to keep");
  const auto& [kept, path] = before->second;
  const auto facts = FactsOf(path);
  if (facts.ok() && facts->bytes == kept.bytes && LinkFile(path, folder / file.name).ok())
    return kept;
  const auto bytes = ReadVerified(path, kept);
  if (!bytes.ok()) {
    lasting_.erase(before);
    return Status(Code::kIoError, bytes.status().message() + ": it is not kept");
  }
  RETURN_IF_ERROR(WriteNewFile(folder / file.name, *bytes));
  return kept;
}

Status CheckpointWriter::Write(const RootedPath& target, const CheckpointInfo& info,
                               std::span<const CheckpointFile> files) {
  CHECK_LE(files.size(), kFilesMax);
  uint64_t bytes = 0;
  for (const CheckpointFile& file : files) {
    CHECK(IsFileName(file.name)) << file.name;
    bytes += file.bytes.size();
  }
  // 1. room for it
  RemoveTemporaries(checkpoints_, /*but=*/ahead_);
  if (!ahead_.empty()) DropUnkept(files);
  RETURN_IF_ERROR(CheckRoom(target, bytes));
  const RootedPath temporary = TemporaryName(target);
  bool renamed = false;
  const auto write = [&]() -> Status {
    // 2. the files, each on disk
    RETURN_IF_ERROR(MakeFolder(temporary));
    CheckpointManifest manifest{.info = info, .files = {}};
    for (const CheckpointFile& file : files) {
      ASSIGN_OR_RETURN(manifest.files.emplace_back(), WriteOrKeep(temporary, file));
    }
    // 3. the manifest last
    RETURN_IF_ERROR(WriteNewFile(temporary / kManifest, ManifestText(manifest)));
    RETURN_IF_ERROR(SyncFolder(temporary));
    // 4. visible, and visible for good
    RETURN_IF_ERROR(RenamePath(temporary, target));
    renamed = true;
    return SyncFolder(checkpoints_);
  };
  Status status = write();
  if (!status.ok()) {
    // a rename that may not last is taken back, so that a retry writes everything again
    if (renamed) (void)RenamePath(target, temporary);
    (void)RemoveTree(temporary);
  }
  return status;
}

void CheckpointWriter::Prune(const std::string& config_hash) const {
  std::vector<RootedPath> candidates;  // in excess of the last few, latest first
  std::map<uint64_t, RootedPath> oldest_of_hour;
  size_t rank = 0;
  for (const RootedPath& path : ListCheckpoints(checkpoints_)) {
    const auto manifest = ReadManifest(path);
    // what is not ours or cannot be read is none of our business: LatestGood and fsck see to it
    if (!manifest.ok() || manifest->info.config_hash != config_hash) continue;
    // going back in time, the last one seen of an hour is its oldest
    if (options_.keep_hourly) oldest_of_hour[manifest->info.run_seconds / 3600] = path;
    if (rank++ >= options_.keep_last) candidates.push_back(path);
  }
  for (const RootedPath& path : candidates) {
    const bool kept = std::any_of(oldest_of_hour.begin(), oldest_of_hour.end(),
                                  [&](const auto& hour) { return hour.second == path; });
    if (kept) continue;
    const auto manifest = ReadManifest(path);
    if (!manifest.ok() || !OwnFilesVerify(path, *manifest)) continue;
    const RootedPath temporary = TemporaryName(path);
    Status status = RenamePath(path, temporary);
    if (status.ok()) status = RemoveTree(temporary);
    if (!status.ok()) LogWarning("an old checkpoint could not be deleted: " + status.message());
  }
}

}  // namespace samara
