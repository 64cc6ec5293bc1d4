#include "rl/learner/entropy_cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara::entropy_cost_test {
namespace {

// A target of exactly zero is a target.
TEST(EntropyCostTest, ATargetOfZeroMovesTheCoefficient) {
  const auto entropy = torch::full({}, 0.5);
  for (const double target : {0.0, 1.0}) {
    const EntropyCost cost(0.01, target);
    EXPECT_NEAR(cost.coefficient().item<double>(), 0.01, 1e-7);
    cost.Loss(entropy).backward();
    // d/dp exp(s p) (H - target) = s 0.01 (H - target): too much entropy lowers the coefficient
    EXPECT_NEAR(cost.parameter().grad().item<double>(), 10 * 0.01 * (0.5 - target), 1e-6);
  }
  EntropyCost astray(0.01, 1.0);
  {
    const torch::NoGradGuard no_gradient;
    astray.parameter().fill_(1e6);
  }
  astray.Bound();
  EXPECT_NEAR(std::log(astray.coefficient().item<double>()), 20, 1e-4);
  astray.Loss(2 * entropy + 1).backward();
  EXPECT_GT(astray.parameter().grad().item<double>(), 0) << "leads back";
  const EntropyCost fixed(0.01, std::nullopt);
  EXPECT_FALSE(fixed.parameter().defined());
  EXPECT_EQ(fixed.Loss(entropy).item<double>(), 0);
  EXPECT_EQ(EntropyCost(0, std::nullopt).coefficient().item<double>(), 0);
}

}  // namespace
}  // namespace samara::entropy_cost_test
