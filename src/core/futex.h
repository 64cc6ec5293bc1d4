// SPDX-License-Identifier: Apache-2.0 OR MIT
// A doorbell in shared memory: a counter that is rung after data was written, and a futex to sleep
// on until it changes. A ringer makes a system call only when somebody sleeps, so that several
// slots answered in a row share one wake-up.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace samara {

struct alignas(64) Doorbell {
  std::atomic<uint32_t> count;     // changes with every ring
  std::atomic<uint32_t> sleeping;  // 1 while somebody may be asleep on count
};
static_assert(sizeof(Doorbell) == 64 && std::atomic<uint32_t>::is_always_lock_free);

// Rings after the caller's writes; whoever sees the new count (acquire) sees them too.
inline void Ring(Doorbell& bell) {
  // sequentially consistent, like the pair in WaitForRing: either we see the sleeper's flag or the
  // sleeper sees our count
  bell.count.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleeping.exchange(0, std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &bell.count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns once the count differs from `seen` (read it before looking for work), or after `timeout`:
// true when it differs. Polls for `spin` before it sleeps: waking an idle core costs some 85 us.
inline bool WaitForRing(Doorbell& bell, uint32_t seen, std::chrono::nanoseconds spin,
                        std::chrono::nanoseconds timeout) {
  using Clock = std::chrono::steady_clock;
  // acquire: pairs with the fetch_add in Ring
  const auto rung = [&] { return bell.count.load(std::memory_order_acquire) != seen; };
  if (rung()) return true;
  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < spin) {
    for (int i = 0; i < 32; ++i) {
      CpuRelax();
      if (rung()) return true;
    }
  }
  const Clock::time_point deadline = start + timeout;
  for (;;) {
    bell.sleeping.store(1, std::memory_order_seq_cst);
    if (bell.count.load(std::memory_order_seq_cst) != seen) return true;
    const auto left = std::chrono::nanoseconds(deadline - Clock::now()).count();
    if (left <= 0) return false;
    const timespec wait{static_cast<time_t>(left / 1'000'000'000),
                        static_cast<long>(left % 1'000'000'000)};
    // spurious wake-ups and signals go round the loop
    syscall(SYS_futex, &bell.count, FUTEX_WAIT, seen, &wait, nullptr, 0);
    if (rung()) return true;
  }
}

}  // namespace samara
