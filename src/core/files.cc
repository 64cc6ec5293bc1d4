// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
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
  if (code == Code::kNotPermitted && what == "create")
    hint = ": choose a place where this user may write";
  if (error == EFBIG) hint = ": raise the limit on file sizes (ulimit -f) and repeat";
  return {code, path.string() + ": cannot " + what + ": " + std::strerror(error) + hint};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    fd_ = other.Release();
    return *this;
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  void Close() const {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd_;
};

// The folder that holds `path`, entered component by component below the root: in none of them a
// link is followed. -1 and errno on failure. REQUIRES: path.below() > 0.
Descriptor OpenFolderOf(const RootedPath& path) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  std::vector<Path> folders;  // below the root, innermost first
  Path root = path.path().parent_path();
  for (size_t i = 1; i < path.below(); ++i) {
    folders.push_back(root.filename());
    root = root.parent_path();
  }
  Descriptor at(::open(root.empty() ? "." : root.c_str(), kFlags));
  for (auto name = folders.rbegin(); name != folders.rend() && at.get() >= 0; ++name)
    at = Descriptor(::openat(at.get(), name->c_str(), kFlags | O_NOFOLLOW));
  return at;
}

// Opens every file and folder of samara's own. Never waits for the other end of a pipe.
Descriptor Open(const RootedPath& path, int flags, mode_t mode = 0600) {
  flags |= O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  if (path.below() == 0)
    return Descriptor(::open(path.empty() ? "." : path.path().c_str(), flags, mode));
  const Descriptor folder = OpenFolderOf(path);
  if (folder.get() < 0) return Descriptor(-1);
  return Descriptor(::openat(folder.get(), path.name().c_str(), flags | O_NOFOLLOW, mode));
}

Descriptor OpenForChange(const RootedPath& path, int flags) {
  return InjectFailure() ? Descriptor(-1) : Open(path, flags);
}

