// Threads that read samples, shared by all who ask.
// Thread safety: Run may be called from any number of threads at once.
#pragma once

#include <functional>

#include "core/queue.h"
#include "core/thread.h"

namespace samara {

class Workers {
 public:
  // 0: everything runs on the caller's thread. Throws Error (kNoResources).
  explicit Workers(int threads);
  Workers(const Workers&) = delete;  // threads hold its address
  Workers& operator=(const Workers&) = delete;
  // Calls fn(0), ..., fn(n - 1), in any order, and returns once all have returned. fn does not
  // throw.
  void Run(size_t n, const std::function<void(size_t)>& fn);

 private:
  struct Job;
  struct Task {
    Job* job = nullptr;
    size_t index = 0;
  };
  const int count_;
  Queue<Task> tasks_;
  ThreadGroup threads_{[this] { tasks_.Close(); }};
};

}  // namespace samara
