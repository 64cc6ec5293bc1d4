// The fixed tree, against a recursion over plain doubles and against rounding done by hand.
#include "replica/collectives/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace samara::reduce_test {
namespace {

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}
template <typename T>
std::vector<T> Folded(ReduceOp op, ElementType type, std::vector<T> a, const std::vector<T>& b) {
  Fold(op, type, std::as_writable_bytes(std::span(a)), Bytes(b));
  return a;
}

TEST(ReduceTest, FoldsEveryType) {
  EXPECT_EQ(Folded<float>(ReduceOp::kSum, ElementType::kF32, {1, 2}, {3, 4}),
            (std::vector<float>{4, 6}));
  EXPECT_EQ(Folded<double>(ReduceOp::kProduct, ElementType::kF64, {2, -3}, {5, 7}),
            (std::vector<double>{10, -21}));
  EXPECT_EQ(Folded<int64_t>(ReduceOp::kMin, ElementType::kI64, {5, -9}, {3, 4}),
            (std::vector<int64_t>{3, -9}));
  EXPECT_EQ(Folded<int8_t>(ReduceOp::kMax, ElementType::kI8, {5, -9}, {-3, 4}),
            (std::vector<int8_t>{5, 4}));
  EXPECT_EQ(Folded<uint8_t>(ReduceOp::kSum, ElementType::kU8, {250, 1}, {10, 4}),
            (std::vector<uint8_t>{4, 5}));
  EXPECT_EQ(Folded<int32_t>(ReduceOp::kSum, ElementType::kI32,
                            {std::numeric_limits<int32_t>::max()}, {1}),
            std::vector<int32_t>{std::numeric_limits<int32_t>::min()});
  EXPECT_EQ(Folded<int16_t>(ReduceOp::kProduct, ElementType::kI16, {-300}, {300}),
            std::vector<int16_t>{static_cast<int16_t>(-90000)});
  EXPECT_EQ(Folded<uint8_t>(ReduceOp::kSum, ElementType::kBool, {0, 1, 0}, {0, 1, 1}),
            (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_EQ(Folded<uint8_t>(ReduceOp::kMin, ElementType::kBool, {0, 1, 0}, {0, 1, 1}),
            (std::vector<uint8_t>{0, 1, 0}));
}

TEST(ReduceTest, HandsOnNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto out = Folded<float>(op, ElementType::kF32, {nan, 1}, {1, nan});
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  }
}

TEST(ReduceTest, HalvesRoundToNearestEven) {
  // bf16 keeps 8 bits: 256 + 1 lies between 256 and 258, ties to even; 256 + 3 between 258 and 260
  EXPECT_EQ(
      Folded<uint16_t>(ReduceOp::kSum, ElementType::kBf16, {0x4380, 0x4380}, {0x3F80, 0x4040}),
      (std::vector<uint16_t>{0x4380, 0x4382}));
  // f16 keeps 11 bits: 2048 + 1 ties to 2048, 2048 + 3 to 2052; 65504 + 16 overflows;
  // the two smallest subnormals add exactly
  EXPECT_EQ(Folded<uint16_t>(ReduceOp::kSum, ElementType::kF16, {0x6800, 0x6800, 0x7BFF, 0x0001},
                             {0x3C00, 0x4200, 0x4C00, 0x0001}),
            (std::vector<uint16_t>{0x6800, 0x6802, 0x7C00, 0x0002}));
  // every finite f16 plus zero is itself
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto x = static_cast<uint16_t>(bits);
    ASSERT_EQ(Folded<uint16_t>(ReduceOp::kMax, ElementType::kF16, {x}, {0})[0], x);
  }
}

float Expected(const std::vector<float>& leaves, size_t begin, size_t end) {
  if (end - begin == 1) return leaves[begin];
  size_t left = 1;
  while (left * 2 < end - begin) left *= 2;
  return Expected(leaves, begin, begin + left) + Expected(leaves, begin + left, end);
}

TEST(ReduceTest, TheTreeHasTheSameBitsHoweverItIsShared) {
  for (uint32_t k = 1; k <= 24; ++k) {
    std::vector<float> leaves(k);
    for (uint32_t i = 0; i < k; ++i)
      leaves[i] =
          std::sin(static_cast<float>(i + 1)) * std::ldexp(1.0F, static_cast<int>(i % 7) * 3);
    const float expected = Expected(leaves, 0, k);
    for (uint32_t world = 1; world <= k; ++world) {
      if (k % world != 0) continue;
      const uint32_t each = k / world;
      std::vector<TreeFolder> folders;
      std::vector<Partial> partials;
      for (uint32_t r = 0; r < world; ++r) {
        folders.emplace_back(ReduceOp::kSum, ElementType::kF32, k, r * each, (r + 1) * each);
        for (uint32_t i = r * each; i < (r + 1) * each; ++i)
          folders.back().Add(std::as_bytes(std::span(&leaves[i], 1)));
      }
      for (uint32_t r = 0; r < world; ++r) {
        const auto mine = folders[r].partials();
        const auto nodes = Subtrees(k, r * each, (r + 1) * each);
        ASSERT_EQ(mine.size(), nodes.size());
        for (size_t i = 0; i < mine.size(); ++i) ASSERT_EQ(mine[i].node, nodes[i]);
        partials.insert(partials.end(), mine.begin(), mine.end());
      }
      float out = 0;
      FoldTree(ReduceOp::kSum, ElementType::kF32, k, partials,
               std::as_writable_bytes(std::span(&out, 1)));
      ASSERT_EQ(std::memcmp(&out, &expected, sizeof out), 0) << k << " leaves, " << world;
    }
  }
}

TEST(ReduceTest, SubtreesCoverWhatIsAskedFor) {
  EXPECT_EQ(Subtrees(8, 0, 8), (std::vector<TreeNode>{{0, 8}}));
  EXPECT_EQ(Subtrees(8, 2, 6), (std::vector<TreeNode>{{2, 4}, {4, 6}}));
  EXPECT_EQ(Subtrees(6, 0, 3), (std::vector<TreeNode>{{0, 2}, {2, 3}}));
  EXPECT_EQ(Subtrees(6, 3, 6), (std::vector<TreeNode>{{3, 4}, {4, 6}}));
  EXPECT_TRUE(Subtrees(6, 3, 3).empty());
}

}  // namespace
}  // namespace samara::reduce_test
