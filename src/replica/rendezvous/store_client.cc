// The store's clients, and how the ranks of a launch come to their store.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "core/mutex.h"
#include "replica/rendezvous/socket_store.h"
#include "replica/rendezvous/store_wire.h"

namespace samara {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds kAnswerTime{10'000};            // of a server that should answer at once
constexpr milliseconds kConnectTime{5'000};            // of one try
constexpr milliseconds kPauseMin{10}, kPauseMax{200};  // between two tries

std::string NameOf(const Endpoint& at) {
  return fmt::format("{}:{}", EscapeControl(at.host), at.port);
}

Status Broken(const std::string& why) {
  return {Code::kUnavailable, "the store of the ranks: " + why};
}

// One connection, blocking.
class Line {
 public:
  explicit Line(OwnedFd fd) : fd_(std::move(fd)) {}

  Status Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
      if (n >= 0 || errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Broken(std::strerror(errno));
      RETURN_IF_ERROR(Wait(POLLOUT, kAnswerTime));
    }
    return Status::Ok();
  }
  // Fills `into`; `patience`: without a byte.
  Status Receive(std::span<char> into, milliseconds patience) {
    while (!into.empty()) {
      const ssize_t n = ::recv(fd_.get(), into.data(), into.size(), MSG_DONTWAIT);
      if (n > 0) into = into.subspan(static_cast<size_t>(n));
      if (n == 0) return Broken("rank 0 closed the connection");
      if (n > 0 || errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Broken(std::strerror(errno));
      RETURN_IF_ERROR(Wait(POLLIN, patience));
    }
    return Status::Ok();
  }
  template <typename T>
  Status ReceiveRecord(T& record, milliseconds patience) {
    return Receive({reinterpret_cast<char*>(&record), sizeof record}, patience);
  }
  Result<StoreReply> Ask(const StoreRequest& request, milliseconds patience) {
    RETURN_IF_ERROR(Send(Encode(request)));
    uint32_t size = 0;
    RETURN_IF_ERROR(ReceiveRecord(size, patience));
    if (size > kStoreRecordMax) return Broken("an answer that is none");
    std::string record(size, '\0');
    RETURN_IF_ERROR(Receive(record, kAnswerTime));
    StoreReply reply;
    if (!Decode(record, reply)) return Broken("an answer that is none");
    return reply;
  }

 private:
  Status Wait(short events, milliseconds patience) const {
    const SteadyTime deadline = Now() + patience;
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Now());
      pollfd entry{fd_.get(), events, 0};
      const int ready =
          ::poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000)));
      if (ready > 0) return Status::Ok();
      if (ready < 0 && errno != EINTR) return Broken(std::strerror(errno));
      if (Now() >= deadline) return Broken("rank 0 does not answer");
    }
  }

  OwnedFd fd_;
};

// kUnavailable: another try may help.
Result<Line> Open(const Endpoint& at, const std::string& secret, milliseconds timeout) {
  ASSIGN_OR_RETURN(OwnedFd fd, ConnectTo(at, timeout));
  Line line(std::move(fd));
  StoreGreeting greeting;
  const StoreGreeting expected;
  RETURN_IF_ERROR(line.ReceiveRecord(greeting, kAnswerTime));
  if (greeting.magic != expected.magic)
    return Status(Code::kCannotCreate,
                  NameOf(at) + ": another program has this port: choose another one");
  StoreIntroduction mine;
  ASSIGN_OR_RETURN(const std::string nonce, RandomBytes(mine.nonce.size()));
  nonce.copy(mine.nonce.data(), mine.nonce.size());
  mine.proof = StoreProof(secret, "client", greeting.nonce, mine.nonce);
  RETURN_IF_ERROR(line.Send({reinterpret_cast<const char*>(&mine), sizeof mine}));
  Digest answer{};
  RETURN_IF_ERROR(line.ReceiveRecord(answer, kAnswerTime));
  if (!SameBytes(AsText(answer), AsText(StoreProof(secret, "server", greeting.nonce, mine.nonce))))
    return Status(Code::kCannotCreate, NameOf(at) +
                                           ": another launch has this port (it knows another "
                                           "secret): choose another one");
  return line;
}

class SocketStore final : public Store {
 public:
  SocketStore(Endpoint at, const std::string& secret, Line first)
      : at_(std::move(at)), secret_(secret) {
    idle_.push_back(std::move(first));
  }

