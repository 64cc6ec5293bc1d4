#include "rl/learner/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara::optimizer_test {
namespace {

using torch::Tensor;

Tensor Leaf(uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn({3, 4}).set_requires_grad(true);
}

Optimizer MakeOne(const OptimizerConfig& config, const Tensor& parameter) {
  return Optimizer(config, {{"w", parameter}});
}

// A loss whose gradients change from step to step.
void Backward(const Tensor& w, int step) {
  ((w - 0.3 * step).pow(2) * torch::linspace(0.1, 2, 12).view({3, 4})).sum().backward();
}

template <typename TorchOptimizer>
void ExpectTorchs(const OptimizerConfig& config, TorchOptimizer torchs, const Tensor& theirs) {
  const Tensor ours = Leaf(1);
  Optimizer optimizer = MakeOne(config, ours);
  for (int step = 0; step < 20; ++step) {
    Backward(ours, step), Backward(theirs, step);
    EXPECT_TRUE(optimizer.Step(0).applied);
    torchs.step();
    torchs.zero_grad();
    EXPECT_TRUE(torch::allclose(ours, theirs, 1e-5, 1e-6)) << step;
  }
}

TEST(OptimizerTest, TorchsKindsAreTorchs) {
  const Tensor a = Leaf(1), b = Leaf(1);
  ExpectTorchs({.kind = OptimizerKind::kAdamTorch, .learning_rate = 0.01, .epsilon = 1e-3},
               torch::optim::Adam({a}, torch::optim::AdamOptions(0.01).eps(1e-3)), a);
  ExpectTorchs(
      {.kind = OptimizerKind::kRmspropTorch, .learning_rate = 0.01, .epsilon = 0.01, .decay = 0.9},
      torch::optim::RMSprop({b}, torch::optim::RMSpropOptions(0.01).alpha(0.9).eps(0.01)), b);
}

TEST(OptimizerTest, GradientsInOnePieceMakeTheSameStep) {
  const std::map<std::string, Tensor> a = {{"bias", Leaf(2)}, {"weight", Leaf(3)}};
  const std::map<std::string, Tensor> b = {{"bias", Leaf(2)}, {"weight", Leaf(3)}};
  const OptimizerConfig config = {
      .kind = OptimizerKind::kAdamTorch, .learning_rate = 0.01, .clip_norm = 0.5};
  Optimizer each(config, a), whole(config, b);
  for (int step = 0; step < 5; ++step) {
    std::vector<float> gradients;
    for (const auto& [name, parameter] : a) {
      Backward(parameter, step);
      const Tensor flat = parameter.grad().flatten();
      gradients.insert(gradients.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + 12);
    }
    const auto expected = each.Step(0), got = whole.Step(gradients, 0);
    EXPECT_EQ(got.gradient_norm, expected.gradient_norm);
    for (const auto& [name, parameter] : a) EXPECT_TRUE(parameter.equal(b.at(name))) << name;
  }
  const uint64_t steps = whole.steps();
  EXPECT_FALSE(whole.Step(std::vector<float>(24, NAN), 0).applied);
  EXPECT_EQ(whole.steps(), steps);
}

// TensorFlow's kinds by their documented formulas, one number in float64.
TEST(OptimizerTest, TensorFlowsKindsAreTheirFormulas) {
  const double lr = 0.05, eps = 0.1;
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kRmsprop}) {
    const Tensor w = torch::full({1}, 2.0).set_requires_grad(true);
    Optimizer optimizer = MakeOne({.kind = kind,
                                   .learning_rate = lr,
                                   .epsilon = eps,
                                   .decay = 0.9,
                                   .beta1 = 0.8,
                                   .beta2 = 0.95},
                                  w);
    double theta = 2, m = 0, v = kind == OptimizerKind::kRmsprop ? 1 : 0;
    for (int t = 1; t <= 15; ++t) {
      const double g = 2 * (theta - 0.1 * t);
      (w - 0.1 * t).pow(2).sum().backward();
      optimizer.Step(0);
      if (kind == OptimizerKind::kRmsprop) {
        v = 0.9 * v + 0.1 * g * g;
        theta -= lr * g / std::sqrt(v + eps);
      } else {
        m = 0.8 * m + 0.2 * g, v = 0.95 * v + 0.05 * g * g;
        theta -= lr * std::sqrt(1 - std::pow(0.95, t)) / (1 - std::pow(0.8, t)) * m /
                 (std::sqrt(v) + eps);
      }
      EXPECT_NEAR(w.item<double>(), theta, 1e-5)
          << NameOf<OptimizerKind>(kOptimizerKindNames, kind) << ' ' << t;
    }
  }
}

