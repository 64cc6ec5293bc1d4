// SPDX-License-Identifier: Apache-2.0 OR MIT
// Levels against each other; against other implementations: tests/test_atari_pixels.py.
#include "nn/pixels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/rng.h"

namespace samara::pixels_test {
namespace {

struct Case {
  const char *pooling, *gray, *resize;
};
constexpr Case kCases[] = {{"gray-max", "ale", "area"},         {"gray-max", "ale", "linear"},
                           {"rgb-max", "y-truncated", "pil"},   {"rgb-max", "cvtcolor", "area"},
                           {"rgb-max", "y-float", "pil-float"}, {"gray-max", "y-unit", "aligned"}};

std::vector<uint8_t> Random(uint64_t key, size_t n, uint32_t mask) {
  const CounterRng rng(key);
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(rng.Bits(i) & mask);
  return bytes;
}

// Observation of two random frames, equal in their upper half. `odd`: colours have odd indices too.
std::vector<uint8_t> Observe(const Case& c, int height, int width, bool odd, IsaLevel isa) {
  auto palette = Random(1, 768, 255), gray = Random(2, 256, 255);
  for (size_t i = 0; !odd && i < 256; i += 2) {
    std::copy_n(&palette[3 * i], 3, &palette[3 * i + 3]);
    gray[i + 1] = gray[i];
  }
  const auto n = static_cast<size_t>(height * width);
  const auto a = Random(3, n, odd ? 255 : 254);
  auto b = Random(4, n, odd ? 255 : 254);
  std::copy_n(a.begin(), n / 2, b.begin());
  auto kernel =
      PixelKernel::Make({c.pooling, c.gray, c.resize, height, width, 84, 84}, palette, gray, isa)
          .ValueOrThrow();
  std::vector<uint8_t> out(84 * 84 * (kernel->float_output() ? 4 : 1));
  kernel->Run(a.data(), b.data(), out.data());
  return out;
}

TEST(PixelsTest, EveryLevelGivesTheBitsOfThePortableOne) {
  for (const Case& c : kCases) {
    for (const auto& [height, width] : {std::pair{210, 160}, {250, 160}, {97, 211}, {60, 50}}) {
      for (const bool odd : {false, true}) {
        const auto portable = Observe(c, height, width, odd, IsaLevel::kPortable);
        for (const IsaLevel isa : AvailableIsaLevels()) {
          EXPECT_EQ(Observe(c, height, width, odd, isa), portable)
              << c.resize << ' ' << height << ' ' << odd << ' ' << Name(isa);
        }
      }
    }
  }
}

// Hand computed: a screen of one colour stays that colour under every rule.
TEST(PixelsTest, OneColourStaysOneColour) {
  const std::vector<uint8_t> palette(768, 200), gray(256, 200), frame(210 * 160, 6);
  for (const Case& c : kCases) {
    auto kernel = PixelKernel::Make({c.pooling, c.gray, c.resize, 210, 160, 84, 84}, palette, gray)
                      .ValueOrThrow();
    std::vector<float> out(84 * 84);
    kernel->Run(frame.data(), frame.data(), out.data());
    if (kernel->float_output()) {
      for (const float x : out) EXPECT_NEAR(x, 200.0 / 255, 1e-6);
    } else {
      const auto* bytes = reinterpret_cast<const uint8_t*>(out.data());
      // .299 + .587 + .114 of 200 may truncate to 199
      for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(bytes[i], 200, 1) << c.resize;
    }
  }
}

TEST(PixelsTest, RefusesRulesThatMakeNoSense) {
  const std::vector<uint8_t> palette(768), gray(256);
  const auto code = [&](PixelRule rule) {
    return PixelKernel::Make(rule, palette, gray).status().code();
  };
  EXPECT_EQ(code({"gray-max", "ale", "cubic", 210, 160, 84, 84}), Code::kConfig);
  EXPECT_EQ(code({"rgb-max", "ale", "area", 210, 160, 84, 84}), Code::kConfig);
  EXPECT_EQ(code({"gray-max", "ale", "aligned", 210, 160, 84, 84}), Code::kConfig);
  EXPECT_EQ(code({"gray-max", "ale", "area", 210, 160, 0, 84}), Code::kConfig);
}

}  // namespace
}  // namespace samara::pixels_test
