// SPDX-License-Identifier: Apache-2.0 OR MIT
// Files as samara writes them: atomic, durable, inside one folder, never through a link.
// Every operating-system call on a file that must survive a crash passes here, so that tests can
// make the n-th one fail (TEST_FailNthCall) or kill the process at it.
#pragma once

#include <compare>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/leave.h"
#include "core/status.h"

namespace samara {

using Path = std::filesystem::path;

// A path whose last components, those below a root, are opened without following any symbolic link:
// the user may name a run folder through links, in it there are none. Files of samara's own are
// opened, listed, renamed and removed by these paths only.
class RootedPath {
 public:
  RootedPath() = default;
  // The root is the folder that holds `path`: only the last component is no link.
  RootedPath(const Path& path);  // NOLINT(google-explicit-constructor): every Path is one
  // `folder` itself is the root and may be a link.
  static RootedPath Root(const Path& folder);

  // Below this one. REQUIRES: `name` is one component, neither "." nor "..".
  RootedPath operator/(const std::string& name) const;
  // The folder that holds it.
  RootedPath parent() const;
  // Another entry of the same folder.
  RootedPath WithName(const std::string& name) const { return parent() / name; }

  const Path& path() const { return path_; }
  std::string string() const { return path_.string(); }
  std::string name() const { return path_.filename().string(); }
  bool empty() const { return path_.empty(); }
  // Number of components below the root.
  size_t below() const { return below_; }
  auto operator<=>(const RootedPath&) const = default;  // NOLINT(modernize-use-nullptr)

 private:
  RootedPath(Path path, size_t below) : path_(std::move(path)), below_(below) {}

  Path path_;
  size_t below_ = 0;
};

// The whole file. kNoInput when missing, kBadData when larger than `bytes_max` or not a regular
// file. A Path is what the user named: links are followed. A RootedPath is samara's own: a link is
// kBadData.
Result<std::string> ReadFile(const Path& path, size_t bytes_max = size_t{1} << 32);
Result<std::string> ReadFile(const RootedPath& path, size_t bytes_max = size_t{1} << 32);
// Names of a folder's entries, sorted. kNoInput when missing, kBadData when it is no folder.
Result<std::vector<std::string>> ListFolder(const RootedPath& folder);
// Returns what is at `path`, without following a link at its end. kOther: pipe, socket or device.
enum class FileKind { kMissing, kFile, kFolder, kLink, kOther };
FileKind KindOf(const RootedPath& path);
inline bool Exists(const RootedPath& path) { return KindOf(path) != FileKind::kMissing; }
// Bytes of a regular file, and how many names it has (LinkFile). kNoInput: there is none.
struct FileFacts {
  uint64_t bytes = 0, links = 0;
};
Result<FileFacts> FactsOf(const RootedPath& path);

// Durable replacement: random temporary name in the same folder, write, fsync, rename, fsync the
// folder. On failure the old file is untouched and the temporary is removed. kIoError on ENOSPC and
// kin.
Status WriteFileAtomic(const RootedPath& path, std::string_view bytes);
Status SyncFolder(const RootedPath& folder);
Status CreateFolders(const Path& folder);  // with their parents; kCannotCreate

// Pieces of a durable save of several files: a new folder under a TemporaryName, new files in it,
// SyncFolder, RenamePath, SyncFolder of the parent.
Status MakeFolder(const RootedPath& folder);                          // mode 0700; must not exist
Status WriteNewFile(const RootedPath& path, std::string_view bytes);  // must not exist; fsynced
// Gives a file another name, which must not exist: a hard link, within one file system. It is
// durable with SyncFolder. kIoError or kNotPermitted where the file system or the system refuses
// links.
Status LinkFile(const RootedPath& from, const RootedPath& to);
Status RenamePath(const RootedPath& from, const RootedPath& to);  // within one file system
Status MustBeNew(const Path& path);  // kCannotCreate when there is something, with what to do
Status RemoveTree(const RootedPath& path);  // ok when missing; links are removed, not followed
RootedPath TemporaryName(
    const RootedPath& path);  // random, in the same folder: ".<name>.<digits>.tmp"
bool IsTemporaryName(const Path& path);

// A file that is written piece by piece, also backwards, and appears as a whole (see
// WriteFileAtomic).
class NewFile {
 public:
  static Result<std::unique_ptr<NewFile>> Create(const RootedPath& path);
  ~NewFile();  // without Commit nothing is left
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  Status Write(std::string_view bytes);      // where the last one ended
  int64_t Seek(int64_t offset, int whence);  // as lseek; negative: impossible
  int64_t size() const;
  Status Commit();  // REQUIRES: called once

 private:
  NewFile(int fd, RootedPath path, RootedPath temporary)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  const int fd_;
  const RootedPath path_, temporary_;
  const RemovedOnLeave half_made_{temporary_.path()};
  bool renamed_ = false;
};

// Append-only file whose records are on disk once Append returns ok. An append that fails leaves
// the records before it and may be repeated, except after a failed fsync: then the file is dead and
// every later Append reports the first error, since the kernel may have dropped the data.
class AppendFile {
 public:
  enum class Durability { kSynced, kBuffered };  // kBuffered leaves the flush to the kernel

  // Opens or creates; `truncate_to` (if >= 0) cuts a torn tail first.
  // kBadData: not a regular file.
  static Result<std::unique_ptr<AppendFile>> Open(const RootedPath& path, int64_t truncate_to = -1,
                                                  Durability durability = Durability::kSynced);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  Status Append(std::string_view bytes);
  int64_t size() const { return size_; }
  bool dead() const { return !failed_.ok(); }

 private:
  AppendFile(int fd, RootedPath path, Durability durability)
      : fd_(fd), path_(std::move(path)), durability_(durability) {}
  Status CutTornTail();

  // constant after construction
  int fd_;
  RootedPath path_;
  Durability durability_;
  // changed by Append
  int64_t size_ = 0;   // bytes known to be good; a failed append is cut back to it
  bool torn_ = false;  // bytes beyond size_ could not be cut off yet
  Status failed_;      // latched first failure of fsync
};

// Exclusive advisory lock (flock) on `path`, held until destruction. kCannotCreate when another
// process holds it, naming its pid; kBadData: not a regular file.
class FileLock {
 public:
  static Result<std::unique_ptr<FileLock>> Acquire(const RootedPath& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// Which users besides this process's own and root can change what is in a folder. The group of the
// folder counts as others unless it is the user's private group (whose number is the user's).
struct FolderTrust {
  bool foreign = false;   // the folder belongs to another user
  bool writable = false;  // others have write permission in the folder itself
  Path parent;            // nearest folder above it where others can replace it; empty: none
  std::string why;        // the first of these in words, "FOLDER: ..."; empty when trusted

  bool trusted() const { return why.empty(); }
};
// Inspects `folder`, which may be a link, and every folder above the place it leads to. A sticky
// folder of root's or the user's (/tmp) does not let a user replace what belongs to others.
// kNoInput when missing.
Result<FolderTrust> InspectTrust(const Path& folder);

// Free bytes on the file system of `path`.
Result<uint64_t> FreeSpace(const RootedPath& path);

// The n-th (from 1) system call that changes a file from now on fails with `error_number` once; n =
// 0 switches off.
void TEST_FailNthCall(int n, int error_number);
// The n-th such call kills the process with SIGKILL instead; a write leaves half of its bytes.
void TEST_KillAtNthCall(int n);
// Whether the failure last asked for is still to come: false ends a loop "for every n".
bool TEST_FailurePending();

}  // namespace samara
