// SPDX-License-Identifier: Apache-2.0 OR MIT
// Named threads that are always joined and that never let an exception escape unseen.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/status.h"

namespace samara {

// Runs `body` on a thread called `name` (at most 15 characters show in tools). The destructor
// joins: the owner of a Thread first makes its body return, on every path, also when an exception
// passes (ThreadGroup does). An Error that leaves the body, or a lack of memory, ends the process
// with one line and its code; any other exception as a bug would. Neither copied nor moved: the
// thread holds its address.
class Thread {
 public:
  // Throws Error (kNoResources) when the system starts no further thread.
  Thread(const std::string& name, std::function<void()> body);
  // The same for code that returns failures.
  static Result<std::unique_ptr<Thread>> Start(const std::string& name, std::function<void()> body);
  ~Thread() { Join(); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  void Join();

 private:
  std::thread thread_;
};

// The threads of one owner, all of them or none, which says first how their bodies are made to
// return. Declared after all that the bodies and `stop` use. Thread safety: none.
class ThreadGroup {
 public:
  // `stop` makes every body return; the destructor calls it when threads are left, on every path.
  // Null: the bodies return by themselves.
  explicit ThreadGroup(std::function<void()> stop) : stop_(std::move(stop)) {}
  // Stops, then joins.
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // Runs body(0), ..., body(count - 1), each on a thread called `name` and its number. None begins
  // before every thread is there: bodies may wait for each other. When a thread cannot be started
  // (kNoResources) none has run.
  Status Start(const std::string& name, size_t count, const std::function<void(size_t)>& body);
  // Waits until all bodies have returned, without stopping them.
  void Join() { threads_.clear(); }

 private:
  const std::function<void()> stop_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

// The n-th (from 1) thread from now on cannot be started, as where a limit is reached; n = 0
// switches off.
void TEST_FailNthThread(int n);
// Whether that thread is still to come: false ends a loop "for every n".
bool TEST_ThreadFailurePending();

}  // namespace samara
