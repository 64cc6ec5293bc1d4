#include "run/run_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "gtest/gtest.h"
#include "run/run_test_util.h"

namespace samara {
namespace {

using Mode = RunFolder::Mode;

const std::string kToml = "[run]\nseed = 3\n";
const nlohmann::json kIdentity = {{"seed", 3}, {"config_hash", "c0ffee"}};

class RunFolderTest : public testing::Test {
 protected:
  Result<std::unique_ptr<RunFolder>> Create(const Path& out) const {
    return RunFolder::Create(out, "classic/x", kToml, kIdentity, 0);
  }
  static Code OpenCode(const Path& path, Mode mode = Mode::kRead) {
    auto run = RunFolder::Open(path, mode);
    return run.ok() ? Code::kOk : run.status().code();
  }
  TempFolder folder_;
};

TEST_F(RunFolderTest, HoldsWhatWasGiven) {
  const auto run = Create(folder_ / "a").ValueOrThrow();
  EXPECT_EQ(run->config_toml(), kToml);
  EXPECT_EQ(run->identity()["config_hash"], "c0ffee");
  EXPECT_EQ(run->incarnation(), 1U);
  EXPECT_TRUE(std::filesystem::is_directory(run->checkpoints()));
  EXPECT_TRUE(std::filesystem::is_directory(run->videos()));
  EXPECT_EQ(CountTemporaries(folder_.path()), 0);
}

TEST_F(RunFolderTest, FillsAnEmptyFolderAndDropsATrailingSlash) {
  std::filesystem::create_directory(folder_ / "a");
  const auto run = Create(folder_ / "a/").ValueOrThrow();
  EXPECT_EQ(run->path(), folder_ / "a");
}

TEST_F(RunFolderTest, RefusesEveryPlaceThatIsTaken) {
  std::filesystem::create_directory(folder_ / "full");
  ASSERT_TRUE(WriteNewFile(folder_ / "full/note", "mine").ok());
  EXPECT_EQ(Create(folder_ / "full").status().code(), Code::kCannotCreate);
  EXPECT_EQ(Create(folder_ / "full/note").status().code(), Code::kCannotCreate);
  EXPECT_EQ(Create(folder_ / "full/note/below").status().code(), Code::kCannotCreate);
  std::filesystem::create_directory(folder_ / "empty");
  std::filesystem::create_directory_symlink(folder_ / "empty", folder_ / "link");
  EXPECT_EQ(Create(folder_ / "link").status().code(), Code::kCannotCreate);
  EXPECT_EQ(*ReadFile(folder_ / "full/note"), "mine");

  auto run = Create(folder_ / "a").ValueOrThrow();
  run.reset();
  const auto again = Create(folder_ / "a");
  EXPECT_EQ(again.status().code(), Code::kCannotCreate);
  EXPECT_NE(again.status().message().find("--resume"), std::string::npos);
}

TEST_F(RunFolderTest, ASecondWriterIsRefusedAndToldThePid) {
  const auto run = Create(folder_ / "a").ValueOrThrow();
  for (const Status& status :
       {RunFolder::Open(run->path(), Mode::kWrite).status(), Create(run->path()).status()}) {
    EXPECT_EQ(status.code(), Code::kCannotCreate);
    EXPECT_NE(status.message().find(std::to_string(::getpid())), std::string::npos);
  }
  EXPECT_EQ(OpenCode(run->path()), Code::kOk) << "readers are welcome meanwhile";
}

TEST_F(RunFolderTest, IncarnationGrowsWithEveryWriterAndOnlyThen) {
  (void)Create(folder_ / "a").ValueOrThrow();
  for (uint64_t expected = 2; expected < 5; ++expected) {
    EXPECT_EQ(RunFolder::Open(folder_ / "a", Mode::kWrite).ValueOrThrow()->incarnation(), expected);
    EXPECT_EQ(RunFolder::Open(folder_ / "a", Mode::kRead).ValueOrThrow()->incarnation(), expected);
  }
}

TEST_F(RunFolderTest, CanBeMoved) {
  (void)Create(folder_ / "a").ValueOrThrow();
  std::filesystem::create_directory(folder_ / "deep");
  std::filesystem::rename(folder_ / "a", folder_ / "deep/b");
  const auto run = RunFolder::Open(folder_ / "deep/b", Mode::kWrite).ValueOrThrow();
  EXPECT_EQ(run->journal(), folder_ / "deep/b/checkpoints/journal.bin");
  EXPECT_EQ(run->config_toml(), kToml);
}

TEST_F(RunFolderTest, ConfigurationAndResultAreReplacedAtomically) {
  {
    const auto run = Create(folder_ / "a").ValueOrThrow();
    EXPECT_FALSE(run->ReadResult()->has_value());
    ASSERT_TRUE(run->UpdateConfig("[run]\nseed = 4\n").ok());
    ASSERT_TRUE(run->SaveResult({{"frames", 12}}).ok());
  }
  const auto run = RunFolder::Open(folder_ / "a", Mode::kRead).ValueOrThrow();
  EXPECT_EQ(run->config_toml(), "[run]\nseed = 4\n");
  EXPECT_EQ((**run->ReadResult())["frames"], 12);
}

TEST_F(RunFolderTest, MissingIsNoInput) {
  EXPECT_EQ(OpenCode(folder_ / "nowhere"), Code::kNoInput);
  EXPECT_EQ(OpenCode(folder_.path()), Code::kNoInput);
  EXPECT_EQ(OpenCode(folder_.path(), Mode::kWrite), Code::kNoInput);
}

TEST_F(RunFolderTest, EveryBitFlipAndTruncationIsBadData) {
  (void)Create(folder_ / "a").ValueOrThrow();
  for (const char* name : {"config.toml", "run.json", "incarnation.json"}) {
    const Path path = folder_ / "a" / name;
    const std::string good = *ReadFile(path);
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      Overwrite(path, WithBitFlipped(good, bit));
      EXPECT_EQ(OpenCode(folder_ / "a"), Code::kBadData) << name << " bit " << bit;
    }
    for (size_t size = 0; size < good.size(); ++size) {
      Overwrite(path, good.substr(0, size));
      EXPECT_EQ(OpenCode(folder_ / "a"), Code::kBadData) << name << " cut to " << size;
    }
    if (std::string(name) != "run.json") {
      std::filesystem::remove(path);
      EXPECT_EQ(OpenCode(folder_ / "a"), Code::kBadData) << name << " missing";
    }
    Overwrite(path, good);
  }
  EXPECT_EQ(OpenCode(folder_ / "a"), Code::kOk);
}

TEST_F(RunFolderTest, AFullDiskIsSeenAtTheStart) {
  const auto full = RunFolder::Create(folder_ / "a", "x", kToml, kIdentity, uint64_t{1} << 62);
  EXPECT_EQ(full.status().code(), Code::kIoError);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

TEST_F(RunFolderTest, EachCallFailingLeavesAWholeFolderOrNone) {
  for (int n = 1;; ++n) {
    const Path out = folder_ / ("run" + std::to_string(n));
    TEST_FailNthCall(n, ENOSPC);
    const auto run = Create(out);
    if (TEST_FailurePending()) break;
    TEST_FailNthCall(0, 0);
    EXPECT_EQ(run.status().code(), Code::kIoError) << n;
    EXPECT_EQ(CountTemporaries(folder_.path()), 0) << n;
    if (std::filesystem::exists(out)) {
      EXPECT_EQ(OpenCode(out), Code::kOk) << n;
    }
  }
}

TEST_F(RunFolderTest, EachCallKillingLeavesAWholeFolderOrNone) {
  for (int n = 1;; ++n) {
    const Path out = folder_ / ("run" + std::to_string(n));
    const pid_t child = ::fork();
    if (child == 0) {
      TEST_KillAtNthCall(n);
      ::_exit(Create(out).ok() ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    if (std::filesystem::exists(out)) {
      EXPECT_EQ(OpenCode(out, Mode::kWrite), Code::kOk) << n;
    }
    if (WIFEXITED(state)) {
      EXPECT_EQ(WEXITSTATUS(state), 0);
      break;
    }
  }
}

TEST_F(RunFolderTest, DefaultNamesCountUp) {
  const Path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  EXPECT_EQ(Create("").ValueOrThrow()->path(), "runs/classic-x-01");
  EXPECT_EQ(Create("").ValueOrThrow()->path(), "runs/classic-x-02");
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace samara
