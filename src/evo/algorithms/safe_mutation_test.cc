#include "evo/algorithms/safe_mutation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"
#include "nn/jacobian.h"

namespace samara::safe_mutation_test {
namespace {

constexpr MutationKind kSafe[] = {MutationKind::kSmR, MutationKind::kSmGSum,
                                  MutationKind::kSmGSumLegacy, MutationKind::kSmGAbs,
                                  MutationKind::kSmGSo};

Experience States(const NetworkDescription& network, size_t states, uint64_t seed = 5) {
  const CounterRng rng(seed);
  Experience experience;
  for (size_t i = 0; i < states * network.input_size(); ++i)
    experience.inputs.push_back(static_cast<float>(2 * rng.Uniform(i) - 1));
  for (size_t i = 0; network.recurrent() && i < states; ++i)
    experience.begins.push_back(i % 4 == 0);
  return experience;
}

std::vector<float> Parent(const NetworkDescription& network) {
  Genome genome;
  genome.initial = 3;
  std::vector<float> parameters(network.parameter_count);
  DecodeParameters(genome, network, parameters);
  return parameters;
}

std::vector<float> Noise(const NetworkDescription& network, uint64_t key, float power) {
  std::vector<float> delta(network.parameter_count);
  GetNoise(NoiseKind::kNormal).Fill(key, 0, delta);
  for (float& d : delta) d *= power;
  return delta;
}

std::vector<float> Child(const NetworkDescription& network, const Mutation& mutation,
                         const Experience& experience) {
  std::vector<float> child(network.parameter_count);
  Mutate(network, NoiseKind::kNormal, mutation, Parent(network), &experience, child);
  return child;
}

TEST(SafeMutation, PlainIsTheDeepGas) {
  const NetworkDescription network = Network("mlp-8-8-tanh", 4, 2);
  Genome genome;
  genome.initial = 3;
  genome.mutations = {{.key = 9, .power = 0.25F}};
  std::vector<float> expected(network.parameter_count), child(network.parameter_count);
  DecodeParameters(genome, network, expected);
  Mutate(network, NoiseKind::kNormal, genome.mutations[0], Parent(network), nullptr, child);
  EXPECT_EQ(child, expected);
}

// By definition: the Jacobians of one state at a time, in double precision.
TEST(SafeMutation, SensitivityIsItsDefinition) {
  const NetworkDescription network = Network("dense 9 relu, dense 7 tanh", 4, 3);
  const Experience experience = States(network, 30);
  const std::vector<float> parent = Parent(network), delta = Noise(network, 11, 0.1F);
  const size_t p = parent.size();
  std::vector<double> v(delta.begin(), delta.end());
  double length = 0;
  for (const double d : v) length += d * d;
  for (double& d : v) d /= std::sqrt(length);

  std::vector<std::vector<double>> sum(3, std::vector<double>(p)), magnitudes = sum;
  std::vector<double> hessian(p);
  std::vector<float> row(p);
  for (size_t x = 0; x < 30; ++x) {
    const Jacobians one(network, parent, std::span(experience.inputs).subspan(4 * x, 4));
    for (size_t k = 0; k < 3; ++k) {
      one.Sum(k, row);
      double along = 0;
      for (size_t w = 0; w < p; ++w) along += row[w] * v[w];
      for (size_t w = 0; w < p; ++w) {
        sum[k][w] += row[w] / 30.0, magnitudes[k][w] += std::abs(row[w]) / 30.0;
        hessian[w] += 2 / 30.0 * row[w] * along;
      }
    }
  }
  for (const MutationKind kind : kSafe) {
    if (kind == MutationKind::kSmR) continue;
    const auto s = Sensitivity(kind, network, parent, experience, delta);
    for (size_t w = 0; w < p; ++w) {
      double expected = 0;
      for (size_t k = 0; k < 3; ++k) {
        const double term = kind == MutationKind::kSmGAbs         ? magnitudes[k][w]
                            : kind == MutationKind::kSmGSumLegacy ? 30 * sum[k][w]
                                                                  : sum[k][w];
        expected += term * term;
      }
      if (kind == MutationKind::kSmGSo) expected = std::abs(hessian[w]);
      ASSERT_NEAR(s[w], std::sqrt(expected), 2e-5 * (1 + std::sqrt(expected)))
          << static_cast<int>(kind) << " " << w;
    }
  }
}

TEST(SafeMutation, ScalesAreBoundedAndChangesClipped) {
  const NetworkDescription network = Network("dense 5 relu", 3, 2);
  const Experience experience = States(network, 20);
  const std::vector<float> parent = Parent(network), delta = Noise(network, 11, 0.5F);
  const auto s = Sensitivity(MutationKind::kSmGAbs, network, parent, experience, delta);
  Mutation mutation{.key = 11, .power = 0.5F, .kind = MutationKind::kSmGAbs};
  const auto free = Child(network, mutation, experience);
  mutation.clip = 0.2F;
  const auto clipped = Child(network, mutation, experience);
  size_t at_bound = 0;
  for (size_t w = 0; w < s.size(); ++w) {
    const float change = delta[w] / (s[w] == 0 ? 1 : std::max(s[w], 0.01F));
    EXPECT_EQ(free[w], parent[w] + change);
    EXPECT_EQ(clipped[w], parent[w] + std::clamp(change, -0.2F, 0.2F));
    at_bound += std::abs(change) > 0.2F;
  }
  EXPECT_GT(at_bound, 0u);
}

// The 2018 program dropped what its line search had found in the maze, and its search for
// recurrent networks used names that it never defined.
TEST(SafeMutation, OutputsChangeByTheMagnitudeInEveryDomain) {
  const struct {
    const char* domain;
    NetworkDescription network;
  } domains[] = {{"toy", Network("out diagonal", 2, 2)},
                 {"parity", Network("rnn 15 tanh, rnn 15 tanh", 1, 2)},
                 {"parity, lstm", Network("lstm 15, lstm 15", 1, 2)},
                 {"maze", Network("dense 15 relu, dense 15 relu, dense 15 relu", 11, 2)},
                 {"deep maze", Network("mlp-25-25-25-25-25-25-25-25-tanh", 11, 2)}};
  for (const auto& [domain, network] : domains) {
    const Experience experience = States(network, 100);
    for (const float magnitude : {1e-4F, 0.01F, 1.0F, 25.0F}) {
      const Mutation mutation{.key = 7, .power = magnitude, .kind = MutationKind::kSmR};
      const auto child = Child(network, mutation, experience);
      const double changed = TEST_Divergence(network, Parent(network), child, experience);
      EXPECT_NEAR(changed / magnitude, 1, 0.01) << domain << " " << magnitude;
    }
  }
}

TEST(SafeMutation, ASearchEndsWhereNothingChangesTheOutputs) {
  const NetworkDescription network = Network("dense 4 relu", 2, 1);
  Experience zeros;
  zeros.inputs.resize(20);
  // dead units and no bias of the output: only that bias changes anything
  const Mutation mutation{.key = 7, .power = 0.1F, .kind = MutationKind::kSmR};
  for (const float w : Child(network, mutation, zeros)) EXPECT_TRUE(std::isfinite(w));
}

}  // namespace
}  // namespace samara::safe_mutation_test
