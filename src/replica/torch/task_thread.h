// A thread that runs tasks one after the other, started by the first; a failure stays.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "core/thread.h"

namespace samara {

// Thread safety: Post and Drain from any thread.
class TaskThread {
 public:
  TaskThread() = default;
  ~TaskThread() {
    {
      std::lock_guard lock(mu_);
      quit_ = true;
      changed_.notify_all();
    }
    thread_.reset();
  }
  // After a task has thrown, later ones are dropped and Drain throws the same again. Returns the
  // task's number.
  uint64_t Post(std::function<void()> task) {
    std::lock_guard lock(mu_);
    if (!thread_) thread_ = std::make_unique<Thread>("collectives", [this] { Work(); });
    tasks_.push_back(std::move(task));
    changed_.notify_all();
    return ++posted_;
  }
  // Returns when every task posted so far has ended.
  void Drain() {
    std::unique_lock lock(mu_);
    DrainLocked(posted_, lock);
  }
  // Returns when task `number` has ended.
  void DrainTo(uint64_t number) {
    std::unique_lock lock(mu_);
    DrainLocked(number, lock);
  }

 private:
  void DrainLocked(uint64_t number, std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return ended_ >= number; });
    if (error_) std::rethrow_exception(error_);
  }
  void Work() {
    std::unique_lock lock(mu_);
    for (;;) {
      changed_.wait(lock, [&] { return quit_ || !tasks_.empty(); });
      if (quit_) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      if (error_) {
        ++ended_;
        changed_.notify_all();
        continue;
      }
      lock.unlock();
      std::exception_ptr error;
      try {
        task();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      ++ended_;
      if (error) error_ = error;
      changed_.notify_all();
    }
  }
  std::mutex mu_;
  std::condition_variable changed_;
  // guarded by mu_
  std::deque<std::function<void()>> tasks_;
  uint64_t posted_ = 0, ended_ = 0;
  bool quit_ = false;
  std::exception_ptr error_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace samara
