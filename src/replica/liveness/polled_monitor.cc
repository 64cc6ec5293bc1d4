#include "replica/liveness/polled_monitor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace samara {
namespace {

constexpr std::chrono::seconds kNoticeTime{1};  // for a failure to be handed to the kernel
constexpr std::chrono::milliseconds kHubAnswerTime{500};  // of rank 0 to a question

}  // namespace

PolledMonitor::PolledMonitor(int rank, const Options& options, OnFailure on_failure)
    : rank_(rank),
      options_(options),
      clock_(options.heartbeat, Now()),
      beat_due_(Now()),
      on_failure_(std::move(on_failure)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_.get() >= 0) << "eventfd";
}

void PolledMonitor::Report(const RankActivity& activity) {
  const MutexLock lock(activity_mu_);
  activity_ = activity;
}

RankActivity PolledMonitor::activity() const {
  const MutexLock lock(activity_mu_);
  return activity_;
}

void PolledMonitor::Wake() const {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void PolledMonitor::Fail(const Status& why) {
  MutexLock lock(mu_);
  if (!failure_.ok() || leave_ || give_up_.has_value() || gave_up_) return;
  give_up_ = why.ok() ? Status(Code::kInternal, "without a reason") : why;
  Wake();
  if (OnThread()) return;
  changed_.WaitFor(mu_, kNoticeTime,
                   [this]() REQUIRES(mu_) { return gave_up_ || !failure_.ok() || ended_; });
}

void PolledMonitor::Leave() {
  const MutexLock lock(mu_);
  leave_ = true;
  Wake();
}

Status PolledMonitor::WaitForStart() {
  MutexLock lock(mu_);
  changed_.Wait(mu_, [this]() REQUIRES(mu_) { return started_ || !failure_.ok(); });
  return started_ ? Status::Ok() : failure_;
}

std::string PolledMonitor::Ask() const {
  MutexLock lock(mu_);
  const auto known = [this]() REQUIRES(mu_) {
    return answer_.value_or("what the ranks do is not known here");
  };
  if (OnThread() || !failure_.ok() || ended_) return known();
  ask_ = true;
  Wake();
  changed_.WaitFor(mu_, kHubAnswerTime,
                   [this]() REQUIRES(mu_) { return !ask_ || !failure_.ok() || ended_; });
  return known();
}

void PolledMonitor::Answer(std::string text) {
  {
    const MutexLock lock(mu_);
    answer_ = std::move(text);
    ask_ = false;
  }
  changed_.NotifyAll();
}

void PolledMonitor::StartThread() {
  // the thread waits for its number to be written down
  const MutexLock lock(mu_);
  thread_ = std::make_unique<Thread>("monitor", [this] { Run(); });
}

void PolledMonitor::StopThread() {
  {
    const MutexLock lock(mu_);
    stop_ = true;
  }
  Wake();
  thread_.reset();
}

void PolledMonitor::Started() {
  {
    const MutexLock lock(mu_);
    started_ = true;
  }
  changed_.NotifyAll();
}

void PolledMonitor::Failed(const Status& failure) {
  if (failed_) return;
  failed_ = true;
  const MutexLock lock(mu_);
  failure_ = failure;
}

bool PolledMonitor::BeatDue(SteadyTime now) {
  if (now < beat_due_) return false;
  beat_due_ = now + options_.heartbeat;
  return true;
}

PolledMonitor::Requests PolledMonitor::TakeRequests() {
  const MutexLock lock(mu_);
  return {std::exchange(give_up_, std::nullopt), leave_, ask_, stop_};
}

void PolledMonitor::Publish(const Requests& done) {
  Status failure;
  {
    const MutexLock lock(mu_);
    gave_up_ |= done.give_up.has_value();
    if (!failure_.ok() && started_ && !leave_ && !delivered_) {
      delivered_ = true;
      failure = failure_;
    }
  }
  changed_.NotifyAll();
  if (!failure.ok() && on_failure_) on_failure_(failure);
}

void PolledMonitor::Run() {
  {
    const MutexLock lock(mu_);
    thread_id_ = std::this_thread::get_id();
  }
  std::vector<pollfd> polls;
  for (bool more = true; more;) {
    polls.assign(1, {wake_.get(), POLLIN, 0});
    const auto sleep =
        std::min<Time>({Prepare(polls), beat_due_ - Now(), Time(options_.heartbeat)});  // (1)
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(sleep, Time(0)));
    (void)::poll(polls.data(), polls.size(), static_cast<int>(ms.count()));
    const SteadyTime now = Now();  // (2)
    clock_.Tick(now);
    uint64_t rung;
    (void)!::read(wake_.get(), &rung, sizeof rung);
    const Requests requests = TakeRequests();  // (3)
    more = RunOnce(now, requests);             // (4)
    Publish(requests);                         // (5)
  }
  {
    const MutexLock lock(mu_);
    ended_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace samara
