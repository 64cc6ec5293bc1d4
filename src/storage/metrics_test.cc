#include "storage/metrics.h"

#include <cerrno>
#include <cmath>
#include <fstream>

#include "gtest/gtest.h"
#include "storage/storage_test_util.h"

namespace samara {
namespace {

class MetricsTest : public testing::Test {
 protected:
  // The generations in metrics.jsonl, 0 for lines without one.
  static std::vector<uint64_t> Generations(const Path& path) {
    std::vector<uint64_t> found;
    const auto lines = ReadMetrics(path);
    for (const auto& line : *lines) found.push_back(line.value("generation", uint64_t{0}));
    return found;
  }
  static void WriteGenerations(MetricsWriter& writer, uint64_t from, uint64_t to) {
    for (uint64_t g = from; g <= to; ++g)
      writer.Write({{"generation", g}, {"frames", g * 100}, {"fitness_mean", 0.5 * double(g)}});
  }
  std::vector<Path> EventFiles() const {
    std::vector<Path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path().filename().string().starts_with("events.")) files.push_back(entry.path());
    }
    return files;
  }
  TempFolder folder_;
  const Path path_ = folder_ / "metrics.jsonl";
};

using Steps = std::vector<uint64_t>;

TEST_F(MetricsTest, WritesOneObjectALine) {
  MetricsWriter writer(folder_.path(), 1, 0);
  writer.Write({{"event", "random_policy"}, {"returns", {1, 2}}});
  writer.Write({{"generation", 1}, {"fitness_mean", std::nan("")}, {"text", "two\nlines\xff"}});
  const auto lines = ReadMetrics(path_);
  ASSERT_EQ(lines->size(), 2U);
  EXPECT_EQ((*lines)[0]["returns"][1], 2);
  EXPECT_TRUE((*lines)[1]["fitness_mean"].is_null());
  EXPECT_EQ((*lines)[1]["time"].get<std::string>().size(), 20U);
}

