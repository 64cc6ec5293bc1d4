// The replicas of one rank take turns: each has a thread, and one of them runs at a time, in the
// order of their ids. A turn ends where the replica meets the others, in a collective, or at its
// end. So they may share a model: what a replica leaves in it during its turn (gradients, buffers,
// the random generator's state) is put aside by whoever is called at each change of turns.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/thread.h"

namespace samara {

class Turns {
 public:
  // `changed(from, to)`: on the thread of `from`, when the turn passes between two replicas.
  // `first`: what the first of them is called, for words. Throws Error (kNoResources).
  Turns(int replicas, int first, std::function<void(int from, int to)> changed);

  // Runs body(0), ..., body(replicas - 1) and returns when all have ended. Throws what the first of
  // them threw; the others' Meet throws then too. One replica runs on the caller's thread.
  void Run(const std::function<void(int replica)>& body);

  // From a body: returns once all replicas have met at `what`, and the last to come has run
  // `action`. Throws ReplicationError when they meet at different things or one has ended.
  void Meet(int replica, const std::string& what, const std::function<void()>& action);
  // From a body: gives the others a turn; for waits that are no meetings.
  void Yield(int replica);
  int replicas() const { return replicas_; }
  bool running() const { return running_; }
  int active() const { return active_; }  // from a body: its replica

 private:
  enum class State : uint8_t { kIdle, kRunning, kMeeting, kEnded };
  struct Replica {
    State state = State::kIdle;
    std::string what;
    std::condition_variable wake;
  };
  void Work(int replica);
  void Quit();
  // Passes the turn on, and waits for the next one. Throws when another replica has failed.
  void PassAndWait(int replica, std::unique_lock<std::mutex>& lock);
  void Pass(int replica);
  bool OthersRun(int replica) const;  // have neither met nor ended
  // "replicas 0, 2: all_reduce of ...; replica 1: ...": who meets at what, and who has ended.
  std::string Differences() const;
  void Activate(int replica);
  void FailLocked(std::exception_ptr error);

  const int replicas_, first_;
  const std::function<void(int, int)> changed_;
  bool running_ = false;
  std::mutex mu_;
  std::condition_variable done_;
  // guarded by mu_
  std::vector<std::unique_ptr<Replica>> list_;
  const std::function<void(int)>* body_ = nullptr;
  uint64_t run_ = 0;  // counts calls of Run
  int turn_ = -1;     // whose it is; -1: nobody's
  int active_ = 0;    // whose state is in the model
  int ended_ = 0;
  std::exception_ptr error_;
  bool quit_ = false;
  ThreadGroup threads_{[this] { Quit(); }};  // last: they use everything above
};

}  // namespace samara
