// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace samara {
namespace {

// RFC 3720, appendix B.4
TEST(Crc32cTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string up, down;
  for (char i = 0; i < 32; ++i) {
    up += i;
    down += static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc32c(up), 0x46dd794eU);
  EXPECT_EQ(Crc32c(down), 0x113fdb5cU);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
}

}  // namespace
}  // namespace samara
