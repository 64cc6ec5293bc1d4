#include "replica/rendezvous/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "core/log.h"

namespace samara {

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  Close();
  fd_ = other.Release();
  return *this;
}

int OwnedFd::Release() { return std::exchange(fd_, -1); }

void OwnedFd::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> Resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return Status(Code::kConfig,
                  EscapeControl(host) + ": no address of a host: " + ::gai_strerror(error));
  return AddressList(found, &freeaddrinfo);
}

bool AnyInterface(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
  return address.sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, &in6addr_any,
                     sizeof in6addr_any) == 0;
}

Result<Endpoint> LocalEndpoint(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(fd, name, &size) != 0 ||
      ::getnameinfo(name, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return Status(Code::kIoError, "the monitor's own address cannot be read");
  return Endpoint{host, static_cast<uint16_t>(std::stoi(port))};
}

void SetNoDelay(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// At the first address of the list that can be had.
Result<Listener> ListenAtOneOf(const addrinfo* list, const std::string& name) {
  int error = EADDRNOTAVAIL;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    OwnedFd fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // connections of a former owner of the port are no obstacle; a process that listens there is
    const int on = 1, off = 0;
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (entry->ai_family == AF_INET6)
      (void)::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (fd.get() >= 0 && ::bind(fd.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0) {
      ASSIGN_OR_RETURN(Endpoint endpoint, LocalEndpoint(fd.get()));
      return Listener{std::move(fd), std::move(endpoint)};
    }
    error = errno;
    if (error == EADDRINUSE) break;  // the next address would hide it
  }
  return Status(
      error == EADDRNOTAVAIL || error == EAFNOSUPPORT ? Code::kConfig : Code::kCannotCreate,
      fmt::format("{}: cannot listen there: {}", EscapeControl(name), std::strerror(error)));
}

}  // namespace

Result<Listener> ListenAt(const std::string& given, uint16_t port) {
  const std::string address = given.empty() ? "127.0.0.1" : given;
  ASSIGN_OR_RETURN(const AddressList list, Resolve(address, port));
  if (AnyInterface(*list->ai_addr))
    return Status(Code::kConfig, EscapeControl(address) +
                                     ": means every interface: give the one address by "
                                     "which the other ranks reach this host");
  return ListenAtOneOf(list.get(), port == 0 ? address : fmt::format("{}:{}", address, port));
}

Result<Listener> ListenEverywhere(uint16_t port) {
  const std::string name = fmt::format("port {}", port);
  for (const char* any : {"::", "0.0.0.0"}) {
    ASSIGN_OR_RETURN(const AddressList list, Resolve(any, port));
    Result<Listener> listener = ListenAtOneOf(list.get(), name);
    if (!listener.ok() && listener.status().code() == Code::kConfig) continue;  // no IPv6 here
    if (listener.ok()) listener->endpoint.host = list->ai_family == AF_INET6 ? "::1" : "127.0.0.1";
    return listener;
  }
  return Status(Code::kCannotCreate, name + ": this host has no network");
}

bool IsNumericAddress(const std::string& address) {
  std::array<std::byte, sizeof(in6_addr)> bytes;
  return ::inet_pton(AF_INET, address.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1;
}

Result<OwnedFd> AcceptFrom(const Listener& listener) {
  OwnedFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.get() >= 0) {
    SetNoDelay(fd.get());
    return fd;
  }
  const bool no_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  return Status(no_room ? Code::kIoError : Code::kUnavailable, std::strerror(errno));
}

namespace {

// Zero, or errno.
int ConnectBy(const addrinfo& address, std::chrono::milliseconds timeout, OwnedFd& fd) {
  fd = OwnedFd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return errno;
  int error = 0;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
  if (error != EINPROGRESS) return error;
  pollfd entry{fd.get(), POLLOUT, 0};
  socklen_t size = sizeof error;
  int ready = 0;
  while ((ready = ::poll(&entry, 1, static_cast<int>(timeout.count()))) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return ETIMEDOUT;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

Result<OwnedFd> ConnectTo(const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const AddressList list, Resolve(endpoint.host, endpoint.port));
  OwnedFd fd;
  int error = 0;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    error = ConnectBy(*entry, timeout, fd);
    if (error == 0) {
      SetNoDelay(fd.get());
      return fd;
    }
  }
  return Status(Code::kUnavailable,
                fmt::format("{}:{}: {}", endpoint.host, endpoint.port, std::strerror(error)));
}

}  // namespace samara
