// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/leave.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace samara {
namespace {

constexpr size_t kPathBytesMax = 1000;
constexpr int kDepthMax = 8;  // of folders in a folder that is removed

struct Entry {
  enum State { kFree, kBusy, kSet };
  std::atomic<int> state{kFree};
  char path[kPathBytesMax + 8];  // with room for a suffix
};
Entry entries[16];
std::atomic<bool> leaving{false}, with_json{false}, silently{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may use lock-free atomics only");

void Write(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// Text on the stack; what does not fit is cut off.
class Line {
 public:
  Line& Add(std::string_view text) {
    for (const char c : text) AddByte(c);
    return *this;
  }
  // As a JSON string, or for a terminal, with control characters as escapes.
  Line& AddEscaped(std::string_view text, bool json) {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (json && (c == '"' || c == '\\')) AddByte('\\');
      if (byte >= 0x20 && byte != 0x7f) {
        AddByte(c);
        continue;
      }
      Add(json ? "\\u00" : "\\x");
      AddByte(kDigits[byte >> 4]);
      AddByte(kDigits[byte & 15]);
    }
    return *this;
  }
  Line& AddNumber(int number) {
    char digits[12];
    int n = 0;
    do digits[n++] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    while (n > 0) AddByte(digits[--n]);
    return *this;
  }
  std::string_view view() const { return {bytes_, size_}; }

 private:
  void AddByte(char c) {
    if (size_ < sizeof bytes_) bytes_[size_++] = c;
  }
  char bytes_[8192];
  size_t size_ = 0;
};

// The contents of an open folder. readdir allocates, so the system call is asked.
void RemoveContents(int folder, int depth) {
  struct Record {  // linux_dirent64
    ino64_t inode;
    off64_t offset;
    uint16_t length;
    uint8_t type;
    char name[1];
  };
  alignas(Record) char buffer[2048];
  bool removed = true;
  while (removed) {
    removed = false;
    ::lseek(folder, 0, SEEK_SET);
    for (long n; (n = ::syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
      for (long at = 0; at < n;) {
        const auto* record = reinterpret_cast<const Record*>(buffer + at);
        at += record->length;
        const char* name =
            buffer + (reinterpret_cast<const char*>(record) - buffer) + offsetof(Record, name);
        if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
        if (::unlinkat(folder, name, 0) == 0) {
          removed = true;
          continue;
        }
        if (depth == 0) continue;
        const int inner = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner < 0) continue;
        RemoveContents(inner, depth - 1);
        ::close(inner);
        removed |= ::unlinkat(folder, name, AT_REMOVEDIR) == 0;
      }
    }
  }
}

// The other threads go on meanwhile: a new name first, so that what one of them has just finished
// and renamed is not taken apart.
void Remove(Entry& entry) {
  char doomed[sizeof entry.path];
  const size_t length = ::strnlen(entry.path, kPathBytesMax);
  std::memcpy(doomed, entry.path, length);
  std::memcpy(doomed + length, ".gone", 6);
  if (::rename(entry.path, doomed) != 0 || ::unlink(doomed) == 0) return;
  const int folder = ::open(doomed, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  // a child may still be writing there
  for (int tries = 0; tries < 20; ++tries) {
    RemoveContents(folder, kDepthMax);
    if (::rmdir(doomed) == 0) break;
    ::usleep(5'000);
  }
  ::close(folder);
}

}  // namespace

void Leave(Code code, std::string_view message) noexcept {
  const int exit_code = static_cast<int>(code);
  if (leaving.exchange(true)) {
    // another thread is at it; interrupted by a further signal it would never come to its end
    for (int i = 0; i < 100; ++i) ::usleep(10'000);
    ::_exit(exit_code);
  }
  for (Entry& entry : entries) {
    int expected = Entry::kSet;  // once claimed, no other thread reuses it
    if (entry.state.compare_exchange_strong(expected, Entry::kBusy)) Remove(entry);
  }
  if (!silently) {
    Write(STDERR_FILENO, Line().Add("samara: ").AddEscaped(message, false).Add("\n").view());
    if (with_json)
      Write(STDOUT_FILENO, Line()
                               .Add("{\"error\":\"")
                               .AddEscaped(message, true)
                               .Add("\",\"exit\":")
                               .AddNumber(exit_code)
                               .Add("}\n")
                               .view());
  }
  ::_exit(exit_code);
}

void LeaveWithJson() { with_json = true; }
void LeaveSilently() { silently = true; }

RemovedOnLeave::RemovedOnLeave(const std::filesystem::path& path) {
  const std::string& name = path.native();
  if (name.size() > kPathBytesMax) return;
  for (int i = 0; i < static_cast<int>(std::size(entries)) && entry_ < 0; ++i) {
    int expected = Entry::kFree;
    if (!entries[i].state.compare_exchange_strong(expected, Entry::kBusy)) continue;
    std::memcpy(entries[i].path, name.c_str(), name.size() + 1);
    entries[i].state = Entry::kSet;
    entry_ = i;
  }
}

RemovedOnLeave::~RemovedOnLeave() {
  if (entry_ < 0) return;
  int expected = Entry::kSet;  // else Leave has it
  entries[entry_].state.compare_exchange_strong(expected, Entry::kFree);
}

}  // namespace samara