TEST(OptimizerTest, ClipsTheNormOfAllGradientsTogether) {
  const Tensor a = torch::zeros({1}).set_requires_grad(true);
  const Tensor b = torch::zeros({1}).set_requires_grad(true);
  Optimizer optimizer(
      {.kind = OptimizerKind::kRmspropTorch, .learning_rate = 1, .epsilon = 1e6, .clip_norm = 1},
      {{"a", a}, {"b", b}});
  (3 * a + 4 * b).sum().backward();
  EXPECT_NEAR(optimizer.Step(0).gradient_norm, 5, 1e-6);
  // a huge epsilon makes the step proportional to the gradient
  EXPECT_NEAR(a.item<double>() * 1e6, -3.0 / 5, 1e-4);
  EXPECT_NEAR(b.item<double>() * 1e6, -4.0 / 5, 1e-4);
}

// A gradient that is not finite touches nothing: neither parameters, nor moments, nor the count.
TEST(OptimizerTest, SkipsWhatIsNotFinite) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    const Tensor w = Leaf(2);
    Optimizer optimizer = MakeOne({}, w);
    Backward(w, 1);
    optimizer.Step(0);
    const Tensor before = w.detach().clone();
    const auto state = optimizer.State();
    (w * bad).sum().backward();
    EXPECT_FALSE(optimizer.Step(0).applied);
    EXPECT_TRUE(torch::equal(w, before));
    for (const auto& [name, tensor] : optimizer.State())
      EXPECT_TRUE(torch::equal(tensor, state.at(name))) << name;
    EXPECT_FALSE(w.grad().defined());
    EXPECT_EQ(optimizer.steps(), 1U);
  }
}

TEST(OptimizerTest, RestoredStateGoesOnWithTheSameBits) {
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kRmsprop}) {
    const Tensor a = Leaf(3);
    Optimizer one = MakeOne({.kind = kind}, a);
    for (int step = 0; step < 5; ++step) Backward(a, step), one.Step(0);
    const Tensor b = a.detach().clone().set_requires_grad(true);
    Optimizer two = MakeOne({.kind = kind}, b);
    ASSERT_TRUE(two.Restore(one.State()).ok());
    for (int step = 5; step < 9; ++step) {
      Backward(a, step), Backward(b, step);
      one.Step(0), two.Step(0);
    }
    EXPECT_TRUE(torch::equal(a, b));
  }
  Optimizer optimizer = MakeOne({}, Leaf(3));
  auto state = optimizer.State();
  state["w/mean"] = torch::zeros({2});
  EXPECT_EQ(optimizer.Restore(state).code(), Code::kBadData);
  state.erase("w/mean");
  EXPECT_EQ(optimizer.Restore(state).code(), Code::kBadData);
}

// Convolutions' kernels lie channels last, their gradients as autograd leaves them, and a
// checkpoint has neither: elements belong together, not places.
TEST(OptimizerTest, LayoutsInMemoryDoNotMatter) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamTorch, OptimizerKind::kRmsprop}) {
    torch::manual_seed(5);
    const Tensor start = torch::randn({6, 3, 2, 2}), target = torch::randn({6, 3, 2, 2});
    const OptimizerConfig config{.kind = kind, .learning_rate = 0.1, .clip_norm = 0.5};
    const Tensor plain = start.clone().set_requires_grad(true);
    const Tensor last = start.clone(torch::MemoryFormat::ChannelsLast)
                            .contiguous(torch::MemoryFormat::ChannelsLast);
    last.set_requires_grad(true);
    ASSERT_NE(last.strides(), plain.strides());
    Optimizer a = MakeOne(config, plain), b = MakeOne(config, last);
    for (int step = 0; step < 6; ++step) {
      for (const Tensor& w : {plain, last}) ((w - target) * (1 + step)).pow(2).sum().backward();
      EXPECT_NEAR(a.Step(0).gradient_norm, b.Step(0).gradient_norm, 1e-5);
      EXPECT_TRUE(torch::allclose(plain, last, 1e-5, 1e-6))
          << NameOf<OptimizerKind>(kOptimizerKindNames, kind) << ' ' << step;
      auto state = b.State();
      for (auto& [name, tensor] : state) tensor = tensor.contiguous();
      ASSERT_TRUE(b.Restore(state).ok());
    }
  }
}

TEST(OptimizerTest, TheScheduleIsALine) {
  const OptimizerConfig linear{
      .learning_rate = 2, .schedule = RateSchedule::kLinear, .schedule_frames = 100};
  EXPECT_EQ(LearningRateAt(linear, 0), 2);
  EXPECT_EQ(LearningRateAt(linear, 75), 0.5);
  EXPECT_EQ(LearningRateAt(linear, 200), 0);
  EXPECT_EQ(LearningRateAt({.learning_rate = 2}, 1e12), 2);
}

}  // namespace
}  // namespace samara::optimizer_test
