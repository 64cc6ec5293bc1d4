#include "rl/inference/batch_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/clock.h"

namespace samara {

double BatchCost(const BatchPoint& point) {
  return point.milliseconds / 400 - std::log(point.rows / point.milliseconds);
}

BatchChoice ChooseBatch(std::vector<BatchPoint> curve) {
  CHECK(!curve.empty());
  const auto best = std::ranges::min_element(curve, {}, BatchCost);
  const uint32_t rows = best->rows;
  return {rows, std::move(curve)};
}

namespace {

constexpr int kCallsMin = 3;
constexpr double kMillisecondsMin = 1e-6;  // below it a clock says nothing

}  // namespace

Result<BatchChoice> MeasureBatches(Model& model, uint32_t rows_max, double seconds) {
  CHECK(rows_max > 0);
  InferenceBatch batch(model.shape(), rows_max);
  const std::vector<std::byte> observation(model.shape().observation_bytes);
  std::vector<BatchPoint> curve;
  for (uint32_t rows = 1;; rows = std::min(2 * rows, rows_max)) {
    batch.rows.clear();
    for (uint32_t slot = 0; slot < rows; ++slot) {
      InferenceRow& row = batch.rows.emplace_back();
      row.slot = slot;
      row.first = true;
      row.observation = observation;
    }
    double least = std::numeric_limits<double>::max();
    const SteadyTime start = Now();
    for (int call = 0; call <= kCallsMin || SecondsSince(start) < seconds; ++call) {
      batch.version = InferenceBatch::kNewest;
      const SteadyTime begin = Now();
      RETURN_IF_ERROR(model.Infer(batch));
      if (call > 0) least = std::min(least, 1000 * SecondsSince(begin));
    }
    curve.push_back({rows, std::max(least, kMillisecondsMin)});
    if (rows == rows_max) break;
  }
  return ChooseBatch(std::move(curve));
}

std::string ToText(const BatchChoice& choice) {
  std::string points;
  for (const BatchPoint& point : choice.curve)
    points +=
        fmt::format("{}{}: {:.3g} ms", points.empty() ? "" : ", ", point.rows, point.milliseconds);
  return fmt::format("{} rows ({})", choice.rows, points);
}

}  // namespace samara
