// SPDX-License-Identifier: Apache-2.0 OR MIT
// Messages as they are printed, whatever they quote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace samara {

// `message` escaped, at most kMessageBytesMax bytes of it (log.h), and of a word without spaces,
// such as a path, at most kWordBytesMax.
std::string ShownMessage(std::string_view message);
inline constexpr size_t kWordBytesMax = 300;

}  // namespace samara
