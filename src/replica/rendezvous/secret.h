// The secret of a launch, known to its ranks only, and proofs of knowing it that do not tell it.
#pragma once

#include <string>
#include <string_view>

#include "core/sha256.h"
#include "core/status.h"

namespace samara {

// In this variable ranks find it; launchers that are not ours pass it on when a user sets it.
inline constexpr const char* kSecretVariable = "SAMARA_LAUNCH_SECRET";

// 32 random bytes in hexadecimal. kIoError when the kernel has none.
Result<std::string> MakeSecret();
// HMAC-SHA256 (RFC 2104) of `purpose`, a zero byte and `message`.
Digest Proof(const std::string& secret, std::string_view purpose, std::string_view message);
// Compares every byte, whatever differs: the time tells nothing. REQUIRES: equal sizes.
bool SameBytes(std::string_view a, std::string_view b);
inline std::string_view AsText(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}
// `size` random bytes, 256 at most.
Result<std::string> RandomBytes(size_t size);

}  // namespace samara
