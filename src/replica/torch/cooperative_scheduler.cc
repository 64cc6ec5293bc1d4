#include "replica/torch/cooperative_scheduler.h"

#include <ATen/Parallel.h>

#include <map>

#include "core/check.h"
#include "core/status.h"
#include "samara/error.h"

namespace samara {
namespace {
// Thrown into the replicas that wait when another one has failed.
struct OtherFailed : std::exception {
  const char* what() const noexcept override { return "another replica of this rank failed"; }
};
}  // namespace

CooperativeScheduler::CooperativeScheduler(int replicas, int first,
                                           std::function<void(int, int)> switched)
    : replicas_(replicas), first_(first), switched_(std::move(switched)) {
  CHECK(replicas > 0);
  for (int i = 0; i < replicas; ++i) list_.push_back(std::make_unique<Replica>());
  if (replicas == 1) return;
  ThrowIfError(threads_.Start("replica", static_cast<size_t>(replicas), [this](size_t i) {
    at::init_num_threads();  // those of the rank: a new thread has as many as there are cores
    Work(static_cast<int>(i));
  }));
}

void CooperativeScheduler::Quit() {
  const MutexLock lock(mu_);
  quit_ = true;
  for (auto& replica : list_) replica->wake.NotifyAll();
}

void CooperativeScheduler::Run(const std::function<void(int)>& body) {
  CHECK(!running_) << "Run inside a step";
  running_ = true;
  struct Reset {
    bool& running;
    ~Reset() { running = false; }
  } reset{running_};
  if (replicas_ == 1) return body(0);
  const MutexLock lock(mu_);
  body_ = &body;
  ++run_;
  ended_ = 0;
  error_ = nullptr;
  for (auto& replica : list_) replica->state = State::kRunning;
  scheduled_ = 0;
  list_[0]->wake.NotifyOne();
  done_.Wait(mu_, [this]() REQUIRES(mu_) { return ended_ == replicas_; });
  body_ = nullptr;
  scheduled_ = -1;
  Activate(0);  // between runs the model is replica 0's
  if (error_) std::rethrow_exception(error_);
}

void CooperativeScheduler::Work(int replica) {
  uint64_t seen = 0;
  MutexLock lock(mu_);
  Replica& me = *list_[static_cast<size_t>(replica)];
  for (;;) {
    me.wake.Wait(mu_, [&]() REQUIRES(mu_) {
      return quit_ || (body_ != nullptr && run_ != seen && scheduled_ == replica);
    });
    if (quit_) return;
    seen = run_;
    if (!error_) {
      const auto* body = body_;
      lock.Unlock();
      std::exception_ptr error;
      try {
        (*body)(replica);
      } catch (const OtherFailed&) {
      } catch (...) {
        error = std::current_exception();
      }
      lock.Lock();
      if (error) FailLocked(error);
    }
    me.state = State::kEnded;
    ++ended_;
    if (!error_ && ended_ < replicas_ && !OthersRun(replica)) {
      FailLocked(std::make_exception_ptr(ReplicationError(
          static_cast<int>(Code::kInternal),
          "a replica ended its step where others of its rank wait: " + Differences())));
    }
    if (ended_ == replicas_) {
      done_.NotifyOne();
    } else {
      SwitchToNext(replica);
    }
  }
}

void CooperativeScheduler::FailLocked(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
}

void CooperativeScheduler::SwitchToNext(int replica) {
  int next = replica;
  do {
    next = (next + 1) % replicas_;
  } while (list_[static_cast<size_t>(next)]->state == State::kEnded && next != replica);
  if (next == replica) return;
  scheduled_ = next;
  Activate(next);
  list_[static_cast<size_t>(next)]->wake.NotifyOne();
}

bool CooperativeScheduler::OthersRun(int replica) const {
  for (int i = 0; i < replicas_; ++i)
    if (i != replica && list_[static_cast<size_t>(i)]->state == State::kRunning) return true;
  return false;
}

std::string CooperativeScheduler::Differences() const {
  std::map<std::string, std::vector<int>> groups;
  for (int i = 0; i < replicas_; ++i) {
    const Replica& replica = *list_[static_cast<size_t>(i)];
    groups[replica.state == State::kEnded ? "ended its step" : replica.what].push_back(first_ + i);
  }
  std::string text;
  for (const auto& [what, ids] : groups) {
    text += text.empty() ? "" : "; ";
    for (const int id : ids)
      text += (id != ids[0]     ? ", "
               : ids.size() > 1 ? "replicas "
                                : "replica ") +
              std::to_string(id);
    text += ": " + what;
  }
  return text;
}

void CooperativeScheduler::Activate(int replica) {
  if (active_ != replica) switched_(active_, replica);
  active_ = replica;
}

void CooperativeScheduler::SwitchAndWait(int replica) {
  SwitchToNext(replica);
  Replica& me = *list_[static_cast<size_t>(replica)];
  me.wake.Wait(mu_, [&]() REQUIRES(mu_) { return scheduled_ == replica; });
  if (error_) throw OtherFailed{};
}

void CooperativeScheduler::Barrier(int replica, const std::string& what,
                                   const std::function<void()>& action) {
  if (replicas_ == 1) return action();
  MutexLock lock(mu_);
  Replica& me = *list_[static_cast<size_t>(replica)];
  me.what = what;
  me.state = State::kAtBarrier;
  if (!OthersRun(replica)) {
    for (const auto& other : list_) {
      if (other->state == State::kAtBarrier && other->what == what) continue;
      FailLocked(std::make_exception_ptr(ReplicationError(
          static_cast<int>(Code::kInternal),
          "replicas of one rank call different things, nothing was mixed: " + Differences())));
      throw OtherFailed{};
    }
    for (const auto& other : list_) other->state = State::kRunning;
    lock.Unlock();
    action();  // what it throws ends the run, like anything a body throws
    lock.Lock();
  }
  SwitchAndWait(replica);
  // runs while others have not reached the barrier: lets them run
  while (me.state == State::kAtBarrier) SwitchAndWait(replica);
}

void CooperativeScheduler::Yield(int replica) {
  if (replicas_ == 1) return;
  const MutexLock lock(mu_);
  SwitchAndWait(replica);
}

}  // namespace samara
