// The store's server: one thread that polls all connections.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "replica/rendezvous/socket_store.h"
#include "replica/rendezvous/store_wire.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

constexpr size_t kStrangersMax = 256;           // connections without a proof
constexpr std::chrono::seconds kHelloTime{10};  // after which they are closed
constexpr int kAcceptsPerPoll = 64, kReadsPerPoll = 16;
constexpr std::chrono::milliseconds kNoRoomPause{100};  // without descriptors to accept with
constexpr std::chrono::milliseconds kIdle{60'000};      // of a poll with nothing due

class Server final : public StoreServer {
 public:
  Server(Listener listener, const std::string& secret)
      : secret_(secret),
        endpoint_(listener.endpoint),
        listener_(std::move(listener)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    CHECK(wake_.get() >= 0) << "eventfd";
    thread_.emplace("store", [this] { Run(); });
  }
  ~Server() override {
    stop_ = true;
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_->Join();
  }
  const Endpoint& endpoint() const override { return endpoint_; }

 private:
  // A Get whose key is not there yet.
  struct Waiting {
    std::string key;
    SteadyTime deadline;
    std::chrono::milliseconds timeout;
  };
  struct Connection {
    OwnedFd fd;
    SteadyTime since;
    StoreNonce nonce{};
    bool known = false;    // has proved that it knows the secret
    bool closed = false;   // or to be closed
    bool leaving = false;  // closed once everything is sent
    std::string in, out;
    size_t sent = 0;  // bytes of out
    std::optional<Waiting> waiting;

    void Send(std::string_view bytes) { out.append(bytes); }
    bool flushed() const { return sent == out.size(); }
    // The next request is read only after the answer to the last one has gone.
    bool reads() const { return !closed && !leaving && !waiting.has_value() && flushed(); }
  };

  void Run();
  void Accept(SteadyTime now);
  void Read(Connection& connection);
  void Take(Connection& connection);
  void Introduce(Connection& connection);
  void Obey(Connection& connection, const StoreRequest& request);
  void Answer(Connection& connection, const Result<std::string>& value);
  void AnswerWaiting(const std::string& key);
  void TimeOut(SteadyTime now);
  static void Flush(Connection& connection);

  // constant after construction
  const std::string secret_;
  const Endpoint endpoint_;
  std::atomic<bool> stop_{false};
  // touched by the thread only
  Listener listener_;
  OwnedFd wake_;
  const std::shared_ptr<Store> values_ = MakeMemoryStore();
  std::list<Connection> connections_;  // oldest first
  size_t strangers_ = 0;
  SteadyTime accept_again_{};
  bool warned_ = false;
  std::optional<Thread> thread_;
};

void Server::Run() {
  std::vector<pollfd> polls;
  while (!stop_) {
    const SteadyTime before = Now();
    SteadyTime wake_at = before + kIdle;
    polls.assign(1, {wake_.get(), POLLIN, 0});
    if (before >= accept_again_)
      polls.push_back({listener_.fd.get(), POLLIN, 0});
    else
      wake_at = std::min(wake_at, accept_again_);
    for (const Connection& c : connections_) {
      // a peer that closes while its Get waits is noticed too
      const int events = (c.reads() ? POLLIN : POLLRDHUP) | (c.flushed() ? 0 : POLLOUT);
      polls.push_back({c.fd.get(), static_cast<short>(events), 0});
      if (c.waiting.has_value()) wake_at = std::min(wake_at, c.waiting->deadline);
      if (!c.known) wake_at = std::min(wake_at, c.since + kHelloTime);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake_at - before);
    (void)::poll(polls.data(), polls.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
    const SteadyTime now = Now();
    size_t i = polls.size() - connections_.size();
    for (Connection& c : connections_) {
      const short events = polls[i++].revents;
      if ((events & (POLLERR | POLLHUP | POLLRDHUP)) != 0 && !c.reads()) c.closed = true;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && c.reads()) Read(c);
      Flush(c);
    }
    TimeOut(now);
    Accept(now);
    connections_.remove_if([this](const Connection& c) {
      const bool gone = c.closed || (c.leaving && c.flushed());
      strangers_ -= gone && !c.known ? 1 : 0;
      return gone;
    });
  }
}

void Server::Accept(SteadyTime now) {
  if (now < accept_again_) return;
  for (int i = 0; i < kAcceptsPerPoll; ++i) {
    Result<OwnedFd> fd = AcceptFrom(listener_);
    if (!fd.ok()) {
      if (fd.status().code() == Code::kIoError) accept_again_ = now + kNoRoomPause;
      return;
    }
    const auto nonce = RandomBytes(StoreNonce().size());
    if (!nonce.ok()) return;
    Connection& connection = connections_.emplace_back();
    connection.fd = std::move(*fd);
    connection.since = now;
    StoreGreeting greeting;
    nonce->copy(greeting.nonce.data(), greeting.nonce.size());
    connection.nonce = greeting.nonce;
    connection.Send({reinterpret_cast<const char*>(&greeting), sizeof greeting});
    Flush(connection);
    if (++strangers_ <= kStrangersMax) continue;
    // a rank introduces itself at once, so the oldest is the least likely to be one
    const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                     [](const Connection& c) { return !c.known && !c.closed; });
    oldest->closed = true;
    oldest->fd.Close();
  }
}

