// SPDX-License-Identifier: Apache-2.0 OR MIT
// Files as samara writes them: atomic, durable, inside one folder, never through a link.
// Every operating-system call on a file that must survive a crash passes here, so that tests can
// make the n-th one fail (TEST_FailNthCall) or kill the process at it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace samara {

using Path = std::filesystem::path;

// What ReadFile does when the last component is a symbolic link. Files that samara itself wrote are
// read with kRefuse.
enum class Links { kFollow, kRefuse };

// The whole file. kNoInput when missing, kBadData when larger than `bytes_max`, not a regular file
// or a refused link.
Result<std::string> ReadFile(const Path& path, size_t bytes_max = size_t{1} << 32,
                             Links links = Links::kFollow);

// Durable replacement: random temporary name in the same folder, write, fsync, rename, fsync the
// folder. On failure the old file is untouched and the temporary is removed. kIoError on ENOSPC and
// kin.
Status WriteFileAtomic(const Path& path, std::string_view bytes);
Status SyncFolder(const Path& folder);
Status CreateFolders(const Path& folder);  // kCannotCreate

// Pieces of a durable save of several files: a new folder under a TemporaryName, new files in it,
// SyncFolder, RenamePath, SyncFolder of the parent.
Status MakeFolder(const Path& folder);                          // mode 0700; must not exist
Status WriteNewFile(const Path& path, std::string_view bytes);  // must not exist; fsynced
Status RenamePath(const Path& from, const Path& to);            // within one file system
Status MustBeNew(const Path& path);    // kCannotCreate when there is something, with what to do
Status RemoveTree(const Path& path);   // links are not followed
Path TemporaryName(const Path& path);  // random name beside `path`: ".<name>.<digits>.tmp"
bool IsTemporaryName(const Path& path);

// Append-only file whose records are on disk once Append returns ok. An append that fails leaves
// the records before it and may be repeated, except after a failed fsync: then the file is dead and
// every later Append reports the first error, since the kernel may have dropped the data.
class AppendFile {
 public:
  enum class Durability { kSynced, kBuffered };  // kBuffered leaves the flush to the kernel

  // Opens or creates; `truncate_to` (if >= 0) cuts a torn tail first.
  static Result<std::unique_ptr<AppendFile>> Open(const Path& path, int64_t truncate_to = -1,
                                                  Durability durability = Durability::kSynced);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  Status Append(std::string_view bytes);
  int64_t size() const { return size_; }
  bool dead() const { return !failed_.ok(); }

 private:
  AppendFile(int fd, Path path, Durability durability)
      : fd_(fd), path_(std::move(path)), durability_(durability) {}
  Status CutTornTail();

  // constant after construction
  int fd_;
  Path path_;
  Durability durability_;
  // changed by Append
  int64_t size_ = 0;   // bytes known to be good; a failed append is cut back to it
  bool torn_ = false;  // bytes beyond size_ could not be cut off yet
  Status failed_;      // latched first failure of fsync
};

// Exclusive advisory lock (flock) on `path`, held until destruction. kCannotCreate when another
// process holds it, naming its pid.
class FileLock {
 public:
  static Result<std::unique_ptr<FileLock>> Acquire(const Path& path);
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
// folder of root's or the user's (/tmp) lets nobody replace what belongs to others. kNoInput when
// missing.
Result<FolderTrust> InspectTrust(const Path& folder);

// Free bytes on the file system of `path`.
Result<uint64_t> FreeSpace(const Path& path);

// The n-th (from 1) system call that changes a file from now on fails with `error_number` once; n =
// 0 switches off.
void TEST_FailNthCall(int n, int error_number);
// The n-th such call kills the process with SIGKILL instead; a write leaves half of its bytes.
void TEST_KillAtNthCall(int n);
// Whether the failure last asked for is still to come: false ends a loop "for every n".
bool TEST_FailurePending();

}  // namespace samara
