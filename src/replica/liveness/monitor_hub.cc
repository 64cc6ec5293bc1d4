// Rank 0's monitor: everybody's connection, and the judge.
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <utility>

#include "core/log.h"
#include "replica/liveness/polled_monitor.h"
#include "replica/rendezvous/secret.h"

namespace samara {
namespace {

constexpr size_t kStrangersMax = 256;           // connections that have not said Hello
constexpr std::chrono::seconds kHelloTime{10};  // after which they are closed
constexpr std::chrono::seconds kPatience{10};   // until it is said who is waited for
constexpr int kAcceptsPerTurn = 64, kFramesPerTurn = 16;
constexpr std::chrono::milliseconds kNoRoomPause{100};  // without descriptors to accept with
constexpr std::chrono::milliseconds kLastFrames{200};   // to flush a failure before the end

class Hub final : public PolledMonitor {
 public:
  Hub(int size, const Options& options, OnFailure on_failure)
      : PolledMonitor(0, options, std::move(on_failure)),
        size_(size),
        made_(Now()),
        ranks_(static_cast<size_t>(size)),
        judge_(size, options.silence) {}
  ~Hub() override { StopThread(); }

  Status Open(Store& store);
  std::string Describe() const override {
    const std::lock_guard lock(judge_mu_);
    return judge_.Describe(now_);
  }

 protected:
  Time Prepare(std::vector<pollfd>& polls) override;
  bool Turn(SteadyTime now, const Requests& requests) override;

 private:
  struct Stranger {
    FrameSocket socket;
    SteadyTime since;
  };
  void Accept(SteadyTime now);
  void HearStrangers(SteadyTime now);
  void Admit(FrameSocket&& socket, const MonitorFrame& hello);
  std::optional<Status> Refusal(const MonitorFrame& hello) const;
  void HearRank(int rank);
  void Obey(int rank, const MonitorFrame& frame);
  void Decide(SteadyTime now, const Requests& requests);
  void PutAll(const MonitorFrame& frame);
  void Flush();
  bool AtEnd(SteadyTime now, const Requests& requests);

  // constant after Open
  const int size_;
  const SteadyTime made_;
  MonitorToken proof_{};
  // touched by the thread only
  Listener listener_;
  SteadyTime accept_again_{};
  std::list<Stranger> strangers_;                    // oldest first
  std::vector<std::unique_ptr<FrameSocket>> ranks_;  // null: not come, or closed
  bool started_ = false, told_failure_ = false, warned_ = false, said_awaited_ = false;
  std::optional<SteadyTime> stopping_since_;
  // written by the thread during its turns, with judge_mu_ held; read by any
  mutable std::mutex judge_mu_;
  GroupJudge judge_;
  Time now_{0};  // on the thread's awake clock
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
  for (const Stranger& stranger : strangers_) polls.push_back({stranger.socket.fd(), POLLIN, 0});
  for (const auto& socket : ranks_)
    if (socket != nullptr) polls.push_back({socket->fd(), socket->poll_events(), 0});
  if (!failed() && judge_.Deadline() != Time::max())
    sleep = std::min(sleep, judge_.Deadline() - now_);
  if (!started_ && !failed()) sleep = std::min<Time>(sleep, made_ + options_.start - Now());
  return sleep;
}

bool Hub::Turn(SteadyTime now, const Requests& requests) {
  const std::lock_guard lock(judge_mu_);
  now_ = clock_.now();
  judge_.Do(0, activity());
  Accept(now);
  HearStrangers(now);
  for (int rank = 1; rank < size_; ++rank) HearRank(rank);
  Decide(now, requests);
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
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Result<OwnedFd> fd = AcceptFrom(listener_);
    if (!fd.ok()) {
      if (fd.status().code() == Code::kIoError) accept_again_ = now + kNoRoomPause;
      return;
    }
    strangers_.push_back({FrameSocket(std::move(*fd)), now});
    // a rank says Hello at once, so the oldest is the least likely to be one
    if (strangers_.size() > kStrangersMax) strangers_.pop_front();
  }
}

void Hub::HearStrangers(SteadyTime now) {
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    const auto frame = it->socket.Receive();
    if (frame.has_value()) Admit(std::move(it->socket), *frame);
    const bool done = frame.has_value() || it->socket.closed() || it->socket.broken() ||
                      now - it->since > kHelloTime;
    it = done ? strangers_.erase(it) : std::next(it);
  }
}

