// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bounded queue between threads, closable in two ways.
// Thread safety: every method may be called from any thread.
// Invariants: (1) items_.size() <= capacity_; (2) nothing enters after Close or Finish.
#pragma once

#include <span>

#include "core/check.h"
#include "core/mutex.h"
#include "core/ring.h"

namespace samara {

template <typename T>
class Queue {
 public:
  explicit Queue(size_t capacity) : capacity_(capacity), items_(capacity) { CHECK(capacity > 0); }

  // Blocks while full; false once closed or finished.
  bool Push(T item) {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [&]() REQUIRES(mu_) { return done_ || items_.size() < capacity_; });
    if (done_) return false;
    items_.Push(std::move(item));
    changed_.NotifyAll();
    return true;
  }

  // Blocks for the first item, then takes what is there; 0 means nothing more will come.
  size_t PopUpTo(std::span<T> out) {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [&]() REQUIRES(mu_) { return done_ || !items_.empty(); });
    size_t n = 0;
    for (; n < out.size() && !items_.empty(); ++n) out[n] = items_.Pop();
    if (n > 0) changed_.NotifyAll();
    return n;
  }

  // Drop: what is inside is lost and waiters return at once.
  void Close() {
    MutexLock lock(mu_);
    done_ = true;
    items_.Clear();
    changed_.NotifyAll();
  }

  // Drain: no more pushes; consumers empty the queue first.
  void Finish() {
    MutexLock lock(mu_);
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  const size_t capacity_;
  Mutex mu_;
  CondVar changed_;  // signalled on every change of items_ or done_
  // guarded by mu_
  Ring<T> items_ GUARDED_BY(mu_);
  bool done_ GUARDED_BY(mu_) = false;
};

}  // namespace samara
