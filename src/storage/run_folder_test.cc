#include "storage/run_folder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "core/sha256.h"
#include "gtest/gtest.h"
#include "storage/sealed_json.h"
#include "storage/storage_test_util.h"

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
  EXPECT_TRUE(std::filesystem::is_directory(run->checkpoints().path()));
  EXPECT_TRUE(std::filesystem::is_directory(run->videos().path()));
  EXPECT_EQ(CountTemporaries(folder_.path()), 0);
}

TEST_F(RunFolderTest, FillsAnEmptyFolderAndDropsATrailingSlash) {
  std::filesystem::create_directory(folder_ / "a");
  const auto run = Create(folder_ / "a/").ValueOrThrow();
  EXPECT_EQ(run->path().path(), folder_ / "a");
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
       {RunFolder::Open(folder_ / "a", Mode::kWrite).status(), Create(folder_ / "a").status()}) {
    EXPECT_EQ(status.code(), Code::kCannotCreate);
    EXPECT_NE(status.message().find(std::to_string(::getpid())), std::string::npos);
  }
  EXPECT_EQ(OpenCode(folder_ / "a"), Code::kOk) << "readers are welcome meanwhile";
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
  EXPECT_EQ(run->journal().path(), folder_ / "deep/b/checkpoints/journal.bin");
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

// The digest holds, the members do not: of another program, or damage that was sealed.
TEST_F(RunFolderTest, AResultWhoseMembersHaveOtherTypesIsDamaged) {
  const auto run = Create(folder_ / "a").ValueOrThrow();
  const nlohmann::json cases[] = {3,
                                  {{"updates", "x"}},
                                  {{"frames", "x"}},
                                  {{"generation", -1}},
                                  {{"run", 5}},
                                  {{"population_hash", 5}},
                                  {{"seconds", "x"}},
                                  {{"parameter_hash", nullptr}}};
  for (const nlohmann::json& result : cases) {
    ASSERT_TRUE(run->SaveResult(result).ok());
    EXPECT_EQ(run->ReadResult().status().code(), Code::kBadData) << result;
  }
}

TEST_F(RunFolderTest, WhatIsSealedAndNoRunIsRefused) {
  const auto run = Create(folder_ / "a").ValueOrThrow();
  Overwrite(folder_ / "a/result.json", SealJson({{"format", 1}}));
  EXPECT_EQ(run->ReadResult().status().message(),
            (folder_ / "a/result.json").string() + ": no result in it");
  const auto open = [&](const char* file, const nlohmann::json& json) {
    const std::string good = *ReadFile(folder_ / "a" / file);
    Overwrite(folder_ / "a" / file, SealJson(json));
    const Status status = RunFolder::Open(folder_ / "a", Mode::kRead).status();
    Overwrite(folder_ / "a" / file, good);
    return status;
  };
  EXPECT_EQ(open("run.json", {{"format", 2}}).code(), Code::kConfig);
  EXPECT_EQ(
      open("run.json", {{"format", 2}}).message(),
      (folder_ / "a").string() +
          ": run folder of format 2, this samara reads format 1: use the samara that wrote it");
  EXPECT_EQ(open("run.json", {{"seed", 1}}).message(), "run.json: damaged: no count 'format'");
  EXPECT_EQ(open("incarnation.json", {{"incarnation", -1}}).message(),
            (folder_ / "a/incarnation.json").string() + ": damaged: no count 'incarnation'");
  EXPECT_EQ(OpenCode(folder_ / "a"), Code::kOk);
}

TEST_F(RunFolderTest, AFolderInAFilesPlaceIsRefusedAndAFileInAFolders) {
  (void)Create(folder_ / "a").ValueOrThrow();
  std::filesystem::create_directory(folder_ / "a/metrics.jsonl");
  EXPECT_EQ(
      RunFolder::Open(folder_ / "a", Mode::kRead).status().message(),
      (folder_ / "a/metrics.jsonl").string() +
          ": a folder, expected the file that samara wrote: put it back there, or remove this");
  std::filesystem::remove(folder_ / "a/metrics.jsonl");
  std::filesystem::remove(folder_ / "a/videos");
  Overwrite(folder_ / "a/videos", "");
  EXPECT_EQ(
      RunFolder::Open(folder_ / "a", Mode::kRead).status().message(),
      (folder_ / "a/videos").string() +
          ": a file, expected the folder that samara wrote: put it back there, or remove this");
}

