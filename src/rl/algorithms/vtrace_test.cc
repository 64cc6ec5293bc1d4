#include "rl/algorithms/vtrace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "rl/algorithms/batch_test_util.h"
#include "rl/algorithms/registry.h"

namespace samara::vtrace_test {
namespace {

constexpr int64_t kT = 17, kB = 5;

VtraceInput RandomInput(uint64_t seed, double ends) {
  torch::manual_seed(seed);
  VtraceInput in;
  in.log_rho = 0.7 * torch::randn({kT, kB});
  in.reward = torch::randn({kT, kB});
  const auto end = torch::rand({kT, kB}) < ends, kind = torch::rand({kT, kB}) < 0.5;
  in.terminated = end & kind;
  in.truncated = end & ~kind;
  in.value = torch::randn({kT, kB});
  in.final_value = torch::randn({kT, kB});
  in.bootstrap = torch::randn({kB});
  return in;
}

struct Column {
  std::vector<double> w, r, v, end_value;
  std::vector<bool> terminated, truncated;
  double bootstrap;
};

Column ColumnOf(const VtraceInput& in, int64_t b) {
  Column c;
  for (int64_t t = 0; t < kT; ++t) {
    c.w.push_back(std::exp(in.log_rho[t][b].item<double>()));
    c.r.push_back(in.reward[t][b].item<double>());
    c.v.push_back(in.value[t][b].item<double>());
    c.end_value.push_back(in.final_value[t][b].item<double>());
    c.terminated.push_back(in.terminated[t][b].item<bool>());
    c.truncated.push_back(in.truncated[t][b].item<bool>());
  }
  c.bootstrap = in.bootstrap[b].item<double>();
  return c;
}

// Value after transition t: an array's next element, the final observation's value, or nothing.
double After(const Column& c, const std::vector<double>& x, int64_t t) {
  if (c.terminated[t]) return 0;
  if (c.truncated[t]) return c.end_value[t];
  return t + 1 < kT ? x[t + 1] : c.bootstrap;
}

// The definition, O(T^2): v_s = V_s + sum_t (prod_{i<t} gamma c_i) delta_t, up to the episode's
// end.
std::vector<double> Definition(const VtraceConfig& config, const Column& c) {
  std::vector<double> targets;
  for (int64_t s = 0; s < kT; ++s) {
    double target = c.v[s], product = 1;
    for (int64_t t = s; t < kT; ++t) {
      const bool ignored = config.truncation == Truncation::kIgnore && c.truncated[t];
      const double delta = c.r[t] + config.gamma * After(c, c.v, t) - c.v[t];
      if (!ignored) target += product * std::min(config.rho_clip, c.w[t]) * delta;
      if (c.terminated[t] || c.truncated[t]) break;
      product *= config.gamma * config.lambda * std::min(config.c_clip, c.w[t]);
    }
    targets.push_back(target);
  }
  return targets;
}

TEST(VtraceTest, IsTheDefinition) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const VtraceConfig config{
        .gamma = 0.93,
        .lambda = seed % 3 == 0 ? 1.0 : 0.8,
        .rho_clip = seed % 2 == 0 ? 1.0 : 2.5,
        .rho_clip_policy = seed % 4 == 1 ? 0.7 : 1.5,
        .c_clip = 0.9,
        .truncation = seed % 2 == 0 ? Truncation::kBootstrap : Truncation::kIgnore};
    const VtraceInput in = RandomInput(seed, 0.1 * static_cast<double>(seed % 4));
    const VtraceTargets targets = Vtrace(config, in);
    EXPECT_FALSE(targets.value.requires_grad());
    for (int64_t b = 0; b < kB; ++b) {
      const Column c = ColumnOf(in, b);
      const std::vector<double> want = Definition(config, c);
      for (int64_t t = 0; t < kT; ++t) {
        EXPECT_NEAR(targets.value[t][b].item<double>(), want[t], 1e-4) << seed << ' ' << t;
        const bool ignored = config.truncation == Truncation::kIgnore && c.truncated[t];
        const double advantage = std::min(config.rho_clip_policy, c.w[t]) *
                                 (ignored ? 0 : c.r[t] + config.gamma * After(c, want, t) - c.v[t]);
        EXPECT_NEAR(targets.advantage[t][b].item<double>(), advantage, 1e-4) << seed << ' ' << t;
        EXPECT_NEAR(
            targets.unweighted[t][b].item<double>() * std::min(config.rho_clip_policy, c.w[t]),
            advantage, 1e-4);
      }
    }
  }
}

