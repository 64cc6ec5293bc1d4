#include "storage/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <thread>

#include "core/sha256.h"
#include "gtest/gtest.h"
#include "storage/quarantine.h"
#include "storage/sealed_json.h"
#include "storage/storage_test_util.h"

namespace samara {
namespace {

using OnBad = OnBadCheckpoint;

class CheckpointTest : public testing::Test {
 protected:
  static CheckpointInfo Info(uint64_t step, uint64_t incarnation = 1) {
    return {.step = step,
            .incarnation = incarnation,
            .run_seconds = step,
            .build_id = "b1d",
            .config_hash = "c0ffee",
            .journal = JournalPin{.id = "ab", .bytes = 7, .digest = "cd"},
            .note = {{"frames", step * 10}}};
  }
  static Result<Path> Save(CheckpointWriter& writer, const CheckpointInfo& info) {
    const std::string state = "state " + std::to_string(info.step);
    const std::vector<CheckpointFile> files = {{"population.bin", state}, {"empty", ""}};
    ASSIGN_OR_RETURN(const RootedPath path, writer.Save(info, files));
    return path.path();
  }
  uint64_t LatestStep(OnBad on_bad = OnBad::kSkip) const {
    auto latest = LatestGoodCheckpoint(folder_.path(), on_bad);
    if (!latest.ok() || !latest->has_value()) return 0;
    const StoredCheckpoint& checkpoint = **latest;
    EXPECT_EQ(checkpoint.files.at("population.bin"),
              "state " + std::to_string(checkpoint.info.step));
    return checkpoint.info.step;
  }
  std::vector<uint64_t> Steps() const {
    std::vector<uint64_t> steps;
    for (const RootedPath& path : ListCheckpoints(folder_.path())) {
      steps.push_back(ReadManifest(path)->info.step);
    }
    return steps;
  }
  TempFolder folder_;
};

TEST_F(CheckpointTest, GivesBackWhatWasSaved) {
  CheckpointWriter writer(folder_.path());
  EXPECT_EQ(LatestStep(), 0U);
  const Path path = *Save(writer, Info(12));
  EXPECT_EQ(path.filename(), "ckpt-00000012-0001");
  const auto latest = LatestGoodCheckpoint(folder_.path(), OnBad::kRefuse);
  ASSERT_TRUE(latest.ok() && latest->has_value());
  const StoredCheckpoint& checkpoint = **latest;
  EXPECT_EQ(checkpoint.path.path(), path);
  EXPECT_EQ(checkpoint.files,
            (std::map<std::string, std::string>{{"empty", ""}, {"population.bin", "state 12"}}));
  EXPECT_EQ(checkpoint.info.build_id, "b1d");
  EXPECT_EQ(checkpoint.info.journal, Info(12).journal);
  EXPECT_EQ(checkpoint.info.note["frames"], 120);
}

TEST_F(CheckpointTest, ManifestHoldsTheDigestsOfSha256sum) {
  CheckpointWriter writer(folder_.path());
  const Path path = *Save(writer, Info(1));
  const auto json = ReadSealedJson(path / "manifest.json");
  // printf 'state 1' | sha256sum
  EXPECT_EQ((*json)["files"][0]["sha256"],
            "2780e2d008eba4f8b30ac02f5ec0a66ce5285a29bb2d1a6c0164ea2c7dd17544");
}

TEST_F(CheckpointTest, LatestIsByStepThenIncarnationWhateverTheClockSays) {
  CheckpointWriter writer(folder_.path());
  ASSERT_TRUE(Save(writer, Info(100'000'000, 1)).ok());
  ASSERT_TRUE(Save(writer, Info(99'999'999, 12)).ok());
  ASSERT_TRUE(Save(writer, Info(100'000'000, 2)).ok());
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(folder_ / "ckpt-100000000-0002", now - std::chrono::hours(24));
  const auto latest = LatestGoodCheckpoint(folder_.path(), OnBad::kSkip);
  EXPECT_EQ((*latest)->path.name(), "ckpt-100000000-0002");
}

TEST_F(CheckpointTest, TheLatestWithAFileIsGoodToo) {
  CheckpointWriter writer(folder_.path());
  const std::vector<CheckpointFile> more = {{"population.bin", "p"}, {"server.bin", "s"}};
  for (const uint64_t step : {1, 2}) ASSERT_TRUE(writer.Save(Info(step), more).ok());
  ASSERT_TRUE(Save(writer, Info(3)).ok());
  const auto latest_step = [&](const char* with) {
    const auto latest = LatestGoodCheckpoint(folder_.path(), OnBad::kQuarantine, with);
    return latest.ok() && latest->has_value() ? (*latest)->info.step : 0;
  };
  EXPECT_EQ(latest_step("server.bin"), 2U);
  EXPECT_EQ(latest_step("other.bin"), 0U);
  Overwrite(folder_ / "ckpt-00000002-0001" / "server.bin", "x");
  EXPECT_EQ(latest_step("server.bin"), 1U);
  EXPECT_EQ(latest_step(""), 3U);
}

TEST_F(CheckpointTest, SavingAStepAgainFindsTheFirstOrReplacesABadOne) {
  CheckpointWriter writer(folder_.path());
  const Path path = *Save(writer, Info(3));
  TEST_FailNthCall(1, EIO);
  EXPECT_EQ(*Save(writer, Info(3)), path);
  EXPECT_TRUE(TEST_FailurePending()) << "nothing was written";
  TEST_FailNthCall(0, 0);
  Overwrite(path / "population.bin", "junk");
  EXPECT_EQ(*Save(writer, Info(3)), path);
  EXPECT_EQ(LatestStep(OnBad::kRefuse), 3U);
  EXPECT_TRUE(std::filesystem::exists(path.string() + ".corrupt"));
}

TEST_F(CheckpointTest, EveryBitFlipAndTruncationFallsBack) {
  CheckpointWriter writer(folder_.path());
  ASSERT_TRUE(Save(writer, Info(1)).ok());
  const Path path = *Save(writer, Info(2));
  for (const char* name : {"manifest.json", "population.bin"}) {
    const std::string good = *ReadFile(path / name);
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      Overwrite(path / name, WithBitFlipped(good, bit));
      EXPECT_EQ(ReadCheckpoint(path).status().code(), Code::kBadData) << name << " bit " << bit;
    }
    for (size_t size = 0; size < good.size(); ++size) {
      Overwrite(path / name, good.substr(0, size));
      EXPECT_EQ(ReadCheckpoint(path).status().code(), Code::kBadData) << name << " cut to " << size;
    }
    Overwrite(path / name, good + " ");
    EXPECT_EQ(ReadCheckpoint(path).status().code(), Code::kBadData) << name << " longer";
    std::filesystem::remove(path / name);
    EXPECT_EQ(ReadCheckpoint(path).status().code(), Code::kBadData) << name << " missing";
    EXPECT_EQ(LatestStep(), 1U);
    Overwrite(path / name, good);
  }
  EXPECT_EQ(LatestStep(), 2U);
}

TEST_F(CheckpointTest, ABadOneIsQuarantinedSkippedOrRefused) {
  CheckpointWriter writer(folder_.path());
  ASSERT_TRUE(Save(writer, Info(1)).ok());
  const Path path = *Save(writer, Info(2));
  Overwrite(path / "population.bin", "state X");
  EXPECT_EQ(LatestGoodCheckpoint(folder_.path(), OnBad::kRefuse).status().code(), Code::kBadData);
  EXPECT_EQ(LatestStep(OnBad::kSkip), 1U);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(LatestStep(OnBad::kQuarantine), 1U);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(*ReadFile(Path(path.string() + ".corrupt") / "population.bin"), "state X");
}

TEST_F(CheckpointTest, RefusesNamesThatLeaveTheFolderAndLinks) {
  CheckpointWriter writer(folder_.path());
  const Path path = *Save(writer, Info(2));
  nlohmann::json manifest = *ReadSealedJson(path / "manifest.json");
  const std::string text = *ReadFile(path / "manifest.json");
  for (const char* name : {"../escape", "/etc/hostname", ".", "..", "", "a/b", "manifest.json"}) {
    manifest["files"][0]["name"] = name;
    Overwrite(path / "manifest.json", SealJson(manifest));
    EXPECT_EQ(ReadCheckpoint(path).status().code(), Code::kBadData) << name;
  }
  Overwrite(path / "manifest.json", text);
  ASSERT_TRUE(ReadCheckpoint(path).ok());
  std::filesystem::rename(path / "population.bin", folder_ / "moved");
  std::filesystem::create_symlink(folder_ / "moved", path / "population.bin");
  EXPECT_EQ(ReadCheckpoint(path).status().code(), Code::kBadData);
}

TEST_F(CheckpointTest, OtherNamesAreNoCheckpoints) {
  for (const char* name :
       {"ckpt", "ckpt-", "ckpt-x-0001", "ckpt-00000001", "ckpt-00000001_0001", "ckpt-00000001-",
        "ckpt-00000001-0001x", "ckpt-1-1", "ckpt-000000001-0001", "ckpt-99999999999999999999-0001"})
    std::filesystem::create_directory(folder_ / name);
  EXPECT_TRUE(ListCheckpoints(folder_.path()).empty());
  EXPECT_TRUE(ListCheckpoints(folder_ / "nowhere").empty());
}

// The digest holds, the members do not.
TEST_F(CheckpointTest, AManifestWhoseMembersHaveOtherTypesIsDamaged) {
  CheckpointWriter writer(folder_.path());
  const Path path = *Save(writer, Info(2));
  const nlohmann::json good = *ReadSealedJson(path / "manifest.json");
  const auto expect = [&](const char* member, const nlohmann::json& value, const char* message) {
    nlohmann::json manifest = good;
    manifest[nlohmann::json::json_pointer(member)] = value;
    Overwrite(path / "manifest.json", SealJson(manifest));
    const Status status = ReadCheckpoint(path).status();
    EXPECT_EQ(status.code(), Code::kBadData) << member;
    EXPECT_EQ(status.message(), (path / "manifest.json").string() + ": damaged: " + message);
  };
  for (const char* key : {"format", "step", "incarnation", "run_seconds"})
    expect((std::string("/") + key).c_str(), -1, ("no count '" + std::string(key) + "'").c_str());
  for (const char* key : {"build_id", "config_hash"})
    expect((std::string("/") + key).c_str(), 5, ("no text '" + std::string(key) + "'").c_str());
  expect("/journal", 5, "no text 'id'");
  expect("/journal/bytes", "7", "no count 'bytes'");
  expect("/journal/digest", nullptr, "no text 'digest'");
  expect("/files", nullptr, "no list of files");
  expect("/files", nlohmann::json::object(), "no list of files");
  expect("/files", std::vector<int>(4097), "no list of files");
  expect("/files/0", 5, "no text 'name'");
  expect("/files/0/bytes", -1, "no count 'bytes'");
  expect("/files/0/sha256", 5, "no text 'sha256'");
  expect("/files/0/name", std::string(256, 'a'),
         ("bad file name '" + std::string(256, 'a') + "'").c_str());
  nlohmann::json manifest = good;
  manifest.erase("files");
  Overwrite(path / "manifest.json", SealJson(manifest));
  EXPECT_EQ(ReadCheckpoint(path).status().code(), Code::kBadData);
  manifest = good;
  for (const char* key : {"note", "journal"}) manifest.erase(key);
  Overwrite(path / "manifest.json", SealJson(manifest));
  const CheckpointInfo info = ReadCheckpoint(path)->info;
  EXPECT_FALSE(info.journal.has_value());
}

TEST_F(CheckpointTest, ARenamedOrLaterCheckpointIsNotTaken) {
  CheckpointWriter writer(folder_.path());
  const Path path = *Save(writer, Info(2));
  std::filesystem::rename(path, folder_ / "ckpt-00000009-0001");
  EXPECT_EQ(ReadCheckpoint(folder_ / "ckpt-00000009-0001").status().code(), Code::kBadData);
  std::filesystem::rename(folder_ / "ckpt-00000009-0001", path);
  nlohmann::json manifest = *ReadSealedJson(path / "manifest.json");
  manifest["format"] = 2;
  Overwrite(path / "manifest.json", SealJson(manifest));
  const auto latest = LatestGoodCheckpoint(folder_.path(), OnBad::kQuarantine);
  EXPECT_EQ(latest.status().code(), Code::kConfig);
  EXPECT_TRUE(std::filesystem::exists(path)) << "a later format is not damage";
}

TEST(QuarantineTest, NamesThatItGaveAreKnown) {
  for (const char* name : {"a.corrupt", "a.corrupt-2", "ckpt-00000001-0001.corrupt-31"})
    EXPECT_TRUE(IsCorruptName(name)) << name;
  for (const char* name : {"", "a", ".corrupt", "a.corrupt2", "a.corrupt23", "a.corrupt-",
                           "a.corrupt-x", "a.corrupt-2x", "a.corrupt/b"})
    EXPECT_FALSE(IsCorruptName(name)) << name;
}

TEST_F(CheckpointTest, KeepsTheLastAndTheOldestPerHour) {
  CheckpointWriter writer(folder_.path());
  for (uint64_t step = 1; step <= 20; ++step) {
    CheckpointInfo info = Info(step);
    info.run_seconds = step * 600;  // six an hour: hours begin at steps 1, 6, 12, 18
    ASSERT_TRUE(Save(writer, info).ok());
  }
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{20, 19, 18, 12, 6, 1}));
  EXPECT_EQ(CountTemporaries(folder_.path()), 0);
}

