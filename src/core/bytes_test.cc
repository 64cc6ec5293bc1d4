// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/bytes.h"

#include <gtest/gtest.h>

namespace samara {
namespace {

std::string Record() {
  return ByteWriter().Put(uint8_t{1}).Put(uint32_t{0x04030201}).Put(-2.0).PutBytes("frog").Take();
}

TEST(BytesTest, LayoutIsLittleEndianWithoutPadding) {
  EXPECT_EQ(Record(), std::string("\x01"
                                  "\x01\x02\x03\x04"
                                  "\x00\x00\x00\x00\x00\x00\x00\xc0"
                                  "\x04\x00\x00\x00\x00\x00\x00\x00"
                                  "frog",
                                  25));
}

TEST(BytesTest, ReadsWhatWasWritten) {
  const std::string record = Record();
  ByteReader reader(record);
  EXPECT_EQ(reader.Get<uint8_t>(), 1);
  EXPECT_EQ(reader.Get<uint32_t>(), 0x04030201U);
  EXPECT_EQ(reader.Get<double>(), -2.0);
  EXPECT_FALSE(reader.AtEnd());
  EXPECT_EQ(reader.GetBytes(), "frog");
  EXPECT_TRUE(reader.AtEnd());
}

TEST(BytesTest, EveryTruncationFailsAndStaysFailed) {
  const std::string record = Record();
  for (size_t size = 0; size < record.size(); ++size) {
    // a copy of exactly this size, so that the address sanitizer sees a read beyond it
    const std::vector<char> cut(record.begin(), record.begin() + static_cast<ptrdiff_t>(size));
    ByteReader reader({cut.data(), cut.size()});
    reader.Get<uint8_t>();
    reader.Get<uint32_t>();
    reader.Get<double>();
    EXPECT_EQ(reader.GetBytes(), "") << size;
    EXPECT_FALSE(reader.ok()) << size;
    EXPECT_FALSE(reader.AtEnd()) << size;
    EXPECT_EQ(reader.Get<uint8_t>(), 0) << size;
  }
}

TEST(BytesTest, ABooleanIsZeroOrOne) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string record(1, static_cast<char>(byte));
    ByteReader reader(record);
    EXPECT_EQ(reader.Get<bool>(), byte == 1) << byte;
    EXPECT_EQ(reader.AtEnd(), byte < 2) << byte;
  }
  EXPECT_FALSE(ByteReader("").Get<bool>());
}

TEST(BytesTest, AVectorIsAWholeNumberOfValues) {
  const std::vector<uint16_t> values = {1, 2, 3};
  const std::string record = ByteWriter().PutVector(values).Take();
  std::vector<uint16_t> read;
  EXPECT_TRUE(ByteReader(record).GetVector(read));
  EXPECT_EQ(read, values);
  const std::string none = ByteWriter().PutVector(std::vector<uint16_t>()).Take();
  EXPECT_TRUE(ByteReader(none).GetVector(read));
  EXPECT_TRUE(read.empty());
  const std::string odd = ByteWriter().PutBytes("abc").Take();
  EXPECT_FALSE(ByteReader(odd).GetVector(read));
  EXPECT_FALSE(ByteReader(record.substr(0, 13)).GetVector(read));
}

TEST(BytesTest, ALengthBeyondTheEndFails) {
  for (const uint64_t length : {uint64_t{5}, uint64_t{1} << 32, UINT64_MAX - 7, UINT64_MAX}) {
    const std::string record = ByteWriter().Put(length).Take() + "frog";
    ByteReader reader(record);
    EXPECT_EQ(reader.GetBytes(), "") << length;
    EXPECT_FALSE(reader.ok()) << length;
  }
}

}  // namespace
}  // namespace samara
