// Batches for replicas: pipelines, read ahead in order by threads of their own.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "samara/error.h"
#include "samara/nest.h"

namespace samara {

enum class InputMode : uint8_t {
  kPerReplica,  // one pipeline a replica: the same batches at any number of ranks
  kPerWorker,   // one a rank; its replicas take from it in the order of their ids
  kSingle       // one for all, on rank 0, which sends the batches on
};

// Argument of an input_fn, which makes one pipeline of per-replica batches.
struct InputContext {
  int num_replicas = 1;
  int input_pipeline_id = 0;
  int num_input_pipelines = 1;
  int rank = 0, world_size = 1;
  // Throws ReplicationError (78) when the replicas do not divide it.
  int64_t PerReplicaBatch(int64_t global_batch) const;
};

struct InputOptions {
  int prefetch = 2;  // batches that each pipeline reads ahead for each of its replicas; 0: none
};

// The next batch, or nullopt at the end.
template <typename Batch>
using Pipeline = std::function<std::optional<Batch>()>;

// Readers of this rank.
struct InputShape {
  InputMode mode = InputMode::kPerReplica;
  std::vector<InputContext> pipelines;  // of this rank
  int batches = 1;                      // that each of them gives to one Run
};

// One pipeline and the thread that reads it ahead.
template <typename Batch>
class Prefetcher {
 public:
  Prefetcher(Pipeline<Batch> pipeline, size_t depth)
      : pipeline_(std::move(pipeline)), depth_(depth) {
    if (depth_ == 0) return;
    try {
      thread_ = std::thread([this] { Read(); });
    } catch (const std::system_error& error) {
      throw ReplicationError(71, std::string("cannot start a thread that reads batches ahead: ") +
                                     error.what() +
                                     "; read ahead with fewer pipelines (InputOptions::prefetch), "
                                     "or raise the limits (ulimit -u, ulimit -v)");
    }
  }
  ~Prefetcher() {
    {
      const MutexLock lock(mu_);
      quit_ = true;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Blocks; rethrows what the pipeline threw.
  std::optional<Batch> Next() {
    const MutexLock lock(mu_);
    if (depth_ == 0) {
      if (!ended_) last_ = pipeline_();
      ended_ = ended_ || !last_;
      return ended_ ? std::nullopt : last_;
    }
    changed_.Wait(mu_, [this]() REQUIRES(mu_) { return !ready_.empty() || ended_; });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    changed_.NotifyAll();
    return batch;
  }

 private:
  void Read() {
    try {
      for (;;) {
        {
          const MutexLock lock(mu_);
          changed_.Wait(mu_, [this]() REQUIRES(mu_) { return quit_ || ready_.size() < depth_; });
          if (quit_) return;
        }
        std::optional<Batch> batch = pipeline_();
        const MutexLock lock(mu_);
        if (!batch)
          ended_ = true;
        else
          ready_.push_back(std::move(*batch));
        changed_.NotifyAll();
        if (ended_) return;
      }
    } catch (...) {
      const MutexLock lock(mu_);
      error_ = std::current_exception();
      ended_ = true;
      changed_.NotifyAll();
    }
  }

  const Pipeline<Batch> pipeline_;
  const size_t depth_;
  std::optional<Batch> last_;  // without a thread
  Mutex mu_;
  CondVar changed_;
  std::deque<Batch> ready_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false, quit_ GUARDED_BY(mu_) = false;
  std::exception_ptr error_ GUARDED_BY(mu_);
  std::thread thread_;
};

// This rank's pipelines. Made by Replicator::MakeInput.
template <typename Batch>
class Input {
 public:
  template <typename InputFn>
  Input(InputShape shape, InputFn&& input_fn, const InputOptions& options)
      : shape_(std::move(shape)) {
    for (const InputContext& context : shape_.pipelines) {
      readers_.push_back(std::make_unique<Prefetcher<Batch>>(
          input_fn(context),
          static_cast<size_t>(options.prefetch) * static_cast<size_t>(shape_.batches)));
    }
  }
  InputMode mode() const { return shape_.mode; }
  // The next batches of this rank's pipelines, in the order of the replicas that get them.
  std::vector<std::optional<Batch>> Next() {
    std::vector<std::optional<Batch>> batches;
    for (auto& reader : readers_)
      for (int i = 0; i < shape_.batches; ++i) batches.push_back(reader->Next());
    for (const auto& batch : batches)
      if (batch) like_ = *batch;
    return batches;
  }
  const Batch& like() const { return like_; }      // the last batch seen; its structure
  std::optional<Leaves>& last() { return last_; }  // what batches without rows are made from

 private:
  const InputShape shape_;
  std::vector<std::unique_ptr<Prefetcher<Batch>>> readers_;
  Batch like_{};
  std::optional<Leaves> last_;
};

// Which samples make which batch: step s takes the samples [s * B, (s + 1) * B) of its epoch's
// order, B = global_batch, and replica i its contiguous share of them. Every sample comes exactly
// once an epoch whatever the number of replicas and ranks; the last batch of an epoch is smaller
// and may leave replicas without samples.
struct SampleOrder {
  int64_t samples = 0;       // of the data set
  int64_t global_batch = 0;  // of all replicas together
  bool shuffle = true;       // keyed by (seed, epoch)
  bool drop_last = false;
  uint64_t seed = 1;
  int64_t StepsPerEpoch() const;
  // Returns the samples of replica `replica` of `replicas`, at `step` counted over all epochs.
  std::vector<int64_t> Indices(int64_t step, int replica, int replicas) const;
};

// A pipeline that fetches the samples of an order, from `first_step` on, for `epochs` epochs:
// fetch(indices) -> Batch, with no rows for no indices.
template <typename Fetch>
auto OrderedPipeline(const InputContext& context, const SampleOrder& order, int64_t epochs,
                     Fetch fetch, int64_t first_step = 0) {
  using Batch = std::invoke_result_t<Fetch&, const std::vector<int64_t>&>;
  const int64_t end = epochs * order.StepsPerEpoch();
  return Pipeline<Batch>([=, step = first_step]() mutable -> std::optional<Batch> {
    if (step >= end) return std::nullopt;
    return fetch(order.Indices(step++, context.input_pipeline_id, context.num_input_pipelines));
  });
}

}  // namespace samara