TEST_F(CheckpointTest, PrunesOnlyItsOwnVerifiedOnes) {
  CheckpointWriter writer(folder_.path(), {.keep_last = 1, .keep_hourly = false});
  CheckpointInfo foreign = Info(1);
  foreign.config_hash = "other";
  ASSERT_TRUE(Save(writer, foreign).ok());
  const Path damaged = *Save(writer, Info(2));
  Overwrite(damaged / "population.bin", "state X");
  ASSERT_TRUE(Save(writer, Info(3)).ok());
  ASSERT_TRUE(Save(writer, Info(4)).ok());
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{4, 2, 1}));
}

TEST_F(CheckpointTest, EachCallFailingLeavesThePreviousAndNoTemporary) {
  for (int error : {ENOSPC, EIO}) {
    CheckpointWriter writer(folder_.path());
    uint64_t step = error == ENOSPC ? 1 : 1001;
    ASSERT_TRUE(Save(writer, Info(step)).ok());
    for (int n = 1;; ++n) {
      TEST_FailNthCall(n, error);
      const auto saved = Save(writer, Info(step + 1));
      const bool pending = TEST_FailurePending();
      TEST_FailNthCall(0, 0);
      if (pending) {
        EXPECT_GT(n, 10);
        break;
      }
      if (!saved.ok()) {
        EXPECT_EQ(saved.status().code(), Code::kIoError) << n;
        EXPECT_EQ(LatestStep(OnBad::kRefuse), step) << n;
        EXPECT_EQ(CountTemporaries(folder_.path()), 0) << n;
        ASSERT_TRUE(Save(writer, Info(step + 1)).ok()) << "a repeat succeeds";
      }
      EXPECT_EQ(LatestStep(OnBad::kRefuse), ++step) << n;
    }
  }
}

