#include "rl/replay/slabs.h"

#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <vector>

namespace samara::slabs_test {
namespace {

std::vector<int> Numbers(size_t count, int first) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

void ExpectNumbers(const Kept<int>& kept, const std::vector<int>& expected) {
  EXPECT_TRUE(std::ranges::equal(kept.values(), expected)) << expected.size();
}

// A queue of 40 items of about 300 KB, 2,000 in all: 3 slabs hold it, and a fourth is half empty.
TEST(SlabsTest, MemoryOfAQueueIsThatOfItsItems) {
  const size_t before = Slabs::TEST_Open();
  size_t most = 0;
  {
    Slabs slabs;
    std::deque<std::pair<Kept<int>, int>> queue;
    for (int i = 0; i < 2000; ++i) {
      const size_t count = 75'000 + static_cast<size_t>(i % 7) * 100;
      queue.emplace_back(slabs.Keep<int>(Numbers(count, i)), i);
      if (queue.size() > 40) {
        const auto& [kept, first] = queue.front();
        if (i % 100 == 0) ExpectNumbers(kept, Numbers(kept.size(), first));
        queue.pop_front();
      }
      most = std::max(most, Slabs::TEST_Open() - before);
      EXPECT_EQ(slabs.bytes(), (Slabs::TEST_Open() - before) * Slabs::kSlabBytes);
    }
    EXPECT_LE(most, 40 * 75'600 * sizeof(int) / Slabs::kSlabBytes + 2);
    EXPECT_GE(most, 40 * 75'000 * sizeof(int) / Slabs::kSlabBytes);
  }
  EXPECT_EQ(Slabs::TEST_Open(), before);
}

TEST(SlabsTest, ValuesOutliveTheSlabsAndMayBeLargerThanOne) {
  const size_t before = Slabs::TEST_Open();
  Kept<int> small, large, none;
  Kept<double> aligned;
  {
    Slabs slabs;
    small = slabs.Keep<int>(Numbers(3, 5));
    aligned = slabs.Keep<double>(std::vector{1.5, 2.5});
    large = slabs.Keep<int>(Numbers(Slabs::kSlabBytes, 1));
    none = slabs.Keep<int>({});
  }
  ExpectNumbers(small, {5, 6, 7});
  EXPECT_EQ(aligned.values()[1], 2.5);
  ExpectNumbers(large, Numbers(Slabs::kSlabBytes, 1));
  EXPECT_EQ(none.size(), 0u);
  large = {}, small = {};
  EXPECT_EQ(Slabs::TEST_Open(), before + 1) << "a value of the first slab is still there";
  aligned = {};
  EXPECT_EQ(Slabs::TEST_Open(), before);
}

}  // namespace
}  // namespace samara::slabs_test
