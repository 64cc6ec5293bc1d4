// The message of an exception of torch.
#pragma once

#include <string>

namespace samara {

// Its first line: the rest is a stack trace.
inline std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace samara