// A child saves 5 steps and tells each acknowledged one through a pipe; it is killed at its n-th
// call.
TEST_F(CheckpointTest, AKillAtEachCallLosesNothingAcknowledged) {
  int trials = 0;
  for (bool done = false; !done;) {
    ++trials;
    const TempFolder folder;
    int ledger[2];
    ASSERT_EQ(::pipe(ledger), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      CheckpointWriter writer(folder.path(), {.keep_last = 2, .keep_hourly = false});
      TEST_KillAtNthCall(trials);
      for (uint64_t step = 1; step <= 5; ++step) {
        if (!Save(writer, Info(step)).ok()) ::_exit(1);
        (void)!::write(ledger[1], "x", 1);
      }
      ::_exit(0);
    }
    ::close(ledger[1]);
    char mark;
    uint64_t acknowledged = 0;
    while (::read(ledger[0], &mark, 1) == 1) ++acknowledged;
    ::close(ledger[0]);
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    done = WIFEXITED(state);
    EXPECT_TRUE(!done || WEXITSTATUS(state) == 0);
    const auto latest = LatestGoodCheckpoint(folder.path(), OnBad::kRefuse);
    ASSERT_TRUE(latest.ok()) << trials << ": " << latest.status().message();
    const uint64_t step = latest->has_value() ? (*latest)->info.step : 0;
    EXPECT_GE(step, acknowledged) << trials;
    EXPECT_LE(step, acknowledged + 1) << trials;
  }
  EXPECT_GT(trials, 60);
}

