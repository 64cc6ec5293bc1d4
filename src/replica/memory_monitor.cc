#include <map>
#include <mutex>
#include <vector>

#include "core/clock.h"
#include "replica/monitor.h"

namespace samara {

class MonitorHub {
 public:
  explicit MonitorHub(int size) : ranks_(static_cast<size_t>(size)) {}

  void Join(int rank, Monitor::OnFailure on_failure) {
    std::lock_guard lock(mu_);
    Rank& r = ranks_[static_cast<size_t>(rank)];
    r.on_failure = std::move(on_failure);
    r.heard = Now();
    if (!failure_.ok() && r.on_failure) r.on_failure(failure_);
  }
  void Report(int rank, const RankActivity& activity) {
    std::lock_guard lock(mu_);
    ranks_[static_cast<size_t>(rank)].activity = activity;
    ranks_[static_cast<size_t>(rank)].heard = Now();
  }
  void Fail(const Status& why) {
    std::lock_guard lock(mu_);
    FailLocked(why);
  }
  // `orderly`: with Leave.
  void Leave(int rank, bool orderly) {
    std::lock_guard lock(mu_);
    Rank& r = ranks_[static_cast<size_t>(rank)];
    if (!r.on_failure) return;
    r.on_failure = nullptr;
    if (!orderly) {
      FailLocked(Status(Code::kUnavailable, "rank " + std::to_string(rank) + " died; " + Lines()));
    }
  }
  std::string Describe() const {
    std::lock_guard lock(mu_);
    return Lines();
  }

 private:
  struct Rank {
    Monitor::OnFailure on_failure;  // null: not there
    RankActivity activity;
    SteadyTime heard;
  };
  // The callbacks may not call the hub.
  void FailLocked(const Status& why) {
    if (!failure_.ok()) return;
    failure_ = why;
    for (Rank& r : ranks_)
      if (r.on_failure) r.on_failure(why);
  }
  std::string Lines() const {
    std::string text;
    for (size_t i = 0; i < ranks_.size() && i < 16; ++i) {
      const Rank& r = ranks_[i];
      const char* what = r.activity.what[0] == 0 ? "its own work" : r.activity.what;
      text += (i == 0 ? "rank " : ", rank ") + std::to_string(i) + " " +
              (!r.on_failure        ? "is gone"
               : r.activity.waiting ? std::string("waits in ") + what
                                    : std::string("is at ") + what) +
              " (number " + std::to_string(r.activity.sequence) + ")";
    }
    return ranks_.size() > 16 ? text + ", ..." : text;
  }

  mutable std::mutex mu_;
  std::vector<Rank> ranks_;  // guarded by mu_, as is failure_
  Status failure_;
};

namespace {

class MemoryMonitor : public Monitor {
 public:
  MemoryMonitor(int rank, std::shared_ptr<MonitorHub> hub) : rank_(rank), hub_(std::move(hub)) {}
  ~MemoryMonitor() override { hub_->Leave(rank_, false); }
  void Report(const RankActivity& activity) override { hub_->Report(rank_, activity); }
  void Fail(const Status& why) override {
    hub_->Fail(why.Annotate("rank " + std::to_string(rank_) + " gave up"));
  }
  std::string Describe() const override { return hub_->Describe(); }
  void Leave() override { hub_->Leave(rank_, true); }

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
