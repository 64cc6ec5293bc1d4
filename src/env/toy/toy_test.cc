// Episodes of the toy tasks computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "env/picture_test_util.h"
#include "env/registry.h"

namespace samara::toy_test {
namespace {

// Plays one episode; `answer` says the two numbers for an observation.
template <typename Answer>
double Return(const char* id, const Answer& answer, std::vector<StepResult>* steps = nullptr) {
  const auto environment = NativeEnvironment(id).ValueOrThrow()().ValueOrThrow();
  std::vector<float> observation(environment->spec().observation.elements());
  const auto bytes = std::as_writable_bytes(std::span(observation));
  environment->Reset({.seed = 1}, bytes);
  double sum = 0;
  for (bool over = false; !over;) {
    const std::vector<float> values = answer(observation);
    const StepResult step = environment->Step({.index = 0, .values = values}, bytes);
    sum += step.reward;
    over = step.terminated || step.truncated;
    if (steps != nullptr) steps->push_back(step);
  }
  return sum;
}

TEST(ParityTest, ShowsEveryStringOnceAndBeginsEachAnew) {
  std::vector<std::vector<float>> strings(1);
  std::vector<StepResult> steps;
  Return(
      "Parity-v0",
      [&](const std::vector<float>& bit) {
        if (strings.back().size() == 4) strings.emplace_back();
        strings.back().push_back(bit[0]);
        return std::vector{0.0f, 0.0f};
      },
      &steps);
  ASSERT_EQ(strings.size(), 16u);
  for (int s = 0; s < 16; ++s)
    for (int b = 0; b < 4; ++b) EXPECT_EQ(strings[s][b], s >> (3 - b) & 1);
  ASSERT_EQ(steps.size(), 64u);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(steps[i].new_sequence, i % 4 == 3 && i != 63) << i;
}

TEST(ParityTest, AnswersWithoutKnowledgeAreWorthLogTwo) {
  const auto even = [](const std::vector<float>&) { return std::vector{0.0f, 0.0f}; };
  EXPECT_NEAR(Return("Parity-v0", even), -std::log(2.0), 1e-12);
}

TEST(ParityTest, ReturnIsTheLikelihoodAndReachesZeroWithTheLastString) {
  const auto with_margin = [](double margin, int wrong_string) {
    int bits = 0, ones = 0;
    return Return("Parity-v0", [&, wrong_string](const std::vector<float>& bit) {
      if (bits % 4 == 0) ones = 0;
      ones += bit[0] > 0 ? 1 : 0;
      const bool odd = ones % 2 == 1;
      const bool lies = bits++ / 4 == wrong_string;
      const auto half = static_cast<float>(margin / 2);
      return odd != lies ? std::vector{-half, half} : std::vector{half, -half};
    });
  };
  const double right = std::log1p(std::exp(-0.5)), wrong = std::log1p(std::exp(0.5));
  EXPECT_NEAR(with_margin(0.5, -1), 1 - right, 1e-7);
  EXPECT_NEAR(with_margin(0.5, 7), -(15 * right + wrong) / 16, 1e-7);
  EXPECT_LT(with_margin(1000, 7), 0);  // no overflow
  EXPECT_NEAR(with_margin(1000, 7), -1000.0 / 16, 1e-3);
  const auto parity = NativeEnvironment("Parity-v0").ValueOrThrow()().ValueOrThrow();
  const EnvironmentSpec& spec = parity->spec();
  EXPECT_EQ(spec.solved, 0);
  EXPECT_TRUE(spec.solved_once);
}

TEST(TwoWeightsTest, OnlyTheRightWeightsSolve) {
  for (const char* id : {"ToyEasy-v0", "ToyMedium-v0", "ToyWashout-v0"}) {
    const auto with = [&](float w0, float w1) {
      return Return(id, [&](const std::vector<float>& x) {
        return std::vector{w0 * x[0], w1 * x[1]};
      });
    };
    const double solved = NativeEnvironment(id).ValueOrThrow()().ValueOrThrow()->spec().solved;
    EXPECT_TRUE(NativeEnvironment(id).ValueOrThrow()().ValueOrThrow()->spec().solved_once) << id;
    EXPECT_NEAR(with(0.01F, 10), 0, 1e-12) << id;
    EXPECT_LT(with(0.01F, 8), solved) << id;
    EXPECT_NEAR(with(0.01F, 0), -0.5, 1e-12) << id;
    if (std::string(id) == "ToyEasy-v0")
      EXPECT_EQ(with(1, 10), with(0.01F, 10));
    else
      EXPECT_NEAR(with(0.02F, 10), -0.5, 1e-6) << id;
  }
}

// Steps a task that draws.
class Drawn {
 public:
  explicit Drawn(const char* id)
      : environment_(NativeEnvironment(id, /*render=*/true).ValueOrThrow()().ValueOrThrow()),
        observation_(environment_->spec().observation.bytes()) {
    environment_->Reset({.seed = 1}, observation_);
  }
  void Step(float first, float second) {
    environment_->Step({.index = 0, .values = std::vector{first, second}}, observation_);
  }
  int Red(int64_t y, int64_t x) { return RedAt(*environment_, y, x); }

 private:
  std::unique_ptr<Environment> environment_;
  std::vector<std::byte> observation_;
};

TEST(ParityTest, DrawsTheBitsReadAndTheStringsAnswered) {
  Drawn parity("Parity-v0");
  EXPECT_EQ(parity.Red(30, 20), 129) << "0, the first bit of 0000";
  EXPECT_EQ(parity.Red(30, 60), 255) << "not read yet";
  for (int i = 0; i < 4; ++i) parity.Step(1, 0);  // even: right
  EXPECT_EQ(parity.Red(65, 5), 129);
  EXPECT_EQ(parity.Red(65, 15), 255);
  for (int i = 0; i < 3; ++i) parity.Step(1, 0);
  EXPECT_EQ(parity.Red(30, 140), 30) << "1, the last bit of 0001";
  parity.Step(1, 0);  // even: wrong
  EXPECT_EQ(parity.Red(65, 5), 202);
  EXPECT_EQ(parity.Red(65, 15), 129);
}

TEST(TwoWeightsTest, DrawsTargetsAndAnswers) {
  Drawn washout("ToyWashout-v0");
  EXPECT_EQ(washout.Red(20, 180), 202) << "the target 1";
  EXPECT_EQ(washout.Red(20, 120), 129) << "no answer yet";
  washout.Step(0, 1);
  EXPECT_EQ(washout.Red(20, 120), 30);
  EXPECT_EQ(washout.Red(20, 174), 202) << "the target that this answered";
  EXPECT_EQ(washout.Red(60, 180), 30);
  washout.Step(-100, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(washout.Red(20, 1), 30) << "at the edge";
  EXPECT_EQ(washout.Red(20, 54), 202) << "the target -1";
}

}  // namespace
}  // namespace samara::toy_test
