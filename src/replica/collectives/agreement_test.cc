#include "replica/collectives/agreement.h"

#include <gtest/gtest.h>

namespace samara::agreement_test {
namespace {

std::string Describe(const std::vector<std::string>& values) {
  std::map<int, std::string> value_by_rank;
  for (const std::string& value : values)
    value_by_rank.emplace(static_cast<int>(value_by_rank.size()), value);
  return DescribeDisagreement(value_by_rank);
}

TEST(AgreementTest, EqualValuesAreNoDisagreement) {
  EXPECT_EQ(Describe({"a"}), "");
  EXPECT_EQ(Describe({"a", "a", "a"}), "");
}

TEST(AgreementTest, NamesTheMinorityWhereverItIs) {
  EXPECT_EQ(Describe({"b", "a", "a"}), "rank 0 differs from the other 2");
  EXPECT_EQ(Describe({"a", "a", "b", "a"}), "rank 2 differs from the other 3");
  EXPECT_EQ(Describe({"b", "c", "a", "a", "a"}), "ranks 0-1 differ from the other 3");
}

TEST(AgreementTest, SaysThatATieHasNoCulprit) {
  const std::string unknown = " differ, and without a majority it is not known which is wrong";
  EXPECT_EQ(Describe({"a", "b"}), "rank 0 | rank 1" + unknown);
  EXPECT_EQ(Describe({"a", "b", "b", "a"}), "ranks 0, 3 | ranks 1-2" + unknown);
  EXPECT_EQ(Describe({"a", "b", "c", "c"}), "rank 0 | rank 1 | ranks 2-3" + unknown);
}

TEST(AgreementTest, ComparesOnlyTheRanksThatHoldTheValue) {
  EXPECT_EQ(DescribeDisagreement({{1, "a"}, {3, "b"}, {4, "a"}}),
            "rank 3 differs from the other 2");
}

TEST(AgreementTest, ADisagreementIsAnInternalFailure) {
  EXPECT_TRUE(CheckAgreement("the step", std::vector<std::string>{"7", "7"}).ok());
  const Status status = CheckAgreement("the step", std::vector<std::string>{"7", "7", "8"});
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_TRUE(status.message().starts_with(
      "the step is not the same on all ranks: rank 2 differs from the other 2: "))
      << status.message();
}

}  // namespace
}  // namespace samara::agreement_test
