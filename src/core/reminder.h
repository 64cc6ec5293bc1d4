// SPDX-License-Identifier: Apache-2.0 OR MIT
// Something that is said when work takes long.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/thread.h"

namespace samara {

// Calls `say` once, on a thread of its own, if it lives longer than `seconds`; with `awaited` only
// where that counts nothing new for so long. Empty: nothing is awaited at the moment.
class Reminder {
 public:
  using Count = std::function<std::optional<uint64_t>()>;

  Reminder(
      double seconds, std::function<void()> say, Count awaited = [] { return 0; })
      : seconds_(seconds),
        say_(std::move(say)),
        awaited_(std::move(awaited)),
        thread_("reminder", [this] { Run(); }) {}
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
  void Run() {
    constexpr int kLooks = 4;  // in that time
    const std::chrono::duration<double> pause(seconds_ / kLooks);
    std::optional<uint64_t> last = awaited_();
    SteadyTime since = Now();
    const MutexLock lock(mu_);
    while (!changed_.WaitFor(mu_, pause, [this]() REQUIRES(mu_) { return over_; })) {
      const std::optional<uint64_t> now = awaited_();
      if (!now || now != last) {
        last = now, since = Now();
      } else if (SecondsSince(since) >= seconds_) {
        return say_();
      }
    }
  }

  const double seconds_;
  const std::function<void()> say_;
  const Count awaited_;
  Mutex mu_;
  CondVar changed_;
  bool over_ GUARDED_BY(mu_) = false;
  Thread thread_;  // the last: it uses the others
};

}  // namespace samara
