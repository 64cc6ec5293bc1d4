#include "rl/learner/shards.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "core/cpu.h"
#include "core/futex.h"
#include "core/resources.h"
#include "core/thread.h"

namespace samara {

class ShardThreads::Pool {
 public:
  explicit Pool(size_t threads) : size_(threads) {}
  ~Pool() = default;
  Status Start() {
    return others_.Start("learner-", size_ - 1, [this](size_t i) { Serve(i + 1); });
  }

  void Run(const std::function<void(size_t thread)>& work) {
    const uint32_t seen = done_.rings();
    work_ = &work;
    busy_ = size_ - 1;
    RingBell(begin_);
    work(0);
    Await(done_, seen);
  }

 private:
  // Threads are not asleep between the steps on a small network: to be woken takes longer than one.
  static void Await(Doorbell& bell, uint32_t seen) {
    while (!WaitForRing(bell, seen, std::chrono::microseconds(100), std::chrono::hours(1))) {
    }
  }

  void Serve(size_t thread) {
    uint32_t seen = 0;
    while (true) {
      Await(begin_, seen);
      if (stop_) return;
      seen = begin_.rings();  // one more: Run waits for all threads before it rings again
      (*work_)(thread);
      if (--busy_ == 0) RingBell(done_);
    }
  }

  const size_t size_;
  Doorbell begin_{}, done_{};  // rung for each Run, at its begin and by the last thread
  const std::function<void(size_t)>* work_ = nullptr;  // written before begin_ is rung
  std::atomic<size_t> busy_ = 0;
  std::atomic<bool> stop_ = false;
  ThreadGroup others_{[this] {
    stop_ = true;
    RingBell(begin_);
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
