// SPDX-License-Identifier: Apache-2.0 OR MIT
// Counts what this test program allocates: the program's operator new and delete.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "core/allocations_test_util.h"

namespace samara {
namespace {

std::atomic<uint64_t> calls{0};
std::atomic<int64_t> live{0}, peak{0};

void* Count(void* memory) {
  if (memory == nullptr) std::abort();
  calls.fetch_add(1, std::memory_order_relaxed);
  const auto size = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = live.fetch_add(size, std::memory_order_relaxed) + size;
  for (int64_t seen = peak; now > seen && !peak.compare_exchange_weak(seen, now);) {
  }
  return memory;
}

void Release(void* memory) {
  live.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

Allocations AllocationsSoFar() { return {calls, live, peak}; }
void ResetAllocationPeak() { peak = live.load(); }

TEST(AllocationCounterTest, SeesVectors) {
  const Allocations before = AllocationsSoFar();
  ResetAllocationPeak();
  { const std::vector<char> bytes(1 << 20); }
  EXPECT_GE(AllocationsSoFar().calls, before.calls + 1);
  EXPECT_GE(AllocationsSoFar().bytes_peak, before.bytes + (1 << 20));
  EXPECT_EQ(AllocationsSoFar().bytes, before.bytes);
}

}  // namespace samara

void* operator new(size_t size) { return samara::Count(std::malloc(size > 0 ? size : 1)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return samara::Count(std::aligned_alloc(a, (size + a - 1) / a * a));
}
// A sanitizer has nothrow forms of its own (std::stable_sort calls one), whose memory our delete
// must not get.
void* operator new(size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return operator new(size, alignment);
}
void operator delete(void* memory) noexcept { samara::Release(memory); }
void operator delete(void* memory, size_t) noexcept { samara::Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { samara::Release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { samara::Release(memory); }
