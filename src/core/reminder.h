// SPDX-License-Identifier: Apache-2.0 OR MIT
// Something that is said when work takes long.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "core/mutex.h"
#include "core/thread.h"

namespace samara {

// Calls `say` once, on a thread of its own, if it lives longer than `seconds`.
class Reminder {
 public:
  Reminder(double seconds, std::function<void()> say)
      : thread_("reminder", [this, seconds, say = std::move(say)] { Run(seconds, say); }) {}
  ~Reminder() {
    {
      const MutexLock lock(mu_);
      over_ = true;
    }
    changed_.NotifyAll();
  }
  Reminder(const Reminder&) = delete;
  Reminder& operator=(const Reminder&) = delete;

 private:
  void Run(double seconds, const std::function<void()>& say) {
    const MutexLock lock(mu_);
    const std::chrono::duration<double> time(seconds);
    if (!changed_.WaitFor(mu_, time, [this]() REQUIRES(mu_) { return over_; })) say();
  }

  Mutex mu_;
  CondVar changed_;
  bool over_ GUARDED_BY(mu_) = false;
  Thread thread_;  // the last: it uses the others
};

}  // namespace samara
