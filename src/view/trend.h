// A score's course so far as one short row of blocks ("sparkline"): how it changes, without a
// scale.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace samara {

// Keeps means over equal numbers of samples, at most kPoints of them: when there are more, two
// neighbours become one.
class Trend {
 public:
  static constexpr size_t kPoints = 48;

  void Add(double score);  // a sample; NaN is left out
  // At most kPoints characters from the lowest block, the least mean, to the highest, the largest;
  // empty while there are fewer than two means; of a mean that stays, in the middle.
  std::string Sparkline() const;

 private:
  std::vector<double> means_;
  size_t each_ = 1;   // samples of a mean
  size_t count_ = 0;  // of the mean that is not complete
  double sum_ = 0;
};

}  // namespace samara
