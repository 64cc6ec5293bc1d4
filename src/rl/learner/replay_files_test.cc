#include "rl/learner/replay_files.h"

#include <gtest/gtest.h>

#include "rl/replay/unroll_replay.h"

namespace samara::replay_files_test {
namespace {

using Files = std::map<std::string, std::string>;

// Two shards of six, of eight blocks each in parts of two.
constexpr int64_t kFirst = 2, kAll = 6;
std::vector<UnrollReplay> TwoShards() {
  const ReplayShape shape = {
      .capacity = 8, .observation_bytes = 4, .parts = {.parts_max = 4, .bytes_min = 1}};
  return {UnrollReplay(shape), UnrollReplay(shape)};
}

void AddBlocks(std::vector<UnrollReplay>& shards, int blocks) {
  Unroll unroll;
  unroll.entries = 2;
  unroll.headers.resize(2);
  unroll.observations.resize(8, std::byte{7});
  for (int block = 0; block < blocks; ++block)
    for (UnrollReplay& shard : shards) {
      unroll.headers[1].reward += 1;
      shard.Add(unroll);
    }
}

// The file of all learners, of which the others' records are empty.
void JoinOthers(Files& files) {
  std::vector<std::string> records(kAll);
  const auto mine = ReadSlotRecords(files.at(kReplayFile), {}, 2).ValueOrThrow();
  for (size_t i = 0; i < 2; ++i) records[kFirst + i] = mine[i];
  files[kReplayFile] = WriteSlotRecords(records);
}

TEST(ReplayFilesTest, ShardsHaveFilesOfTheirPartsAndKeptOnesAreEmpty) {
  auto shards = TwoShards();
  AddBlocks(shards, 5);
  Files whole;
  SaveReplays(shards, kFirst, {}, whole);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : whole) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"replay-2-0.bin", "replay-2-1.bin", "replay-3-0.bin",
                                             "replay-3-1.bin", "replay.bin"}));
  Files files;
  SaveReplays(shards, kFirst, {"replay-2-1.bin", "replay-3-0.bin", "replay-9-0.bin", "replay.bin"},
              files);
  for (const auto& [name, bytes] : whole) {
    const bool kept = name == "replay-2-1.bin" || name == "replay-3-0.bin";
    EXPECT_EQ(files.at(name), kept ? "" : bytes) << name;
  }
}

// Turns save what one save has; parts that are there are left out.
TEST(ReplayFilesTest, PartsCanBeSavedAheadInTurns) {
  const ReplayShape shape = {
      .capacity = 12, .observation_bytes = 1 << 21, .parts = {.parts_max = 6, .bytes_min = 1}};
  std::vector<UnrollReplay> shards = {UnrollReplay(shape), UnrollReplay(shape)};
  Unroll unroll;
  unroll.entries = 2, unroll.headers.resize(2), unroll.observations.resize(2 << 21);
  for (int block = 0; block < 9; ++block)
    for (UnrollReplay& shard : shards) {
      unroll.observations[0] = static_cast<std::byte>(block);
      shard.Add(unroll);
    }
  Files whole;
  SaveReplays(shards, kFirst, {}, whole);
  whole.erase(kReplayFile);
  Files ahead = {{"replay-3-1.bin", whole.at("replay-3-1.bin")}};
  int turns = 0;
  for (;; ++turns) {
    std::set<std::string> kept;
    for (const auto& [name, bytes] : ahead) kept.insert(name);
    const Files next = SaveNextParts(shards, kFirst, kept);
    if (next.empty()) break;
    EXPECT_LE(next.size(), 3u) << "16 MB, of parts of 8";
    for (const auto& [name, bytes] : next) EXPECT_TRUE(ahead.emplace(name, bytes).second) << name;
  }
  EXPECT_GT(turns, 2);
  EXPECT_EQ(ahead, whole);
}

TEST(ReplayFilesTest, ALearnerReadsTheFilesOfItsShards) {
  auto shards = TwoShards(), others = TwoShards();
  AddBlocks(shards, 21);
  Files files;
  SaveReplays(shards, kFirst, {}, files);
  JoinOthers(files);
  ASSERT_TRUE(RestoreReplays(files, kFirst, kAll, others).ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(others[i].Save(), shards[i].Save());
    EXPECT_EQ(others[i].At(3, {}).reward, shards[i].At(3, {}).reward);
  }
  EXPECT_EQ(RestoreReplays(files, kFirst, kAll + 1, others).code(), Code::kBadData);
  for (const auto& [name, bytes] : Files(files)) {
    files.erase(name);
    EXPECT_EQ(RestoreReplays(files, kFirst, kAll, others).code(), Code::kBadData) << name;
    files[name] = bytes;
  }
}

// learn.shards is 1,024 at most, a manifest has 4,096 files at most.
TEST(ReplayFilesTest, FilesAreFewForAnyNumberOfShards) {
  EXPECT_EQ(PartRuleOf(1).parts_max, 2048u);
  EXPECT_EQ(PartRuleOf(1024).parts_max, 2u);
  EXPECT_EQ(PartRuleOf(1).bytes_max, 16u << 20);
  EXPECT_EQ(PartRuleOf(4).bytes_max, 4u << 20);
  EXPECT_EQ(PartRuleOf(1024).bytes_max, PartRuleOf(1).bytes_min);
}

}  // namespace
}  // namespace samara::replay_files_test
