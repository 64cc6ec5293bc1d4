#include "evo/algorithms/ranking.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace samara {

bool IsBetter(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

std::vector<uint32_t> RankDescending(std::span<const double> fitness) {
  std::vector<uint32_t> order(fitness.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return IsBetter(fitness[a], fitness[b]); });
  return order;
}

}  // namespace samara
