// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "core/mutex.h"
#include "nn/torch/torch.h"
#include "replica/liveness/monitor.h"
#include "replica/rendezvous/store.h"
#include "replica/rendezvous/world.h"
#include "replica/torch/generators.h"

namespace samara {

// Torch has one random generator for the CPU and one for each GPU in a process. Ranks that are
// threads therefore run one at a time, each with a state of its own: a rank has the process to
// itself except while it waits for others, and, in fast mode, during its steps, whose random
// numbers are then not repeatable.
class RankGate {
 public:
  explicit RankGate(int ranks) : ranks_(static_cast<size_t>(ranks)) {}
  void Enter(int rank) {
    const MutexLock lock(mu_);
    EnterLocked(rank);
  }
  // Lets others in, if this rank is in, until the matching Reacquire.
  void Release(int rank) {
    const MutexLock lock(mu_);
    ranks_[static_cast<size_t>(rank)].was_in.push_back(holder_ == rank);
    LeaveLocked(rank);
  }
  // `again`: false after a failure, when the rank that is in may never leave.
  void Reacquire(int rank, bool again) {
    const MutexLock lock(mu_);
    auto& was_in = ranks_[static_cast<size_t>(rank)].was_in;
    const bool enter = was_in.back() && again;
    was_in.pop_back();
    if (enter) EnterLocked(rank);
  }
  void Leave(int rank) {
    const MutexLock lock(mu_);
    LeaveLocked(rank);
  }

 private:
  struct Rank {
    std::vector<torch::Tensor> generators;  // none before its first turn
    std::vector<bool> was_in;
  };
  void EnterLocked(int rank) REQUIRES(mu_) {
    free_.Wait(mu_, [this]() REQUIRES(mu_) { return holder_ < 0; });
    holder_ = rank;
    SetGeneratorStates(ranks_[static_cast<size_t>(rank)].generators);
  }
  void LeaveLocked(int rank) REQUIRES(mu_) {
    if (holder_ != rank) return;
    ranks_[static_cast<size_t>(rank)].generators = GeneratorStates();
    holder_ = -1;
    free_.NotifyOne();
  }
  Mutex mu_;
  CondVar free_;
  int holder_ GUARDED_BY(mu_) = -1;
  std::vector<Rank> ranks_ GUARDED_BY(mu_);
};

struct ThreadRank {
  World world;
  std::shared_ptr<Store> store;
  std::shared_ptr<MonitorHub> hub;
  std::shared_ptr<RankGate> gate;
};
// The rank of the calling thread; null where ranks are processes.
inline thread_local const ThreadRank* thread_rank = nullptr;

}  // namespace samara
