#include "view/trend.h"

#include <algorithm>
#include <cmath>

namespace samara {
namespace {

constexpr const char* kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                   "\u2585", "\u2586", "\u2587", "\u2588"};

}  // namespace

void Trend::Add(double score) {
  if (std::isnan(score)) return;
  sum_ += score;
  if (++count_ < each_) return;
  if (means_.size() == kPoints) {
    for (size_t i = 0; i < kPoints / 2; ++i) means_[i] = (means_[2 * i] + means_[2 * i + 1]) / 2;
    means_.resize(kPoints / 2);
    each_ *= 2;
    if (count_ < each_) return;  // half of a mean by now
  }
  means_.push_back(sum_ / static_cast<double>(count_));
  sum_ = 0, count_ = 0;
}

std::string Trend::Sparkline() const {
  if (means_.size() < 2) return "";
  const auto [low, high] = std::ranges::minmax(means_);
  const double range = high - low;
  std::string blocks;
  for (const double mean : means_) {
    const double level = range > 0 ? (mean - low) / range : 0.5;
    blocks += kBlocks[static_cast<size_t>(std::lround(level * 7))];
  }
  return blocks;
}

}  // namespace samara
