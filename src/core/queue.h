// SPDX-License-Identifier: Apache-2.0 OR MIT
// Bounded queue between threads, closable in two ways.
// Thread safety: every method may be called from any thread.
// Invariants: (1) items_.size() <= capacity_; (2) nothing enters after Close or Finish.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>

#include "core/check.h"
#include "core/ring.h"

namespace samara {

template <typename T>
class Queue {
 public:
  explicit Queue(size_t capacity) : capacity_(capacity), items_(capacity) { CHECK(capacity > 0); }

  // Blocks while full; false once closed or finished.
  bool Push(T item) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return done_ || items_.size() < capacity_; });
    if (done_) return false;
    items_.Push(std::move(item));
    changed_.notify_all();
    return true;
  }

  // Blocks for the first item, then takes what is there; 0 means nothing more will come.
  size_t PopUpTo(std::span<T> out) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return done_ || !items_.empty(); });
    size_t n = 0;
    for (; n < out.size() && !items_.empty(); ++n) out[n] = items_.Pop();
    if (n > 0) changed_.notify_all();
    return n;
  }

  // Drop: what is inside is lost and waiters return at once.
  void Close() {
    std::unique_lock lock(mu_);
    done_ = true;
    items_.Clear();
    changed_.notify_all();
  }

  // Drain: no more pushes; consumers empty the queue first.
  void Finish() {
    std::unique_lock lock(mu_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mu_;
  std::condition_variable changed_;  // signalled on every change of items_ or done_
  // guarded by mu_
  Ring<T> items_;
  bool done_ = false;
};

}  // namespace samara
