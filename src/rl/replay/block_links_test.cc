#include "rl/replay/block_links.h"

#include <gtest/gtest.h>

#include <limits>

namespace samara::block_links_test {
namespace {

// Three places, of which a stream filled the last two and then the first; the next to be replaced
// is the second.
struct Saved {
  std::vector<uint64_t> next = {BlockLinks::kNone, 2, 0};
  uint64_t streams = 1, stream = 5, block = 0, unroll = 9;
  uint32_t episode_step = 3;

  bool Restore(size_t size = std::numeric_limits<size_t>::max()) const {
    ByteWriter out;
    out.PutVector(next).Put(streams).Put(stream).Put(block).Put(unroll).Put(episode_step);
    const std::string bytes = out.Take();
    ByteReader in(std::string_view(bytes).substr(0, size));
    return BlockLinks().Restore(in, /*blocks=*/3, /*oldest=*/1) && in.AtEnd();
  }
};

TEST(BlockLinksTest, WhatIsSavedIsReadBack) {
  EXPECT_TRUE(Saved().Restore());
  for (size_t size = 0; size < 60; ++size) EXPECT_FALSE(Saved().Restore(size)) << size;
}

TEST(BlockLinksTest, LinksThatLeadNowhereOrInACircleAreRefused) {
  EXPECT_FALSE((Saved{.next = {BlockLinks::kNone, 2}}).Restore());  // a block less
  EXPECT_FALSE(
      (Saved{.next = {BlockLinks::kNone, 2, 0, BlockLinks::kNone}}).Restore());  // and one more
  EXPECT_FALSE((Saved{.next = {BlockLinks::kNone, 3, 0}}).Restore());            // behind the last
  EXPECT_FALSE((Saved{.next = {1, 2, 0}}).Restore());  // the newest to the oldest
  EXPECT_FALSE((Saved{.next = {0, 2, 0}}).Restore());  // itself
  EXPECT_FALSE((Saved{.block = 3}).Restore());
}

}  // namespace
}  // namespace samara::block_links_test
