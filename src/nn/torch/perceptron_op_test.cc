#include "nn/torch/perceptron_op.h"

#include <gtest/gtest.h>

namespace samara {
namespace {

using torch::Tensor;

// Two hidden layers and heads of 3 and 1, by torch's own operations.
std::vector<Tensor> ByTorch(const Tensor& x, const std::vector<Tensor>& p) {
  const Tensor h =
      torch::relu(torch::linear(torch::tanh(torch::linear(x, p[0], p[1])), p[2], p[3]));
  return {torch::linear(h, p[4], p[5]), torch::linear(h, p[6], p[7])};
}

std::vector<Tensor> Parameters() {
  std::vector<Tensor> all;
  for (const auto& [out, in] : {std::pair{20, 5}, {9, 20}, {3, 9}, {1, 9}}) {
    all.push_back((torch::randn({out, in}) * 0.4).set_requires_grad(true));
    all.push_back(torch::randn({out}).set_requires_grad(true));
  }
  return all;
}

PerceptronOp Op() {
  return {Perceptron::Make("dense 20 tanh, dense 9 relu", 5, 4).ValueOrThrow(), {{3}, {1}}};
}

// Compares the outputs and the gradients of a loss with those that `by_torch` has, of matrices with
// so many rows; gradients within `relative` and a tenth of it.
template <typename Torchs>
void ExpectTorchs(const PerceptronOp& op, const std::vector<Tensor>& p, const Torchs& by_torch,
                  std::initializer_list<int64_t> all_rows, double relative) {
  const auto loss = [](const std::vector<Tensor>& y) {
    return (y[0].square().sum() + y[1].sin().sum()) / y[0].size(0);
  };
  for (const int64_t rows : all_rows) {
    const Tensor x = torch::randn({rows, 5});
    const auto ours = op.Apply(x, p), torchs = by_torch(x);
    ASSERT_EQ(ours.size(), 2u);
    const auto gradients = torch::autograd::grad({loss(ours)}, p);
    const auto expected = torch::autograd::grad({loss(torchs)}, p);
    for (size_t h = 0; h < 2; ++h) EXPECT_TRUE(torch::allclose(ours[h], torchs[h], 1e-4, 1e-5));
    for (size_t i = 0; i < p.size(); ++i)
      EXPECT_TRUE(torch::allclose(gradients[i], expected[i], relative, relative / 10)) << i;
  }
}

TEST(PerceptronOpTest, OutputsAndGradientsAreTorchs) {
  torch::manual_seed(3);
  const auto p = Parameters();
  ExpectTorchs(
      Op(), p, [&p](const Tensor& x) { return ByTorch(x, p); }, {1, 7, 40, 13}, 1e-4);
}

TEST(PerceptronOpTest, LayerNormalizationIsTorchs) {
  torch::manual_seed(7);
  const PerceptronOp op(
      Perceptron::Make("dense 20 layer_norm tanh, dense 9 layer_norm relu", 5, 4).ValueOrThrow(),
      {{3}, {1}});
  auto p = Parameters();
  for (const auto& [at, units] : {std::pair{2, 20}, {6, 9}})
    for (int i = 0; i < 2; ++i)
      p.insert(p.begin() + at, torch::randn({units}).set_requires_grad(true));
  const auto by_torch = [&p](const Tensor& x) {
    const auto normalized = [&](const Tensor& in, size_t at) {
      const Tensor sums = torch::linear(in, p[at], p[at + 1]);
      return torch::layer_norm(sums, {sums.size(1)}, p[at + 2], p[at + 3]);
    };
    const Tensor h = torch::relu(normalized(torch::tanh(normalized(x, 0)), 4));
    return std::vector{torch::linear(h, p[8], p[9]), torch::linear(h, p[10], p[11])};
  };
  ExpectTorchs(op, p, by_torch, {1, 7, 40}, 1e-3);
}

TEST(PerceptronOpTest, FreeOutputsDoNotDependOnTheInput) {
  torch::manual_seed(6);
  const PerceptronOp op(Perceptron::Make("dense 20 tanh, dense 9 relu", 5, 6).ValueOrThrow(),
                        {{3, 2}, {1}});
  auto p = Parameters();
  const Tensor free = torch::randn({2}).set_requires_grad(true), x = torch::randn({6, 5});
  const auto expected = ByTorch(x, p);
  const Tensor policy = torch::cat({expected[0], free.expand({6, -1})}, 1);
  auto all = p;
  all.insert(all.begin() + 6, free);
  const auto ours = op.Apply(x, all);
  EXPECT_TRUE(torch::allclose(ours[0], policy, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(ours[1], expected[1], 1e-4, 1e-5));
  const auto mine = torch::autograd::grad({ours[0].square().sum() + ours[1].sum()}, all);
  const auto torchs = torch::autograd::grad({policy.square().sum() + expected[1].sum()}, all);
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(torch::allclose(mine[i], torchs[i], 1e-4, 1e-5)) << i;
}

TEST(PerceptronOpTest, AHeadThatIsNotUsedHasNoGradient) {
  torch::manual_seed(4);
  const PerceptronOp op = Op();
  const auto p = Parameters();
  const Tensor x = torch::randn({6, 5});
  const auto gradients = torch::autograd::grad({op.Apply(x, p)[0].sum()}, p);
  const auto expected = torch::autograd::grad({ByTorch(x, p)[0].sum()}, p, {}, std::nullopt, false,
                                              /*allow_unused=*/true);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_TRUE(torch::allclose(gradients[i], expected[i], 1e-4, 1e-5)) << i;
  EXPECT_TRUE((gradients[6] == 0).all().item<bool>());
}

TEST(PerceptronOpTest, PassesThatOverlapDoNotShareMemory) {
  torch::manual_seed(5);
  const PerceptronOp op = Op();
  const auto p = Parameters();
  const Tensor x = torch::randn({8, 5}), y = torch::randn({8, 5});
  const auto alone = torch::autograd::grad({op.Apply(x, p)[0].sum()}, p);
  const Tensor first = op.Apply(x, p)[0].sum(), second = op.Apply(y, p)[0].sum();
  EXPECT_EQ(op.Apply(y, op.Pack(p))[0].sum().item<float>(), second.item<float>());
  const auto gradients = torch::autograd::grad({first}, p);
  for (size_t i = 0; i < p.size(); ++i) EXPECT_TRUE(torch::equal(gradients[i], alone[i])) << i;
}

}  // namespace
}  // namespace samara
