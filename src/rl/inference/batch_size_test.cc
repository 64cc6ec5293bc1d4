#include "rl/inference/batch_size.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace samara::batch_size_test {
namespace {

using std::chrono::microseconds;

// A network whose call takes `fixed` and `per_row` for each row.
class TimedModel : public Model {
 public:
  TimedModel(microseconds fixed, microseconds per_row) : fixed_(fixed), per_row_(per_row) {}
  const ModelShape& shape() const override { return shape_; }
  bool Has(uint64_t) const override { return true; }
  Status Infer(InferenceBatch& batch) override {
    sizes.push_back(static_cast<uint32_t>(batch.rows.size()));
    for (const InferenceRow& row : batch.rows) {
      EXPECT_TRUE(row.first);
      EXPECT_EQ(row.observation.size(), shape_.observation_bytes);
    }
    if (failing) return {Code::kInternal, "no memory"};
    std::this_thread::sleep_for(fixed_ + per_row_ * batch.rows.size());
    return Status::Ok();
  }
  std::vector<uint32_t> sizes;
  bool failing = false;

 private:
  const microseconds fixed_, per_row_;
  const ModelShape shape_{.observation_bytes = 12};
};

// By hand: 1 row in 1 ms costs 0.0025 - ln 1; 8 in 2 ms 0.005 - ln 4; 64 in 400 ms 1 - ln 0.16.
TEST(BatchSizeTest, TheCostIsThatOfTheRule) {
  EXPECT_NEAR(BatchCost({1, 1}), 0.0025, 1e-12);
  EXPECT_NEAR(BatchCost({8, 2}), 0.005 - 1.3862943611198906, 1e-12);
  EXPECT_NEAR(BatchCost({64, 400}), 1 + 1.8325814637483102, 1e-12);
}

TEST(BatchSizeTest, TheLeastCostWinsAndOfTwoTheSmaller) {
  EXPECT_EQ(ChooseBatch({{1, 1}, {2, 1.1}, {4, 1.3}, {8, 9}}).rows, 4U);
  EXPECT_EQ(ChooseBatch({{4, 2}, {4, 2}}).rows, 4U);
  // linear cost: 1 % more rows per second is not worth 100 ms
  EXPECT_EQ(ChooseBatch({{256, 256}, {512, 512 * 0.99}}).rows, 256U);
  // unless waiting is short: 5 % more for 3 ms
  EXPECT_EQ(ChooseBatch({{4, 4}, {8, 8 * 0.95}}).rows, 8U);
}

TEST(BatchSizeTest, PowersOfTwoAndTheLargestAreMeasured) {
  TimedModel model(microseconds(0), microseconds(0));
  const auto choice = MeasureBatches(model, 12, 0.0005).ValueOrThrow();
  std::vector<uint32_t> rows;
  for (const BatchPoint& point : choice.curve) rows.push_back(point.rows);
  EXPECT_EQ(rows, (std::vector<uint32_t>{1, 2, 4, 8, 12}));
  EXPECT_EQ(model.sizes.front(), 1U);
  EXPECT_EQ(model.sizes.back(), 12U);
  EXPECT_EQ(MeasureBatches(model, 1, 0).ValueOrThrow().rows, 1U);
}

TEST(BatchSizeTest, WhereACallCostsMuchAndARowLittleTheLargestWins) {
  TimedModel model(microseconds(2000), microseconds(1));
  const auto choice = MeasureBatches(model, 16, 0.01).ValueOrThrow();
  EXPECT_EQ(choice.rows, 16U);
  for (const BatchPoint& point : choice.curve) EXPECT_GE(point.milliseconds, 2);
  EXPECT_TRUE(ToText(choice).starts_with("16 rows (1: ")) << ToText(choice);
}

TEST(BatchSizeTest, AFailingModelIsReported) {
  TimedModel model(microseconds(0), microseconds(0));
  model.failing = true;
  EXPECT_EQ(MeasureBatches(model, 4, 0.01).status().message(), "no memory");
}

}  // namespace
}  // namespace samara::batch_size_test
