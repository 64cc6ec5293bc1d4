// SPDX-License-Identifier: Apache-2.0 OR MIT
// The message of an exception of torch, whose further lines are a stack trace.
#pragma once

#include <string>
#include <string_view>

namespace samara {

inline std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace samara
