// What rank 0 knows of every rank, and what follows from it: who has come, who has left, and the
// first failure, in words. Without sockets, threads or a clock of its own.
// Thread safety: none. Nothing that a peer says reaches a CHECK.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/clock.h"
#include "replica/liveness/monitor.h"

namespace samara {

// Time during which its owner was scheduled: of every gap between two ticks at most `step` counts.
// Someone who was stopped for a minute cannot blame others for a minute's silence.
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
std::string SilentText(int rank, std::chrono::milliseconds silence);

class GroupJudge {
 public:
  using Time = AwakeClock::Time;
  // Rank 0 is there and is never judged.
  GroupJudge(int size, std::chrono::milliseconds silence);

  // REQUIRES of all: 0 <= rank < size. After the first failure nothing changes it.
  void Come(int rank, Time now);
  void Hear(int rank, Time now) { at(rank).heard = now; }
  void Do(int rank, const RankActivity& activity) { at(rank).activity = activity; }
  void Leave(int rank) { at(rank).state = State::kLeft; }
  void Close(int rank);  // a death, unless it has left
  void GiveUp(int rank, const Status& why);
  void BreakProtocol(int rank);
  void JudgeSilence(Time now);
  void StartTimedOut(std::chrono::milliseconds timeout);
  std::string Awaited() const;  // who has not come: "ranks 2-3, 5 of 6"

  bool Is(int rank) const { return at(rank).state == State::kHere; }
  bool HasCome(int rank) const { return at(rank).state != State::kAwaited; }
  bool Complete() const;  // all have come
  bool AllLeft() const;   // but rank 0
  Time Deadline() const;  // when the next rank will have been silent for too long
  const Status& failure() const { return failure_; }
  // On one line what the ranks do, those that do the same together.
  std::string Describe(Time now) const;

 private:
  enum class State { kAwaited, kHere, kLeft, kDead };
  struct Rank {
    State state = State::kAwaited;
    Time heard{0};
    RankActivity activity;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  void Decide(const Status& failure);
  std::string Activities() const;

  const std::chrono::milliseconds silence_;
  std::vector<Rank> ranks_;
  Status failure_;
};

}  // namespace samara