// ---- kept files

// Saves `info` with a file of its own and one that never changes; the latter is kept where it can
// be.
Result<Path> SaveKeeping(CheckpointWriter& writer, const CheckpointInfo& info) {
  const std::string state = "state " + std::to_string(info.step);
  // every other time it is written ahead, where it can be
  if (info.step % 2 == 0 && !writer.Kept(info).contains("part.bin"))
    (void)writer.WriteAhead("part.bin", "lasting");
  const bool kept = writer.Kept(info).contains("part.bin");
  const std::vector<CheckpointFile> files = {{"population.bin", state},
                                             {"part.bin", kept ? "" : "lasting", kept}};
  ASSIGN_OR_RETURN(const RootedPath path, writer.Save(info, files));
  return path.path();
}

class KeptFilesTest : public CheckpointTest {
 protected:
  static uint64_t Links(const Path& file) { return std::filesystem::hard_link_count(file); }
  static std::string Part(const Path& checkpoint) {
    const auto read = ReadCheckpoint(checkpoint);
    return read.ok() ? read->files.at("part.bin") : read.status().message();
  }
};

TEST_F(KeptFilesTest, ThereIsOneFileWithANameInEachCheckpoint) {
  CheckpointWriter writer(folder_.path());
  EXPECT_TRUE(writer.Kept(Info(1)).empty());
  const Path first = *SaveKeeping(writer, Info(1));
  EXPECT_EQ(writer.Kept(Info(2)), (std::set<std::string>{"part.bin", "population.bin"}));
  const Path second = *SaveKeeping(writer, Info(2)), third = *SaveKeeping(writer, Info(3));
  EXPECT_TRUE(std::filesystem::equivalent(first / "part.bin", third / "part.bin"));
  EXPECT_EQ(Links(third / "part.bin"), 3u);
  EXPECT_EQ(Links(third / "population.bin"), 1u);
  // printf lasting | sha256sum
  EXPECT_EQ((*ReadSealedJson(third / "manifest.json"))["files"][1],
            (nlohmann::json{
                {"name", "part.bin"},
                {"bytes", 7},
                {"sha256", "48fb71763d97b54b752aa17694977d1f87c7707415f25ab63ac2ea2495347ae6"}}));
  for (const Path& path : {first, second, third}) EXPECT_EQ(Part(path), "lasting");
  std::filesystem::remove_all(first), std::filesystem::remove_all(second);
  EXPECT_EQ(Part(third), "lasting") << "each folder is whole";
}

