// SPDX-License-Identifier: Apache-2.0 OR MIT
// A doorbell in shared memory: a counter that is rung after data was written, and a futex to sleep
// on until it changes. A ringer makes a system call only when a thread sleeps, so that several
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

// One word, so that a ring takes away the sleepers' mark in the same moment in which it counts.
// Were they two, a ringer that is delayed between them would clear the mark of a sleeper that has
// seen its ring and already sleeps for the next one, which then wakes no thread.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> word;  // 2 * rings + 1 while a thread may be asleep on it
  uint32_t rings() const { return word.load(std::memory_order_acquire) >> 1; }
};
static_assert(sizeof(Doorbell) == 64 && std::atomic<uint32_t>::is_always_lock_free);

// Rings after the caller's writes; a thread that sees the new count (acquire) sees them too.
inline void RingBell(Doorbell& bell) {
  uint32_t word = bell.word.load(std::memory_order_relaxed);
  // release: pairs with the acquires of the waiting side
  while (!bell.word.compare_exchange_weak(word, (word | 1) + 1, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
  if ((word & 1) != 0) syscall(SYS_futex, &bell.word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns once the rings differ from `seen` (read them before looking for work), or after
// `timeout`: true when they differ. Polls for `spin` before it sleeps: waking an idle core costs
// some 85 us.
inline bool WaitForRing(Doorbell& bell, uint32_t seen, std::chrono::nanoseconds spin,
                        std::chrono::nanoseconds timeout) {
  using Clock = std::chrono::steady_clock;
  if (bell.rings() != seen) return true;
  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < spin) {
    for (int i = 0; i < 32; ++i) {
      CpuRelax();
      if (bell.rings() != seen) return true;
    }
  }
  const Clock::time_point deadline = start + timeout;
  for (;;) {
    uint32_t word = seen << 1;
    const uint32_t marked = word | 1;
    // acquire: pairs with the release in Ring
    if (!bell.word.compare_exchange_strong(word, marked, std::memory_order_acquire) &&
        word != marked)
      return true;
    const auto left = std::chrono::nanoseconds(deadline - Clock::now()).count();
    if (left <= 0) return false;
    const timespec wait{static_cast<time_t>(left / 1'000'000'000),
                        static_cast<long>(left % 1'000'000'000)};
    // spurious wake-ups and signals go round the loop
    syscall(SYS_futex, &bell.word, FUTEX_WAIT, marked, &wait, nullptr, 0);
    if (bell.rings() != seen) return true;
  }
}

}  // namespace samara