TEST_F(RunFolderTest, TheInitialPolicyIsTheOneOfTheRun) {
  const std::string policy = "a policy";
  const auto create = [&](const char* name, const nlohmann::json& digest) {
    nlohmann::json identity = kIdentity;
    identity["initial_policy"] = {{"file_sha256", digest}};
    return RunFolder::Create(folder_ / name, "x", kToml, identity, 0,
                             {{RunFolder::kInitialPolicy, policy}})
        .ValueOrThrow();
  };
  const auto run = create("a", Sha256Hex(policy));
  EXPECT_EQ(**run->ReadInitialPolicy(), policy);
  const Path file = folder_ / "a/initial.safetensors";
  const auto expect = [](const RunFolder& of, const std::string& message) {
    const Status status = of.ReadInitialPolicy().status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), message);
  };
  const std::string other =
      ": damaged: it does not match the SHA-256 in run.json; restore it from a copy";
  Overwrite(file, "another");
  expect(*run, file.string() + other);
  std::filesystem::remove(file);
  expect(*run, file.string() + ": missing; restore it from a copy");
  std::filesystem::create_directory(file);
  EXPECT_EQ(run->ReadInitialPolicy().status().code(), Code::kBadData);
  // a digest that is no text
  expect(*create("b", 5), (folder_ / "b/initial.safetensors").string() + other);
  EXPECT_FALSE(Create(folder_ / "c").ValueOrThrow()->ReadInitialPolicy()->has_value());
}

TEST_F(RunFolderTest, TheModuleIsTheOneOfTheConfiguration) {
  const std::string module = "a module";
  const auto run = [&](const char* name, const std::string& key) {
    const std::string toml = "[network]\nmodule = \"" + key + "\"\n";
    return RunFolder::Create(folder_ / name, "x", toml, kIdentity, 0,
                             {{RunFolder::kModule, module}})
        .ValueOrThrow();
  };
  EXPECT_EQ(**run("a", "sha256:" + Sha256Hex(module))->ReadModule(), module);
  for (const std::string& key : {std::string("sha256:") + std::string(64, '0'), std::string("x")}) {
    const Status status = run(key == "x" ? "b" : "c", key)->ReadModule().status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_TRUE(status.message().ends_with("the SHA-256 in config.toml; restore it from a copy"));
  }
  EXPECT_FALSE(run("d", "")->ReadModule()->has_value());
}

TEST_F(RunFolderTest, ALinkOrAPipeUnderAFilesNameIsRefused) {
  (void)Create(folder_ / "a").ValueOrThrow();
  ASSERT_TRUE(WriteNewFile(folder_ / "outside", "mine").ok());
  const Path run = folder_ / "a";
  for (const char* name : {"config.toml", "run.json", "incarnation.json", "result.json", "log.txt",
                           "metrics.jsonl", "lock", "learning_curve.svg", "map.svg", "report.html",
                           "checkpoints", "videos", "events.out.tfevents.0000000001.samara"}) {
    const Path path = run / name, kept = folder_ / "kept";
    if (std::filesystem::exists(path)) std::filesystem::rename(path, kept);
    const auto refused = [&](const std::string& what) {
      for (const Mode mode : {Mode::kRead, Mode::kWrite}) {
        const Status status = RunFolder::Open(run, mode).status();
        EXPECT_EQ(status.code(), Code::kBadData) << name << ": " << what;
        EXPECT_NE(status.message().find(path.string() + ": " + what), std::string::npos)
            << status.message();
      }
    };
    std::filesystem::create_symlink(std::filesystem::exists(kept) ? kept : folder_ / "outside",
                                    path);
    refused("a symbolic link, expected the f");
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    refused("a pipe, socket or device, expected the f");
    std::filesystem::remove(path);
    if (std::filesystem::exists(kept)) std::filesystem::rename(kept, path);
  }
  // the user's own files and links are none of samara's business, nor is a link to the folder
  std::filesystem::create_symlink(folder_ / "outside", run / "notes");
  std::filesystem::create_directory_symlink(run, folder_ / "latest");
  EXPECT_EQ(OpenCode(folder_ / "latest", Mode::kWrite), Code::kOk);
  EXPECT_EQ(*ReadFile(folder_ / "outside"), "mine");
}

