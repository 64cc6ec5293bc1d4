// SPDX-License-Identifier: Apache-2.0 OR MIT
// Failure injection of core/files: every call fails once, every call is the last one of the
// process.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/files.h"
#include "gtest/gtest.h"

namespace samara {
namespace {

class FilesFaultsTest : public testing::Test {
 protected:
  FilesFaultsTest() : folder_(TemporaryName(Path(testing::TempDir()) / "files_faults").path()) {
    std::filesystem::create_directory(folder_);
  }
  ~FilesFaultsTest() override {
    TEST_FailNthCall(0, 0);
    std::filesystem::remove_all(folder_);
  }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  Path folder_;
};

TEST_F(FilesFaultsTest, AtomicWriteKeepsOldOrNewAndNoTemporary) {
  const Path file = folder_ / "a";
  ASSERT_TRUE(WriteFileAtomic(file, "old").ok());
  int n = 1;
  for (;; ++n) {
    TEST_FailNthCall(n, ENOSPC);
    const Status status = WriteFileAtomic(file, "new");
    if (TEST_FailurePending()) break;
    EXPECT_EQ(status.code(), Code::kIoError) << n;
    const std::string text = *ReadFile(file);
    EXPECT_TRUE(text == "old" || text == "new") << n;
    EXPECT_EQ(Entries(), 1U) << n;
  }
  EXPECT_GE(n, 6);  // open, write, fsync, rename, open folder, fsync folder
}

TEST_F(FilesFaultsTest, AppendCanBeRepeatedAfterAFullDiskButNotAfterAFailedFsync) {
  const Path path = folder_ / "log";
  auto file = AppendFile::Open(path).ValueOrThrow();
  ASSERT_TRUE(file->Append("one").ok());
  TEST_FailNthCall(1, ENOSPC);  // write
  EXPECT_EQ(file->Append("two").code(), Code::kIoError);
  EXPECT_EQ(*ReadFile(path), "one");
  ASSERT_TRUE(file->Append("two").ok());
  EXPECT_EQ(*ReadFile(path), "onetwo");
  TEST_FailNthCall(2, EIO);  // fsync
  EXPECT_FALSE(file->Append("three").ok());
  EXPECT_TRUE(file->dead());
  EXPECT_FALSE(file->Append("three").ok());
}

TEST_F(FilesFaultsTest, BufferedAppendNeverSyncs) {
  auto file =
      AppendFile::Open(folder_ / "log", -1, AppendFile::Durability::kBuffered).ValueOrThrow();
  TEST_FailNthCall(2, EIO);
  EXPECT_TRUE(file->Append("one").ok());
  EXPECT_TRUE(TEST_FailurePending());
}

TEST_F(FilesFaultsTest, ALinkIsAnotherNameOrARefusal) {
  const Path file = folder_ / "a", other = folder_ / "b";
  ASSERT_TRUE(WriteFileAtomic(file, "text").ok());
  EXPECT_EQ(FactsOf(file)->bytes, 4U);
  EXPECT_EQ(FactsOf(file)->links, 1U);
  TEST_FailNthCall(1, EPERM);
  EXPECT_EQ(LinkFile(file, other).code(), Code::kNotPermitted);
  TEST_FailNthCall(1, EMLINK);
  EXPECT_EQ(LinkFile(file, other).code(), Code::kIoError);
  EXPECT_EQ(FactsOf(other).status().code(), Code::kNoInput);
  ASSERT_TRUE(LinkFile(file, other).ok());
  EXPECT_TRUE(std::filesystem::equivalent(file, other));
  EXPECT_EQ(FactsOf(other)->links, 2U);
  EXPECT_FALSE(LinkFile(file, other).ok()) << "there is one of this name";
  EXPECT_FALSE(LinkFile(folder_ / "missing", folder_ / "c").ok());
  std::filesystem::create_symlink("a", folder_ / "link");
  EXPECT_EQ(FactsOf(folder_ / "link").status().code(), Code::kNoInput) << "it is not followed";
  EXPECT_EQ(FactsOf(folder_).status().code(), Code::kNoInput);
}

TEST_F(FilesFaultsTest, AKilledWriteLeavesHalf) {
  const Path path = folder_ / "log";
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = AppendFile::Open(path).ValueOrThrow();
    TEST_KillAtNthCall(1);
    (void)file->Append("abcdef");
    ::_exit(0);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
  EXPECT_EQ(*ReadFile(path), "abc");
}

}  // namespace
}  // namespace samara