TEST_F(MetricsTest, ResumeDropsWhatWillBeComputedAgainAndATornLine) {
  {
    MetricsWriter writer(folder_.path(), 1, 0);
    writer.Write({{"event", "random_policy"}});
    WriteGenerations(writer, 1, 5);
  }
  std::ofstream(path_, std::ios::app) << R"({"generation":6,"fra)";
  {
    MetricsWriter writer(folder_.path(), 2, 3);
    EXPECT_EQ(Generations(path_), (Steps{0, 1, 2, 3}));
    WriteGenerations(writer, 4, 6);
  }
  EXPECT_EQ(Generations(path_), (Steps{0, 1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(EventFiles().size(), 1U);
  EXPECT_EQ(EventFiles()[0].filename(), "events.out.tfevents.0000000002.samara");
}

TEST_F(MetricsTest, ResumeEqualsAnUninterruptedRunByteForByte) {
  const TempFolder other;
  const auto line = [](uint64_t g) {
    return nlohmann::json{{"generation", g}, {"time", "2026-01-31T12:00:00Z"}, {"x", 0.1}};
  };
  {
    MetricsWriter writer(other.path(), 2, 0);
    for (uint64_t g = 1; g <= 4; ++g) writer.Write(line(g));
  }
  {
    MetricsWriter writer(folder_.path(), 1, 0);
    for (uint64_t g = 1; g <= 3; ++g) writer.Write(line(g));
  }
  {
    MetricsWriter writer(folder_.path(), 2, 2);
    for (uint64_t g = 3; g <= 4; ++g) writer.Write(line(g));
  }
  const std::string events = "events.out.tfevents.0000000002.samara";
  EXPECT_EQ(*ReadFile(path_), *ReadFile(other / "metrics.jsonl"));
  EXPECT_EQ(*ReadFile(folder_ / events), *ReadFile(other / events));
}

TEST_F(MetricsTest, SavedLinesTakeThePlaceOfWhatIsMissingOrDamaged) {
  const auto saved = [](uint64_t g) {
    return nlohmann::json{{"generation", g}, {"time", "2026-01-31T12:00:00Z"}, {"x", 0.1}};
  };
  Overwrite(path_,
            "{\"event\":\"random_policy\"}\n{\"generation\":2,\"x\":7}\n{oops}\n"
            "{\"event\":\"resumed\",\"generation\":3}\n{\"generation\":4}\n{\"generation\":9}\n");
  const std::string damaged = *ReadFile(path_);
  { MetricsWriter writer(folder_.path(), 2, 5, {saved(1), saved(2), saved(3), saved(5)}); }
  // 4 is not among the saved and stays, 9 goes
  EXPECT_EQ(Generations(path_), (Steps{0, 1, 2, 3, 3, 4, 5}));
  EXPECT_EQ((*ReadMetrics(path_))[2], saved(2));
  EXPECT_EQ((*ReadMetrics(path_))[4]["event"], "resumed");
  EXPECT_EQ(*ReadFile(folder_ / "metrics.jsonl.corrupt"), damaged);
}

TEST_F(MetricsTest, EventBytesAreThoseOfTheFormat) {
  // header of an event file that TensorFlow 2 writes, with wall_time 0; CRCs by the definition
  const std::string header = EventFileHeader();
  EXPECT_EQ(header.size(), 8 + 4 + 9 + 15 + 4U);
  EXPECT_EQ(header.substr(12 + 9), std::string("\x1a\x0d"
                                               "brain.Event:2") +
                                       header.substr(header.size() - 4));
  EXPECT_TRUE(EventOfLine({{"event", "resumed"}, {"generation", 3}}).empty());
  EXPECT_TRUE(EventOfLine({{"frames", 3}}).empty());
}

TEST_F(MetricsTest, AFullDiskDelaysLinesAndStopsNothing) {
  for (int n = 1; n < 12; ++n) {
    const TempFolder folder;
    TEST_FailNthCall(n, ENOSPC);
    MetricsWriter writer(folder.path(), 1, 0);
    WriteGenerations(writer, 1, 3);
    TEST_FailNthCall(0, 0);
    WriteGenerations(writer, 4, 4);
    const auto lines = ReadMetrics(folder / "metrics.jsonl");
    ASSERT_TRUE(lines.ok()) << n;
    EXPECT_EQ(lines->size(), 4U) << n;
    EXPECT_EQ(writer.lost(), 0U);
  }
}

TEST_F(MetricsTest, AFullDiskOnResumeNeverDoublesAGeneration) {
  for (int n = 1; n < 20; ++n) {
    const TempFolder folder;
    {
      MetricsWriter first(folder.path(), 1, 0);
      WriteGenerations(first, 1, 5);
    }
    TEST_FailNthCall(n, ENOSPC);
    MetricsWriter writer(folder.path(), 2, 2);
    WriteGenerations(writer, 3, 4);
    TEST_FailNthCall(0, 0);
    WriteGenerations(writer, 5, 5);
    EXPECT_EQ(Generations(folder / "metrics.jsonl"), (Steps{1, 2, 3, 4, 5})) << n;
  }
}

TEST_F(MetricsTest, WhatWaitsIsBounded) {
  std::filesystem::create_directory(folder_ / "busy");
  PatientFile file(folder_ / "busy");  // a folder: every write fails
  for (int i = 0; i < 5; ++i) file.Write(std::string(1 << 20, 'x'));
  EXPECT_EQ(file.waiting(), PatientFile::kWaitingBytesMax);
  EXPECT_EQ(file.lost(), 1U);
}

TEST_F(MetricsTest, ReaderNamesADamagedLine) {
  Overwrite(path_, "{\"generation\":1}\n{oops}\n{\"generation\":3}\n");
  const auto lines = ReadMetrics(path_);
  EXPECT_EQ(lines.status().code(), Code::kBadData);
  EXPECT_NE(lines.status().message().find("line 2"), std::string::npos);
  EXPECT_EQ(ReadMetrics(folder_ / "nowhere").status().code(), Code::kNoInput);
  Overwrite(path_, "{\"generation\":1}\n[1]\n");
  EXPECT_EQ(ReadMetrics(path_).status().message(),
            path_.string() + ", line 2: damaged: not a JSON object");
}

TEST_F(MetricsTest, ALineThatIsNoObjectIsKeptAside) {
  Overwrite(path_, "{\"generation\":1}\n[1]\n{\"generation\":2}\n");
  { MetricsWriter writer(folder_.path(), 2, 2); }
  EXPECT_EQ(Generations(path_), (Steps{1, 2}));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "metrics.jsonl.corrupt"));
}

TEST_F(MetricsTest, AFolderOfThatNameIsLeftAlone) {
  std::filesystem::create_directory(path_);
  {
    MetricsWriter writer(folder_.path(), 1, 0);
    WriteGenerations(writer, 1, 2);
  }
  EXPECT_TRUE(std::filesystem::is_directory(path_));
  EXPECT_TRUE(EventFiles().empty());
}

TEST(StepTest, IsACountUnderOneOfItsNames) {
  EXPECT_EQ(StepOf({{"generation", 3U}}), 3U);
  for (const nlohmann::json& line : std::vector<nlohmann::json>{
           {{"frames", 3}}, {{"generation", -1}}, {{"generation", 1.5}}, {{"generation", "1"}}})
    EXPECT_EQ(StepOf(line), std::nullopt) << line;
}

}  // namespace
}  // namespace samara
