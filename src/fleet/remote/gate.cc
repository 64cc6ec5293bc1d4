#include "fleet/remote/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/log.h"
#include "fleet/remote/peer_owner.h"

namespace samara {
namespace {

constexpr int kBacklog = 4096;  // the kernel's own limit is often lower
constexpr int kSweepMs = 1000;
constexpr int kRestMs = 1000;             // without descriptors
constexpr size_t kAddressesMax = 10'000;  // told apart
constexpr uint32_t kLinesMax = 5;         // logged between two sweeps
constexpr std::chrono::milliseconds kWaitForOthers{20};
constexpr int kUnacknowledgedMs = 10'000;  // until a dead link ends its connection
constexpr int kReceiveBytes = 16 << 10;  // buffered of a watched connection; the kernel doubles it
constexpr uint64_t kQuit = 0;            // no connection's number
constexpr int kV6NetworkBytes = 8;       // of an address: one host has all of a /64

// The name of an IPv4 peer that reached a socket of both kinds is that of IPv4.
sockaddr_storage Plain(const sockaddr_storage& from) {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  if (from.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return from;
  sockaddr_storage plain{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(plain);
  v4.sin_family = AF_INET, v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  return plain;
}

std::string HostText(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family, address, text, sizeof text);
  return text;
}

// "10.0.0.1:4711", "[fe80::1]:4711"; what Plain made.
std::string PeerText(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
    return "[" + HostText(AF_INET6, &v6.sin6_addr) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
  return HostText(AF_INET, &v4.sin_addr) + ":" + std::to_string(ntohs(v4.sin_port));
}

// Returns the part of an address by which limits are counted.
std::string AddressText(const sockaddr_storage& from) {
  if (from.ss_family == AF_UNIX) return "this machine";
  if (from.ss_family == AF_INET)
    return HostText(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr);
  in6_addr network = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  std::fill(network.s6_addr + kV6NetworkBytes, std::end(network.s6_addr), uint8_t{0});
  return HostText(AF_INET6, &network) + "/64";
}

// The transport's "ipv4:10.0.0.1:4711" and "ipv6:%5Bfe80::1%252%5D:4711" as PeerText.
std::string PeerOf(std::string_view uri) {
  std::string text;
  uri.remove_prefix(std::min(uri.size(), uri.find(':') + 1));
  for (size_t i = 0; i < uri.size(); ++i) {
    if (uri.substr(i, 3) == "%5B") {
      text += '[', i += 2;
    } else if (uri.substr(i, 3) == "%5D") {
      text += ']', i += 2;
    } else if (uri[i] == '%') {
      // the interface of a link's own address
      while (i + 1 < uri.size() && uri[i + 1] != ']' && uri.substr(i + 1, 3) != "%5D") ++i;
    } else {
      text += uri[i];
    }
  }
  return text;
}

bool OutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// Ends a connection at once, and drops what it sent and was not read.
void Abort(int fd) {
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  if (::connect(fd, &nobody, sizeof nobody) != 0) ::shutdown(fd, SHUT_RDWR);
}

// From now on the kernel chooses how much it buffers, from a buffer on that holds whole segments of
// the loopback (64 KiB): with a smaller one each message waits for the sender's timer.
void FreeReceiveBuffer(int fd) {
  const int large = 4 << 20, unlocked = 0;  // the kernel takes as much of it as it allows
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
  ::setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof unlocked);  // since Linux 5.14
}

}  // namespace

// --- listening

Result<std::unique_ptr<Gate>> Gate::Listen(const RemoteAddress& address,
                                           const GateOptions& options) {
  std::unique_ptr<Gate> gate(new Gate(address, options));
  RETURN_IF_ERROR(address.kind == RemoteAddress::Kind::kUnix ? gate->OpenUnix() : gate->OpenTcp());
  gate->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  gate->quit_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (gate->epoll_ < 0 || gate->quit_ < 0)
    return Status(Code::kCannotCreate, address.text() + ": " + std::strerror(errno));
  epoll_event event{};
  event.events = EPOLLIN, event.data.u64 = kQuit;
  ::epoll_ctl(gate->epoll_, EPOLL_CTL_ADD, gate->quit_, &event);
  return gate;
}

Status Gate::AddListener(int family, const void* address, size_t bytes, int port) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  sockaddr_storage bound{};
  std::memcpy(&bound, address, bytes);
  if (family != AF_UNIX) {
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto& where = reinterpret_cast<sockaddr_in&>(bound);  // the port of IPv6 has the same place
    where.sin_port = htons(static_cast<uint16_t>(port));
  }
  if (fd >= 0 &&
      ::bind(fd, reinterpret_cast<sockaddr*>(&bound), static_cast<socklen_t>(bytes)) == 0 &&
      ::listen(fd, kBacklog) == 0) {
    listeners_.push_back(fd);
    return {};
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
  return {Code::kCannotCreate, address_.text() +
                                   ": cannot listen here: another program holds the "
                                   "address, or it is not this machine's (" +
                                   std::strerror(error) + ")"};
}

Status Gate::OpenUnix() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.host.data(), address_.host.size());
  // one that an earlier learner process left behind; the caller holds the address's lock
  struct stat info {};
  if (::lstat(address.sun_path, &info) == 0 && S_ISSOCK(info.st_mode)) ::unlink(address.sun_path);
  // the socket is the user's alone from its first moment
  const mode_t before = ::umask(077);
  const Status made = AddListener(AF_UNIX, &address, sizeof address, 0);
  ::umask(before);
  return made;
}

