#include "fleet/event_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/thread.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

SlotEvent Of(uint32_t slot) {
  SlotEvent event;
  event.slot = slot;
  return event;
}

// As a fleet uses it.
struct Fixture {
  explicit Fixture(uint32_t slots) : queue(slots) {}
  void Push(uint32_t slot) {
    bool due = false;
    {
      const MutexLock lock(mu);
      queue.Push(Of(slot));
      due = queue.Due();
    }
    wakes += due ? 1 : 0;
    if (due) queue.Wake();
  }
  size_t Wait(size_t wanted, std::chrono::microseconds timeout) {
    MutexLock lock(mu);
    return queue.Wait(mu, out, wanted, timeout);
  }
  Mutex mu;
  EventQueue queue;
  std::array<SlotEvent, 64> out;
  int wakes = 0;
};

TEST(EventQueueTest, TakesWhatIsThereInOrder) {
  Fixture f(8);
  for (uint32_t slot : {3, 1, 2}) f.Push(slot);
  EXPECT_EQ(f.Wait(1, 1s), 3U);
  EXPECT_EQ(f.out[0].slot, 3U);
  EXPECT_EQ(f.out[2].slot, 2U);
  EXPECT_EQ(f.wakes, 0) << "nobody waited";
  EXPECT_EQ(f.Wait(1, 0us), 0U);
}

TEST(EventQueueTest, WhoWantsSeveralIsWokenOnce) {
  Fixture f(64);
  std::atomic<size_t> taken{0};
  Thread waiter("waiter", [&] { taken = f.Wait(40, 30s); });
  for (uint32_t slot = 0; slot < 50; ++slot) {
    if (slot == 39) {
      // all that time it slept
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(taken.load(), 0U);
      EXPECT_EQ(f.wakes, 0);
    }
    f.Push(slot);
  }
  waiter.Join();
  EXPECT_GE(taken.load(), 40U);
  EXPECT_LE(f.wakes, 1);  // none where it came late
}

TEST(EventQueueTest, FewerAreTakenAfterTheTimeout) {
  Fixture f(8);
  f.Push(5);
  const SteadyTime start = Now();
  EXPECT_EQ(f.Wait(3, 5ms), 1U);
  EXPECT_GE(SecondsSince(start), 0.005);
}

TEST(EventQueueTest, NoProducerWaitsForMoreThanFit) {
  Fixture f(64);
  for (uint32_t slot = 0; slot < 64; ++slot) f.Push(slot);
  EXPECT_EQ(f.Wait(1000, 30s), 64U);
}

TEST(EventQueueTest, TheLeastThatAnyWaiterWantsCounts) {
  Fixture f(8);
  std::array<SlotEvent, 8> others;
  Thread greedy("greedy", [&] { EXPECT_EQ(f.Wait(8, 600s), 0U); });
  Thread modest("modest", [&] {
    MutexLock lock(f.mu);
    EXPECT_EQ(f.queue.Wait(f.mu, others, 1, 600s), 1U);
  });
  std::this_thread::sleep_for(2ms);
  f.Push(4);
  modest.Join();
  EXPECT_EQ(others[0].slot, 4U);
  {
    const MutexLock lock(f.mu);
    f.queue.Stop();
  }
  f.queue.Wake();
}

TEST(EventQueueTest, StopEndsEveryWait) {
  Fixture f(8);
  Thread waiter("waiter", [&] { EXPECT_EQ(f.Wait(8, 600s), 0U); });
  std::this_thread::sleep_for(2ms);
  {
    const MutexLock lock(f.mu);
    f.queue.Push(Of(1));
    f.queue.Stop();
  }
  f.queue.Wake();
  waiter.Join();
  EXPECT_EQ(f.Wait(1, 600s), 0U);
}

}  // namespace
}  // namespace samara