void Server::Read(Connection& c) {
  std::array<char, 65536> bytes;
  for (int i = 0; i < kReadsPerPoll && c.reads(); ++i) {
    const size_t most = c.known ? bytes.size() : sizeof(StoreIntroduction) - c.in.size();
    const ssize_t n = ::recv(c.fd.get(), bytes.data(), most, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      c.closed = true;
      return;
    }
    c.in.append(bytes.data(), static_cast<size_t>(n));
    Take(c);
  }
}

// Handles the requests that have arrived completely.
void Server::Take(Connection& c) {
  if (!c.known) return Introduce(c);
  uint32_t size = 0;
  if (c.in.size() < sizeof size) return;
  std::memcpy(&size, c.in.data(), sizeof size);
  if (size > kStoreRecordMax) {
    c.closed = true;
    return;
  }
  if (c.in.size() < sizeof size + size) return;
  StoreRequest request;
  const bool read = Decode(std::string_view(c.in).substr(sizeof size, size), request);
  c.in.erase(0, sizeof size + size);
  if (read)
    Obey(c, request);
  else
    c.closed = true;
}

void Server::Introduce(Connection& c) {
  StoreIntroduction introduction;
  if (c.in.size() < sizeof introduction) return;
  std::memcpy(&introduction, c.in.data(), sizeof introduction);
  c.in.clear();
  const Digest expected = StoreProof(secret_, "client", c.nonce, introduction.nonce);
  Digest answer{};
  if (SameBytes(AsText(expected), AsText(introduction.proof))) {
    c.known = true;
    --strangers_;
    answer = StoreProof(secret_, "server", c.nonce, introduction.nonce);
  } else {
    c.leaving = true;
    if (!std::exchange(warned_, true))  // once: the log does not grow by strangers
      LogWarning(
          "store: refused a connection that does not know this launch's secret: another "
          "launch with this port?");
  }
  c.Send(AsText(answer));
  Flush(c);
}

void Server::Obey(Connection& c, const StoreRequest& request) {
  const auto timeout = std::chrono::milliseconds(std::clamp<int64_t>(
      request.number, 0, std::chrono::milliseconds(std::chrono::hours(24 * 365)).count()));
  switch (request.operation) {
    case StoreOperation::kSet: {
      const Status set = values_->Set(request.key, request.value);
      Answer(c, set.ok() ? Result<std::string>("") : set);
      return AnswerWaiting(request.key);
    }
    case StoreOperation::kGet: {
      const Result<std::string> value = values_->Get(request.key, 0ms);
      if (value.ok() || timeout.count() == 0) return Answer(c, value);
      c.waiting = Waiting{request.key, Now() + timeout, timeout};
      return;
    }
    case StoreOperation::kAdd: {
      const Result<int64_t> sum = values_->Add(request.key, request.number);
      Answer(c, sum.ok() ? Result<std::string>(std::to_string(*sum)) : sum.status());
      return AnswerWaiting(request.key);
    }
    case StoreOperation::kDelete: {
      const Status deleted = values_->Delete(request.key);
      return Answer(c, deleted.ok() ? Result<std::string>("") : deleted);
    }
  }
  c.closed = true;
}

void Server::Answer(Connection& c, const Result<std::string>& value) {
  c.Send(Encode(value.ok() ? StoreReply{0, *value}
                           : StoreReply{static_cast<int32_t>(value.status().code()),
                                        value.status().message()}));
  Flush(c);
}

void Server::AnswerWaiting(const std::string& key) {
  for (Connection& c : connections_) {
    if (!c.waiting.has_value() || c.waiting->key != key || c.closed) continue;
    const Result<std::string> value = values_->Get(key, 0ms);
    if (!value.ok()) return;
    c.waiting.reset();
    Answer(c, value);
  }
}

void Server::TimeOut(SteadyTime now) {
  for (Connection& c : connections_) {
    if (!c.known && now - c.since > kHelloTime) c.closed = true;
    if (c.closed || !c.waiting.has_value() || now < c.waiting->deadline) continue;
    const Status late = StoreTimeout(c.waiting->key, c.waiting->timeout);
    c.waiting.reset();
    Answer(c, late);
  }
}

void Server::Flush(Connection& c) {
  while (!c.closed && !c.flushed()) {
    const ssize_t n = ::send(c.fd.get(), c.out.data() + c.sent, c.out.size() - c.sent,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0)
      c.closed = true;
    else
      c.sent += static_cast<size_t>(n);
  }
  if (!c.flushed()) return;
  c.out.clear();
  c.sent = 0;
}

}  // namespace

std::unique_ptr<StoreServer> ServeStore(Listener listener, const std::string& secret) {
  return std::make_unique<Server>(std::move(listener), secret);
}

}  // namespace samara
