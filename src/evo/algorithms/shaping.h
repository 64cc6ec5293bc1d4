// Shaping of fitness: what an estimator of gradients uses instead of raw returns. Everything is
// maximised; NaN ranks last; ties get equal values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/enum_names.h"

namespace samara {

enum class Shaping : uint8_t { kCentredRank, kSign, kCentredSignRank, kNes, kZScore };
constexpr EnumName<Shaping> kShapingNames[] = {{Shaping::kCentredRank, "centered_rank"},
                                               {Shaping::kSign, "sign"},
                                               {Shaping::kCentredSignRank, "centered_sign_rank"},
                                               {Shaping::kNes, "nes"},
                                               {Shaping::kZScore, "zscore"}};

// Whether `fitness` of Shape is the sum of the signs of an episode's rewards, instead of the sum of
// the rewards.
bool UsesSigns(Shaping shaping);

// One value per member. REQUIRES: two members or more.
std::vector<double> Shape(Shaping shaping, std::span<const double> fitness);

// Ranks of `fitness`, scaled to [-0.5, 0.5], the best highest; ties get the mean of their ranks.
// REQUIRES, of these four: two values or more.
std::vector<double> CentredRanks(std::span<const double> fitness);
// Utilities of natural evolution strategies (Wierstra et al. 2014): max(0, ln(N/2 + 1) - ln k) of
// the k-th best, scaled to the sum 1, minus 1/N; ties get the mean of theirs.
std::vector<double> NesUtilities(std::span<const double> fitness);
// of_place[p] of the p-th best; ties get the mean of theirs.
std::vector<double> ByPlace(std::span<const double> fitness, std::span<const double> of_place);
// (f - mean) / standard deviation; all 0 where that is below 1e-12 of the largest |f|. What is no
// finite number counts as the worst finite one.
std::vector<double> ZScores(std::span<const double> fitness);

}  // namespace samara
