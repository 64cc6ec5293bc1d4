// Rank 0's monitor: the connections of all ranks, and the failure detector.
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <utility>

#include "core/log.h"
#include "replica/liveness/polled_monitor.h"
#include "replica/rendezvous/secret.h"

namespace samara {
namespace {

constexpr size_t kUnidentifiedMax = 256;             // connections that have not said Hello
constexpr std::chrono::seconds kHubHelloTime{10};    // after which they are closed
constexpr std::chrono::seconds kMissingLogTime{10};  // until the missing ranks are logged
constexpr int kHubAcceptsPerPoll = 64, kHubFramesPerPoll = 16;
constexpr std::chrono::milliseconds kHubNoRoomPause{100};  // without descriptors to accept with
constexpr std::chrono::milliseconds kLastFrames{200};      // to flush a failure before the end

class Hub final : public PolledMonitor {
 public:
  Hub(int size, const Options& options, OnFailure on_failure)
      : PolledMonitor(0, options, std::move(on_failure)),
        size_(size),
        made_(Now()),
        ranks_(static_cast<size_t>(size)),
        detector_(size, options.heartbeat_timeout) {}
  ~Hub() override { StopThread(); }

  Status Open(Store& store);
  std::string Describe() const override {
    const MutexLock lock(detector_mu_);
    return detector_.Describe(now_);
  }

 protected:
  Time Prepare(std::vector<pollfd>& polls) override;
  bool RunOnce(SteadyTime now, const Requests& requests) override;

 private:
  struct Unidentified {
    FrameSocket socket;
    SteadyTime since;
  };
  void Accept(SteadyTime now);
  void PollUnidentified(SteadyTime now) REQUIRES(detector_mu_);
  void Admit(FrameSocket&& socket, const MonitorFrame& hello) REQUIRES(detector_mu_);
  std::optional<Status> Refusal(const MonitorFrame& hello) const REQUIRES(detector_mu_);
  void PollRank(int rank) REQUIRES(detector_mu_);
  void HandleMessage(int rank, const MonitorFrame& frame) REQUIRES(detector_mu_);
  void CheckProgress(SteadyTime now, const Requests& requests) REQUIRES(detector_mu_);
  void PutAll(const MonitorFrame& frame);
  void Flush();
  bool AtEnd(SteadyTime now, const Requests& requests) REQUIRES(detector_mu_);