std::optional<Status> Hub::Refusal(const MonitorFrame& hello) const {
  const auto refuse = [](std::string text) { return Status(Code::kConfig, std::move(text)); };
  if (hello.number != static_cast<uint64_t>(size_))
    return refuse(fmt::format("rank {} was told of {} ranks, rank 0 of {}: start all with the same",
                              hello.rank, hello.number, size_));
  if (hello.rank < 1 || hello.rank >= size_)
    return refuse(fmt::format("rank {}: expected 0 to {}", hello.rank, size_ - 1));
  if (judge_.HasCome(hello.rank))
    return refuse(
        fmt::format("rank {} has come already: two processes have this number", hello.rank));
  return std::nullopt;
}

void Hub::Admit(FrameSocket&& socket, const MonitorFrame& hello) {
  const auto text = [](const MonitorToken& token) {
    return std::string_view(reinterpret_cast<const char*>(token.data()), token.size());
  };
  if (hello.kind != MonitorKind::kHello || !SameBytes(text(hello.token), text(proof_))) {
    if (!std::exchange(warned_, true))  // once: nobody fills the log
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
  // who comes after the failure is told it
  if (failed()) place->Put(FailFrame(0, judge_.failure()));
  judge_.Come(hello.rank, now_);
}

void Hub::HearRank(int rank) {
  auto& socket = ranks_[static_cast<size_t>(rank)];
  for (int i = 0; socket != nullptr && i < kFramesPerTurn; ++i) {
    const auto frame = socket->Receive();
    if (!frame.has_value()) break;
    Obey(rank, *frame);
  }
  if (socket == nullptr) return;
  if (socket->broken()) judge_.BreakProtocol(rank);
  if (socket->closed()) judge_.Close(rank);
  if (socket->broken() || socket->closed()) socket.reset();
}

void Hub::Obey(int rank, const MonitorFrame& frame) {
  auto& socket = ranks_[static_cast<size_t>(rank)];
  judge_.Hear(rank, now_);
  switch (frame.kind) {
    case MonitorKind::kBeat:
      return judge_.Do(rank, FrameActivity(frame));
    case MonitorKind::kFail:
      return judge_.GiveUp(rank, FrameStatus(frame));
    case MonitorKind::kLeave:
      judge_.Leave(rank);
      return socket.reset();  // the other side waits for this
    case MonitorKind::kAsk: {
      MonitorFrame answer{.kind = MonitorKind::kAnswer};
      SetFrameText(answer, judge_.Describe(now_));
      return socket->Put(answer);
    }
    default:
      judge_.BreakProtocol(rank);
      return socket.reset();
  }
}

void Hub::Decide(SteadyTime now, const Requests& requests) {
  if (requests.leave) judge_.Leave(0);
  if (requests.give_up.has_value()) judge_.GiveUp(0, *requests.give_up);
  judge_.JudgeSilence(now_);
  if (!started_ && judge_.Complete()) {
    started_ = true;
    // nobody else is expected
    listener_.fd.Close();
    strangers_.clear();
    PutAll({.kind = MonitorKind::kStart});
    Started();
  }
  if (!started_ && now >= made_ + options_.start) judge_.StartTimedOut(options_.start);
  if (!started_ && now >= made_ + kPatience && !failed() && !std::exchange(said_awaited_, true))
    LogInfo(fmt::format("waiting for {}, {} s at most", judge_.Awaited(),
                        static_cast<double>(options_.start.count()) / 1000));
  if (judge_.failure().ok() || std::exchange(told_failure_, true)) return;
  PutAll(FailFrame(0, judge_.failure()));
  Failed(judge_.failure());
}

void Hub::PutAll(const MonitorFrame& frame) {
  for (const auto& socket : ranks_)
    if (socket != nullptr) socket->Put(frame);
}

void Hub::Flush() {
  for (const auto& socket : ranks_)
    if (socket != nullptr) socket->Flush();
}

// After a failure nothing keeps the thread but what is still to be sent; else rank 0 stays for as
// long as its silence would be borne, so that the others can leave too.
bool Hub::AtEnd(SteadyTime now, const Requests& requests) {
  if (!requests.stop) return false;
  if (!stopping_since_.has_value()) stopping_since_ = now;
  const auto waited = now - *stopping_since_;
  if (!requests.leave) return true;
  if (!failed()) return judge_.AllLeft() || waited >= options_.silence;
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
