#include "rl/replay/packed_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace samara::packed_bytes_test {
namespace {

std::vector<std::byte> Alike(size_t size) { return std::vector<std::byte>(size, std::byte{7}); }
std::vector<std::byte> Different(size_t size) {
  std::vector<std::byte> bytes(size);
  for (uint32_t i = 0, x = 1; i < size; ++i)
    bytes[i] = static_cast<std::byte>((x = 1664525 * x + 1013904223) >> 24);
  return bytes;
}

TEST(PackedBytesTest, WhatIsPackedIsUnpacked) {
  Slabs slabs;
  for (const size_t size : {0, 1, 5, 100, 7056})
    for (const auto& bytes : {Alike(size), Different(size)})
      for (const bool compress : {false, true}) {
        const PackedBytes packed = Pack(bytes, compress, slabs);
        std::vector<std::byte> out(size), longer(size + 1);
        EXPECT_TRUE(Unpack(packed, out));
        EXPECT_EQ(out, bytes);
        EXPECT_FALSE(Unpack(packed, longer));
        EXPECT_LE(packed.stored.size(), size);
      }
}

TEST(PackedBytesTest, BytesAreCompressedWhereThatHelps) {
  Slabs slabs;
  EXPECT_LT(Pack(Alike(7056), true, slabs).stored.size(), 100u);
  EXPECT_FALSE(Pack(Different(7056), true, slabs).compressed);
  EXPECT_FALSE(Pack(Alike(7056), false, slabs).compressed);
}

TEST(PackedBytesTest, DamageIsRefused) {
  Slabs slabs;
  const PackedBytes packed = Pack(Alike(7056), true, slabs);
  std::vector<std::byte> out(7056);
  for (size_t size = 0; size < packed.stored.size(); ++size)
    EXPECT_FALSE(Unpack({slabs.Keep(packed.stored.values().first(size)), true}, out)) << size;
}

}  // namespace
}  // namespace samara::packed_bytes_test
