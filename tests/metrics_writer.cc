// metrics_writer FOLDER: the metrics of a run that is killed after generation 5, when 3 were saved,
// and goes on to 6. tests/test_metrics.py reads the result with TensorBoard's own reader.
#include <cstdio>
#include <limits>

#include "storage/metrics.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: metrics_writer FOLDER\n", stderr);
    return 64;
  }
  const auto write = [](samara::MetricsWriter& writer, uint64_t from, uint64_t to) {
    for (uint64_t g = from; g <= to; ++g) {
      writer.Write({{"generation", g},
                    {"frames", g * 1'000'000'000},
                    {"fitness_mean", 0.1 * static_cast<double>(g)},
                    {"fitness_min", -std::numeric_limits<double>::infinity()},
                    {"elite_test_returns", {1, 2, 3}},
                    {"population_hash", "c0ffee"}});
    }
  };
  const samara::Path folder = argv[1];
  samara::MetricsWriter first(folder, 1, 0);
  first.Write({{"event", "random_policy"}, {"mean", 1.5}});
  write(first, 1, 5);
  samara::MetricsWriter second(folder, 2, 3);
  second.Write({{"event", "resumed"}, {"generation", 3}});
  write(second, 4, 6);
}
