#include <vector>

#include "core/mutex.h"
#include "replica/liveness/failure_detector.h"

namespace samara {

// The failure detector for threads: a rank that ends without Leave has died. No timeouts.
class MonitorHub {
 public:
  explicit MonitorHub(int size)
      : detector_(size, std::chrono::hours(1)), on_failure_(static_cast<size_t>(size)) {}

  void Join(int rank, Monitor::OnFailure on_failure) {
    const MutexLock lock(mu_);
    detector_.Join(rank, {});
    CallbackOf(rank) = std::move(on_failure);
    if (!detector_.failure().ok()) CallbackOf(rank)(detector_.failure());
  }
  void Report(int rank, const RankActivity& activity) {
    const MutexLock lock(mu_);
    detector_.SetActivity(rank, activity);
  }
  void Fail(int rank, const Status& why) {
    const MutexLock lock(mu_);
    detector_.GiveUp(rank, why);
    NotifyFailure();
  }
  // A second call does nothing.
  void Leave(int rank, bool orderly) {
    const MutexLock lock(mu_);
    if (!std::exchange(CallbackOf(rank), nullptr)) return;
    if (orderly)
      detector_.Leave(rank);
    else
      detector_.ConnectionClosed(rank);
    NotifyFailure();
  }
  std::string Describe() const {
    const MutexLock lock(mu_);
    return detector_.Describe({});
  }

 private:
  Monitor::OnFailure& CallbackOf(int rank) REQUIRES(mu_) {
    return on_failure_[static_cast<size_t>(rank)];
  }
  // Passes the first failure to all ranks, once. The callbacks may not call the hub.
  void NotifyFailure() REQUIRES(mu_) {
    if (detector_.failure().ok() || std::exchange(notified_, true)) return;
    for (const Monitor::OnFailure& on_failure : on_failure_)
      if (on_failure) on_failure(detector_.failure());
  }

  mutable Mutex mu_;
  FailureDetector detector_ GUARDED_BY(mu_);
  std::vector<Monitor::OnFailure> on_failure_ GUARDED_BY(mu_);  // by rank; null: not joined
  bool notified_ GUARDED_BY(mu_) = false;
};

namespace {

class MemoryMonitor : public Monitor {
 public:
  MemoryMonitor(int rank, std::shared_ptr<MonitorHub> hub) : rank_(rank), hub_(std::move(hub)) {}
  ~MemoryMonitor() override { hub_->Leave(rank_, /*orderly=*/false); }
  void Report(const RankActivity& activity) override { hub_->Report(rank_, activity); }
  void Fail(const Status& why) override { hub_->Fail(rank_, why); }
  std::string Describe() const override { return hub_->Describe(); }
  void Leave() override { hub_->Leave(rank_, /*orderly=*/true); }

 private:
  const int rank_;
  const std::shared_ptr<MonitorHub> hub_;
};

}  // namespace

std::shared_ptr<MonitorHub> MakeMonitorHub(int size) { return std::make_shared<MonitorHub>(size); }

std::unique_ptr<Monitor> MakeMemoryMonitor(int rank, std::shared_ptr<MonitorHub> hub,
                                           Monitor::OnFailure on_failure) {
  hub->Join(rank, std::move(on_failure));
  return std::make_unique<MemoryMonitor>(rank, std::move(hub));
}

}  // namespace samara