  Status Set(const std::string& key, std::string_view value) override {
    return Ask({StoreOperation::kSet, key, std::string(value), 0}).status();
  }
  Result<std::string> Get(const std::string& key, milliseconds timeout) override {
    const milliseconds wait = std::max(timeout, 0ms);
    return Ask({StoreOperation::kGet, key, "", wait.count()}, wait + kAnswerTime);
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    ASSIGN_OR_RETURN(const std::string sum, Ask({StoreOperation::kAdd, key, "", amount}));
    return std::strtoll(sum.c_str(), nullptr, 10);
  }
  Status Delete(const std::string& key) override {
    return Ask({StoreOperation::kDelete, key, "", 0}).status();
  }

 private:
  Result<std::string> Ask(const StoreRequest& request, milliseconds patience = kAnswerTime) {
    ASSIGN_OR_RETURN(Line line, Take());
    ASSIGN_OR_RETURN(StoreReply reply, line.Ask(request, patience));
    {
      const MutexLock lock(mu_);
      idle_.push_back(std::move(line));
    }
    if (reply.code == 0) return std::move(reply.text);
    return Status(
        reply.code == static_cast<int32_t>(Code::kConfig) ? Code::kConfig : Code::kUnavailable,
        std::move(reply.text));
  }
  Result<Line> Take() {
    {
      const MutexLock lock(mu_);
      if (!idle_.empty()) {
        Line line = std::move(idle_.back());
        idle_.pop_back();
        return line;
      }
    }
    return Open(at_, secret_, kConnectTime);
  }

  const Endpoint at_;
  const std::string secret_;
  Mutex mu_;
  std::vector<Line> idle_ GUARDED_BY(mu_);
};

// Rank 0's: it serves what it uses.
class ServedStore final : public Store {
 public:
  ServedStore(std::unique_ptr<StoreServer> server, std::shared_ptr<Store> store)
      : server_(std::move(server)), store_(std::move(store)) {}
  Status Set(const std::string& key, std::string_view value) override {
    return store_->Set(key, value);
  }
  Result<std::string> Get(const std::string& key, milliseconds timeout) override {
    return store_->Get(key, timeout);
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    return store_->Add(key, amount);
  }
  Status Delete(const std::string& key) override { return store_->Delete(key); }

 private:
  const std::unique_ptr<StoreServer> server_;
  const std::shared_ptr<Store> store_;
};

}  // namespace

Result<std::shared_ptr<Store>> ConnectToStore(const Endpoint& at, const std::string& secret,
                                              milliseconds timeout) {
  const SteadyTime deadline = Now() + timeout;
  for (milliseconds pause = kPauseMin;; pause = std::min(2 * pause, kPauseMax)) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Now());
    Result<Line> line = Open(at, secret, std::clamp(left, 1ms, kConnectTime));
    if (line.ok())
      return std::shared_ptr<Store>(std::make_shared<SocketStore>(at, secret, std::move(*line)));
    if (line.status().code() == Code::kCannotCreate) return line.status();
    if (Now() + pause >= deadline)
      return Status(Code::kUnavailable,
                    fmt::format("no store at {}: {}", NameOf(at), line.status().message()));
    std::this_thread::sleep_for(pause);
  }
}

Result<std::shared_ptr<Store>> MakeSocketStore(const Endpoint& at, bool serve,
                                               const std::string& secret, milliseconds timeout) {
  if (!serve) return ConnectToStore(at, secret, timeout);
  const bool here = at.host == "localhost" || IsNumericAddress(at.host);
  Result<Listener> listener = here ? ListenAt(at.host, at.port) : ListenEverywhere(at.port);
  // a number that is another interface's, as behind a translation of addresses
  if (here && !listener.ok() && listener.status().code() == Code::kConfig)
    listener = ListenEverywhere(at.port);
  if (!listener.ok())
    return listener.status().Annotate(
        "the ranks' port cannot be had, most likely because another launch or another program has "
        "it: choose another one");
  const Endpoint endpoint = listener->endpoint;
  std::unique_ptr<StoreServer> server = ServeStore(std::move(*listener), secret);
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, ConnectToStore(endpoint, secret, timeout));
  return std::shared_ptr<Store>(std::make_shared<ServedStore>(std::move(server), std::move(store)));
}

}  // namespace samara
