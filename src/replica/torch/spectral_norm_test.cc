// Spectral norm against singular value decompositions, finite differences, and over replicas.
#include "nn/torch/torch.h"
// after the door to torch
#include <gtest/gtest.h>

#include "samara/error.h"
#include "samara/replicator.h"
#include "samara/spectral_norm.h"

namespace samara {
namespace {

double Largest(const torch::Tensor& weight) {
  return torch::linalg_svdvals(weight.detach().reshape({weight.size(0), -1}))[0].item<double>();
}

TEST(SpectralNormTest, ConvergesToTheLargestSingularValue) {
  torch::manual_seed(1);
  const torch::Tensor weight = torch::randn({12, 5, 3, 3}, torch::kDouble) * 4;
  SpectralNorm norm(12);
  norm->to(torch::kDouble);
  const torch::Tensor first = norm->forward(weight);
  EXPECT_EQ(first.sizes(), weight.sizes());
  EXPECT_GT(Largest(first), 1.001) << "one iteration is not enough for this one";
  for (int i = 0; i < 300; ++i) norm->forward(weight);
  EXPECT_NEAR(Largest(norm->forward(weight)), 1, 1e-9);
  EXPECT_TRUE(torch::allclose(norm->forward(weight), weight / Largest(weight), 1e-8, 1e-10));
}

// One iteration by hand, in another notation: sums over rows and columns.
TEST(SpectralNormTest, OneIterationIsTheAlgorithms) {
  torch::manual_seed(2);
  const torch::Tensor weight = torch::randn({3, 4}, torch::kDouble);
  SpectralNorm norm(3);
  norm->to(torch::kDouble);
  const torch::Tensor u = norm->u.clone();
  double v[4], next[3], length = 0, sigma = 0;
  for (int j = 0; j < 4; ++j) {
    v[j] = 0;
    for (int i = 0; i < 3; ++i) v[j] += weight[i][j].item<double>() * u[i].item<double>();
    length += v[j] * v[j];
  }
  for (double& x : v) x /= std::sqrt(length);
  length = 0;
  for (int i = 0; i < 3; ++i) {
    next[i] = 0;
    for (int j = 0; j < 4; ++j) next[i] += weight[i][j].item<double>() * v[j];
    length += next[i] * next[i];
  }
  for (int i = 0; i < 3; ++i) {
    const double w = next[i];
    next[i] /= std::sqrt(length);
    sigma += w * next[i];
  }
  EXPECT_TRUE(torch::allclose(norm->forward(weight), weight / sigma));
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(norm->u[i].item<double>(), next[i], 1e-12);
  // eval leaves u where it is
  norm->eval();
  const torch::Tensor before = norm->u.clone(), a = norm->forward(weight);
  EXPECT_TRUE(torch::equal(a, norm->forward(weight)));
  EXPECT_TRUE(torch::equal(norm->u, before));
}

// Where u has converged, u and v as constants give the true gradient, by the envelope theorem.
TEST(SpectralNormTest, GradientsAreThoseOfFiniteDifferences) {
  torch::manual_seed(3);
  const torch::Tensor weight = torch::randn({4, 6}, torch::kDouble);
  const torch::Tensor of_result = torch::randn({4, 6}, torch::kDouble);
  SpectralNorm norm(4);
  norm->to(torch::kDouble);
  for (int i = 0; i < 500; ++i) norm->forward(weight);
  torch::Tensor leaf = weight.clone().requires_grad_(true);
  (norm->forward(leaf) * of_result).sum().backward();
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < 24; ++i) {
    torch::Tensor more = weight.clone(), less = weight.clone();
    more.view(-1)[i] += kStep;
    less.view(-1)[i] -= kStep;
    const auto value = [&](const torch::Tensor& w) {
      return (w / Largest(w) * of_result).sum().item<double>();
    };
    EXPECT_NEAR(leaf.grad().view(-1)[i].item<double>(), (value(more) - value(less)) / (2 * kStep),
                1e-5);
  }
}

TEST(SpectralNormTest, TwoForwardsBeforeOneBackward) {
  torch::Tensor weight = torch::randn({4, 6}).requires_grad_(true);
  SpectralNorm norm(4);
  (norm->forward(weight).sum() + norm->forward(weight).square().sum()).backward();
  EXPECT_TRUE(torch::isfinite(weight.grad()).all().item<bool>());
}

TEST(SpectralNormTest, AnotherSizeIsRefused) {
  SpectralNorm norm(4);
  try {
    norm->forward(torch::zeros({5, 2}));
    FAIL() << "not refused";
  } catch (const ReplicationError& error) {
    EXPECT_EQ(error.exit_code(), 78);
    EXPECT_STREQ(error.what(),
                 "spectral norm of a weight of another size: expected 4 in dimension 0");
  }
}

// Every replica has iterated as often as one device would have, at any number of ranks.
TEST(SpectralNormTest, ReplicasHaveTheSameU) {
  torch::manual_seed(4);
  const torch::Tensor start = torch::randn({5, 7});
  const torch::Tensor u = torch::randn({5});
  SpectralNorm alone(5);
  alone->u.copy_(u / u.norm());
  for (int i = 0; i < 3; ++i) alone->forward(start);
  for (const int ranks : {1, 2, 4}) {
    ReplicatorOptions options;
    options.replicas = 4;
    const int code = ReplicateThreads(
        ranks,
        [&](Replicator& replicator) {
          SpectralNorm norm(5);
          if (replicator.IsMain()) norm->u.copy_(u / u.norm());
          torch::Tensor weight = start.clone().requires_grad_(true);
          auto optimizer = replicator.Wrap(torch::optim::SGD({weight}, 0.0), *norm);
          for (int i = 0; i < 3; ++i) {
            const auto all = replicator.Run([&](ReplicaContext& replica) {
              norm->forward(weight).sum().backward();
              optimizer.step();
              return replica.AllGather(norm->u);
            });
            if (i < 2) continue;
            for (int64_t r = 0; r < 4; ++r)
              EXPECT_TRUE(torch::equal(all.values[0][r], alone->u)) << ranks << " " << r;
          }
        },
        options);
    EXPECT_EQ(code, 0);
  }
}

}  // namespace
}  // namespace samara
