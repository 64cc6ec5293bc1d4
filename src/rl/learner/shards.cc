#include "rl/learner/shards.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/mutex.h"
#include "core/resources.h"
#include "core/thread.h"

namespace samara {

namespace {

// Waits for what another thread is about to do, without sleep: to be woken takes longer than a step
// on a small network.
constexpr double kSpinSeconds = 100e-6;
template <typename Ready>
bool Spin(const Ready& ready) {
  const SteadyTime start = Now();
  while (!ready())
    if (SecondsSince(start) > kSpinSeconds) return false;
  return true;
}

}  // namespace

class ShardThreads::Pool {
 public:
  explicit Pool(size_t threads) : size_(threads) {}
  ~Pool() = default;
  Status Start() {
    return others_.Start("learner-", size_ - 1, [this](size_t i) { Serve(i + 1); });
  }

  void Run(const std::function<void(size_t thread)>& work) {
    {
      const MutexLock lock(mu_);
      work_ = &work;
      busy_ = size_ - 1;
      ++round_;
    }
    begin_.NotifyAll();
    work(0);
    if (Spin([this] { return busy_ == 0; })) return;
    MutexLock lock(mu_);
    done_.Wait(mu_, [this] { return busy_ == 0; });
  }

 private:
  void Serve(size_t thread) {
    uint64_t round = 0;
    while (true) {
      const auto begun = [&] { return stop_ || round_ != round; };
      if (!Spin(begun)) {
        MutexLock lock(mu_);
        begin_.Wait(mu_, begun);
      }
      if (stop_) return;
      round = round_;
      (*work_)(thread);
      if (--busy_ > 0) continue;
      const MutexLock lock(mu_);
      done_.NotifyAll();
    }
  }

  const size_t size_;
  Mutex mu_;
  CondVar begin_, done_;
  // written under mu_, so that no waiting thread misses it; but busy_ is counted down without
  const std::function<void(size_t)>* work_ = nullptr;  // of round_
  std::atomic<uint64_t> round_ = 0;
  std::atomic<size_t> busy_ = 0;
  std::atomic<bool> stop_ = false;
  ThreadGroup others_{[this] {
    {
      const MutexLock lock(mu_);
      stop_ = true;
    }
    begin_.NotifyAll();
  }};
};

ShardThreads::ShardThreads(int64_t asked, int64_t shards)
    : threads_(static_cast<size_t>(
          std::clamp<int64_t>(asked > 0 ? asked : Cores(), 1, std::max<int64_t>(1, shards)))) {}
ShardThreads::~ShardThreads() = default;

Status ShardThreads::Run(size_t count, const std::function<void(size_t shard)>& work) {
  std::vector<Status> failed(count);
  const size_t threads = std::min(threads_, count);
  const auto run = [&](size_t thread) {
    if (thread >= threads) return;
    for (size_t i = thread; i < count; i += threads) {
      try {
        work(i);
      } catch (const std::exception& e) {
        failed[i] = StatusOf(e);
      }
    }
  };
  if (threads <= 1) {
    run(0);
  } else {
    if (!pool_) {
      auto pool = std::make_unique<Pool>(threads_);
      RETURN_IF_ERROR(pool->Start());
      pool_ = std::move(pool);
    }
    pool_->Run(run);
  }
  for (const Status& status : failed) RETURN_IF_ERROR(status);
  return Status::Ok();
}

Status AddShards(GradientCombiner* combiner, std::span<const std::span<const float>> rows,
                 std::span<float> sum) {
  if (combiner != nullptr) return combiner->Combine(rows, sum);
  std::ranges::copy(rows[0], sum.begin());
  for (const std::span<const float> row : rows.subspan(1))
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += row[k];
  return Status::Ok();
}

}  // namespace samara
