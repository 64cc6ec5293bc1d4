// Contract tests of every Store, for the test programs of each: instantiate StoreContractTest with
// something that makes an empty one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/thread.h"
#include "replica/rendezvous/store.h"

namespace samara {

struct StoreKind {
  std::string name;
  std::function<std::shared_ptr<Store>()> make;
};

class StoreContractTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  const std::shared_ptr<Store> store_ = GetParam().make();
  const std::chrono::milliseconds soon_{50}, long_{20'000};
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContractTest);

TEST_P(StoreContractTest, GetsWhatWasSetLast) {
  ASSERT_TRUE(store_->Set("name", "first").ok());
  ASSERT_TRUE(store_->Set("name", "second").ok());
  EXPECT_EQ(*store_->Get("name", soon_), "second");
}

TEST_P(StoreContractTest, KeepsEveryByte) {
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  ASSERT_TRUE(store_->Set("bytes", bytes).ok());
  EXPECT_EQ(*store_->Get("bytes", soon_), bytes);
}

TEST_P(StoreContractTest, SaysWhichKeyIsMissingAfterTheTimeout) {
  const SteadyTime start = Now();
  const Result<std::string> got = store_->Get("nobody", soon_);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().code(), Code::kUnavailable);
  EXPECT_NE(got.status().message().find("nobody"), std::string::npos) << got.status().message();
  EXPECT_GE(SecondsSince(start), 0.04);
}

TEST_P(StoreContractTest, GetWaitsForASetOfAnotherThread) {
  std::string got;
  {
    Thread reader("reader", [&] { got = *store_->Get("late", long_); });
    std::this_thread::sleep_for(soon_);
    ASSERT_TRUE(store_->Set("late", "here").ok());
  }
  EXPECT_EQ(got, "here");
}

TEST_P(StoreContractTest, GetWaitsForACounterToo) {
  EXPECT_EQ(*store_->Add("counter", 41), 41);
  EXPECT_EQ(*store_->Get("counter", soon_), "41");
}

TEST_P(StoreContractTest, WhatWasDeletedIsNotThere) {
  EXPECT_TRUE(store_->Delete("message").ok());
  ASSERT_TRUE(store_->Set("message", "first").ok());
  ASSERT_TRUE(store_->Set("other", "stays").ok());
  ASSERT_TRUE(store_->Delete("message").ok());
  EXPECT_FALSE(store_->Get("message", soon_).ok());
  EXPECT_EQ(*store_->Get("other", soon_), "stays");
  ASSERT_TRUE(store_->Set("message", "second").ok());
  EXPECT_EQ(*store_->Get("message", soon_), "second");
}

TEST_P(StoreContractTest, EveryAddIsCountedOnce) {
  constexpr int kThreads = 8, kAdds = 200;
  std::vector<std::vector<int64_t>> sums(kThreads);
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (auto& mine : sums)
      threads.push_back(std::make_unique<Thread>("adder", [this, &mine] {
        for (int i = 0; i < kAdds; ++i) mine.push_back(*store_->Add("tickets", 1));
      }));
  }
  std::set<int64_t> all;
  for (const auto& mine : sums) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), size_t{kThreads * kAdds});  // no number twice
  EXPECT_EQ(*all.begin(), 1);
  EXPECT_EQ(*all.rbegin(), kThreads * kAdds);
  EXPECT_EQ(*store_->Add("tickets", -kThreads * kAdds), 0);
}

}  // namespace samara
