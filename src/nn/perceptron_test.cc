// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/perceptron.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "nn/jacobian.h"

namespace samara::perceptron_test {
namespace {

std::vector<float> Draws(size_t n, uint64_t key, double scale = 1) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(scale * CounterRng(key).Normal(i));
  return values;
}

// Returns how far `all` is from `exact`, by the size of the latter.
double Distance(const std::vector<float>& all, const std::vector<float>& exact) {
  double squares = 0, size = 0;
  for (size_t i = 0; i < all.size(); ++i)
    squares += std::pow(double{all[i]} - exact[i], 2), size += std::pow(double{exact[i]}, 2);
  return std::sqrt(squares / size);
}

// A perceptron, its parameters and a pass over `rows` observations.
struct Case {
  Case(std::string_view line, size_t inputs, size_t outputs, size_t n,
       const kernel::Ops& ops = KernelOps(ActiveIsa()))
      : net(Perceptron::Make(line, inputs, outputs, ops).ValueOrThrow()),
        canonical(Draws(net.network().parameter_count, 1, 0.4)),
        parameters(net.size()),
        observations(Draws(n * inputs, 2)),
        by_output(Draws(n * outputs, 3)),
        pass(net.MakePass(n)),
        rows(n) {
    net.FromCanonical(canonical, parameters);
    for (size_t row = 0; row < n; ++row)
      std::copy_n(observations.data() + row * inputs, inputs,
                  pass.input.data() + row * PaddedRow(inputs));
    net.Forward(parameters, n, pass);
  }
  std::vector<float> Outputs() const {
    std::vector<float> all;
    for (size_t row = 0; row < rows; ++row) {
      const auto output = net.Output(pass, row);
      all.insert(all.end(), output.begin(), output.end());
    }
    return all;
  }
  std::vector<float> Gradient() {
    std::vector<float> gradient(net.size());
    net.Backward(parameters, by_output, /*by_input=*/true, pass, gradient);
    return net.Canonical(gradient);
  }

