#include "rl/learner/running_statistics.h"

#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "core/check.h"

namespace samara {
namespace {

constexpr float kLargest = 1e12F;  // a sum of float32 can hold squares of it

}  // namespace

std::vector<float> RunningStatistics::Floats() const {
  std::vector<float> floats(mean_.begin(), mean_.end());
  floats.insert(floats.end(), deviation_.begin(), deviation_.end());
  return floats;
}

std::vector<float> RunningStatistics::Moments(std::span<const float> rows) const {
  const size_t n = numbers();
  CHECK_EQ(rows.size() % n, 0U);
  std::vector<double> sums(1 + 2 * n);
  for (size_t at = 0; at < rows.size(); at += n) AddRow(rows.subspan(at, n), sums);
  return {sums.begin(), sums.end()};
}

void RunningStatistics::AddRow(std::span<const float> row, std::vector<double>& sums) const {
  const size_t n = numbers();
  if (!std::ranges::all_of(row, [](float x) { return std::abs(x) < kLargest; })) return;
  sums[0] += 1;
  for (size_t i = 0; i < n; ++i) {
    const double z = (double{row[i]} - mean_[i]) / deviation_[i];
    sums[1 + i] += z, sums[1 + n + i] += z * z;
  }
}

void RunningStatistics::Merge(std::span<const float> moments) {
  const size_t n = numbers();
  CHECK_EQ(moments.size(), 1 + 2 * n);
  const double more = moments[0], all = count_ + more;
  if (more <= 0) return;
  for (size_t i = 0; i < n; ++i) {
    const double z = moments[1 + i] / more;  // mean of the new rows, from the old one
    const double spread = std::max(0.0, moments[1 + n + i] - more * z * z);
    const double step = z * deviation_[i];
    squares_[i] += spread * deviation_[i] * deviation_[i] + step * step * count_ * more / all;
    mean_[i] += step * more / all;
  }
  count_ = all;
  FindDeviations();
}

void RunningStatistics::FindDeviations() {
  for (size_t i = 0; i < numbers(); ++i)
    deviation_[i] = count_ > 0 ? std::max(kDeviationFloor, std::sqrt(squares_[i] / count_)) : 1;
}

void RunningStatistics::Assume(std::span<const float> mean, std::span<const float> deviation) {
  count_ = kCarried;
  for (size_t i = 0; i < numbers(); ++i) {
    mean_[i] = mean[i];
    squares_[i] = kCarried * double{deviation[i]} * double{deviation[i]};
  }
  FindDeviations();
}

std::string RunningStatistics::Save() const {
  return ByteWriter().Put(count_).PutVector(mean_).PutVector(squares_).Take();
}

Status RunningStatistics::Restore(std::string_view saved) {
  ByteReader in(saved);
  std::vector<double> mean, squares;
  const auto count = in.Get<double>();
  const bool whole = in.GetVector(mean) && in.GetVector(squares) && in.AtEnd() &&
                     mean.size() == numbers() && squares.size() == numbers();
  if (!whole) return {Code::kBadData, "the saved statistics have another size than this run's"};
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!finite(count) || count < 0 || !std::ranges::all_of(mean, finite) ||
      !std::ranges::all_of(squares, [&](double x) { return finite(x) && x >= 0; }))
    return {Code::kBadData, "the saved statistics are those of no numbers"};
  count_ = count, mean_ = std::move(mean), squares_ = std::move(squares);
  FindDeviations();
  return Status::Ok();
}

}  // namespace samara