  // constant after Open
  const int size_;
  const SteadyTime made_;
  MonitorToken proof_{};
  // touched by the thread only
  Listener listener_;
  SteadyTime accept_again_{};
  std::list<Unidentified> unidentified_;             // oldest first
  std::vector<std::unique_ptr<FrameSocket>> ranks_;  // null: not joined, or closed
  bool started_ = false, failure_sent_ = false, warned_ = false, missing_logged_ = false;
  std::optional<SteadyTime> stopping_since_;
  // written by the thread in RunOnce, read by any
  mutable Mutex detector_mu_;
  FailureDetector detector_ GUARDED_BY(detector_mu_);
  Time now_ GUARDED_BY(detector_mu_){0};  // on the thread's awake clock
};

Status Hub::Open(Store& store) {
  if (size_ > 1) {
    MonitorToken token;
    ASSIGN_OR_RETURN(const std::string random, RandomBytes(token.size()));
    random.copy(reinterpret_cast<char*>(token.data()), token.size());
    proof_ = MonitorProof(options_.secret, token);
    ASSIGN_OR_RETURN(listener_, ListenAt(options_.address));
    RETURN_IF_ERROR(store.Set(kMonitorKey, WriteMonitorAddress(listener_.endpoint, token)));
  }
  StartThread();
  return WaitForStart();
}

PolledMonitor::Time Hub::Prepare(std::vector<pollfd>& polls) {
  Time sleep = options_.heartbeat;
  if (listener_.fd.get() >= 0 && Now() >= accept_again_)
    polls.push_back({listener_.fd.get(), POLLIN, 0});
  for (const Unidentified& peer : unidentified_) polls.push_back({peer.socket.fd(), POLLIN, 0});
  for (const auto& socket : ranks_)
    if (socket != nullptr) polls.push_back({socket->fd(), socket->poll_events(), 0});
  const MutexLock lock(detector_mu_);
  if (!failed() && detector_.NextTimeout() != Time::max())
    sleep = std::min(sleep, detector_.NextTimeout() - now_);
  if (!started_ && !failed()) sleep = std::min<Time>(sleep, made_ + options_.start - Now());
  return sleep;
}

bool Hub::RunOnce(SteadyTime now, const Requests& requests) {
  const MutexLock lock(detector_mu_);
  now_ = clock_.now();
  detector_.SetActivity(0, activity());
  Accept(now);
  PollUnidentified(now);
  for (int rank = 1; rank < size_; ++rank) PollRank(rank);
  CheckProgress(now, requests);
  if (BeatDue(now) && !failed()) {
    const MonitorFrame beat{.kind = MonitorKind::kBeat};
    for (const auto& socket : ranks_)
      if (socket != nullptr && socket->flushed()) socket->Put(beat);
  }
  const bool end = AtEnd(now, requests);
  if (end && requests.leave && !failed()) PutAll({.kind = MonitorKind::kLeave});
  Flush();
  return !end;
}

void Hub::Accept(SteadyTime now) {
  if (listener_.fd.get() < 0 || now < accept_again_) return;
  for (int i = 0; i < kHubAcceptsPerPoll; ++i) {
    Result<OwnedFd> fd = AcceptFrom(listener_);
    if (!fd.ok()) {
      if (fd.status().code() == Code::kIoError) accept_again_ = now + kHubNoRoomPause;
      return;
    }
    unidentified_.push_back({FrameSocket(std::move(*fd)), now});
    // a rank says Hello at once, so the oldest is the least likely to be one
    if (unidentified_.size() > kUnidentifiedMax) unidentified_.pop_front();
  }
}

void Hub::PollUnidentified(SteadyTime now) {
  for (auto it = unidentified_.begin(); it != unidentified_.end();) {
    const auto frame = it->socket.Receive();
    if (frame.has_value()) Admit(std::move(it->socket), *frame);
    const bool done = frame.has_value() || it->socket.closed() || it->socket.broken() ||
                      now - it->since > kHubHelloTime;
    it = done ? unidentified_.erase(it) : std::next(it);
  }
}

std::optional<Status> Hub::Refusal(const MonitorFrame& hello) const {
  const auto refuse = [](std::string text) { return Status(Code::kConfig, std::move(text)); };
  if (hello.number != static_cast<uint64_t>(size_))
    return refuse(fmt::format("rank {} was told of {} ranks, rank 0 of {}: start all with the same",
                              hello.rank, hello.number, size_));
  if (hello.rank < 1 || hello.rank >= size_)
    return refuse(fmt::format("rank {}: expected 0 to {}", hello.rank, size_ - 1));
  if (detector_.HasJoined(hello.rank))
    return refuse(
        fmt::format("rank {} has come already: two processes have this number", hello.rank));
  return std::nullopt;
}

void Hub::Admit(FrameSocket&& socket, const MonitorFrame& hello) {
  const auto text = [](const MonitorToken& token) {
    return std::string_view(reinterpret_cast<const char*>(token.data()), token.size());
  };
  if (hello.kind != MonitorKind::kHello || !SameBytes(text(hello.token), text(proof_))) {
    if (!std::exchange(warned_, true))  // once: the log cannot be filled
      LogWarning("monitor: closed a connection that is no rank's");
    return;
  }
  if (const auto refusal = Refusal(hello)) {
    FrameSocket refused(std::move(socket));
    refused.Put(FailFrame(0, *refusal));
    refused.Flush();
    return;
  }
  auto& place = ranks_[static_cast<size_t>(hello.rank)];
  place = std::make_unique<FrameSocket>(std::move(socket));
  place->Put({.kind = MonitorKind::kAccepted});
  // a rank that joins after the failure receives it
  if (failed()) place->Put(FailFrame(0, detector_.failure()));
  detector_.Join(hello.rank, now_);
}

void Hub::PollRank(int rank) {
  auto& socket = ranks_[static_cast<size_t>(rank)];
  for (int i = 0; socket != nullptr && i < kHubFramesPerPoll; ++i) {
    const auto frame = socket->Receive();
    if (!frame.has_value()) break;
    HandleMessage(rank, *frame);
  }
  if (socket == nullptr) return;
  if (socket->broken()) detector_.ProtocolError(rank);
  if (socket->closed()) detector_.ConnectionClosed(rank);
  if (socket->broken() || socket->closed()) socket.reset();
}

void Hub::HandleMessage(int rank, const MonitorFrame& frame) {
  auto& socket = ranks_[static_cast<size_t>(rank)];
  detector_.Heartbeat(rank, now_);
  switch (frame.kind) {
    case MonitorKind::kBeat:
      return detector_.SetActivity(rank, FrameActivity(frame));
    case MonitorKind::kFail:
      return detector_.GiveUp(rank, FrameStatus(frame));
    case MonitorKind::kLeave:
      detector_.Leave(rank);
      return socket.reset();  // the rank waits for this
    case MonitorKind::kAsk: {
      MonitorFrame answer{.kind = MonitorKind::kAnswer};
      SetFrameText(answer, detector_.Describe(now_));
      return socket->Put(answer);
    }
    default:
      detector_.ProtocolError(rank);
      return socket.reset();
  }
}

void Hub::CheckProgress(SteadyTime now, const Requests& requests) {
  if (requests.leave) detector_.Leave(0);
  if (requests.give_up.has_value()) detector_.GiveUp(0, *requests.give_up);
  detector_.CheckTimeouts(now_);
  if (!started_ && detector_.Complete()) {
    started_ = true;
    // no other rank is expected
    listener_.fd.Close();
    unidentified_.clear();
    PutAll({.kind = MonitorKind::kStart});
    Started();
  }
  if (!started_ && now >= made_ + options_.start) detector_.StartTimedOut(options_.start);
  if (!started_ && now >= made_ + kMissingLogTime && !failed() &&
      !std::exchange(missing_logged_, true))
    LogInfo(fmt::format("waiting for {}, {} s at most", detector_.Missing(),
                        static_cast<double>(options_.start.count()) / 1000));
  if (detector_.failure().ok() || std::exchange(failure_sent_, true)) return;
  PutAll(FailFrame(0, detector_.failure()));
  Failed(detector_.failure());
}

void Hub::PutAll(const MonitorFrame& frame) {
  for (const auto& socket : ranks_)
    if (socket != nullptr) socket->Put(frame);
}

void Hub::Flush() {
  for (const auto& socket : ranks_)
    if (socket != nullptr) socket->Flush();
}

// After a failure the thread stays only for what is still to be sent; else rank 0 stays for a
// heartbeat timeout, so that the others can leave too.
bool Hub::AtEnd(SteadyTime now, const Requests& requests) {
  if (!requests.stop) return false;
  if (!stopping_since_.has_value()) stopping_since_ = now;
  const auto waited = now - *stopping_since_;
  if (!requests.leave) return true;
  if (!failed()) return detector_.AllLeft() || waited >= options_.heartbeat_timeout;
  return waited >= kLastFrames || std::all_of(ranks_.begin(), ranks_.end(), [](const auto& socket) {
           return socket == nullptr || socket->flushed();
         });
}

}  // namespace

Result<std::unique_ptr<Monitor>> MakeHubMonitor(int size, const std::shared_ptr<Store>& store,
                                                const Monitor::Options& options,
                                                Monitor::OnFailure on_failure) {
  auto hub = std::make_unique<Hub>(size, options, std::move(on_failure));
  RETURN_IF_ERROR(hub->Open(*store));
  return std::unique_ptr<Monitor>(std::move(hub));
}

}  // namespace samara
