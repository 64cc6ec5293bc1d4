// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace samara::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ':' << line << ": CHECK failed: " << condition << ' ';
}

CheckFailure::~CheckFailure() {
  std::fputs((stream_.str() + "\n").c_str(), stderr);
  std::abort();
}

}  // namespace samara::internal