Status Gate::OpenTcp() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM, hints.ai_flags = AI_PASSIVE;
  const int error = ::getaddrinfo(address_.host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return {Code::kCannotCreate, address_.text() + ": no such host: " + ::gai_strerror(error)};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, &::freeaddrinfo);
  // a name may mean several addresses of this machine: at least one is listened to
  Status first;
  port_ = address_.port;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const Status made = AddListener(at->ai_family, at->ai_addr, at->ai_addrlen, port_);
    if (!made.ok() && first.ok()) first = made;
    if (!made.ok() || port_ != 0) continue;
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    ::getsockname(listeners_.back(), reinterpret_cast<sockaddr*>(&bound), &bytes);
    port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  }
  return listeners_.empty() ? first : Status();
}

Gate::~Gate() {
  Stop();
  for (const auto& [id, watched] : watched_) ::close(watched.fd);
  if (epoll_ >= 0) ::close(epoll_);
  if (quit_ >= 0) ::close(quit_);
}

void Gate::Start(Pass pass) {
  pass_ = std::move(pass);
  watching_ = std::make_unique<Thread>("remote watch", [this] { CheckAll(); });
  accepting_ = std::make_unique<Thread>("remote accept", [this] { AcceptAll(); });
}

void Gate::Stop() {
  if (quit_ >= 0) ::eventfd_write(quit_, 1);
  accepting_.reset();
  watching_.reset();
  for (const int fd : listeners_) ::close(fd);
  if (!listeners_.empty() && address_.kind == RemoteAddress::Kind::kUnix)
    ::unlink(address_.host.c_str());
  listeners_.clear();
}

// --- the accepting thread

void Gate::AcceptAll() {
  std::vector<pollfd> waited = {{.fd = quit_, .events = POLLIN, .revents = 0}};
  for (const int fd : listeners_) waited.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  for (;;) {
    ::poll(waited.data(), waited.size(), -1);
    if (waited[0].revents != 0) return;
    for (size_t i = 1; i < waited.size(); ++i)
      if (waited[i].revents != 0) Accept(waited[i].fd);
  }
}

