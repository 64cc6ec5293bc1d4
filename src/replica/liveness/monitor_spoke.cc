// The monitor of a rank other than 0: one connection to rank 0.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "replica/liveness/polled_monitor.h"

namespace samara {
namespace {

constexpr std::chrono::milliseconds kSpokeHelloTime{
    10'000};               // for rank 0 to accept this connection
constexpr int kTries = 5;  // of a connection that is closed before it is accepted
constexpr std::chrono::milliseconds kShutdownNoticeTime{
    500};  // for rank 0 to read the shutdown notice
constexpr int kSpokeFramesPerPoll = 16;

class Spoke final : public PolledMonitor {
 public:
  Spoke(int rank, FrameSocket socket, const Options& options, OnFailure on_failure)
      : PolledMonitor(rank, options, std::move(on_failure)), socket_(std::move(socket)) {}
  ~Spoke() override { StopThread(); }
  Status Open() {
    StartThread();
    return WaitForStart();
  }
  std::string Describe() const override { return Ask(); }

 protected:
  Time Prepare(std::vector<pollfd>& polls) override;
  bool RunOnce(SteadyTime now, const Requests& requests) override;

 private:
  bool connected() const { return !socket_.closed() && !socket_.broken(); }
  // Rank 0 can time out, and answer.
  bool monitored() const { return connected() && !rank0_left_ && !failed(); }
  void Poll();
  void HandleMessage(const MonitorFrame& frame);
  void CheckRank0();
  void SendRequests(SteadyTime now, const Requests& requests);
  bool AtEnd(SteadyTime now, const Requests& requests);

  // touched by the thread only
  FrameSocket socket_;
  Time last_message_{0};
  bool rank0_left_ = false, shutdown_sent_ = false, asked_ = false;
  std::optional<SteadyTime> stopping_since_;
};

PolledMonitor::Time Spoke::Prepare(std::vector<pollfd>& polls) {
  if (connected()) polls.push_back({socket_.fd(), socket_.poll_events(), 0});

  return monitored() ? last_message_ + options_.heartbeat_timeout - clock_.now()
                     : Time(options_.heartbeat);
}

bool Spoke::RunOnce(SteadyTime now, const Requests& requests) {
  Poll();
  CheckRank0();
  SendRequests(now, requests);
  socket_.Flush();
  return !AtEnd(now, requests);
}

void Spoke::Poll() {
  for (int i = 0; i < kSpokeFramesPerPoll; ++i) {
    const auto frame = socket_.Receive();
    if (!frame.has_value()) return;
    last_message_ = clock_.now();
    HandleMessage(*frame);
  }
}

void Spoke::HandleMessage(const MonitorFrame& frame) {
  if (frame.kind == MonitorKind::kStart) Started();
  if (frame.kind == MonitorKind::kFail) Failed(FrameStatus(frame));
  if (frame.kind == MonitorKind::kLeave) rank0_left_ = true;
  if (frame.kind == MonitorKind::kAnswer) {
    asked_ = false;
    Answer(FrameText(frame));
  }
}

void Spoke::CheckRank0() {
  if (failed() || rank0_left_ || shutdown_sent_) return;
  if (socket_.closed()) Failed({Code::kUnavailable, "rank 0 died"});
  if (socket_.broken())
    Failed({Code::kConfig,
            "rank 0 sent what is no message of this version: expected the same program on every "
            "rank"});
  if (connected() && clock_.now() - last_message_ >= options_.heartbeat_timeout) {
    Failed({Code::kUnavailable, SilentText(0, options_.heartbeat_timeout)});
    // if it wakes up, it receives the reason for which the others have ended
    socket_.Put(FailFrame(rank_, {Code::kUnavailable, SilentText(0, options_.heartbeat_timeout)}));
  }
}

void Spoke::SendRequests(SteadyTime now, const Requests& requests) {
  if (requests.give_up.has_value()) {
    // without rank 0 the others cannot be notified
    if (!monitored()) Failed(requests.give_up->Annotate(fmt::format("rank {} gave up", rank_)));
    socket_.Put(FailFrame(rank_, *requests.give_up));
  }
  if (requests.leave && !std::exchange(shutdown_sent_, true))
    socket_.Put({.kind = MonitorKind::kLeave, .rank = rank_});
  if (requests.ask && !monitored()) Answer("what the other ranks do is not known any more");
  if (requests.ask && monitored() && !std::exchange(asked_, true))
    socket_.Put({.kind = MonitorKind::kAsk, .rank = rank_});
  if (BeatDue(now) && socket_.flushed() && !shutdown_sent_)
    socket_.Put(BeatFrame(rank_, activity()));
}

// Rank 0 closes the connection when it has read the shutdown notice.
bool Spoke::AtEnd(SteadyTime now, const Requests& requests) {
  if (!requests.stop) return false;
  if (!stopping_since_.has_value()) stopping_since_ = now;
  return !requests.leave || failed() || !connected() ||
         now - *stopping_since_ >= kShutdownNoticeTime;
}

// Waits for one frame.
Result<MonitorFrame> ReceiveWithin(FrameSocket& socket, std::chrono::milliseconds timeout) {
  const SteadyTime deadline = Now() + timeout;
  for (;;) {
    if (const auto frame = socket.Receive()) return *frame;
    if (socket.closed() || socket.broken())
      return Status(Code::kTryAgain, "rank 0's monitor closed the connection");
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now());
    if (left.count() <= 0) return Status(Code::kTryAgain, "rank 0's monitor does not answer");
    pollfd entry{socket.fd(), POLLIN, 0};
    (void)::poll(&entry, 1, static_cast<int>(left.count()));
  }
}

// kTryAgain: the connection was closed before it was accepted.
Result<FrameSocket> Handshake(int rank, int size, const MonitorAddress& address,
                              const std::string& secret) {
  ASSIGN_OR_RETURN(OwnedFd fd, ConnectTo(address.endpoint, kSpokeHelloTime));
  FrameSocket socket(std::move(fd));
  MonitorFrame hello{.kind = MonitorKind::kHello, .rank = rank};
  hello.number = static_cast<uint64_t>(size);
  hello.token = MonitorProof(secret, address.token);
  socket.Put(hello);
  socket.Flush();
  ASSIGN_OR_RETURN(const MonitorFrame answer, ReceiveWithin(socket, kSpokeHelloTime));
  if (answer.kind == MonitorKind::kFail) return FrameStatus(answer);
  if (answer.kind != MonitorKind::kAccepted)
    return Status(Code::kConfig, "rank 0's monitor answers with what was not asked");
  return socket;
}

}  // namespace

Result<std::unique_ptr<Monitor>> MakeSpokeMonitor(int rank, int size,
                                                  const std::shared_ptr<Store>& store,
                                                  const Monitor::Options& options,
                                                  Monitor::OnFailure on_failure) {
  const Result<std::string> text = store->Get(kMonitorKey, options.start);
  if (!text.ok()) return text.status().Annotate("rank 0 did not come");
  ASSIGN_OR_RETURN(const MonitorAddress address, ParseMonitorAddress(*text));
  Result<FrameSocket> socket = Handshake(rank, size, address, options.secret);
  for (int i = 1; i < kTries && !socket.ok() && socket.status().code() == Code::kTryAgain; ++i)
    socket = Handshake(rank, size, address, options.secret);
  if (!socket.ok()) {
    const Status& why = socket.status();
    const Code code = why.code() == Code::kTryAgain ? Code::kUnavailable : why.code();
    return Status(code, why.code() == Code::kConfig
                            ? why.message()
                            : "rank 0's monitor cannot be reached: " + why.message());
  }
  auto spoke = std::make_unique<Spoke>(rank, std::move(*socket), options, std::move(on_failure));
  RETURN_IF_ERROR(spoke->Open());
  return std::unique_ptr<Monitor>(std::move(spoke));
}

}  // namespace samara