TEST_F(KeptFilesTest, AFileThatIsWrittenAheadIsKeptByTheNextSaveAlone) {
  Path first;
  {
    CheckpointWriter writer(folder_.path());
    ASSERT_TRUE(writer.WriteAhead("part.bin", "lasting").ok());
    ASSERT_TRUE(writer.WriteAhead("other.bin", "unused").ok());
    EXPECT_EQ(writer.Kept(Info(1)), (std::set<std::string>{"other.bin", "part.bin"}));
    EXPECT_EQ(CountTemporaries(folder_.path()), 1);
    EXPECT_TRUE(ListCheckpoints(folder_.path()).empty());
    first = *SaveKeeping(writer, Info(1));
    EXPECT_EQ(Part(first), "lasting");
    EXPECT_EQ(Links(first / "part.bin"), 1u);
    EXPECT_EQ(CountTemporaries(folder_.path()), 0);
    EXPECT_EQ(writer.Kept(Info(2)), (std::set<std::string>{"part.bin", "population.bin"}));
    ASSERT_TRUE(writer.WriteAhead("other.bin", "unused").ok());
    // the newest file of a name
    ASSERT_TRUE(writer.WriteAhead("part.bin", "as long").ok());
    EXPECT_EQ(Part(*SaveKeeping(writer, Info(2))), "as long");
    ASSERT_TRUE(writer.WriteAhead("other.bin", "unused").ok());
  }
  EXPECT_EQ(CountTemporaries(folder_.path()), 0) << "a writer that ends";
  EXPECT_EQ(Part(first), "lasting");
}