// The target of a link is not replaced by a file, nor is a device.
TEST(CheckOutputFileTest, RefusesWhatIsNoFile) {
  const Path folder = Path(testing::TempDir()) / "outputs";
  std::filesystem::create_directories(folder / "sub");
  std::ofstream(folder / "file") << "x";
  std::filesystem::remove(folder / "link");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  EXPECT_TRUE(CheckOutputFile(folder / "file").ok());
  EXPECT_TRUE(CheckOutputFile(folder / "new").ok());
  for (const Path& file : {folder / "link", folder / "sub", Path("/dev/null"), Path("/dev/stdout")})
    EXPECT_EQ(CheckOutputFile(file).code(), Code::kCannotCreate) << file;
}

// In a process of its own, since root may write everywhere.
TEST(CheckOutputFileDeathTest, RefusesADeniedFolder) {
  const Path folder = Path(testing::TempDir()) / "denied";
  std::filesystem::create_directories(folder);
  std::filesystem::permissions(folder, std::filesystem::perms{0555});
  const auto check = [&folder] {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) std::_Exit(1);
    std::_Exit(static_cast<int>(CheckOutputFile(folder / "x").code()));
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(73), "");
}

TEST_F(RunFolderTest, AResultThatMayNotLastIsNone) {
  const auto run = Create(folder_ / "a").ValueOrThrow();
  for (int n = 1;; ++n) {
    TEST_FailNthCall(n, EIO);
    const Status saved = run->SaveResult({{"frames", 12}});
    if (TEST_FailurePending()) break;
    EXPECT_EQ(saved.code(), Code::kIoError) << n;
    EXPECT_FALSE(run->ReadResult()->has_value()) << n;
  }
  TEST_FailNthCall(0, 0);
  EXPECT_TRUE(run->ReadResult()->has_value());
  EXPECT_TRUE(run->RemoveResult().ok());
  EXPECT_FALSE(run->ReadResult()->has_value());
  EXPECT_TRUE(run->RemoveResult().ok());
}

TEST_F(RunFolderTest, AFolderThatOthersMayWriteToIsNamedOnce) {
  (void)Create(folder_ / "a").ValueOrThrow();
  std::vector<std::string> lines;
  SetLogLevel(LogLevel::kWarning);
  SetLogSink([&](std::string_view line) { lines.emplace_back(line); });
  (void)RunFolder::Open(folder_ / "a", Mode::kWrite).ValueOrThrow();
  EXPECT_TRUE(lines.empty()) << lines[0];
  std::filesystem::permissions(folder_ / "a", std::filesystem::perms(0777));
  (void)RunFolder::Open(folder_ / "a", Mode::kWrite).ValueOrThrow();
  std::filesystem::permissions(folder_ / "a", std::filesystem::perms(0700));
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0777));
  (void)Create(folder_ / "b").ValueOrThrow();
  SetLogSink({});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find("a: other users may write to it (mode 0777)"), std::string::npos);
  EXPECT_NE(lines[1].find("b: other users may replace it"), std::string::npos) << lines[1];
}

TEST_F(RunFolderTest, MissingIsNoInput) {
  EXPECT_EQ(OpenCode(folder_ / "nowhere"), Code::kNoInput);
  EXPECT_EQ(OpenCode(folder_.path()), Code::kNoInput);
  EXPECT_EQ(OpenCode(folder_.path(), Mode::kWrite), Code::kNoInput);
  ASSERT_TRUE(Create(folder_ / "seeds/seed-10").ok() && Create(folder_ / "seeds/seed-9").ok());
  EXPECT_EQ(RunFolder::Open(folder_ / "seeds", Mode::kRead).status().message(),
            (folder_ / "seeds").string() + ": holds 2 runs: name one, such as " +
                (folder_ / "seeds/seed-9").string());
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
  EXPECT_EQ(Create("").ValueOrThrow()->path().string(), "runs/classic-x-01");
  EXPECT_EQ(Create("").ValueOrThrow()->path().string(), "runs/classic-x-02");
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace samara
