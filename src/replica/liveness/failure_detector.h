// Failure detector of rank 0: the state of every rank (missing, alive, left, dead) and the first
// failure of the group, as one line. Has no sockets, threads or clock.
// Thread safety: none. Nothing that a peer sends reaches a CHECK.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/clock.h"
#include "replica/liveness/monitor.h"

namespace samara {

// Time during which this process was scheduled: of every gap between two ticks at most `step`
// counts. A process that was stopped for a minute cannot time out the others for that minute.
class AwakeClock {
 public:
  using Time = std::chrono::nanoseconds;
  AwakeClock(std::chrono::milliseconds step, SteadyTime now) : step_(step), last_(now) {}
  Time Tick(SteadyTime now) {
    awake_ += std::min<Time>(now - last_, step_);
    last_ = now;
    return awake_;
  }
  Time now() const { return awake_; }

 private:
  const Time step_;
  SteadyTime last_;
  Time awake_{0};
};

// "rank 3", "ranks 0-1, 3".
std::string NameRanks(const std::vector<int>& ranks);
// "rank 1 has been silent for 1.5 s"
std::string SilentText(int rank, std::chrono::milliseconds timeout);

class FailureDetector {
 public:
  using Time = AwakeClock::Time;
  // Rank 0 is alive and has no timeout.
  FailureDetector(int size, std::chrono::milliseconds heartbeat_timeout);

  // REQUIRES for all: 0 <= rank < size. The first failure stays.
  void Join(int rank, Time now);
  void Heartbeat(int rank, Time now) { at(rank).last_heartbeat = now; }
  void SetActivity(int rank, const RankActivity& activity) { at(rank).activity = activity; }
  void Leave(int rank) { at(rank).state = State::kLeft; }
  void ConnectionClosed(int rank);  // the rank has died, unless it has left
  void GiveUp(int rank, const Status& why);
  void ProtocolError(int rank);
  void CheckTimeouts(Time now);
  void StartTimedOut(std::chrono::milliseconds timeout);
  std::string Missing() const;  // ranks that have not joined: "ranks 2-3, 5 of 6"

  bool IsAlive(int rank) const { return at(rank).state == State::kAlive; }
  bool HasJoined(int rank) const { return at(rank).state != State::kMissing; }
  bool Complete() const;     // all have joined
  bool AllLeft() const;      // except rank 0
  Time NextTimeout() const;  // of the rank whose last heartbeat is the oldest
  const Status& failure() const { return failure_; }
  // The ranks' activities on one line, equal ones together.
  std::string Describe(Time now) const;

 private:
  enum class State { kMissing, kAlive, kLeft, kDead };
  struct Rank {
    State state = State::kMissing;
    Time last_heartbeat{0};
    RankActivity activity;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  void RecordFailure(const Status& failure);
  std::string Activities() const;

  const std::chrono::milliseconds timeout_;
  std::vector<Rank> ranks_;
  Status failure_;
};

}  // namespace samara
