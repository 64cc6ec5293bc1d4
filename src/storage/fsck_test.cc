#include "storage/fsck.h"

#include "core/sha256.h"
#include "evo/algorithms/ga.h"
#include "gtest/gtest.h"
#include "storage/checkpoint.h"
#include "storage/evolution_journal.h"
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

// Every 11th bit, so that each of a byte has its turn, and every second size.
TEST_F(FsckTest, FindsBitFlipsAndTruncationsOfEveryFile) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "lock" || name == "log.txt") continue;
    ++files;
    const std::string good = *ReadFile(entry.path());
    for (size_t bit = 0; bit < 8 * good.size(); bit += 11) {
      Overwrite(entry.path(), WithBitFlipped(good, bit));
      EXPECT_EQ(Check().status().code(), Code::kBadData) << name << " bit " << bit;
    }
    for (size_t size = 0; size < good.size(); size += 2) {
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

// A learning run that lacks what its result or its checkpoint should name.
TEST_F(FsckTest, AResultThatNamesNoAgentIsComparedWithNone) {
  const Path learning = folder_ / "learning";
  auto run = RunFolder::Create(learning, "x", "[run]\n", {{"seed", 1}}, 0).ValueOrThrow();
  EXPECT_TRUE(Fsck(learning)->status().ok());
  EXPECT_TRUE(run->SaveResult({{"updates", 7}, {"parameter_hash", "cd"}}).ok());
  EXPECT_EQ(Fsck(learning)->status().message(),
            run->checkpoints().string() +
                ": holds neither journal nor checkpoint, yet there is a result");
  const std::vector<CheckpointFile> files = {{"weights.safetensors", "weights"}};
  const Path saved =
      CheckpointWriter(run->checkpoints()).Save({.step = 7, .incarnation = 1}, files)->path();
  EXPECT_EQ(Fsck(learning)->status().message(),
            saved.string() + ": holds other parameters than the result names");
  for (const nlohmann::json& result :
       {nlohmann::json{{"updates", 7}}, nlohmann::json{{"parameter_hash", "cd"}}}) {
    EXPECT_TRUE(run->SaveResult(result).ok());
    EXPECT_TRUE(Fsck(learning)->status().ok()) << result;
  }
  EXPECT_TRUE(run->SaveResult({{"updates", 7}, {"parameter_hash", "cd"}}).ok());
  Overwrite(saved / "manifest.json", "{}");
  EXPECT_EQ(Fsck(learning)->problems.size(), 1U);  // said of the manifest, not of the result
}

// An evolution's run of two generations, and results that do not agree with its journal.
TEST_F(FsckTest, AResultIsThatOfTheLastGeneration) {
  const Path evolution = folder_ / "evolution";
  auto run = RunFolder::Create(evolution, "x", "[run]\n", {{"seed", 1}}, 0).ValueOrThrow();
  const auto journal =
      Journal::Open(run->journal(), Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
  GaState state;
  const auto append = [&](uint64_t generation, const std::string& algorithm) {
    state.generation = generation;
    const GenerationRecord record{.algorithm = algorithm,
                                  .state = state.Encode(),
                                  .fitness = {},
                                  .seconds = 0,
                                  .metrics = ""};
    EXPECT_TRUE(journal->Append(kGenerationRecord, record.Encode()).ok());
  };
  const auto check = [&](uint64_t generation, const std::string& hash) {
    EXPECT_TRUE(run->SaveResult({{"generation", generation}, {"population_hash", hash}}).ok());
    return Fsck(evolution).ValueOrThrow();
  };
  const std::string file = (evolution / "result.json").string(), hash = Hex(state.population_hash);
  EXPECT_EQ(check(2, hash).status().message(), file + ": the journal holds no generation");
  append(1, "deep-ga"), append(2, "deep-ga");
  EXPECT_TRUE(check(2, hash).status().ok());
  EXPECT_EQ(check(1, hash).status().message(), file + ": of generation 1, the journal ends with 2");
  EXPECT_EQ(check(2, "ab").status().message(),
            file + ": names another population hash than the journal has");
  EXPECT_TRUE(run->SaveResult({{"generation", 9}}).ok());
  EXPECT_TRUE(Fsck(evolution)->status().ok()) << "it names no population";
  append(3, "another");
  const FsckReport unknown = check(3, hash);
  EXPECT_TRUE(unknown.status().ok());
  ASSERT_EQ(unknown.notes.size(), 1U);
  EXPECT_EQ(unknown.notes[0].find(file + ": a generation of run.algorithm=another"), 0U);
  EXPECT_TRUE(journal->Append(kGenerationRecord, "").ok());
  EXPECT_EQ(check(3, hash).status().message(), file + ": generation record version 0, expected 3");
  const std::string bytes = *ReadFile(run->journal());
  for (const std::string& wrong : {std::string("x"), OfFormat2(bytes)}) {
    Overwrite(run->journal().path(), wrong);
    EXPECT_EQ(check(3, hash).problems.size(), 1U);  // said of the journal
  }
}

TEST_F(FsckTest, MetricsThatCannotBeReadAreNoted) {
  const Path path = folder_ / "metrics";
  const auto run = RunFolder::Create(path, "x", "[run]\n", {{"seed", 1}}, 0).ValueOrThrow();
  EXPECT_TRUE(Fsck(path)->notes.empty()) << "there are none";
  Overwrite(run->metrics().path(), "{\"update\": 1}\n\x01\x02\n{\"update\": 2}\n");
  const auto report = Fsck(path);
  EXPECT_TRUE(report->status().ok());
  ASSERT_EQ(report->notes.size(), 1U);
  EXPECT_NE(report->notes[0].find("metrics.jsonl"), std::string::npos) << report->notes[0];
}

TEST_F(FsckTest, TheInitialPolicyIsChecked) {
  const Path begun = folder_ / "begun";
  const nlohmann::json identity = {{"initial_policy", {{"file_sha256", Sha256Hex("policy")}}}};
  (void)RunFolder::Create(begun, "x", "[run]\n", identity, 0,
                          {{RunFolder::kInitialPolicy, "policy"}})
      .ValueOrThrow();
  EXPECT_TRUE(Fsck(begun)->status().ok());
  EXPECT_EQ(Fsck(begun)->files_verified, 4);
  Overwrite(begun / "initial.safetensors", "other");
  EXPECT_NE(Fsck(begun)->status().message().find("initial.safetensors: damaged"),
            std::string::npos);
}

TEST_F(FsckTest, WhatCannotBeReadIsAProblem) {
  Overwrite(checkpoints_ / "journal.bin", OfFormat2(*ReadFile(checkpoints_ / "journal.bin")));
  EXPECT_NE(Check().status().message().find("journal.bin: journal of format 2"), std::string::npos);
  std::filesystem::remove_all(checkpoints_);
  Overwrite(checkpoints_, "");
  EXPECT_EQ(Check().problems.size(), 2U) << "the folder, and that it is none";
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

TEST_F(FsckTest, DamageThatWasDealtWithIsListedAsQuarantined) {
  Overwrite(checkpoints_ / "ckpt-00000003-0001/state.bin", "other state");
  const std::string journal = *ReadFile(checkpoints_ / "journal.bin");
  Overwrite(checkpoints_ / "journal.bin", WithBitFlipped(journal, 8 * 60));
  // the state, the journal, and what the first checkpoint pins in it
  EXPECT_EQ(Check().problems.size(), 3U);
  ASSERT_TRUE(LatestGoodCheckpoint(checkpoints_, OnBadCheckpoint::kQuarantine).ok());
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
  const auto latest = LatestGoodCheckpoint(checkpoints_, OnBadCheckpoint::kQuarantine);
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
