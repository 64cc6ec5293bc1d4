// Distributions of returns over evenly spaced values, the atoms. Bellemare et al. 2017 (arXiv
// 1707.06887).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace samara {

// From `lowest` to `highest`, two atoms at least.
class ReturnAtoms {
 public:
  ReturnAtoms(double lowest, double highest, size_t atoms)
      : atoms_(atoms),
        lowest_(lowest),
        step_((highest - lowest) / static_cast<double>(atoms - 1)) {}

  size_t size() const { return atoms_; }
  double At(size_t k) const { return lowest_ + step_ * static_cast<double>(k); }
  double Mean(std::span<const float> probability) const {
    double mean = 0;
    for (size_t k = 0; k < atoms_; ++k) mean += At(k) * probability[k];
    return mean;
  }

  // Adds `mass` at a value to a distribution: to the two atoms around it, the nearer the more;
  // beyond the ends to the last one.
  void Add(double value, float mass, std::span<float> distribution) const {
    const double at = std::clamp((value - lowest_) / step_, 0.0, static_cast<double>(atoms_ - 1));
    const size_t below = std::min(static_cast<size_t>(at), atoms_ - 2);
    const auto above = static_cast<float>(at - static_cast<double>(below));
    distribution[below] += mass * (1 - above);
    distribution[below + 1] += mass * above;
  }
  // Writes the distribution of reward + discount Z (algorithm 1). Without a discount nothing
  // follows, and `probability`, that of Z, has no meaning.
  void Project(float reward, float discount, std::span<const float> probability,
               std::span<float> projected) const {
    std::ranges::fill(projected, 0.0F);
    if (discount == 0) return Add(reward, 1, projected);
    for (size_t k = 0; k < atoms_; ++k) Add(reward + discount * At(k), probability[k], projected);
  }

 private:
  size_t atoms_;
  double lowest_, step_;
};

}  // namespace samara
