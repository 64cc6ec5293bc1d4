// SPDX-License-Identifier: Apache-2.0 OR MIT
// CRC-32C (Castagnoli, RFC 3720 appendix B.4): finds accidents, not attacks.
#pragma once

#include <cstdint>
#include <string_view>

namespace samara {

uint32_t Crc32c(std::string_view bytes);

}  // namespace samara
