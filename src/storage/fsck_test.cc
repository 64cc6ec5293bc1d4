#include "storage/fsck.h"

#include "gtest/gtest.h"
#include "storage/checkpoint.h"
#include "storage/journal.h"
#include "storage/run_folder.h"
#include "storage/storage_test_util.h"

namespace samara {
namespace {

class FsckTest : public testing::Test {
 protected:
  // A run of three generations with a checkpoint after the first and after the last.
  FsckTest() {
    auto run = RunFolder::Create(run_, "x", "[run]\n", {{"seed", 1}}, 0).ValueOrThrow();
    auto journal =
        Journal::Open(run->journal(), Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
    CheckpointWriter writer(run->checkpoints());
    for (uint64_t step = 1; step <= 3; ++step) {
      EXPECT_TRUE(journal->Append(1, "generation " + std::to_string(step)).ok());
      if (step == 2) continue;
      const std::vector<CheckpointFile> files = {{"state.bin", "some state"}};
      EXPECT_TRUE(
          writer.Save({.step = step, .incarnation = 1, .journal = journal->tip()}, files).ok());
    }
    EXPECT_TRUE(run->SaveResult({{"frames", 1}}).ok());
  }
  FsckReport Check() const {
    auto report = Fsck(run_);
    EXPECT_TRUE(report.ok());
    return *report;
  }
  TempFolder folder_;
  const Path run_ = folder_ / "run";
  const Path checkpoints_ = run_ / "checkpoints";
};

TEST_F(FsckTest, ASoundRunHasNoProblems) {
  const FsckReport report = Check();
  EXPECT_TRUE(report.status().ok()) << report.status().message();
  EXPECT_EQ(report.files_verified, 4 + 2 * 2 + 1);
  EXPECT_TRUE(report.notes.empty() && report.set_aside.empty());
}

TEST_F(FsckTest, FindsEveryBitFlipAndTruncationOfEveryFile) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "lock" || name == "log.txt") continue;
    ++files;
    const std::string good = *ReadFile(entry.path());
    for (size_t bit = 0; bit < 8 * good.size(); bit += 3) {
      Overwrite(entry.path(), WithBitFlipped(good, bit));
      EXPECT_EQ(Check().status().code(), Code::kBadData) << name << " bit " << bit;
    }
    for (size_t size = 0; size < good.size(); ++size) {
      Overwrite(entry.path(), good.substr(0, size));
      EXPECT_EQ(Check().status().code(), Code::kBadData) << name << " cut to " << size;
    }
    Overwrite(entry.path(), good);
  }
  EXPECT_EQ(files, 9);
  EXPECT_TRUE(Check().status().ok());
}

TEST_F(FsckTest, FindsAJournalThatIsGoneOrAnother) {
  std::filesystem::remove(checkpoints_ / "journal.bin");
  EXPECT_EQ(Check().problems.size(), 1U);
  auto journal = Journal::Open(checkpoints_ / "journal.bin", Journal::OnDamage::kRefuse, nullptr);
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(Check().problems.size(), 2U) << "one for each checkpoint that pins the lost one";
}

TEST_F(FsckTest, AJournalThatALaterCheckpointPinsTookOver) {
  std::filesystem::remove(checkpoints_ / "journal.bin");
  auto journal = Journal::Open(checkpoints_ / "journal.bin", Journal::OnDamage::kRefuse, nullptr);
  ASSERT_TRUE((*journal)->Append(1, "generation 3").ok());
  const std::vector<CheckpointFile> files = {{"state.bin", "some state"}};
  ASSERT_TRUE(CheckpointWriter(checkpoints_)
                  .Save({.step = 3, .incarnation = 2, .journal = (*journal)->tip()}, files)
                  .ok());
  EXPECT_TRUE(Check().status().ok()) << Check().status().message();
}

TEST_F(FsckTest, FindsAResultWithoutTheStateItCameFrom) {
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints_))
    std::filesystem::remove_all(entry.path());
  EXPECT_EQ(Check().problems.size(), 1U);
}

TEST_F(FsckTest, FindsThatTheFolderOfCheckpointsIsGone) {
  std::filesystem::remove_all(checkpoints_);
  EXPECT_EQ(Check().problems.size(), 1U);
}

