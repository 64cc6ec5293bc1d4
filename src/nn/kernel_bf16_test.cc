// SPDX-License-Identifier: Apache-2.0 OR MIT
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/rng.h"
#include "nn/kernel_choice.h"

namespace samara::kernel_bf16_test {
namespace {

std::vector<float> Draws(size_t n, uint64_t key) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(CounterRng(key).Normal(i));
  return values;
}

// The nearest number with 8 bits, of two the even one.
double Rounded(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000U);
}

struct Sizes {
  size_t rows, links, columns;
};

// A chain begins with 0, with a bias, or with what is there.
enum class Begin { kZero, kBias, kSum };

// Compares a product with sums in double precision. `transposed`: links of the left matrix are its
// rows in memory.
void ExpectProduct(const Sizes& sizes, bool transposed, Begin begin) {
  const auto [rows, links, columns] = sizes;
  const std::vector<float> left = Draws(rows * links, 1), right = Draws(links * columns, 2),
                           bias = Draws(columns, 3), before = Draws(rows * columns, 4);
  std::vector<float> out = before;
  kernel::ProductTask task{.left = left.data(),
                           .left_row = transposed ? 1 : links,
                           .left_link = transposed ? rows : 1,
                           .right = right.data(),
                           .right_row = columns,
                           .out = out.data(),
                           .out_row = columns,
                           .rows = rows,
                           .links = links,
                           .columns = columns,
                           .add = begin == Begin::kSum};
  if (begin == Begin::kBias) task.bias = bias.data();
  KernelOpsWithBf16().product(task);
  for (size_t m = 0; m < rows; ++m)
    for (size_t n = 0; n < columns; ++n) {
      double sum = begin == Begin::kSum ? before[m * columns + n] : task.bias ? bias[n] : 0.0;
      for (size_t l = 0; l < links; ++l)
        sum +=
            Rounded(left[m * task.left_row + l * task.left_link]) * Rounded(right[l * columns + n]);
      ASSERT_NEAR(out[m * columns + n], sum, 1e-5 * std::sqrt(static_cast<double>(links)))
          << rows << " " << links << " " << columns << " " << transposed << " " << m << " " << n;
    }
}

// Sizes of less than a tile, a block or a pair, and of several.
TEST(KernelBf16Test, AProductIsThatOfRoundedNumbers) {
  if (!HasBf16Products()) GTEST_SKIP() << "SKIPPED LOUDLY: this processor has no AVX512_BF16";
  for (const Sizes& sizes : {Sizes{1, 1, 16}, Sizes{13, 37, 48}, Sizes{12, 256, 32},
                             Sizes{97, 31, 64}, Sizes{200, 523, 80}})
    for (const bool transposed : {false, true})
      for (const Begin begin : {Begin::kZero, Begin::kBias, Begin::kSum})
        ExpectProduct(sizes, transposed, begin);
}

}  // namespace
}  // namespace samara::kernel_bf16_test