TEST_F(KeptFilesTest, ASaveThatFailsLeavesWhatItKeepsForTheNextTry) {
  const std::vector<CheckpointFile> files = {{"part.bin", "", true}, {"population.bin", "state"}};
  int failures = 0;
  for (int n = 1;; ++n) {
    const CheckpointInfo info = Info(static_cast<uint64_t>(n));
    CheckpointWriter writer(folder_.path());
    ASSERT_TRUE(writer.WriteAhead("other.bin", "out of date").ok());
    ASSERT_TRUE(writer.WriteAhead("part.bin", "lasting").ok());
    TEST_FailNthCall(n, EIO);
    const auto saved = writer.Save(info, files);
    const bool pending = TEST_FailurePending();
    TEST_FailNthCall(0, 0);
    if (!saved.ok()) {
      ++failures;
      EXPECT_EQ(writer.Kept(info), std::set<std::string>{"part.bin"}) << n;
      EXPECT_EQ(CountTemporaries(folder_.path()), 1) << n;
      ASSERT_TRUE(writer.Save(info, files).ok()) << n;
    }
    EXPECT_EQ(Part(writer.last().path()), "lasting") << n;
    if (pending) break;
  }
  EXPECT_GT(failures, 3);
  EXPECT_EQ(CountTemporaries(folder_.path()), 0)
      << "one whose removal failed goes with the next save";
}

TEST_F(KeptFilesTest, WhatCannotBeWrittenAheadIsNotKept) {
  for (const int n : {1, 2, 3}) {
    CheckpointWriter writer(folder_.path());
    if (n > 1) {
      ASSERT_TRUE(writer.WriteAhead("other.bin", "before").ok());
    }
    TEST_FailNthCall(n, ENOSPC);
    EXPECT_EQ(writer.WriteAhead("part.bin", "lasting").code(), Code::kIoError);
    TEST_FailNthCall(0, 0);
    EXPECT_TRUE(writer.Kept(Info(1)).empty()) << "room is made for the save";
    EXPECT_EQ(CountTemporaries(folder_.path()), 0);
    EXPECT_EQ(Part(*SaveKeeping(writer, Info(static_cast<uint64_t>(n)))), "lasting");
  }
}

