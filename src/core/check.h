// SPDX-License-Identifier: Apache-2.0 OR MIT
// CHECK(condition) << context: an invariant that stays on in release builds. A failure is a bug in
// samara, never a consequence of what a peer, a file or a user sent: it prints file, line and
// context, and aborts. DCHECK is for hot loops and vanishes with NDEBUG.
#pragma once

#include <sstream>

namespace samara::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace samara::internal

#define CHECK(condition)      \
  if (condition) [[likely]] { \
  } else                      \
    ::samara::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()  // NOLINT
#define CHECK_EQ(a, b) CHECK((a) == (b)) << (a) << " vs " << (b) << ' '
#define CHECK_LE(a, b) CHECK((a) <= (b)) << (a) << " vs " << (b) << ' '
#define CHECK_LT(a, b) CHECK((a) < (b)) << (a) << " vs " << (b) << ' '
#define CHECK_GE(a, b) CHECK((a) >= (b)) << (a) << " vs " << (b) << ' '

#ifdef NDEBUG
#define DCHECK(condition) \
  if (true) {             \
  } else                  \
    ::samara::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()  // NOLINT
#else
#define DCHECK(condition) CHECK(condition)
#endif
