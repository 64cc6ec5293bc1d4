// Base of the monitors of rank 0 and of the others: one thread that polls, and the requests that
// other threads leave for it.
//
// One iteration of the thread: (1) sleep in poll, (2) read the clock, less the gap in which this
// process was not scheduled, (3) take the requests, (4) RunOnce: read everything received before
// checking timeouts, answer, flush, (5) wake the threads that wait, and call OnFailure.
#pragma once

#include <poll.h>

#include <optional>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "core/thread.h"
#include "replica/liveness/failure_detector.h"
#include "replica/liveness/frame_socket.h"
#include "replica/liveness/monitor.h"

namespace samara {

class PolledMonitor : public Monitor {
 public:
  using Time = AwakeClock::Time;
  PolledMonitor(int rank, const Options& options, OnFailure on_failure);

  void Report(const RankActivity& activity) override;
  // Returns when the notice was handed to the kernel, a second later at most.
  void Fail(const Status& why) override;
  void Leave() override;

  // Blocks until the group is complete (ok) or has failed.
  Status WaitForStart();

 protected:
  struct Requests {
    std::optional<Status> give_up;  // once
    bool leave = false, ask = false, stop = false;
  };
  // Overridden, called on the thread. Adds descriptors to poll; returns how long to sleep at most.
  virtual Time Prepare(std::vector<pollfd>& polls) = 0;
  // False: the thread ends.
  virtual bool RunOnce(SteadyTime now, const Requests& requests) = 0;

  // For derived classes: the thread starts last in their making, and ends first in their end.
  void StartThread();
  void StopThread();

  // On the thread:
  void Started();                      // the group is complete
  void Failed(const Status& failure);  // the first one counts
  bool failed() const { return failed_; }
  bool BeatDue(SteadyTime now);
  RankActivity activity() const;

  // Any thread: waits for the text that the thread passes to Answer.
  std::string Ask() const;
  void Answer(std::string text);

  // constant after construction
  const int rank_;
  const Options options_;
  // touched by the thread only
  AwakeClock clock_;
  SteadyTime beat_due_;

 private:
  bool OnThread() const REQUIRES(mu_) { return std::this_thread::get_id() == thread_id_; }
  void Run();
  Requests TakeRequests();
  void Wake() const;
  void Publish(const Requests& done);

  const OnFailure on_failure_;
  OwnedFd wake_;
  bool failed_ = false;  // the thread's

  mutable Mutex activity_mu_;
  RankActivity activity_ GUARDED_BY(activity_mu_);

  mutable Mutex mu_;
  mutable CondVar changed_;  // signalled on every change of what follows
  std::optional<Status> give_up_ GUARDED_BY(mu_);
  bool gave_up_ GUARDED_BY(mu_) = false;  // the notice is on its way
  bool leave_ GUARDED_BY(mu_) = false, stop_ GUARDED_BY(mu_) = false;
  bool started_ GUARDED_BY(mu_) = false, delivered_ GUARDED_BY(mu_) = false;
  bool ended_ GUARDED_BY(mu_) = false;
  mutable bool ask_ GUARDED_BY(mu_) = false;
  Status failure_ GUARDED_BY(mu_);
  std::optional<std::string> answer_ GUARDED_BY(mu_);

  std::thread::id thread_id_ GUARDED_BY(mu_);
  std::unique_ptr<Thread> thread_;
};

Result<std::unique_ptr<Monitor>> MakeHubMonitor(int size, const std::shared_ptr<Store>& store,
                                                const Monitor::Options& options,
                                                Monitor::OnFailure on_failure);
Result<std::unique_ptr<Monitor>> MakeSpokeMonitor(int rank, int size,
                                                  const std::shared_ptr<Store>& store,
                                                  const Monitor::Options& options,
                                                  Monitor::OnFailure on_failure);
// Key in the store of rank 0's port, token in hexadecimal, and host.
inline constexpr const char* kMonitorKey = "monitor";
std::string WriteMonitorAddress(const Endpoint& endpoint, const MonitorToken& token);
// Proof that a rank has the secret and has read the token; sent to be admitted.
MonitorToken MonitorProof(const std::string& secret, const MonitorToken& token);
struct MonitorAddress {
  Endpoint endpoint;
  MonitorToken token{};
};
Result<MonitorAddress> ParseMonitorAddress(const std::string& text);

}  // namespace samara