// Both published forms are the same at lambda 1 with all clips 1, and differ otherwise.
TEST(VtraceTest, TheFormsAgreeWhereTheyShould) {
  for (uint64_t seed = 20; seed < 26; ++seed) {
    const VtraceInput in = RandomInput(seed, 0.1);
    VtraceConfig impala, seed_form;
    seed_form.form = VtraceForm::kSeed;
    for (const Truncation truncation : {Truncation::kBootstrap, Truncation::kIgnore}) {
      impala.truncation = seed_form.truncation = truncation;
      const auto a = Vtrace(impala, in), b = Vtrace(seed_form, in);
      EXPECT_TRUE(torch::allclose(a.value, b.value, 1e-4, 1e-4));
      EXPECT_TRUE(torch::allclose(a.advantage, b.advantage, 1e-4, 1e-4));
    }
    impala.lambda = seed_form.lambda = 0.5;
    EXPECT_FALSE(torch::allclose(Vtrace(impala, in).advantage, Vtrace(seed_form, in).advantage));
  }
}

// Generalised advantage estimation (Schulman et al. 2016) is the seed form without weights.
TEST(VtraceTest, OnPolicySeedFormIsGae) {
  VtraceInput in = RandomInput(31, 0.1);
  in.log_rho.zero_();
  VtraceConfig config{.form = VtraceForm::kSeed, .gamma = 0.9, .lambda = 0.7};
  const VtraceTargets targets = Vtrace(config, in);
  for (int64_t b = 0; b < kB; ++b) {
    const Column c = ColumnOf(in, b);
    double advantage = 0;
    for (int64_t t = kT; t-- > 0;) {
      if (c.terminated[t] || c.truncated[t]) advantage = 0;
      advantage = c.r[t] + 0.9 * After(c, c.v, t) - c.v[t] + 0.9 * 0.7 * advantage;
      EXPECT_NEAR(targets.advantage[t][b].item<double>(), advantage, 1e-4);
    }
  }
}

// A time limit is not an end. A reward of one for ever is worth
// 1 / (1 - gamma), however often the clock stops the episode.
TEST(VtraceTest, ATimeLimitDoesNotLowerTheValueOfAnEndlessReward) {
  constexpr double kGamma = 0.9;
  VtraceInput in;
  in.log_rho = torch::zeros({10, 1});
  in.reward = torch::ones({10, 1});
  in.terminated = torch::zeros({10, 1}, torch::kBool);
  in.truncated = torch::zeros({10, 1}, torch::kBool);
  in.truncated[4] = true;
  in.truncated[9] = true;
  for (const bool limit_is_an_end : {false, true}) {
    VtraceInput seen = in;
    if (limit_is_an_end) std::swap(seen.terminated, seen.truncated);
    double value = 0;
    for (int i = 0; i < 300; ++i) {
      seen.value = seen.final_value = torch::full({10, 1}, value);
      seen.bootstrap = torch::full({1}, value);
      value = Vtrace({.gamma = kGamma}, seen).value.mean().item<double>();
    }
    if (limit_is_an_end)
      EXPECT_LT(value, 5);
    else
      EXPECT_NEAR(value, 1 / (1 - kGamma), 1e-3);
  }
}

// By hand: one step, weight 2 clipped to 1 in the target and to 1.5 in the advantage.
TEST(VtraceTest, OneStepByHand) {
  const auto one = [](double x) { return torch::full({1, 1}, x); };
  VtraceInput in{one(std::log(2.0)),
                 one(3),
                 torch::zeros({1, 1}, torch::kBool),
                 torch::zeros({1, 1}, torch::kBool),
                 one(10),
                 one(0),
                 torch::full({1}, 20.0)};
  const auto targets = Vtrace({.gamma = 0.5, .rho_clip_policy = 1.5}, in);
  EXPECT_NEAR(targets.value.item<double>(), 10 + 1 * (3 + 0.5 * 20 - 10), 1e-6);
  EXPECT_NEAR(targets.advantage.item<double>(), 1.5 * (3 + 0.5 * 20 - 10), 1e-6);
}

