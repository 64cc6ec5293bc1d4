// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

namespace samara {
namespace {

constexpr int kKill = -1;  // in place of an error number

std::atomic<int> fail_countdown{0};
std::atomic<int> fail_errno{0};

// true when the call about to be made shall fail; sets errno. A kill tears `half_written` first.
bool InjectFailure(int fd = -1, std::string_view half_written = {}) {
  if (fail_countdown.load(std::memory_order_relaxed) == 0) return false;
  if (fail_countdown.fetch_sub(1, std::memory_order_relaxed) != 1) return false;
  const int error = fail_errno.load(std::memory_order_relaxed);
  if (error == kKill) {
    if (fd >= 0) (void)!::write(fd, half_written.data(), half_written.size() / 2);
    ::kill(::getpid(), SIGKILL);
  }
  errno = error;
  return true;
}

Status IoError(const std::string& what, const Path& path) {
  const int error = errno;
  const Code code = error == EACCES || error == EPERM ? Code::kNotPermitted : Code::kIoError;
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) hint = ": free space on the disk and repeat";
  if (error == EFBIG) hint = ": raise the limit on file sizes (ulimit -f) and repeat";
  return {code, path.string() + ": cannot " + what + ": " + std::strerror(error) + hint};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int OpenFile(const Path& path, int flags, mode_t mode = 0600) {
  return InjectFailure() ? -1 : ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = InjectFailure(fd, bytes) ? -1 : ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Sync(int fd) { return !InjectFailure() && ::fsync(fd) == 0; }

// Writes a file that must not exist yet, fsynced; messages call it `shown`. Removed on failure.
Status WriteExclusive(const Path& path, const Path& shown, std::string_view bytes) {
  const Descriptor fd(OpenFile(path, O_WRONLY | O_CREAT | O_EXCL));
  if (fd.get() < 0) return IoError("create", shown);
  if (WriteAll(fd.get(), bytes) && Sync(fd.get())) return Status::Ok();
  Status failure = IoError("write", shown);
  ::unlink(path.c_str());
  return failure;
}

std::string RandomSuffix() {
  // a name nobody can guess; it decides no number of a run
  std::random_device device;
  return std::to_string(device()) + std::to_string(device());
}

}  // namespace

Result<std::string> ReadFile(const Path& path, size_t bytes_max, Links links) {
  const int no_follow = links == Links::kRefuse ? O_NOFOLLOW : 0;
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | no_follow));
  if (fd.get() < 0) {
    if (no_follow != 0 && errno == ELOOP)
      return Status(Code::kBadData, path.string() + ": a symbolic link, expected a file");
    if (errno == ENOENT || errno == ENOTDIR)
      return Status(Code::kNoInput, path.string() + ": no such file");
    return IoError("open", path);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return IoError("stat", path);
  if (!S_ISREG(info.st_mode)) return Status(Code::kBadData, path.string() + ": not a regular file");
  if (static_cast<uint64_t>(info.st_size) > bytes_max) {
    return Status(Code::kBadData, path.string() + ": " + std::to_string(info.st_size) +
                                      " bytes, expected at most " + std::to_string(bytes_max));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return IoError("read", path);
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  return text;
}

Status SyncFolder(const Path& folder) {
  // a folder may be reached through a link that the user made; files may not
  const Descriptor fd(InjectFailure() ? -1
                                      : ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return IoError("open", folder);
  if (!Sync(fd.get())) return IoError("fsync", folder);
  return Status::Ok();
}

Status WriteNewFile(const Path& path, std::string_view bytes) {
  return WriteExclusive(path, path, bytes);
}

Status RenamePath(const Path& from, const Path& to) {
  struct stat old {
  }, present{};
  if (::lstat(to.c_str(), &present) == 0 && ::lstat(from.c_str(), &old) == 0) {
    const mode_t type = present.st_mode & S_IFMT;
    if (type == S_IFDIR && !S_ISDIR(old.st_mode))
      return {Code::kCannotCreate, to.string() + ": a folder, expected the name of a file"};
    // rename would put a file in the place of /dev/null
    if (type != S_IFDIR && type != S_IFREG && type != S_IFLNK)
      return {Code::kCannotCreate,
              to.string() + ": a device, pipe or socket, expected the name of a file"};
  }
  if (!InjectFailure() && ::rename(from.c_str(), to.c_str()) == 0) return Status::Ok();
  return IoError("rename " + from.filename().string() + " to it", to);
}

Status WriteFileAtomic(const Path& path, std::string_view bytes) {
  const Path temporary = TemporaryName(path);
  RETURN_IF_ERROR(WriteExclusive(temporary, path, bytes));
  if (Status renamed = RenamePath(temporary, path); !renamed.ok()) {
    ::unlink(temporary.c_str());
    return renamed;
  }
  return SyncFolder(path.has_parent_path() ? path.parent_path() : Path("."));
}

Path TemporaryName(const Path& path) {
  return path.parent_path() / ("." + path.filename().string() + "." + RandomSuffix() + ".tmp");
}

bool IsTemporaryName(const Path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') && name.ends_with(".tmp");
}

Status MakeFolder(const Path& folder) {
  if (!InjectFailure() && ::mkdir(folder.c_str(), 0700) == 0) return Status::Ok();
  const bool disk = errno == EIO || errno == ENOSPC || errno == EDQUOT;
  const Status why = IoError("create folder", folder);
  // all else means that the place takes no folder
  return disk || why.code() == Code::kNotPermitted ? why
                                                   : Status(Code::kCannotCreate, why.message());
}

Status MustBeNew(const Path& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return Status::Ok();
  return {Code::kCannotCreate,
          path.string() + ": exists already: remove it first, or choose another name"};
}

Status RemoveTree(const Path& path) {
  std::error_code error;
  if (!InjectFailure())
    std::filesystem::remove_all(path, error);
  else
    error = std::error_code(errno, std::generic_category());
  if (!error) return Status::Ok();
  errno = error.value();
  return IoError("remove", path);
}

Status CreateFolders(const Path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return {Code::kCannotCreate, folder.string() + ": cannot create folder: " + error.message()};
  }
  return Status::Ok();
}

Result<std::unique_ptr<AppendFile>> AppendFile::Open(const Path& path, int64_t truncate_to,
                                                     Durability durability) {
  Descriptor fd(OpenFile(path, O_RDWR | O_CREAT | O_APPEND));
  if (fd.get() < 0) return IoError("open", path);
  if (truncate_to >= 0 && (InjectFailure() || ::ftruncate(fd.get(), truncate_to) != 0)) {
    return IoError("truncate", path);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return IoError("stat", path);
  if (durability == Durability::kSynced) {
    RETURN_IF_ERROR(SyncFolder(path.has_parent_path() ? path.parent_path() : Path(".")));
  }
  std::unique_ptr<AppendFile> file(new AppendFile(fd.Release(), path, durability));
  file->size_ = info.st_size;
  return file;
}

AppendFile::~AppendFile() { ::close(fd_); }

Status AppendFile::CutTornTail() {
  if (InjectFailure() || ::ftruncate(fd_, size_) != 0) return IoError("truncate", path_);
  torn_ = false;
  return Status::Ok();
}

Status AppendFile::Append(std::string_view bytes) {
  if (!failed_.ok()) return failed_;
  if (torn_) RETURN_IF_ERROR(CutTornTail());
  if (!WriteAll(fd_, bytes)) {
    // cut the torn record off so that a later append starts at a record boundary
    Status failure = IoError("append", path_);
    torn_ = true;
    (void)CutTornTail();
    return failure;
  }
  if (durability_ == Durability::kSynced && !Sync(fd_)) return failed_ = IoError("fsync", path_);
  size_ += static_cast<int64_t>(bytes.size());
  return Status::Ok();
}

Result<std::unique_ptr<FileLock>> FileLock::Acquire(const Path& path) {
  Descriptor fd(OpenFile(path, O_RDWR | O_CREAT));
  if (fd.get() < 0) return IoError("open", path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return IoError("lock", path);
    char pid[32] = {};
    const ssize_t n = ::pread(fd.get(), pid, sizeof pid - 1, 0);
    return Status(Code::kCannotCreate,
                  path.parent_path().string() + ": held by another process (" +
                      (n > 0 ? std::string(pid, static_cast<size_t>(n)) : "unknown") +
                      "): wait for it, stop it, or choose another place");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return IoError("write", path);
  }
  return std::unique_ptr<FileLock>(new FileLock(fd.Release()));
}

FileLock::~FileLock() { ::close(fd_); }

Result<uint64_t> FreeSpace(const Path& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return IoError("statvfs", path);
  if (info.f_blocks == 0) return std::numeric_limits<uint64_t>::max();  // it does not count space
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

namespace {

bool OwnOrRoot(const struct stat& info) { return info.st_uid == 0 || info.st_uid == ::geteuid(); }

bool WritableByOthers(const struct stat& info) {
  const bool private_group = info.st_gid == ::getegid() && info.st_gid == ::geteuid();
  return (info.st_mode & (private_group ? S_IWOTH : S_IWOTH | S_IWGRP)) != 0;
}

// Whether others can rename or remove what is in the folder.
bool ReplaceableByOthers(const struct stat& info) {
  const bool sticky = (info.st_mode & S_ISVTX) != 0;
  return WritableByOthers(info) && !(sticky && OwnOrRoot(info));
}

std::string Mode(const struct stat& info) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(info.st_mode) & 07777U);
  return text;
}

}  // namespace

Result<FolderTrust> InspectTrust(const Path& folder) {
  std::error_code error;
  const Path place = std::filesystem::canonical(folder, error);
  struct stat info {};
  if (error || ::stat(place.c_str(), &info) != 0)
    return Status(Code::kNoInput, folder.string() + ": no such folder");
  FolderTrust trust;
  trust.foreign = !OwnOrRoot(info);
  trust.writable = WritableByOthers(info);
  if (trust.foreign)
    trust.why = folder.string() + ": belongs to another user (" + std::to_string(info.st_uid) + ")";
  else if (trust.writable)
    trust.why = folder.string() + ": other users may write to it (mode " + Mode(info) + ")";
  for (Path above = place; above != above.parent_path() && trust.parent.empty();) {
    above = above.parent_path();
    if (::stat(above.c_str(), &info) == 0 && ReplaceableByOthers(info)) trust.parent = above;
  }
  if (trust.trusted() && !trust.parent.empty())
    trust.why = folder.string() + ": other users may replace it, since they may write to " +
                trust.parent.string() + " (mode " + Mode(info) + ")";
  return trust;
}

void TEST_FailNthCall(int n, int error_number) {
  fail_errno = error_number;
  fail_countdown = n;
}

void TEST_KillAtNthCall(int n) { TEST_FailNthCall(n, kKill); }

bool TEST_FailurePending() { return fail_countdown != 0; }

}  // namespace samara