bool IsLink(const Path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

// Turns errno after opening `path` into a Status; names the link that was not followed.
Status OpenError(const std::string& what, const RootedPath& path) {
  const int error = errno;
  if (error == ELOOP || error == ENOTDIR) {
    Path part = path.path();
    for (size_t i = 0; i < path.below(); ++i, part = part.parent_path())
      if (IsLink(part))
        return {Code::kBadData, part.string() +
                                    ": a symbolic link, expected what samara wrote: "
                                    "put the file or folder itself there"};
  }
  errno = error;
  return IoError(what, path.path());
}

// Stats what is at `path`, without following a link at its end. False: there is nothing.
bool StatOf(const RootedPath& path, struct stat& info) {
  if (path.below() == 0) return ::stat(path.empty() ? "." : path.path().c_str(), &info) == 0;
  const Descriptor folder = OpenFolderOf(path);
  return folder.get() >= 0 &&
         ::fstatat(folder.get(), path.name().c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

const char* KindName(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

Status MustBeRegular(int fd, const Path& path, struct stat& info) {
  if (::fstat(fd, &info) != 0) return IoError("stat", path);
  if (S_ISREG(info.st_mode)) return Status::Ok();
  return {Code::kBadData, path.string() + ": " + KindName(info.st_mode) + ", expected a file"};
}

// Beyond the limit on file sizes a write raises SIGXFSZ, which ends a program that does not expect
// it. Held back in this thread while one lives: the write fails with EFBIG instead.
class HoldFileSizeSignal {
 public:
  HoldFileSizeSignal() {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~HoldFileSizeSignal() {
    const int error = errno;
    const timespec now{};
    while (::sigtimedwait(&signal_, nullptr, &now) == SIGXFSZ) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  HoldFileSizeSignal(const HoldFileSizeSignal&) = delete;
  HoldFileSizeSignal& operator=(const HoldFileSizeSignal&) = delete;

 private:
  sigset_t signal_{}, before_{};
};

bool WriteAll(int fd, std::string_view bytes) {
  const HoldFileSizeSignal hold;
  while (!bytes.empty()) {
    const ssize_t n = InjectFailure(fd, bytes) ? -1 : ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Sync(int fd) { return !InjectFailure() && ::fsync(fd) == 0; }

void Unlink(const RootedPath& path) {
  const Descriptor folder = OpenFolderOf(path);
  if (folder.get() >= 0) ::unlinkat(folder.get(), path.name().c_str(), 0);
}

std::string RandomSuffix() {
  // a name that cannot be guessed; it decides no number of a run
  std::random_device device;
  return std::to_string(device()) + std::to_string(device());
}

Result<std::string> ReadOpened(const Descriptor& fd, const Path& path, size_t bytes_max) {
  struct stat info {};
  RETURN_IF_ERROR(MustBeRegular(fd.get(), path, info));
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

Status NoSuchFile(const Path& path) { return {Code::kNoInput, path.string() + ": no such file"}; }

using Folder = std::unique_ptr<DIR, decltype([](DIR* folder) { ::closedir(folder); })>;

// Names in the folder that is open as `fd`; nothing and errno on failure.
std::optional<std::vector<std::string>> NamesIn(Descriptor fd) {
  const Folder folder(::fdopendir(fd.get()));
  if (folder == nullptr) return std::nullopt;
  (void)fd.Release();  // `folder` closes it
  std::vector<std::string> names;
  for (errno = 0; const dirent* entry = ::readdir(folder.get()); errno = 0) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return std::nullopt;
  std::sort(names.begin(), names.end());
  return names;
}

bool RemoveAt(int folder, const std::string& name) {
  if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return true;
  if (errno != EISDIR && errno != EPERM) return false;
  Descriptor inner(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (inner.get() < 0) return false;
  const auto names = NamesIn(Descriptor(::fcntl(inner.get(), F_DUPFD_CLOEXEC, 0)));
  if (!names) return false;
  for (const std::string& each : *names)
    if (!RemoveAt(inner.get(), each)) return false;
  return ::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0;
}

}  // namespace

RootedPath::RootedPath(const Path& path) : path_(path) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // "folder/"
  below_ = path_.has_filename() ? 1 : 0;
}

RootedPath RootedPath::Root(const Path& folder) { return {folder, 0}; }

RootedPath RootedPath::operator/(const std::string& name) const {
  CHECK(!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..")
      << name;
  return {path_ / name, below_ + 1};
}

RootedPath RootedPath::parent() const { return {path_.parent_path(), below_ > 0 ? below_ - 1 : 0}; }

Result<std::string> ReadFile(const Path& path, size_t bytes_max) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0)
    return errno == ENOENT || errno == ENOTDIR ? NoSuchFile(path) : IoError("open", path);
  return ReadOpened(fd, path, bytes_max);
}

Result<std::string> ReadFile(const RootedPath& path, size_t bytes_max) {
  const Descriptor fd = Open(path, O_RDONLY);
  if (fd.get() < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;  // ENOTDIR: or a link
    const Status failure = OpenError("open", path);
    return missing && failure.code() == Code::kIoError ? NoSuchFile(path.path()) : failure;
  }
  return ReadOpened(fd, path.path(), bytes_max);
}

Result<std::vector<std::string>> ListFolder(const RootedPath& folder) {
  Descriptor fd = Open(folder, O_RDONLY | O_DIRECTORY);
  if (fd.get() < 0) {
    if (errno == ENOENT) return Status(Code::kNoInput, folder.string() + ": no such folder");
    const bool other = errno == ENOTDIR;
    const Status failure = OpenError("open", folder);
    return other && failure.code() == Code::kIoError
               ? Status(Code::kBadData, folder.string() + ": expected a folder")
               : failure;
  }
  auto names = NamesIn(std::move(fd));
  if (!names) return IoError("list", folder.path());
  return *std::move(names);
}

FileKind KindOf(const RootedPath& path) {
  struct stat info {};
  if (!StatOf(path, info)) return FileKind::kMissing;
  if (S_ISREG(info.st_mode)) return FileKind::kFile;
  if (S_ISDIR(info.st_mode)) return FileKind::kFolder;
  return S_ISLNK(info.st_mode) ? FileKind::kLink : FileKind::kOther;
}

Result<FileFacts> FactsOf(const RootedPath& path) {
  struct stat info {};
  if (!StatOf(path, info) || !S_ISREG(info.st_mode)) return NoSuchFile(path.path());
  return FileFacts{static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_nlink)};
}

Status SyncFolder(const RootedPath& folder) {
  const Descriptor fd = OpenForChange(folder, O_RDONLY | O_DIRECTORY);
  if (fd.get() < 0) return OpenError("open", folder);
  if (!Sync(fd.get())) return IoError("fsync", folder.path());
  return Status::Ok();
}

Status WriteNewFile(const RootedPath& path, std::string_view bytes) {
  const Descriptor fd = OpenForChange(path, O_WRONLY | O_CREAT | O_EXCL);
  if (fd.get() < 0) return OpenError("create", path);
  if (WriteAll(fd.get(), bytes) && Sync(fd.get())) return Status::Ok();
  Status failure = IoError("write", path.path());
  Unlink(path);
  return failure;
}

Status RenamePath(const RootedPath& from, const RootedPath& to) {
  const FileKind present = KindOf(to), moved = KindOf(from);
  if (present == FileKind::kFolder && moved != FileKind::kFolder && moved != FileKind::kMissing)
    return {Code::kCannotCreate, to.string() + ": a folder, expected the name of a file"};
  // rename would put a file in the place of /dev/null
  if (present == FileKind::kOther)
    return {Code::kCannotCreate,
            to.string() + ": a device, pipe or socket, expected the name of a file"};
  const Descriptor from_folder = OpenFolderOf(from), to_folder = OpenFolderOf(to);
  if (from_folder.get() < 0) return OpenError("open the folder of", from);
  if (to_folder.get() < 0) return OpenError("open the folder of", to);
  if (!InjectFailure() &&
      ::renameat(from_folder.get(), from.name().c_str(), to_folder.get(), to.name().c_str()) == 0)
    return Status::Ok();
  return IoError("rename " + from.name() + " to it", to.path());
}

Status LinkFile(const RootedPath& from, const RootedPath& to) {
  const Descriptor from_folder = OpenFolderOf(from), to_folder = OpenFolderOf(to);
  if (from_folder.get() < 0) return OpenError("open the folder of", from);
  if (to_folder.get() < 0) return OpenError("open the folder of", to);
  if (!InjectFailure() &&
      ::linkat(from_folder.get(), from.name().c_str(), to_folder.get(), to.name().c_str(), 0) == 0)
    return Status::Ok();
  return IoError("link " + from.string() + " to it", to.path());
}

Status WriteFileAtomic(const RootedPath& path, std::string_view bytes) {
  ASSIGN_OR_RETURN(const auto file, NewFile::Create(path));
  RETURN_IF_ERROR(file->Write(bytes));
  return file->Commit();
}

Result<std::unique_ptr<NewFile>> NewFile::Create(const RootedPath& path) {
  const RootedPath temporary = TemporaryName(path);
  Descriptor fd = OpenForChange(temporary, O_RDWR | O_CREAT | O_EXCL);
  if (fd.get() < 0) {
    const Status failure = OpenError("create", temporary);
    // the temporary's name says nothing to a user
    return failure.code() == Code::kBadData ? failure : IoError("create", path.path());
  }
  return std::unique_ptr<NewFile>(new NewFile(fd.Release(), path, temporary));
}

NewFile::~NewFile() {
  ::close(fd_);
  if (!renamed_) Unlink(temporary_);
}

Status NewFile::Write(std::string_view bytes) {
  return WriteAll(fd_, bytes) ? Status::Ok() : IoError("write", path_.path());
}

int64_t NewFile::Seek(int64_t offset, int whence) { return ::lseek(fd_, offset, whence); }

int64_t NewFile::size() const {
  struct stat info {};
  return ::fstat(fd_, &info) == 0 ? info.st_size : -1;
}

Status NewFile::Commit() {
  if (!Sync(fd_)) return IoError("write", path_.path());
  RETURN_IF_ERROR(RenamePath(temporary_, path_));
  renamed_ = true;
  return SyncFolder(path_.parent());
}

RootedPath TemporaryName(const RootedPath& path) {
  return path.WithName("." + path.name() + "." + RandomSuffix() + ".tmp");
}

bool IsTemporaryName(const Path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') && name.ends_with(".tmp");
}

Status MakeFolder(const RootedPath& folder) {
  const Descriptor parent = OpenFolderOf(folder);
  if (parent.get() < 0) return OpenError("create folder", folder);
  if (!InjectFailure() && ::mkdirat(parent.get(), folder.name().c_str(), 0700) == 0)
    return Status::Ok();
  const bool disk = errno == EIO || errno == ENOSPC || errno == EDQUOT;
  const Status why = IoError("create folder", folder.path());
  // all else means that the place takes no folder
  return disk || why.code() == Code::kNotPermitted ? why
                                                   : Status(Code::kCannotCreate, why.message());
}

Status MustBeNew(const Path& path) {
  if (!Exists(path)) return Status::Ok();
  return {Code::kCannotCreate,
          path.string() + ": exists already: remove it first, or choose another name"};
}

Status RemoveTree(const RootedPath& path) {
  const Descriptor folder = OpenFolderOf(path);
  if (folder.get() < 0) return OpenError("remove", path);
  if (!InjectFailure() && RemoveAt(folder.get(), path.name())) return Status::Ok();
  return IoError("remove", path.path());
}

Status CreateFolders(const Path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return {Code::kCannotCreate, folder.string() + ": cannot create folder: " + error.message()};
  }
  return Status::Ok();
}

Result<std::unique_ptr<AppendFile>> AppendFile::Open(const RootedPath& path, int64_t truncate_to,
                                                     Durability durability) {
  Descriptor fd = OpenForChange(path, O_RDWR | O_CREAT | O_APPEND);
  if (fd.get() < 0) return OpenError("open", path);
  struct stat info {};
  RETURN_IF_ERROR(MustBeRegular(fd.get(), path.path(), info));
  if (truncate_to >= 0) {
    if (InjectFailure() || ::ftruncate(fd.get(), truncate_to) != 0)
      return IoError("truncate", path.path());
    info.st_size = truncate_to;
  }
  if (durability == Durability::kSynced) RETURN_IF_ERROR(SyncFolder(path.parent()));
  std::unique_ptr<AppendFile> file(new AppendFile(fd.Release(), path, durability));
  file->size_ = info.st_size;
  return file;
}

AppendFile::~AppendFile() { ::close(fd_); }

Status AppendFile::CutTornTail() {
  if (InjectFailure() || ::ftruncate(fd_, size_) != 0) return IoError("truncate", path_.path());
  torn_ = false;
  return Status::Ok();
}

Status AppendFile::Append(std::string_view bytes) {
  if (!failed_.ok()) return failed_;
  if (torn_) RETURN_IF_ERROR(CutTornTail());
  if (!WriteAll(fd_, bytes)) {
    // cut the torn record off so that a later append starts at a record boundary
    Status failure = IoError("append", path_.path());
    torn_ = true;
    (void)CutTornTail();
    return failure;
  }
  if (durability_ == Durability::kSynced && !Sync(fd_))
    return failed_ = IoError("fsync", path_.path());
  size_ += static_cast<int64_t>(bytes.size());
  return Status::Ok();
}

Result<std::unique_ptr<FileLock>> FileLock::Acquire(const RootedPath& path) {
  Descriptor fd = OpenForChange(path, O_RDWR | O_CREAT);
  if (fd.get() < 0) return OpenError("open", path);
  struct stat info {};
  RETURN_IF_ERROR(MustBeRegular(fd.get(), path.path(), info));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return IoError("lock", path.path());
    char pid[32] = {};
    const ssize_t n = ::pread(fd.get(), pid, sizeof pid - 1, 0);
    return Status(Code::kCannotCreate,
                  path.parent().string() + ": held by another process (" +
                      (n > 0 ? std::string(pid, static_cast<size_t>(n)) : "unknown") +
                      "): wait for it, stop it, or choose another place");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return IoError("write", path.path());
  }
  return std::unique_ptr<FileLock>(new FileLock(fd.Release()));
}

FileLock::~FileLock() { ::close(fd_); }

Result<uint64_t> FreeSpace(const RootedPath& path) {
  const Descriptor fd = Open(path, O_PATH);
  struct statvfs info {};
  if (fd.get() < 0) return OpenError("open", path);
  if (::fstatvfs(fd.get(), &info) != 0) return IoError("statvfs", path.path());
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