TEST_F(KeptFilesTest, AResumedRunKeepsThoseOfTheCheckpointThatItContinuesFrom) {
  Path first;
  {
    CheckpointWriter writer(folder_.path());
    first = *SaveKeeping(writer, Info(1));
  }
  CheckpointWriter writer(folder_.path());
  EXPECT_TRUE(writer.Kept(Info(2, 2)).empty()) << "it was not read";
  writer.ContinueFrom(first);
  EXPECT_TRUE(writer.Kept(Info(2, 2)).contains("part.bin"));
  EXPECT_EQ(Links(*SaveKeeping(writer, Info(2, 2)) / "part.bin"), 2u);
}

TEST_F(KeptFilesTest, WhatIsGoneOrOfAnotherSizeIsNotKept) {
  CheckpointWriter writer(folder_.path());
  const Path first = *SaveKeeping(writer, Info(1));
  EXPECT_TRUE(writer.Kept(Info(1)).empty()) << "the same checkpoint";
  Overwrite(first / "part.bin", "short");
  EXPECT_FALSE(writer.Kept(Info(2)).contains("part.bin"));
  std::filesystem::remove(first / "part.bin");
  std::filesystem::create_symlink("population.bin", first / "part.bin");
  EXPECT_FALSE(writer.Kept(Info(2)).contains("part.bin"));
  std::filesystem::remove(first / "part.bin");
  EXPECT_FALSE(writer.Kept(Info(2)).contains("part.bin"));
  EXPECT_EQ(Part(*SaveKeeping(writer, Info(2))), "lasting");
  std::filesystem::remove_all(folder_ / "ckpt-00000002-0001");
  EXPECT_TRUE(writer.Kept(Info(3)).empty());
  EXPECT_EQ(Part(*SaveKeeping(writer, Info(3))), "lasting");
}

// Where the file system refuses links a kept file is copied, if it verifies.
TEST_F(KeptFilesTest, ACopyTakesThePlaceOfALinkThatIsRefused) {
  for (const bool damaged : {false, true}) {
    CheckpointWriter writer(folder_.path());
    const uint64_t step = damaged ? 100 : 1;
    const Path first = *SaveKeeping(writer, Info(step));
    const std::string state = "state " + std::to_string(step + 1);
    const std::vector<CheckpointFile> files = {{"part.bin", "", true}, {"population.bin", state}};
    if (damaged) Overwrite(first / "part.bin", "lAsting");
    TEST_FailNthCall(2, EPERM);  // the first makes the folder
    const auto saved = writer.Save(Info(step + 1), files);
    EXPECT_FALSE(TEST_FailurePending());
    EXPECT_EQ(saved.ok(), !damaged);
    EXPECT_EQ(Links(first / "part.bin"), 1u);
    if (saved.ok()) {
      EXPECT_EQ(Part(saved->path()), "lasting");
      continue;
    }
    EXPECT_EQ(saved.status().code(), Code::kIoError);
    EXPECT_EQ(CountTemporaries(folder_.path()), 0);
    EXPECT_FALSE(writer.Kept(Info(step + 1)).contains("part.bin")) << "written by the next try";
    EXPECT_EQ(writer.Save(Info(step + 1), files).status().code(), Code::kIoError);
    EXPECT_EQ(Part(*SaveKeeping(writer, Info(step + 1))), "lasting");
  }
}

// A file that another checkpoint has too stays when one of its names goes.
TEST_F(KeptFilesTest, PruningReadsOnlyWhatIsAboutToGo) {
  CheckpointWriter writer(folder_.path(), {.keep_last = 1, .keep_hourly = false});
  const Path first = *SaveKeeping(writer, Info(1));
  Overwrite(first / "part.bin", "lAsting");
  const Path second = *SaveKeeping(writer, Info(2));
  EXPECT_FALSE(std::filesystem::exists(first)) << "the damaged bytes are the second one's too";
  EXPECT_EQ(ReadCheckpoint(second).status().code(), Code::kBadData);
  // bytes that no other checkpoint has are deleted only where they verify
  const std::vector<CheckpointFile> other = {{"population.bin", "state 3"}};
  ASSERT_TRUE(writer.Save(Info(3), other).ok());
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{3, 2}));
}

