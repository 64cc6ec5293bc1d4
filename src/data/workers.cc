#include "data/workers.h"

namespace samara {

// One Run, on its caller's stack.
struct Workers::Job {
  const std::function<void(size_t)>& fn;
  std::mutex mu;
  std::condition_variable done;
  size_t left;  // guarded by mu
};

Workers::Workers(int threads) : tasks_(256) {
  for (int i = 0; i < threads; ++i) {
    threads_.push_back(std::make_unique<Thread>("read" + std::to_string(i), [this] {
      Task task;
      while (tasks_.PopUpTo({&task, 1}) == 1) {
        task.job->fn(task.index);
        // the job may be gone once the lock is
        std::lock_guard lock(task.job->mu);
        if (--task.job->left == 0) task.job->done.notify_one();
      }
    }));
  }
}

Workers::~Workers() { tasks_.Close(); }

void Workers::Run(size_t n, const std::function<void(size_t)>& fn) {
  if (threads_.empty()) {
    for (size_t i = 0; i < n; ++i) fn(i);
    return;
  }
  Job job{.fn = fn, .mu = {}, .done = {}, .left = n};
  for (size_t i = 0; i < n; ++i) tasks_.Push({&job, i});
  std::unique_lock lock(job.mu);
  job.done.wait(lock, [&] { return job.left == 0; });
}

}  // namespace samara
