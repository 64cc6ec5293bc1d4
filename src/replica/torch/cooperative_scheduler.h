// Cooperative scheduling of the replicas of one rank: each has a thread, and one of them runs at a
// time, in the order of their ids. A replica yields at a barrier, in a collective, and at its end.
// So they may share a model: the state that a replica leaves in it (gradients, buffers, the random
// generator's state) is saved and restored by a callback at each switch.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "core/thread.h"

namespace samara {

class CooperativeScheduler {
 public:
  // `switched(from, to)`: called on the thread of `from` at a switch between two replicas.
  // `first`: id of the first one in messages. Throws Error (kNoResources).
  CooperativeScheduler(int replicas, int first, std::function<void(int from, int to)> switched);

  // Runs body(0), ..., body(replicas - 1) and returns when all have ended. Throws what the first of
  // them threw; the others' Barrier throws then too. One replica runs on the caller's thread.
  void Run(const std::function<void(int replica)>& body);

  // From a body: returns once all replicas have reached the barrier `what`, and the last one has
  // run `action`. Throws ReplicationError when they are at different barriers or one has ended.
  void Barrier(int replica, const std::string& what, const std::function<void()>& action);
  // From a body: lets the others run; for waits that are not barriers.
  void Yield(int replica);
  int replicas() const { return replicas_; }
  bool running() const { return running_; }
  // From a body: its replica, which no other thread changes meanwhile.
  int active() const NO_THREAD_SAFETY_ANALYSIS { return active_; }

 private:
  enum class State : uint8_t { kIdle, kRunning, kAtBarrier, kEnded };
  struct Replica {
    State state = State::kIdle;
    std::string what;  // its barrier
    CondVar wake;
  };
  void Work(int replica);
  void Quit();
  // Runs the next replica, and waits. Throws when another replica has failed.
  void SwitchAndWait(int replica) REQUIRES(mu_);
  void SwitchToNext(int replica) REQUIRES(mu_);
  bool OthersRun(int replica) const REQUIRES(mu_);  // are neither at a barrier nor ended
  // "replicas 0, 2: all_reduce of ...; replica 1: ...": the barriers, and what has ended.
  std::string Differences() const REQUIRES(mu_);
  void Activate(int replica) REQUIRES(mu_);
  void FailLocked(std::exception_ptr error) REQUIRES(mu_);

  const int replicas_, first_;
  const std::function<void(int, int)> switched_;
  bool running_ = false;
  Mutex mu_;
  CondVar done_;
  std::vector<std::unique_ptr<Replica>> list_ GUARDED_BY(mu_);
  const std::function<void(int)>* body_ GUARDED_BY(mu_) = nullptr;
  uint64_t run_ GUARDED_BY(mu_) = 0;    // counts calls of Run
  int scheduled_ GUARDED_BY(mu_) = -1;  // the replica that may run; -1: none
  int active_ GUARDED_BY(mu_) = 0;      // the replica whose state is in the model
  int ended_ GUARDED_BY(mu_) = 0;
  std::exception_ptr error_ GUARDED_BY(mu_);
  bool quit_ GUARDED_BY(mu_) = false;
  ThreadGroup threads_{[this] { Quit(); }};  // last: they use everything above
};

}  // namespace samara
