#include "evo/algorithms/cutoff.h"

#include <gtest/gtest.h>

namespace samara::cutoff_test {
namespace {

TEST(CutoffTest, ReadsItsThreeForms) {
  EXPECT_EQ(Cutoff::Parse("env_default")->start, 0);
  const Cutoff fixed = Cutoff::Parse("5000").ValueOrThrow();
  EXPECT_EQ(fixed.start, 5000);
  EXPECT_EQ(fixed.Next(5000, 10, 10), 5000);
  const Cutoff adaptive = Cutoff::Parse("adaptive:100,0.5,1.5,300").ValueOrThrow();
  EXPECT_EQ(adaptive.start, 100);
  EXPECT_EQ(adaptive.threshold, 0.5);
  EXPECT_EQ(adaptive.ratio, 1.5);
  EXPECT_EQ(adaptive.max, 300);
}

TEST(CutoffTest, GrowsWhenEnoughEpisodesReachTheLimit) {
  const Cutoff cutoff = Cutoff::Parse("adaptive:100,0.5,1.5,300").ValueOrThrow();
  EXPECT_EQ(cutoff.Next(100, 4, 10), 100);
  EXPECT_EQ(cutoff.Next(100, 5, 10), 150);
  EXPECT_EQ(cutoff.Next(150, 10, 10), 225);
  EXPECT_EQ(cutoff.Next(225, 10, 10), 300);
  EXPECT_EQ(cutoff.Next(300, 10, 10), 300);
}

TEST(CutoffTest, RefusesEverythingElse) {
  for (const char* text : {"", "0", "-5", "5.5", "none", "adaptive", "adaptive:", "adaptive:1,2",
                           "adaptive:1,.5,2,3,4", "adaptive:0,.5,2,3", "adaptive:9,.5,2,3",
                           "adaptive:1,1.5,2,3", "adaptive:1,.5,.9,3", "adaptive:1,nan,2,3",
                           "adaptive:1,.5,inf,3", "5000x", "99999999999999"})
    EXPECT_EQ(Cutoff::Parse(text).status().code(), Code::kConfig) << text;
  EXPECT_NE(Cutoff::Parse("5k").status().message().find("es.cutoff=5k"), std::string::npos);
}

}  // namespace
}  // namespace samara::cutoff_test
