#include "rl/learner/distribution.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samara::distribution_test {
namespace {

using torch::Tensor;

// Uniforms at the middles of n equal parts: every quantile once.
Tensor Grid(int64_t n) { return ((torch::arange(n, torch::kFloat32) + 0.5) / n).unsqueeze(-1); }

TEST(DistributionTest, CategoricalByHand) {
  const auto d = ActionDistribution::Categorical(3);
  // logits of probabilities 1/6, 2/6, 3/6
  const Tensor logits = torch::tensor({1.0f, 2.0f, 3.0f}).log() + 5;
  const Tensor actions = torch::arange(3).unsqueeze(-1);
  const Tensor log_prob = d.LogProb(logits.expand({3, 3}), actions);
  double entropy = 0;
  for (int i = 0; i < 3; ++i) {
    const double p = (i + 1) / 6.0;
    EXPECT_NEAR(log_prob[i].item<double>(), std::log(p), 1e-6);
    entropy -= p * std::log(p);
  }
  EXPECT_NEAR(d.Entropy(logits).item<double>(), entropy, 1e-6);
  EXPECT_EQ(d.Mode(logits).item<int64_t>(), 2);
  const Tensor samples = d.Sample(logits.expand({6000, 3}), Grid(6000));
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR((samples == i).sum().item<double>(), 1000 * (i + 1), 2) << i;
  // a uniform of almost 1 meets sums that rounded below 1
  EXPECT_EQ(d.Sample(logits, torch::tensor({0.99999994f})).item<int64_t>(), 2);
}

TEST(DistributionTest, PartsOfAnySizeAreIndependent) {
  torch::manual_seed(1);
  const auto d = ActionDistribution::Multi({2, 5, 3});
  EXPECT_EQ(d.parameters(), 10);
  EXPECT_EQ(d.components(), 3);
  const Tensor a = torch::randn({4, 10}), b = torch::randn({4, 10});
  double total = 0, entropy = 0, kl = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 5; ++j) {
      for (int k = 0; k < 3; ++k) {  // every joint action of row 1
        const Tensor action = torch::tensor({{i, j, k}}, torch::kInt64);
        const double p = d.LogProb(a[1].unsqueeze(0), action).item<double>();
        const double q = d.LogProb(b[1].unsqueeze(0), action).item<double>();
        total += std::exp(p), entropy -= std::exp(p) * p, kl += std::exp(p) * (p - q);
      }
    }
  }
  EXPECT_NEAR(total, 1, 1e-5);
  EXPECT_NEAR(d.Entropy(a)[1].item<double>(), entropy, 1e-5);
  EXPECT_NEAR(d.Kl(a, b)[1].item<double>(), kl, 1e-5);
  const Tensor mode = d.Mode(a);
  EXPECT_EQ(mode[2][1].item<int64_t>(), a[2].slice(0, 2, 7).argmax().item<int64_t>());
}

