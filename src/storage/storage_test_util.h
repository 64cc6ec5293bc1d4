// Shared by the tests of run folders: a folder that goes with the test, and damage to its files.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/crc32c.h"
#include "core/files.h"
#include "core/log.h"
#include "gtest/gtest.h"

namespace samara {

// In memory where there is /dev/shm: these tests write thousands of times, and what they inject
// does not need a disk.
class TempFolder {
 public:
  TempFolder() : path_(TemporaryName(Root() / "samara_test").path()) {
    SetLogLevel(LogLevel::kError);  // thousands of expected warnings
    std::filesystem::create_directory(path_);
  }
  ~TempFolder() {
    SetLogLevel(LogLevel::kInfo);
    TEST_FailNthCall(0, 0);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const Path& path() const { return path_; }
  Path operator/(const std::string& name) const { return path_ / name; }

 private:
  static Path Root() {
    const Path memory = "/dev/shm";
    return std::filesystem::is_directory(memory) ? memory : Path(testing::TempDir());
  }
  Path path_;
};

// Left-over temporaries anywhere below `folder`.
inline int CountTemporaries(const Path& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    count += IsTemporaryName(entry.path()) ? 1 : 0;
  }
  return count;
}

inline void Overwrite(const Path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;  // no fsync: many calls
}

// A journal as a later build might write it.
inline std::string OfFormat2(std::string journal) {
  journal[8] = 2;  // the format; then the checksum of the header
  const uint32_t checksum = Crc32c(journal.substr(0, 28));
  std::memcpy(journal.data() + 28, &checksum, sizeof checksum);
  return journal;
}

inline std::string WithBitFlipped(std::string bytes, size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  return bytes;
}

}  // namespace samara
