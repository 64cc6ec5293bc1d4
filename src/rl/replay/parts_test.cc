#include "rl/replay/parts.h"

#include <gtest/gtest.h>

namespace samara::parts_test {
namespace {

bool Same(const ItemRange& range, uint64_t first, uint64_t end) {
  return range.first == first && range.end == end;
}

TEST(ReplayPartsTest, PartsAreFewAndNeitherSmallNorLarge) {
  const PartRule rule{.parts_max = 100, .bytes_min = 1000, .bytes_max = 5000};
  EXPECT_EQ(ReplayParts(rule, 6400, 10).items(), 200u);    // a 32nd
  EXPECT_EQ(ReplayParts(rule, 64, 10).items(), 100u);      // more than there ever are
  EXPECT_EQ(ReplayParts(rule, 32'000, 10).items(), 500u);  // 64 parts of 5,000 bytes
  EXPECT_EQ(ReplayParts(rule, 60'001, 10).items(), 601u);  // 100 parts
  EXPECT_EQ(ReplayParts(rule, 64, 100'000).items(), 1u);
  EXPECT_EQ(ReplayParts(rule, 1, 100'000).items(), 1u);
}

// By hand: parts of four items, of which 5 to 17 are there.
TEST(ReplayPartsTest, ThePartsOfTheItemsThatAreThere) {
  const ReplayParts parts(4);
  const ItemRange held{5, 18};
  EXPECT_EQ(parts.Complete(held), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(Same(parts.Of(1, held), 5, 8));  // 4 has left
  EXPECT_TRUE(Same(parts.Of(2, held), 8, 12));
  EXPECT_TRUE(Same(parts.Rest(held), 16, 18));
  EXPECT_EQ(parts.Complete({5, 7}), std::vector<uint64_t>());
  EXPECT_TRUE(Same(parts.Rest({5, 7}), 5, 7));
  EXPECT_EQ(parts.Complete({0, 0}), std::vector<uint64_t>());
  EXPECT_EQ(parts.Complete({4, 8}), std::vector<uint64_t>{1});
  EXPECT_TRUE(Same(parts.Rest({4, 8}), 8, 8));
}

}  // namespace
}  // namespace samara::parts_test
