// SPDX-License-Identifier: Apache-2.0 OR MIT
// Words as exec and posix_spawn take them.
#pragma once

#include <string>
#include <vector>

namespace samara {

// Pointers into `words`, which outlive them unchanged, and a null pointer at the end.
inline std::vector<char*> NullTerminated(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace samara
