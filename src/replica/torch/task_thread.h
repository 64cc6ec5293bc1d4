// A thread that runs tasks one after the other, started by the first; a failure stays.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>

#include "core/mutex.h"
#include "core/thread.h"

namespace samara {

// Thread safety: Post and Drain from any thread.
class TaskThread {
 public:
  TaskThread() = default;
  ~TaskThread() {
    {
      const MutexLock lock(mu_);
      quit_ = true;
      changed_.NotifyAll();
    }
    thread_.reset();
  }
  // After a task has thrown, later ones are dropped and Drain throws the same again. Returns the
  // task's number.
  uint64_t Post(std::function<void()> task) {
    const MutexLock lock(mu_);
    if (!thread_) thread_ = std::make_unique<Thread>("collectives", [this] { Work(); });
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
    return ++posted_;
  }
  // Returns when every task posted so far has ended.
  void Drain() {
    const MutexLock lock(mu_);
    DrainLocked(posted_);
  }
  // Returns when task `number` has ended.
  void DrainTo(uint64_t number) {
    const MutexLock lock(mu_);
    DrainLocked(number);
  }

 private:
  void DrainLocked(uint64_t number) REQUIRES(mu_) {
    changed_.Wait(mu_, [&]() REQUIRES(mu_) { return ended_ >= number; });
    if (error_) std::rethrow_exception(error_);
  }
  void Work() {
    MutexLock lock(mu_);
    for (;;) {
      changed_.Wait(mu_, [this]() REQUIRES(mu_) { return quit_ || !tasks_.empty(); });
      if (quit_) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      if (error_) {
        ++ended_;
        changed_.NotifyAll();
        continue;
      }
      lock.Unlock();
      std::exception_ptr error;
      try {
        task();
      } catch (...) {
        error = std::current_exception();
      }
      lock.Lock();
      ++ended_;
      if (error) error_ = error;
      changed_.NotifyAll();
    }
  }
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  uint64_t posted_ GUARDED_BY(mu_) = 0, ended_ GUARDED_BY(mu_) = 0;
  bool quit_ GUARDED_BY(mu_) = false;
  std::exception_ptr error_ GUARDED_BY(mu_);
  std::unique_ptr<Thread> thread_ GUARDED_BY(mu_);
};

}  // namespace samara
