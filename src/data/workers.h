// Threads that read samples, shared by all who ask.
// Thread safety: Run may be called from any number of threads at once.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/queue.h"
#include "core/thread.h"

namespace samara {

class Workers {
 public:
  explicit Workers(int threads);  // 0: everything runs on the caller's thread
  ~Workers();
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
  Queue<Task> tasks_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace samara
