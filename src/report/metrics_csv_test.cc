#include "report/metrics_csv.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace samara {
namespace {

TEST(MetricsCsvTest, RowsAreLinesAndColumnsAreAllThatTheyName) {
  const std::vector<NamedLines> runs = {
      {"a, \"b\"",
       {{{"event", "resumed"}, {"generation", 1}},
        {{"generation", 1}, {"mean", 0.5}, {"returns", {1, 2}}, {"time", "12:00"}},
        {{"generation", 2}, {"mean", nullptr}, {"drops", {{"late", 3}}}}}},
      {"c", {{{"update", 7}, {"solved", true}}}}};
  EXPECT_EQ(MetricsCsv(runs),
            "run,drops.late,generation,mean,solved,time,update\n"
            "\"a, \"\"b\"\"\",,1,0.5,,12:00,\n"
            "\"a, \"\"b\"\"\",3,2,,,,\n"
            "c,,,,true,,7\n");
}

TEST(MetricsCsvTest, ARunWithoutLinesHasAHeading) {
  EXPECT_EQ(MetricsCsv(std::vector<NamedLines>{{"a", {}}}), "run\n");
}

}  // namespace
}  // namespace samara