// A learning run: no journal, two checkpoints, a result that names the later one.
TEST_F(FsckTest, FindsThatTheAgentOfAResultIsGoneOrAnother) {
  const Path learning = folder_ / "learning";
  auto run = RunFolder::Create(learning, "x", "[run]\n", {{"seed", 1}}, 0).ValueOrThrow();
  CheckpointWriter writer(run->checkpoints());
  const std::vector<CheckpointFile> files = {{"weights.safetensors", "weights"}};
  const auto save = [&](uint64_t update, uint64_t incarnation, const char* hash) {
    const auto saved = writer.Save(
        {.step = update, .incarnation = incarnation, .note = {{"parameter_hash", hash}}}, files);
    EXPECT_TRUE(saved.ok());
    return *saved;
  };
  save(5, 1, "ab");
  const Path last = save(7, 1, "cd").path();
  EXPECT_TRUE(run->SaveResult({{"updates", 7}, {"parameter_hash", "cd"}}).ok());
  EXPECT_TRUE(Fsck(learning)->status().ok()) << Fsck(learning)->status().message();

  const Path other = save(7, 2, "ef").path();
  EXPECT_NE(Fsck(learning)->status().message().find("other parameters"), std::string::npos);
  std::filesystem::remove_all(other);
  std::filesystem::remove_all(last);
  EXPECT_NE(Fsck(learning)->status().message().find("the result is of update 7"),
            std::string::npos);
  save(9, 3, "gh");  // a larger budget, whose result is still to come
  EXPECT_TRUE(Fsck(learning)->status().ok()) << Fsck(learning)->status().message();
}

TEST_F(FsckTest, UnknownFilesAreProblems) {
  Overwrite(checkpoints_ / "note.txt", "hello");
  Overwrite(checkpoints_ / "ckpt-00000003-0001/extra", "hello");
  EXPECT_EQ(Check().problems.size(), 2U);
}

TEST_F(FsckTest, TracesOfAnInterruptedProcessAreNotes) {
  std::filesystem::create_directory(TemporaryName(checkpoints_ / "ckpt-00000004-0001").path());
  const std::string journal = *ReadFile(checkpoints_ / "journal.bin");
  Overwrite(checkpoints_ / "journal.bin", journal + "torn");
  const FsckReport report = Check();
  EXPECT_TRUE(report.status().ok());
  EXPECT_EQ(report.notes.size(), 2U);
}

TEST_F(FsckTest, DamageThatWasDealtWithIsListedAsSetAside) {
  Overwrite(checkpoints_ / "ckpt-00000003-0001/state.bin", "other state");
  const std::string journal = *ReadFile(checkpoints_ / "journal.bin");
  Overwrite(checkpoints_ / "journal.bin", WithBitFlipped(journal, 8 * 60));
  // the state, the journal, and what the first checkpoint pins in it
  EXPECT_EQ(Check().problems.size(), 3U);
  ASSERT_TRUE(LatestGoodCheckpoint(checkpoints_, OnBadCheckpoint::kSetAside).ok());
  ASSERT_TRUE(
      Journal::Open(checkpoints_ / "journal.bin", Journal::OnDamage::kKeepGoodPart, nullptr).ok());
  const FsckReport report = Check();
  EXPECT_TRUE(report.status().ok()) << report.status().message();
  EXPECT_EQ(report.set_aside.size(), 2U);
}

TEST_F(FsckTest, AJournalThatLostItsEndIsDealtWithByOpeningItWithThePin) {
  const Path path = checkpoints_ / "journal.bin";
  const uint64_t second = ReadJournal(path)->records[1].end;
  Overwrite(path, ReadFile(path)->substr(0, second));
  EXPECT_EQ(Check().problems.size(), 1U);
  const auto latest = LatestGoodCheckpoint(checkpoints_, OnBadCheckpoint::kSetAside);
  const auto& pin = (*latest)->info.journal;
  EXPECT_EQ(Journal::Open(path, Journal::OnDamage::kRefuse, nullptr, pin).status().code(),
            Code::kBadData);
  JournalContents contents;
  ASSERT_TRUE(Journal::Open(path, Journal::OnDamage::kKeepGoodPart, &contents, pin).ok());
  EXPECT_EQ(contents.records.size(), 2U);
  const FsckReport report = Check();
  EXPECT_TRUE(report.status().ok()) << report.status().message();
  EXPECT_EQ(report.set_aside.size(), 1U);
}

TEST_F(FsckTest, NoRunFolderIsNoInput) {
  EXPECT_EQ(Fsck(folder_.path()).status().code(), Code::kNoInput);
  EXPECT_EQ(Fsck(folder_ / "nowhere").status().code(), Code::kNoInput);
}

}  // namespace
}  // namespace samara
