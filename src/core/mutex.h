// SPDX-License-Identifier: Apache-2.0 OR MIT
// The standard library's mutex and condition variable with the attributes of Clang's thread-safety
// analysis: `scripts/lint` refuses an access to a GUARDED_BY member without its mutex. They cost
// nothing, and other compilers ignore them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#undef GUARDED_BY  // absl's headers define these two as well
#undef NO_THREAD_SAFETY_ANALYSIS
#ifdef __clang__
#define CAPABILITY(x) __attribute__((capability(x)))
#define SCOPED_CAPABILITY __attribute__((scoped_lockable))
#define GUARDED_BY(x) __attribute__((guarded_by(x)))
#define REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define EXCLUDES(...) __attribute__((locks_excluded(__VA_ARGS__)))
#define ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define NO_THREAD_SAFETY_ANALYSIS __attribute__((no_thread_safety_analysis))
#else
#define CAPABILITY(x)
#define SCOPED_CAPABILITY
#define GUARDED_BY(x)
#define REQUIRES(...)
#define EXCLUDES(...)
#define ACQUIRE(...)
#define RELEASE(...)
#define NO_THREAD_SAFETY_ANALYSIS
#endif

namespace samara {

class CAPABILITY("mutex") Mutex {
 public:
  void Lock() ACQUIRE() { mu_.lock(); }
  void Unlock() RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Holds a mutex for the rest of the block, but between Unlock and Lock.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ACQUIRE(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() RELEASE() {
    if (held_) mu_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void Unlock() RELEASE() {
    held_ = false;
    mu_.Unlock();
  }
  void Lock() ACQUIRE() {
    mu_.Lock();
    held_ = true;
  }

 private:
  Mutex& mu_;
  bool held_ = true;
};

// Waiting releases the mutex and reacquires it. A condition reads guarded members:
// `changed_.Wait(mu_, [this]() REQUIRES(mu_) { return done_; })`.
class CondVar {
 public:
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

  template <typename Condition>
  void Wait(Mutex& mu, Condition condition) REQUIRES(mu) {
    Held held(mu);
    cv_.wait(held.lock, condition);
  }
  // Returns what the condition says at the end.
  template <typename Duration, typename Condition>
  bool WaitFor(Mutex& mu, const Duration& timeout, Condition condition) REQUIRES(mu) {
    Held held(mu);
    return cv_.wait_for(held.lock, timeout, condition);
  }
  template <typename Time, typename Condition>
  bool WaitUntil(Mutex& mu, const Time& deadline, Condition condition) REQUIRES(mu) {
    Held held(mu);
    return cv_.wait_until(held.lock, deadline, condition);
  }

 private:
  // The caller's lock, lent to the standard library.
  struct Held {
    explicit Held(Mutex& mu) : lock(mu.mu_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable cv_;
};

}  // namespace samara
