// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace samara {
namespace {

const Status kFull(Code::kIoError, "disk full");

// those of sysexits.h; 75 is EX_TEMPFAIL
TEST(StatusTest, CodesAreTheExitCodesOfSysexits) {
  const std::pair<Code, int> codes[] = {
      {Code::kOk, 0},
      {Code::kUsage, 64},
      {Code::kBadData, 65},
      {Code::kNoInput, 66},
      {Code::kUnavailable, 69},
      {Code::kInternal, 70},
      {Code::kCannotCreate, 73},
      {Code::kIoError, 74},
      {Code::kTryAgain, 75},
      {Code::kNotPermitted, 77},
      {Code::kConfig, 78},
  };
  for (const auto& [code, number] : codes) EXPECT_EQ(static_cast<int>(code), number);
}

TEST(StatusTest, AnnotateKeepsTheCode) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(Status::Ok().Annotate("saving").ok());
  EXPECT_EQ(Status::Ok().Annotate("saving").message(), "");
  EXPECT_EQ(kFull.Annotate("saving").code(), Code::kIoError);
  EXPECT_EQ(kFull.Annotate("saving").message(), "saving: disk full");
}

TEST(StatusTest, ErrorCarriesTheStatus) {
  EXPECT_NO_THROW(ThrowIfError(Status::Ok()));
  try {
    ThrowIfError(kFull);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "disk full");
    EXPECT_EQ(error.status().code(), Code::kIoError);
  }
}

TEST(ResultTest, HoldsAValueOrAReason) {
  Result<std::string> good = std::string("frog"), bad = kFull;
  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*good, "frog");
  EXPECT_EQ(good->size(), 4U);
  EXPECT_EQ(std::move(good).ValueOrThrow(), "frog");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "disk full");
  EXPECT_THROW((void)std::move(bad).ValueOrThrow(), Error);
}

TEST(ResultDeathTest, MisuseIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)*Result<int>(kFull), "disk full");
  EXPECT_DEATH((void)Result<int>(Status::Ok()), "needs a reason");
}

// Counts how far it came, so that a macro which does not return is caught.
Status TwoSteps(const Status& first, int& steps) {
  RETURN_IF_ERROR(first);
  ++steps;
  RETURN_IF_ERROR(Status::Ok());
  ++steps;
  return Status::Ok();
}

TEST(StatusTest, ReturnIfErrorReturnsOnlyThen) {
  int steps = 0;
  EXPECT_TRUE(TwoSteps(Status::Ok(), steps).ok());
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(TwoSteps(kFull, steps).message(), "disk full");
  EXPECT_EQ(steps, 2);
}

Result<int> Sum(Result<std::unique_ptr<int>> a, Result<int> b) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> first, std::move(a));
  int second = 0;
  ASSIGN_OR_RETURN(second, b);
  return *first + second;
}

TEST(ResultTest, AssignOrReturnMovesTheValueOrReturnsTheStatus) {
  EXPECT_EQ(*Sum(std::make_unique<int>(3), 4), 7);
  EXPECT_EQ(Sum(kFull, 4).status().message(), "disk full");
  EXPECT_EQ(Sum(std::make_unique<int>(3), kFull).status().code(), Code::kIoError);
}

}  // namespace
}  // namespace samara
