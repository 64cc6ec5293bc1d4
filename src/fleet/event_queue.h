// The events of a fleet that wait for its caller. A thread that waits for several is woken once,
// when so many are there.
//
// Thread safety: the fleet's mutex guards it; Wake may be called without it. A slot has at most one
// event, so that the ring never overflows.
#pragma once

#include <algorithm>
#include <span>

#include "core/mutex.h"
#include "core/ring.h"
#include "fleet/fleet.h"

namespace samara {

class EventQueue {
 public:
  explicit EventQueue(uint32_t slots) : events_(slots) {}

  void Push(const SlotEvent& event) { events_.Push(event); }
  // Returns whether a thread must be woken that was not yet: then Wake has to follow.
  bool Due() {
    if (waiters_ == 0 || woken_ || (!stopped_ && events_.size() < wanted_)) return false;
    return woken_ = true;
  }
  void Wake() { changed_.NotifyAll(); }
  // Ends all waits, later ones too; Wake has to follow.
  void Stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

  // Until `wanted` events are there, or `timeout` has passed; then takes what is there and fits.
  size_t Wait(Mutex& mu, std::span<SlotEvent> out, size_t wanted, std::chrono::microseconds timeout)
      REQUIRES(mu) {
    wanted = std::clamp<size_t>(wanted, 1, std::max<size_t>(1, out.size()));
    if (events_.size() < wanted && !stopped_ && timeout.count() > 0) {
      // of several waiters the one who wants least decides
      wanted_ = waiters_++ == 0 ? wanted : std::min(wanted_, wanted);
      changed_.WaitFor(mu, timeout, [&] {
        woken_ = false;
        return stopped_ || events_.size() >= wanted;
      });
      --waiters_;
    }
    size_t n = 0;
    for (; !stopped_ && n < out.size() && !events_.empty(); ++n) out[n] = events_.Pop();
    return n;
  }

 private:
  CondVar changed_;  // signalled when events_ grows enough or stopped_ is set
  // guarded by the fleet's mutex
  Ring<SlotEvent> events_;
  size_t waiters_ = 0;
  size_t wanted_ = 1;   // while there are waiters: the least that one of them wants
  bool woken_ = false;  // Wake was called, or will be, since a waiter last looked
  bool stopped_ = false;
};

}  // namespace samara
