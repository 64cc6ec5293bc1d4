// Order of individuals by fitness.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace samara {

// Strictly better; NaN is worse than any number.
bool IsBetter(double a, double b);
// Individuals, best first; ties to the lower index.
std::vector<uint32_t> RankDescending(std::span<const double> fitness);

}  // namespace samara