TEST_F(KeptFilesTest, DamageOfASharedFileIsDamageOfEveryCheckpointThatHasIt) {
  CheckpointWriter writer(folder_.path());
  const std::vector<CheckpointFile> plain = {{"population.bin", "state 1"}};
  ASSERT_TRUE(writer.Save(Info(1), plain).ok());
  ASSERT_TRUE(SaveKeeping(writer, Info(2)).ok());
  const Path third = *SaveKeeping(writer, Info(3));
  EXPECT_EQ(LatestStep(), 3U);
  Overwrite(third / "part.bin", "lAsting");
  EXPECT_EQ(LatestStep(OnBad::kQuarantine), 1U);
  EXPECT_EQ(Steps(), std::vector<uint64_t>{1});
}

TEST_F(KeptFilesTest, EachCallFailingLeavesThePreviousAndARepeatSucceeds) {
  for (int error : {EPERM, EIO, ENOSPC}) {
    CheckpointWriter writer(folder_.path());
    uint64_t step = static_cast<uint64_t>(error) * 1000;
    ASSERT_TRUE(SaveKeeping(writer, Info(++step)).ok());
    for (int n = 1;; ++n) {
      TEST_FailNthCall(n, error);
      const auto saved = SaveKeeping(writer, Info(step + 1));
      const bool pending = TEST_FailurePending();
      TEST_FailNthCall(0, 0);
      if (pending) break;
      if (!saved.ok()) {
        EXPECT_EQ(LatestStep(OnBad::kRefuse), step) << n;
        EXPECT_EQ(CountTemporaries(folder_.path()), 0) << n;
        ASSERT_TRUE(SaveKeeping(writer, Info(step + 1)).ok()) << "a repeat succeeds";
      }
      EXPECT_EQ(LatestStep(OnBad::kRefuse), ++step) << n;
    }
  }
}

TEST_F(KeptFilesTest, AKillAtEachCallLosesNothingAcknowledged) {
  int trials = 0;
  for (bool done = false; !done;) {
    ++trials;
    const TempFolder folder;
    const pid_t child = ::fork();
    if (child == 0) {
      CheckpointWriter writer(folder.path(), {.keep_last = 2, .keep_hourly = false});
      TEST_KillAtNthCall(trials);
      for (uint64_t step = 1; step <= 4; ++step)
        if (!SaveKeeping(writer, Info(step)).ok()) ::_exit(1);
      ::_exit(0);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    done = WIFEXITED(state);
    EXPECT_TRUE(!done || WEXITSTATUS(state) == 0);
    // a run that resumes keeps on keeping
    auto latest = LatestGoodCheckpoint(folder.path(), OnBad::kRefuse);
    ASSERT_TRUE(latest.ok()) << trials << ": " << latest.status().message();
    CheckpointWriter writer(folder.path());
    if (latest->has_value()) writer.ContinueFrom((*latest)->path);
    const Path next = *SaveKeeping(writer, Info(9, 2));
    EXPECT_EQ(Part(next), "lasting") << trials;
    EXPECT_EQ(Links(next / "part.bin") > 1, latest->has_value()) << trials;
    EXPECT_EQ(CountTemporaries(folder.path()), 0) << trials;
  }
  EXPECT_GT(trials, 50);
}

TEST_F(CheckpointTest, AReaderBesideAWriterAlwaysFindsAWholeOne) {
  CheckpointWriter writer(folder_.path(), {.keep_last = 1, .keep_hourly = false});
  ASSERT_TRUE(Save(writer, Info(1)).ok());
  std::thread thread([&] {
    for (uint64_t step = 2; step < 100; ++step) EXPECT_TRUE(Save(writer, Info(step)).ok());
  });
  uint64_t before = 0;
  while (before < 99) {
    const uint64_t step = LatestStep(OnBad::kRefuse);
    EXPECT_GE(step, before);
    if (step < before || step == 0) break;
    before = step;
  }
  thread.join();
}

}  // namespace
}  // namespace samara
