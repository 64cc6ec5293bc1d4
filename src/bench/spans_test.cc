#include "bench/spans.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace samara::bench {
namespace {

constexpr auto kStep = SpanKind::kStep, kLast = SpanKind::kLastStep;

TEST(SpansTest, RatesAndSharesCountTheWindow) {
  Schedule s{.cores = 2, .begin = 1000, .end = 2000};
  s.spans = {{0, kStep, 900, 1000, 0, 100},                 // ends before the window
             {0, kStep, 1000, 1100, 100, 200},              //
             {1, SpanKind::kInference, 900, 1300, 0, 200},  // 300 of 400 ns inside: 150
             {1, SpanKind::kReset, 1300, 1500, 0, 100},     // no step
             {0, kLast, 1900, 2000, 200, 250},              // half of it preempted
             {0, kStep, 1950, 2050, 0, 100}};               // half inside, ends too late
  EXPECT_DOUBLE_EQ(s.FramesPerSecond(4), 4 * 2 / 1000e-9);
  EXPECT_DOUBLE_EQ(s.HoursPerBillion(4), 1e9 / 8e6 / 3600);
  EXPECT_DOUBLE_EQ(s.Share(/*inference=*/true), 150.0 / 2000);
  EXPECT_DOUBLE_EQ(s.Share(/*inference=*/false), (100.0 + 100 + 50 + 50) / 2000);
}

TEST(SpansTest, GapsWithinAnEpisodeAreInference) {
  std::vector<Span> spans = {{0, SpanKind::kReset, 0, 10, 0, 10},
                             {0, kStep, 15, 20, 14, 19},
                             {1, kStep, 16, 17, 0, 1},                // another core: no gap
                             {0, kLast, 30, 40, 28, 38},              //
                             {0, SpanKind::kReset, 90, 95, 38, 43}};  // after the end: no gap
  FillGaps(spans);
  ASSERT_EQ(spans.size(), 7U);
  std::vector<Span> gaps;
  for (const Span& s : spans)
    if (s.inference()) gaps.push_back(s);
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[0].begin, 10);
  EXPECT_EQ(gaps[0].end, 15);
  EXPECT_EQ(gaps[0].cpu_end - gaps[0].cpu_begin, 4);
  EXPECT_EQ(gaps[1].begin, 20);
  EXPECT_EQ(gaps[1].cpu_end - gaps[1].cpu_begin, 9);
}

TEST(SpansTest, FilesAreReadInOrderOfTimeAndTornOnesRefused) {
  const Path folder = Path(testing::TempDir()) / ("spans" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::vector<int64_t>& numbers) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(numbers.data()),
               static_cast<std::streamsize>(numbers.size() * sizeof(int64_t)));
  };
  write("a.spans", {1, 1, 50, 60, 5, 6});
  write("b.spans", {0, 3, 20, 30, 7, 8, 0, 2, 70, 80, 8, 9});
  write("population.f32", {1});
  const auto spans = ReadSpans(folder);
  ASSERT_TRUE(spans.ok());
  ASSERT_EQ(spans->size(), 3U);
  EXPECT_TRUE(spans->at(0).inference());
  EXPECT_EQ(spans->at(1).core, 1);
  EXPECT_EQ(spans->at(2).kind, kLast);
  write("c.spans", {1, 1, 50});
  EXPECT_EQ(ReadSpans(folder).status().code(), Code::kBadData);
  std::filesystem::remove_all(folder);
}

TEST(SpansTest, APictureDrawsWhatLiesInItsWindow) {
  Schedule s{.name = "batched", .operations = "a <b> & c", .begin = 0, .end = 2'000'000};
  s.spans = {{0, kStep, 0, 500'000, 0, 1},
             {0, SpanKind::kInference, 500'000, 900'000, 0, 1},
             {0, kStep, 1'500'000, 1'600'000, 0, 1}};  // after the first millisecond
  const std::string svg = Picture({s}, 4, 1, "title");
  const auto count = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("class=\"play\""), 2U);  // one in the legend
  EXPECT_EQ(count("class=\"infer\""), 2U);
  EXPECT_NE(svg.find("batched, a &lt;b&gt; &amp; c"), std::string::npos);
  EXPECT_NE(svg.find(">4,000 frames/s<"), std::string::npos);  // two steps in 2 ms
}

}  // namespace
}  // namespace samara::bench