void Gate::Accept(int listener) {
  sockaddr_storage from{};
  socklen_t bytes = sizeof from;
  const int fd =
      ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) return Take(fd, listener, Plain(from));
  if (!OutOfResources(errno)) return;
  LogWarning(std::string("no remote actor can connect now: ") + std::strerror(errno));
  pollfd quit{.fd = quit_, .events = POLLIN, .revents = 0};
  ::poll(&quit, 1, kRestMs);
}

void Gate::Take(int fd, int listener, const sockaddr_storage& from) {
  WaitForOthers();
  const std::string address = AddressText(from);
  // strangers first, so that they do not use up the limits of this user's own actors
  if ((options_.same_user && !IsOwn(fd)) || !Enter(address)) {
    ::close(fd);
    return;
  }
  if (from.ss_family != AF_UNIX && !Watch(fd, from, address)) {
    ::close(fd);
    return;
  }
  pass_(fd, listener);
}

bool Gate::IsOwn(int fd) {
  const std::optional<uid_t> owner = PeerOwner(fd);
  if (owner && (*owner == ::geteuid() || *owner == 0)) return true;
  const MutexLock lock(mu_);
  Refuse(Drop::kStranger,
         (owner ? "a process of user " + std::to_string(*owner) : "a process of an unknown user") +
             ": only this user's own may connect here; others need certificates (--client-ca)");
  return false;
}

bool Gate::Watch(int fd, const sockaddr_storage& from, const std::string& address) {
  const int on = 1, patience = kUnacknowledgedMs, receive = kReceiveBytes;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
  // what arrives before the gate acts on it is little
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return false;  // out of descriptors
  const MutexLock lock(mu_);
  const uint64_t id = next_++;
  Watched& watched = watched_[id];
  watched = {.fd = own, .peer = PeerText(from), .address = address, .since = Now()};
  by_peer_[watched.peer] = id;
  ++addresses_[address].watched;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET, event.data.u64 = id;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, own, &event);
  return Count(id);  // what came before it was accepted
}

void Gate::WaitForOthers() {
  MutexLock lock(mu_);
  forgotten_.WaitFor(mu_, kWaitForOthers,
                     [this]() REQUIRES(mu_) { return sent_ <= options_.bytes; });
}

Gate::Address& Gate::AddressOf(const std::string& name, SteadyTime now) {
  const auto [found, made] = addresses_.try_emplace(name);
  Address& address = found->second;
  const auto crowd = static_cast<double>(options_.crowd);
  if (made) address.tokens = crowd, address.filled = now;
  const double seconds = std::chrono::duration<double>(now - address.filled).count();
  address.tokens = std::min(crowd, address.tokens + seconds * options_.per_second);
  address.filled = now;
  return address;
}

bool Gate::Enter(const std::string& name) {
  const MutexLock lock(mu_);
  const SteadyTime now = Now();
  if (addresses_.size() >= kAddressesMax && !addresses_.contains(name)) {
    Refuse(Drop::kCrowded, name + ": connections from too many addresses");
    return false;
  }
  Address& address = AddressOf(name, now);
  if (now < address.kept_out_until || address.tokens < 1 || address.watched >= options_.crowd) {
    Refuse(Drop::kCrowded,
           name + ": " +
               (now < address.kept_out_until ? "kept out for a while" : "too many connections"));
    return false;
  }
  address.tokens -= 1;
  return true;
}

// --- the watching thread

void Gate::CheckAll() {
  SteadyTime swept = Now();
  epoll_event events[64];
  for (;;) {
    const int n = ::epoll_wait(epoll_, events, std::size(events), kSweepMs);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kQuit) return;
      Check(events[i].data.u64, events[i].events);
    }
    if (SecondsSince(swept) * 1000 < kSweepMs) continue;
    swept = Now();
    Sweep();
  }
}

void Gate::Check(uint64_t id, uint32_t events) {
  const MutexLock lock(mu_);
  if ((events & (EPOLLHUP | EPOLLERR)) == 0)
    Count(id);
  else if (watched_.contains(id))
    Forget(id);
}