TEST(VtraceLossTest, GradientsAreThoseOfTheFormula) {
  torch::manual_seed(3);
  const VtraceTargets targets{torch::randn({kT, kB}), torch::randn({kT, kB}), {}};
  const auto leaf = [] { return torch::randn({kT, kB}).set_requires_grad(true); };
  const auto log_pi = leaf(), entropy = leaf(), value = leaf();
  const auto log_mu = torch::randn({kT, kB});
  for (const LossOver over : {LossOver::kMean, LossOver::kSum}) {
    for (const auto* x : {&log_pi, &entropy, &value}) x->mutable_grad() = torch::Tensor();
    const VtraceLossConfig config{.value_cost = 0.3, .kl_cost = 0.2, .over = over};
    const auto loss = MakeVtraceLoss(config, targets, log_pi, log_mu, entropy, value,
                                     EntropyCost(0.01, std::nullopt));
    loss.total.backward();
    const double n = config.over == LossOver::kMean ? kT * kB : 1;
    EXPECT_TRUE(torch::allclose(log_pi.grad(), -(targets.advantage + 0.2) / n));
    EXPECT_TRUE(torch::allclose(value.grad(), 0.3 * (value.detach() - targets.value) / n));
    EXPECT_TRUE(torch::allclose(entropy.grad(), torch::full({kT, kB}, -0.01 / n), 1e-4));
  }
}

// Schulman et al. 2017, equation 7, step by step: no gradient where the ratio has left the clip in
// the direction of the advantage.
TEST(VtraceLossTest, TheClippedObjectiveIsPposOnVtracesAdvantages) {
  torch::manual_seed(4);
  const VtraceTargets targets{torch::zeros({kT, kB}), {}, torch::randn({kT, kB})};
  const auto log_pi = (0.3 * torch::randn({kT, kB})).set_requires_grad(true);
  const auto log_mu = 0.3 * torch::randn({kT, kB}), zeros = torch::zeros({kT, kB});
  const VtraceLossConfig config{.clip = 0.2};
  const auto loss =
      MakeVtraceLoss(config, targets, log_pi, log_mu, zeros, zeros, EntropyCost(0, std::nullopt));
  loss.total.backward();
  double policy = 0;
  int64_t outside = 0;
  for (int64_t t = 0; t < kT; ++t)
    for (int64_t b = 0; b < kB; ++b) {
      const auto at = [&](const torch::Tensor& x) { return x[t][b].item<double>(); };
      const double ratio = std::exp(at(log_pi) - at(log_mu)), advantage = at(targets.unweighted);
      const bool stays = advantage > 0 ? ratio > 1.2 : ratio < 0.8;
      outside += stays;
      const double counts = stays ? (advantage > 0 ? 1.2 : 0.8) : ratio;
      policy -= counts * advantage / (kT * kB);
      EXPECT_NEAR(at(log_pi.grad()), stays ? 0 : -ratio * advantage / (kT * kB), 1e-6);
    }
  EXPECT_NEAR(loss.policy.item<double>(), policy, 1e-6);
  EXPECT_GT(outside, 0);
}

TEST(VtraceLossTest, ByHandItIsTheLoss) {
  using batch_test::Settings;
  for (const Settings& settings :
       {Settings{{"loss.kl_cost", "0.1"}}, Settings{{"vtrace.clip", "0.2"}},
        Settings{{"loss.over", "sum"}, {"vtrace.form", "seed"}, {"loss.value_cost", "0.3"}}})
    batch_test::ExpectTheLossByHand(
        *FindLearningAlgorithm("vtrace")->make(batch_test::ConfigOf("vtrace", settings)));
}

}  // namespace
}  // namespace samara::vtrace_test
