#include "evo/algorithms/shaping.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/math.h"
#include "evo/algorithms/ranking.h"

namespace samara {
namespace {

// Calls visit(members, first place from the best) for each group of equal fitness, best first.
void ForTies(std::span<const double> fitness, const auto& visit) {
  const std::vector<uint32_t> order = RankDescending(fitness);
  for (size_t first = 0, end = 0; first < order.size(); first = end) {
    while (end < order.size() && !IsBetter(fitness[order[first]], fitness[order[end]])) ++end;
    visit(std::span(order).subspan(first, end - first), first);
  }
}

}  // namespace

bool UsesSigns(Shaping shaping) {
  return shaping == Shaping::kSign || shaping == Shaping::kCentredSignRank;
}

std::vector<double> CentredRanks(std::span<const double> fitness) {
  const size_t n = fitness.size();
  std::vector<double> ranks(n);
  ForTies(fitness, [&](std::span<const uint32_t> members, size_t first) {
    // the place p from the best is the rank n - 1 - p from the worst
    const double place = static_cast<double>(2 * first + members.size() - 1) / 2;
    const double rank = static_cast<double>(n - 1) - place;
    for (const uint32_t i : members) ranks[i] = rank / static_cast<double>(n - 1) - 0.5;
  });
  return ranks;
}

std::vector<double> ByPlace(std::span<const double> fitness, std::span<const double> of_place) {
  std::vector<double> values(fitness.size());
  ForTies(fitness, [&](std::span<const uint32_t> members, size_t first) {
    double mean = 0;
    for (size_t p = first; p < first + members.size(); ++p) mean += of_place[p];
    for (const uint32_t i : members) values[i] = mean / static_cast<double>(members.size());
  });
  return values;
}

std::vector<double> NesUtilities(std::span<const double> fitness) {
  const auto n = static_cast<double>(fitness.size());
  std::vector<double> of_place(fitness.size());
  double sum = 0;
  for (size_t p = 0; p < of_place.size(); ++p) {
    of_place[p] = std::max(0.0, Log(n / 2 + 1) - Log(static_cast<double>(p + 1)));
    sum += of_place[p];
  }
  for (double& u : of_place) u = u / sum - 1 / n;
  return ByPlace(fitness, of_place);
}

std::vector<double> ZScores(std::span<const double> fitness) {
  constexpr double kFloor = 1e-12;
  double worst = std::numeric_limits<double>::infinity(), largest = 0;
  for (const double f : fitness) {
    if (std::isfinite(f)) worst = std::min(worst, f), largest = std::max(largest, std::abs(f));
  }
  std::vector<double> scores(fitness.begin(), fitness.end());
  for (double& s : scores) s = std::isfinite(s) ? s : std::isfinite(worst) ? worst : 0;
  const auto n = static_cast<double>(scores.size());
  double mean = 0, variance = 0;
  for (const double s : scores) mean += s / n;
  for (const double s : scores) variance += (s - mean) * (s - mean) / n;
  const double std = std::sqrt(variance);
  for (double& s : scores) s = std > kFloor * largest ? (s - mean) / std : 0;
  return scores;
}

std::vector<double> Shape(Shaping shaping, std::span<const double> fitness) {
  switch (shaping) {
    case Shaping::kSign:
      return {fitness.begin(), fitness.end()};
    case Shaping::kNes:
      return NesUtilities(fitness);
    case Shaping::kZScore:
      return ZScores(fitness);
    case Shaping::kCentredRank:
    case Shaping::kCentredSignRank:
      break;
  }
  return CentredRanks(fitness);
}

}  // namespace samara
