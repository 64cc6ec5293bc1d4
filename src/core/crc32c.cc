// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/crc32c.h"

#include <array>

namespace samara {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reversed 0x1edc6f41

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t value = 0xffffffff;
  for (char c : bytes) value = (value >> 8) ^ kTable[(value ^ static_cast<uint8_t>(c)) & 0xff];
  return ~value;
}

}  // namespace samara
