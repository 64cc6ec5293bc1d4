// SPDX-License-Identifier: Apache-2.0 OR MIT
// SHA-256 (FIPS 180-4), incremental, by the processor's instructions for it where it has them.
// Written here because the actor extension shares a process with a GPL-2.0-only emulator and may
// therefore not link an Apache-licensed cryptography library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/cpu.h"

namespace samara {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  // REQUIRES: the processor has these instructions, if they are to be used.
  explicit Sha256(bool instructions = HasShaInstructions());
  Sha256& Update(std::span<const std::byte> bytes);
  Sha256& Update(std::string_view text) { return Update(std::as_bytes(std::span(text))); }
  // Little-endian bytes of a number: the same digest on every machine.
  Sha256& UpdateU32(uint32_t value);
  Sha256& UpdateU64(uint64_t value);
  Digest Finish();  // the object may not be used afterwards

 private:
  using State = std::array<uint32_t, 8>;
  void (*compress_)(State&, const uint8_t* data, size_t blocks);  // of 64 bytes
  State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  size_t buffered_ = 0;
  uint64_t length_ = 0;
};

std::string Hex(const Digest& digest);
// Hexadecimal SHA-256 of `text`.
std::string Sha256Hex(std::string_view text);

}  // namespace samara
