#include "replica/rendezvous/store.h"

#include <limits>

#include "replica/rendezvous/socket_store.h"
#include "replica/rendezvous/store_contract.h"

namespace samara::store_test {
namespace {

std::string NameOf(const ::testing::TestParamInfo<StoreKind>& kind) { return kind.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreContractTest,
    ::testing::Values(StoreKind{"Memory", MakeMemoryStore},
                      StoreKind{"Prefixed", [] { return WithPrefix(MakeMemoryStore(), "gen1/"); }},
                      StoreKind{"Socket",
                                [] {
                                  return MakeSocketStore({"127.0.0.1", 0}, /*serve=*/true, "secret",
                                                         std::chrono::seconds(20))
                                      .ValueOrThrow();
                                }},
                      StoreKind{
                          "PrefixedTwice",
                          [] { return WithPrefix(WithPrefix(MakeMemoryStore(), "a/"), "b/"); }}),
    NameOf);

constexpr std::chrono::milliseconds kSoon{20};

TEST(StoreTest, PrefixesPutKeysApartAndNest) {
  const auto store = MakeMemoryStore();
  const auto old = WithPrefix(store, "gen1/"), young = WithPrefix(store, "gen2/");
  ASSERT_TRUE(old->Set("address", "here").ok());
  EXPECT_FALSE(young->Get("address", kSoon).ok());
  EXPECT_EQ(*store->Get("gen1/address", kSoon), "here");
  ASSERT_TRUE(WithPrefix(young, "monitor/")->Set("address", "there").ok());
  EXPECT_EQ(*store->Get("gen2/monitor/address", kSoon), "there");
}

TEST(StoreTest, ATextIsNoCounterAndASumMustFit) {
  const auto store = MakeMemoryStore();
  ASSERT_TRUE(store->Set("text", "12 monkeys").ok());
  const auto added = store->Add("text", 1);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.status().code(), Code::kConfig);
  EXPECT_NE(added.status().message().find("12 monkeys"), std::string::npos);
  EXPECT_EQ(*store->Get("text", kSoon), "12 monkeys");

  EXPECT_TRUE(store->Add("large", std::numeric_limits<int64_t>::max()).ok());
  EXPECT_FALSE(store->Add("large", 1).ok());
  EXPECT_EQ(*store->Add("large", 0), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace samara::store_test