  Perceptron net;
  std::vector<float> canonical, parameters, observations, by_output;
  PerceptronPass pass;
  size_t rows;
};

constexpr const char* kLines[] = {"dense 20 tanh, dense 7 relu", "mlp-64-64-tanh",
                                  "dense 16 elu, dense 33 sigmoid, dense 5 selu",
                                  "dense 9 lrelu, dense 9 lrelu0.2"};
constexpr const char* kNormalizedLines[] = {"dense 20 layer_norm tanh, dense 7 elu",
                                            "dense 16 relu, dense 37 layer_norm none"};

std::vector<const char*> AllLines() {
  std::vector<const char*> lines(std::begin(kLines), std::end(kLines));
  lines.insert(lines.end(), std::begin(kNormalizedLines), std::end(kNormalizedLines));
  return lines;
}

// The sum of the outputs times Case::by_output, of other parameters.
double SumAt(const Case& c, const std::vector<float>& canonical) {
  std::vector<float> parameters(c.net.size());
  c.net.FromCanonical(canonical, parameters);
  PerceptronPass pass = c.net.MakePass(c.rows);
  std::ranges::copy(c.pass.input.span(), pass.input.data());
  c.net.Forward(parameters, c.rows, pass);
  double sum = 0;
  for (size_t row = 0; row < c.rows; ++row)
    for (size_t o = 0; o < c.net.outputs(); ++o)
      sum += double{c.net.Output(pass, row)[o]} * c.by_output[row * c.net.outputs() + o];
  return sum;
}

TEST(PerceptronTest, OutputsAndDerivativesAreThoseOfTheJacobians) {
  for (const char* line : kLines) {
    Case c(line, 5, 3, 21);
    const Jacobians jacobians(c.net.network(), c.canonical, c.observations);
    const auto outputs = c.Outputs();
    for (size_t i = 0; i < outputs.size(); ++i)
      EXPECT_NEAR(outputs[i], jacobians.outputs()[i], 1e-5) << line << " " << i;
    std::vector<float> expected(c.canonical.size());
    jacobians.TransposedTimes(c.by_output, expected);
    const auto gradient = c.Gradient();
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(gradient[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << line << " " << i;
  }
}

// perceptron_op_test.cc compares with torch's.
TEST(PerceptronTest, DerivativesWithLayerNormalizationAreFiniteDifferences) {
  for (const char* line : kNormalizedLines) {
    Case c(line, 5, 3, 4);
    const auto gradient = c.Gradient();
    for (size_t i = 0; i < c.canonical.size(); ++i) {
      auto above = c.canonical, below = c.canonical;
      above[i] += 2e-3F, below[i] -= 2e-3F;
      const double step = double{above[i]} - below[i];
      EXPECT_NEAR(gradient[i], (SumAt(c, above) - SumAt(c, below)) / step,
                  0.01 * (1 + std::abs(gradient[i])))
          << line << " " << i;
    }
  }
}

// Sums of 1 and 3: mean 2, variance 1.
TEST(PerceptronTest, ALayerIsNormalizedOverItsUnits) {
  const auto net = Perceptron::Make("dense 2 layer_norm none", 1, 1).ValueOrThrow();
  const std::vector<float> canonical = {1,         2,  0, 1, /*scale*/ 2, 3, /*shift*/ 0.5, -1,
                                        /*out*/ 1, 10, 0};
  std::vector<float> parameters(net.size());
  net.FromCanonical(canonical, parameters);
  EXPECT_EQ(net.Canonical(parameters), canonical);
  PerceptronPass pass = net.MakePass(1);
  pass.input.data()[0] = 1;
  net.Forward(parameters, 1, pass);
  const double unit = 1 / std::sqrt(1 + 1e-5);
  EXPECT_NEAR(net.Output(pass, 0)[0], (-2 * unit + 0.5) + 10 * (3 * unit - 1), 1e-5);
}

TEST(PerceptronTest, DerivativesByTheInputAreFiniteDifferences) {
  for (const char* line : AllLines()) {
    Case c(line, 5, 3, 4);
    c.net.Backward(c.parameters, c.by_output, /*by_input=*/true, c.pass, {});
    const auto at = [&](size_t row, size_t i, double change) {
      Case moved(line, 5, 3, 4);
      moved.pass.input.data()[row * PaddedRow(5) + i] += static_cast<float>(change);
      moved.net.Forward(moved.parameters, 4, moved.pass);
      double sum = 0;
      const auto outputs = moved.Outputs();
      for (size_t k = 0; k < outputs.size(); ++k) sum += double{outputs[k]} * c.by_output[k];
      return sum;
    };
    for (size_t row = 0; row < 4; ++row)
      for (size_t i = 0; i < 5; ++i)
        EXPECT_NEAR(c.pass.input_delta.data()[row * PaddedRow(5) + i],
                    (at(row, i, 1e-3) - at(row, i, -1e-3)) / 2e-3, 5e-3)
            << line << " " << row << " " << i;
  }
}

// Rows that are left out are those whose outputs have no derivative.
TEST(PerceptronTest, APassOfSomeOfItsRowsHasTheirDerivatives) {
  constexpr size_t kRows = 11, kInputs = 5, kOutputs = 3;
  const std::vector<size_t> kept = {1, 2, 4, 9};
  for (const char* line : AllLines()) {
    Case whole(line, kInputs, kOutputs, kRows), part(line, kInputs, kOutputs, kRows);
    std::vector<float> by_output(kRows * kOutputs), by_kept;
    for (const size_t row : kept)
      for (size_t o = row * kOutputs; o < (row + 1) * kOutputs; ++o)
        by_output[o] = whole.by_output[o], by_kept.push_back(whole.by_output[o]);
    whole.by_output = by_output, part.by_output = by_kept;
    part.net.KeepRows(kept, part.pass);
    EXPECT_EQ(part.Gradient(), whole.Gradient()) << line;
    const size_t row_floats = PaddedRow(kInputs);
    for (size_t k = 0; k < kept.size(); ++k)
      for (size_t i = 0; i < kInputs; ++i)
        EXPECT_EQ(part.pass.input_delta.data()[k * row_floats + i],
                  whole.pass.input_delta.data()[kept[k] * row_floats + i])
            << line;
  }
}

TEST(PerceptronTest, EveryInstructionSetGivesTheSameBits) {
  for (const char* line : AllLines()) {
    Case first(line, 17, 6, 37, KernelOps(IsaLevel::kPortable));
    const auto outputs = first.Outputs(), gradient = first.Gradient();
    for (const IsaLevel isa : AvailableIsaLevels()) {
      Case c(line, 17, 6, 37, KernelOps(isa));
      EXPECT_EQ(c.Outputs(), outputs) << line;
      EXPECT_EQ(c.Gradient(), gradient) << line;
    }
  }
}

// A number has 8 bits there, so that results of a few layers are off by a hundredth; but where an
// activation has a kink, a unit near it may come to lie on the other side, with another slope.
TEST(PerceptronTest, ProductsOfBfloat16AreNearThoseOfFloat32) {
  if (!HasBf16Products()) GTEST_SKIP() << "SKIPPED LOUDLY: this processor has no AVX512_BF16";
  for (const char* line : AllLines()) {
    Case exact(line, 17, 6, 137), rounded(line, 17, 6, 137, KernelOpsWithBf16());
    EXPECT_NE(rounded.Outputs(), exact.Outputs()) << line;
    EXPECT_LT(Distance(rounded.Outputs(), exact.Outputs()), 0.02) << line;
    const bool smooth = std::string_view(line) == "mlp-64-64-tanh";
    EXPECT_LT(Distance(rounded.Gradient(), exact.Gradient()), smooth ? 0.02 : 0.25) << line;
  }
}

// Zeros behind the rows stay zeros, so that padded parameters can be learned as they are.
TEST(PerceptronTest, NothingIsLearnedInThePadding) {
  Case c("dense 7 tanh, dense 21 layer_norm tanh", 3, 2, 9);
  std::vector<float> gradient(c.net.size(), 1), zeros(c.net.size());
  c.net.Backward(c.parameters, c.by_output, false, c.pass, gradient);
  std::vector<float> back(c.net.size());
  c.net.FromCanonical(c.net.Canonical(gradient), back);
  EXPECT_EQ(back, gradient);
}

TEST(PerceptronTest, RefusesWhatItCannotLearn) {
  for (const char* line : {"lstm 8", "normalize, dense 8 tanh", "dense 8 silu", "dense 8 gelu",
                           "conv 3 3 1", "dense 8 vbn tanh"})
    EXPECT_EQ(Perceptron::Make(line, 4, 2).status().code(), Code::kConfig) << line;
}

}  // namespace
}  // namespace samara::perceptron_test