TEST(DistributionTest, PartsAndTheirIndexAreEachOther) {
  const auto d = ActionDistribution::Multi({2, 5, 3});
  const Tensor index = torch::arange(30).unsqueeze(-1);
  const Tensor parts = d.Split(index);
  EXPECT_TRUE(torch::equal(d.Join(parts), index));
  // C order: what numpy.unravel_index(17, (2, 5, 3)) gives
  EXPECT_TRUE(torch::equal(parts[17], torch::tensor({1, 0, 2}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(std::get<0>(parts.max(0)) + 1, torch::tensor({2, 5, 3}, torch::kInt64)));
  const auto one = ActionDistribution::Categorical(4);
  EXPECT_TRUE(torch::equal(one.Split(torch::tensor({3})), torch::tensor({3})));
}

// In one dimension everything can be integrated over the squashed action.
TEST(DistributionTest, TanhNormalIsADensityOverItsActions) {
  const auto d = ActionDistribution::TanhNormal(1);
  for (const auto& [mean, p] : {std::pair{0.3f, -0.5f}, {-1.0f, 0.7f}, {0.0f, -3.0f}}) {
    const int64_t n = 200'000;
    const Tensor parameters = torch::tensor({mean, p}).expand({n, 2});
    const Tensor a = 2 * Grid(n) - 1;
    const Tensor log_prob =
        d.LogProb(parameters, torch::atanh(a.to(torch::kFloat64)).to(torch::kFloat32));
    const Tensor density = log_prob.to(torch::kFloat64).exp();
    EXPECT_NEAR(density.mean().item<double>() * 2, 1, 2e-3) << mean << ' ' << p;
    const double entropy = -(density * log_prob).mean().item<double>() * 2;
    EXPECT_NEAR(d.Entropy(parameters, Grid(n)).mean().item<double>(), entropy, 5e-3);
    // samples at all quantiles: the mean action is that of the density
    const Tensor samples = d.Squash(d.Sample(parameters, Grid(n)));
    EXPECT_NEAR(samples.mean().item<double>(), (density * a.squeeze(-1)).mean().item<double>() * 2,
                2e-3);
    EXPECT_NEAR(d.Squash(d.Mode(parameters))[0].item<double>(), std::tanh(mean), 1e-6);
    const Tensor other = torch::tensor({0.1f, 0.2f}).expand({n, 2});
    const Tensor u = d.Sample(parameters, Grid(n));
    const double kl = (d.LogProb(parameters, u) - d.LogProb(other, u)).mean().item<double>();
    EXPECT_NEAR(d.Kl(parameters, other)[0].item<double>(), kl, 5e-3);
  }
}

// Exact where tanh has long rounded to 1.
TEST(DistributionTest, TanhNormalIsExactFarOut) {
  const auto d = ActionDistribution::TanhNormal(1);
  const Tensor parameters = torch::tensor({0.0f, 20.0f}).requires_grad_(true);
  const double deviation = 20 + 1e-3, u = 40;
  const Tensor log_prob = d.LogProb(parameters, torch::tensor({40.0f}));
  const double want = -0.5 * (u / deviation) * (u / deviation) - std::log(deviation) -
                      0.5 * std::log(2 * M_PI) - (2 * std::log(2.0) - 2 * u);
  EXPECT_NEAR(log_prob.item<double>(), want, 1e-3);
  log_prob.backward();
  EXPECT_TRUE(parameters.grad().isfinite().all().item<bool>());
}

TEST(DistributionTest, RowsAreAlone) {
  torch::manual_seed(2);
  const Tensor outputs = torch::randn({7, 6}), uniforms = torch::rand({7, 3}).clamp(0.01, 0.99);
  for (const auto& d : {ActionDistribution::Multi({1, 2, 3}), ActionDistribution::TanhNormal(3)}) {
    const Tensor together = d.Sample(outputs, uniforms);
    for (int64_t i = 0; i < 7; ++i)
      EXPECT_TRUE(torch::equal(d.Sample(outputs[i], uniforms[i]), together[i]));
  }
}

// Values and derivatives of a row by hand are torch's.
TEST(DistributionTest, RowsOnPlainNumbersAreThoseOfTensors) {
  torch::manual_seed(11);
  for (const auto& distribution :
       {ActionDistribution::Categorical(5), ActionDistribution::Multi({3, 2, 4}),
        ActionDistribution::TanhNormal(3)}) {
    constexpr int64_t kRows = 20;
    const int64_t size = distribution.parameters();
    const Tensor parameters = (2 * torch::randn({kRows, size})).set_requires_grad(true);
    const Tensor uniforms = torch::rand({kRows, distribution.components()}) * 0.98 + 0.01;
    const Tensor normals = torch::special_ndtri(uniforms).contiguous();
    Tensor action = distribution.Sample(
        parameters.detach(), torch::rand({kRows, distribution.components()}) * 0.98 + 0.01);
    const Tensor log_prob = distribution.LogProb(parameters, action);
    const Tensor entropy = distribution.Entropy(parameters, uniforms);
    const Tensor by_log_prob = torch::autograd::grad({log_prob.sum()}, {parameters})[0];
    const Tensor by_entropy = torch::autograd::grad({entropy.sum()}, {parameters})[0];
    const bool continuous = distribution.continuous();
    const Tensor given = (continuous ? action : distribution.Join(action)).contiguous();
    DistributionRow one(distribution);
    for (int64_t i = 0; i < kRows; ++i) {
      Tensor mine_log_prob = torch::empty({size}), mine_entropy = torch::empty({size});
      const auto row = [&](const Tensor& x) {
        return continuous ? x.data_ptr<float>() + i * x.size(1) : nullptr;
      };
      const auto evaluate = [&](float* into, float* into_entropy) {
        return one.Evaluate(parameters.data_ptr<float>() + i * size,
                            continuous ? 0 : given.data_ptr<int64_t>()[i], row(given), row(normals),
                            into, into_entropy);
      };
      const auto values = evaluate(mine_log_prob.data_ptr<float>(), mine_entropy.data_ptr<float>());
      EXPECT_NEAR(values.log_prob, log_prob[i].item<float>(), 1e-4) << i;
      EXPECT_NEAR(values.entropy, entropy[i].item<float>(), 1e-4) << i;
      EXPECT_TRUE(torch::allclose(mine_log_prob, by_log_prob[i], 1e-3, 1e-4)) << i;
      EXPECT_TRUE(torch::allclose(mine_entropy, by_entropy[i], 1e-3, 1e-4)) << i;

      Tensor again = torch::empty({size});
      EXPECT_EQ(evaluate(again.data_ptr<float>(), nullptr).log_prob, values.log_prob) << i;
      EXPECT_TRUE(again.equal(mine_log_prob)) << i;
    }
  }
}

// Actions drawn by hand are torch's: those of the uniform numbers' quantiles, and the mode.
TEST(DistributionTest, DrawsOnPlainNumbersAreThoseOfTensors) {
  torch::manual_seed(12);
  for (const auto& distribution :
       {ActionDistribution::Categorical(5), ActionDistribution::Multi({3, 2, 4}),
        ActionDistribution::TanhNormal(3)}) {
    constexpr int64_t kRows = 200;
    const int64_t size = distribution.parameters(), components = distribution.components();
    const Tensor parameters = 2 * torch::randn({kRows, size});
    const Tensor uniforms = torch::rand({kRows, components}).clamp(1e-7, 1 - 1e-7);
    uniforms[0].fill_(1 - 6e-8), uniforms[1].fill_(1e-7);  // the ends
    DistributionRow one(distribution);
    for (const bool greedy : {false, true}) {
      const Tensor drawn =
          greedy ? distribution.Mode(parameters) : distribution.Sample(parameters, uniforms);
      for (int64_t i = 0; i < kRows; ++i) {
        const float* row = parameters.data_ptr<float>() + i * size;
        const float* its = greedy ? nullptr : uniforms.data_ptr<float>() + i * components;
        if (!distribution.continuous()) {
          EXPECT_EQ(one.DrawIndex(row, its), distribution.Join(drawn[i]).item<int64_t>()) << i;
          continue;
        }
        Tensor sample = torch::empty({components}), squashed = torch::empty({components});
        one.DrawSample(row, its, sample.data_ptr<float>(), squashed.data_ptr<float>());
        EXPECT_TRUE(torch::allclose(sample, drawn[i], 1e-5, 1e-5)) << i;
        EXPECT_TRUE(torch::allclose(squashed, drawn[i].tanh(), 1e-5, 1e-5)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace samara::distribution_test