bool Gate::Count(uint64_t id) {
  const auto found = watched_.find(id);
  if (found == watched_.end()) return false;
  Watched& watched = found->second;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(watched.fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return true;
  sent_ += info.tcpi_bytes_received - watched.bytes;
  watched.bytes = info.tcpi_bytes_received;
  if (watched.bytes <= options_.bytes) return true;
  End(id, Drop::kFlood, std::to_string(watched.bytes) + " bytes without a Hello");
  return false;
}

void Gate::Sweep() {
  const MutexLock lock(mu_);
  lines_ = 0;
  std::vector<uint64_t> slow;
  for (const auto& [id, watched] : watched_)
    if (SecondsSince(watched.since) > options_.seconds) slow.push_back(id);
  for (const uint64_t id : slow)
    End(id, Drop::kSlow,
        "no Hello within " + std::to_string(static_cast<int>(options_.seconds)) + " s");
  const SteadyTime now = Now();
  std::erase_if(addresses_, [&](auto& entry) REQUIRES(mu_) {
    const Address& address = AddressOf(entry.first, now);
    return address.watched == 0 && now >= address.kept_out_until &&
           address.tokens >= static_cast<double>(options_.crowd);
  });
}

// --- what is refused

void Gate::Refuse(Drop drop, const std::string& line) {
  ++drops_[static_cast<size_t>(drop)];
  if (++lines_ > kLinesMax) return;
  LogInfo("a connection of remote actors was refused: " + line +
          (lines_ == kLinesMax ? "; more such lines are left out" : ""));
}

void Gate::Forget(uint64_t id) {
  const auto found = watched_.find(id);
  const Watched& watched = found->second;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, watched.fd, nullptr);
  ::close(watched.fd);
  --addresses_[watched.address].watched;
  sent_ -= watched.bytes;
  forgotten_.NotifyOne();
  // a successor may have the name by now
  if (const auto name = by_peer_.find(watched.peer); name != by_peer_.end() && name->second == id)
    by_peer_.erase(name);
  watched_.erase(found);
}

void Gate::End(uint64_t id, Drop drop, const std::string& why) {
  const std::string address = watched_[id].address;
  Refuse(drop, watched_[id].peer + ": " + why);
  std::vector<uint64_t> ending = {id};
  if (drop == Drop::kFlood) {
    addresses_[address].kept_out_until =
        Now() + std::chrono::milliseconds(static_cast<int64_t>(options_.kept_out * 1000));
    ending.clear();
    for (const auto& [each, watched] : watched_)
      if (watched.address == address) ending.push_back(each);
  }
  for (const uint64_t each : ending) {
    Abort(watched_[each].fd);
    Forget(each);
  }
}

void Gate::BeginCall(std::string_view peer) {
  const MutexLock lock(mu_);
  if (by_peer_.empty()) return;
  const auto found = by_peer_.find(PeerOf(peer));
  if (found == by_peer_.end()) return;
  const uint64_t id = found->second;
  if (++watched_[id].calls > options_.calls)
    End(id, Drop::kFlood,
        "more than " + std::to_string(options_.calls) + " streams without a Hello");
}

void Gate::Admit(std::string_view peer) {
  const MutexLock lock(mu_);
  const auto found = by_peer_.find(PeerOf(peer));
  if (found == by_peer_.end()) return;
  FreeReceiveBuffer(watched_[found->second].fd);
  Forget(found->second);
}

std::map<std::string, uint64_t> Gate::drops() const {
  const MutexLock lock(mu_);
  const auto count = [&](Drop drop) REQUIRES(mu_) { return drops_[static_cast<size_t>(drop)]; };
  return {{"stranger", count(Drop::kStranger)},
          {"crowded", count(Drop::kCrowded)},
          {"flood", count(Drop::kFlood)},
          {"expired", count(Drop::kSlow)}};
}

size_t Gate::watched() const {
  const MutexLock lock(mu_);
  return watched_.size();
}

}  // namespace samara
