// What the monitors of rank 0 and of the others share: one thread that polls, and the requests that
// other threads leave for it.
//
// One turn of the thread: (1) sleep in poll, (2) tell the time, less the gap in which this process
// was not scheduled, (3) take the requests, (4) Turn: read everything that has come before judging
// anybody's silence, answer, flush, (5) tell who waits what was done, and OnFailure.
#pragma once

#include <poll.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/thread.h"
#include "replica/rendezvous/socket.h"
#include "replica/liveness/failure_detector.h"
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
  // Of the derived class, on the thread. Adds what to poll and says when to wake up at the latest.
  virtual Time Prepare(std::vector<pollfd>& polls) = 0;
  // False: the thread ends.
  virtual bool Turn(SteadyTime now, const Requests& requests) = 0;

  // For derived classes: the thread starts last in their making, and ends first in their end.
  void StartThread();
  void StopThread();

  // On the thread:
  void Started();                      // the group is complete
  void Failed(const Status& failure);  // the first one counts
  bool failed() const { return failed_; }
  bool BeatDue(SteadyTime now);
  RankActivity activity() const;

  // Any thread: waits for lines that the thread brings by Answer.
  std::string Ask() const;
  void Answer(std::string text);
  bool OnThread() const { return std::this_thread::get_id() == thread_id_; }

  // constant after construction
  const int rank_;
  const Options options_;
  // touched by the thread only
  AwakeClock clock_;
  SteadyTime beat_due_;

 private:
  void Run();
  Requests TakeRequests();
  void Wake() const;
  void Publish(const Requests& done);

  const OnFailure on_failure_;
  OwnedFd wake_;
  bool failed_ = false;  // the thread's

  mutable std::mutex activity_mu_;
  RankActivity activity_;  // guarded by activity_mu_

  mutable std::mutex mu_;
  mutable std::condition_variable changed_;  // signalled on every change of what follows
  // guarded by mu_
  std::optional<Status> give_up_;
  bool gave_up_ = false;  // the notice is on its way
  bool leave_ = false, stop_ = false, started_ = false, delivered_ = false, ended_ = false;
  mutable bool ask_ = false;
  Status failure_;
  std::optional<std::string> answer_;

  std::thread::id thread_id_;  // constant once the thread runs
  std::unique_ptr<Thread> thread_;
};

Result<std::unique_ptr<Monitor>> MakeHubMonitor(int size, const std::shared_ptr<Store>& store,
                                                const Monitor::Options& options,
                                                Monitor::OnFailure on_failure);
Result<std::unique_ptr<Monitor>> MakeSpokeMonitor(int rank, int size,
                                                  const std::shared_ptr<Store>& store,
                                                  const Monitor::Options& options,
                                                  Monitor::OnFailure on_failure);
// What rank 0 leaves in the store under this key: port, token in hexadecimal, host.
inline constexpr const char* kMonitorKey = "monitor";
std::string WriteMonitorAddress(const Endpoint& endpoint, const MonitorToken& token);
// What a rank says to be let in: who knows the secret, and has read the token, knows it.
MonitorToken MonitorProof(const std::string& secret, const MonitorToken& token);
struct MonitorAddress {
  Endpoint endpoint;
  MonitorToken token{};
};
Result<MonitorAddress> ParseMonitorAddress(const std::string& text);

}  // namespace samara
