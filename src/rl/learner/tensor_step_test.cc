#include "rl/learner/tensor_step.h"

#include <gtest/gtest.h>

#include "rl/learner/gradient_step.h"

namespace samara::tensor_step_test {
namespace {

using torch::Tensor;

std::span<float> FloatsOf(const Tensor& x) {
  return {x.data_ptr<float>(), static_cast<size_t>(x.numel())};
}

// Steps of lists of tensors follow the loops of gradient_step.h, whose formulas have tests of their
// own.
TEST(TensorStepTest, IsTheStepOfPlainLoops) {
  const torch::NoGradGuard no_gradient;
  std::vector<torch::Device> devices = {torch::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(torch::kCUDA, 0);
  for (const torch::Device& device : devices)
    for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamTorch,
                                     OptimizerKind::kRmsprop, OptimizerKind::kRmspropTorch}) {
      OptimizerConfig config;
      config.kind = kind, config.epsilon = 0.01;
      torch::manual_seed(2);
      const Tensor theta = torch::randn({60}), mean = torch::zeros({60}),
                   square = torch::ones({60});
      std::vector<Tensor> thetas, means, squares;
      for (const auto& [at, size] : {std::pair{0, 24}, {24, 36}}) {
        thetas.push_back(theta.narrow(0, at, size).view({6, -1}).clone().to(device));
        means.push_back(mean.narrow(0, at, size).view({6, -1}).clone().to(device));
        squares.push_back(square.narrow(0, at, size).view({6, -1}).clone().to(device));
      }
      for (uint64_t steps = 1; steps <= 5; ++steps) {
        const Tensor gradient = torch::randn({60});
        TensorStep step{.scale = 0.7, .learning_rate = 0.05};
        step.Add(thetas[0], means[0], squares[0],
                 gradient.narrow(0, 0, 24).view({6, -1}).to(device));
        step.Add(thetas[1], means[1], squares[1],
                 gradient.narrow(0, 24, 36).view({6, -1}).to(device));
        EXPECT_NEAR(SumOfSquares(step.gradient), SumOfSquares(FloatsOf(gradient)), 1e-4);
        Apply(config, step, steps);
        Apply(config,
              GradientStep{.parameter = FloatsOf(theta),
                           .mean = FloatsOf(mean),
                           .square = FloatsOf(square),
                           .gradient = FloatsOf(gradient),
                           .scale = 0.7,
                           .learning_rate = 0.05},
              steps);
        const Tensor all = torch::cat({thetas[0].flatten(), thetas[1].flatten()}).cpu();
        EXPECT_TRUE(torch::allclose(all, theta, 1e-5, 1e-6))
            << NameOf<OptimizerKind>(kOptimizerKindNames, kind) << " step " << steps;
      }
    }
  EXPECT_EQ(SumOfSquares(std::vector<Tensor>()), 0);
}

}  // namespace
}  // namespace samara::tensor_step_test
