#include "data/workers.h"

#include "core/mutex.h"

namespace samara {

// One Run, on its caller's stack.
struct Workers::Job {
  const std::function<void(size_t)>& fn;
  Mutex mu;
  CondVar done;
  size_t left GUARDED_BY(mu);
};

Workers::Workers(int threads) : count_(threads), tasks_(256) {
  ThrowIfError(threads_.Start("read", static_cast<size_t>(threads), [this](size_t) {
    Task task;
    while (tasks_.PopUpTo({&task, 1}) == 1) {
      task.job->fn(task.index);
      // the job may be gone once the lock is
      MutexLock lock(task.job->mu);
      if (--task.job->left == 0) task.job->done.NotifyOne();
    }
  }));
}

void Workers::Run(size_t n, const std::function<void(size_t)>& fn) {
  if (count_ == 0) {
    for (size_t i = 0; i < n; ++i) fn(i);
    return;
  }
  Job job{.fn = fn, .mu = {}, .done = {}, .left = n};
  for (size_t i = 0; i < n; ++i) tasks_.Push({&job, i});
  MutexLock lock(job.mu);
  job.done.Wait(job.mu, [&]() REQUIRES(job.mu) { return job.left == 0; });
}

}  // namespace samara
