// Messages between ranks as bytes: the start of rank 0, files, statistics of an interval.
#include "train/run_descriptor.h"

#include <gtest/gtest.h>

#include "train/rank_statistics.h"

namespace samara {
namespace {

StartState SomeStart() {
  StartState start;
  start.run = {"build", "environment 1", "[run]\nseed = 3\n", "module", "a GPU"};
  start.incarnation = 4, start.random_policy = true, start.seconds = 2.5;
  start.files = {{"a", "bytes"}, {"b", ""}};
  start.path = "runs/x";
  return start;
}

TEST(RunDescriptorTest, AStartIsReadWholeOrNotAtAll) {
  const std::string bytes = SomeStart().Encode();
  const StartState back = StartState::Decode(bytes).ValueOrThrow();
  EXPECT_EQ(back.Encode(), bytes);
  EXPECT_EQ(back.files, SomeStart().files);
  EXPECT_TRUE(back.random_policy);
  const auto refused = [](const std::string& read) {
    const Status status = StartState::Decode(read).status();
    EXPECT_EQ(status.message(), "the start of rank 0 cannot be read");
    return status.code() == Code::kInternal;
  };
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_TRUE(refused(bytes.substr(0, size)));
  EXPECT_TRUE(refused(bytes + "x"));
  // after the five texts, each with its size, and the incarnation
  std::string neither = bytes;
  neither[5 * 8 + 5 + 13 + 15 + 6 + 5 + 8] = 2;
  EXPECT_TRUE(refused(neither));
}

TEST(RunDescriptorTest, RanksShareTheEnvironmentAndTheKindOfDevice) {
  EnvironmentSetup setup;
  setup.environment.version = "environment 1";
  const RunDescriptor run = SomeStart().run;
  EXPECT_TRUE(run.Check(setup, "a GPU", 1).ok());
  const Status other = run.Check(setup, "the CPU", 1);
  EXPECT_EQ(other.code(), Code::kConfig);
  EXPECT_NE(other.message().find("rank 0 computes on a GPU, rank 1 on the CPU"), std::string::npos);
  setup.environment.version = "environment 2";
  EXPECT_EQ(run.Check(setup, "a GPU", 1).code(), Code::kConfig);
}

TEST(RunDescriptorTest, FilesAreReadWholeOrNotAtAll) {
  const NamedFiles files = SomeStart().files;
  const std::string bytes = EncodeFiles(files);
  EXPECT_EQ(DecodeFiles(bytes).ValueOrThrow(), files);
  const auto refused = [](const std::string& read) {
    const Status status = DecodeFiles(read).status();
    EXPECT_EQ(status.message(), "the files of another rank cannot be read");
    return status.code() == Code::kInternal;
  };
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_TRUE(refused(bytes.substr(0, size)));
  EXPECT_TRUE(refused(bytes + "x"));
  StartState start = SomeStart();  // files that are none within a start that is whole
  const std::string whole = start.Encode(), inner = EncodeFiles(files);
  std::string other = whole;
  other[whole.find(inner)] = 9;  // their number
  EXPECT_EQ(StartState::Decode(other).status().message(),
            "the files of another rank cannot be read");
}

TEST(RankStatisticsTest, AreReadWholeOrNotAtAll) {
  RankStatistics statistics;
  statistics.unrolls = 3, statistics.frames = 400;
  statistics.episodes = {{1.5, 20}, {-2, 7}};
  const std::string bytes = statistics.Encode();
  EXPECT_EQ(RankStatistics::Decode(bytes)->Encode(), bytes);
  EXPECT_EQ(RankStatistics::Decode(bytes)->episodes.size(), 2U);
  std::vector<std::string> wrong = {bytes + "x"};
  for (size_t size = 0; size < bytes.size(); ++size) wrong.push_back(bytes.substr(0, size));
  for (const std::string& read : wrong) {
    const Status status = RankStatistics::Decode(read).status();
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_EQ(status.message(), "the statistics of another rank cannot be read");
  }
}

}  // namespace
}  // namespace samara
