#include "fleet/remote/peer_owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace samara {
namespace {

// Both ends of a connection, as the other end's socket has them.
struct Ends {
  sockaddr_storage local{}, remote{};
};

struct Endpoint {
  const void* address;
  size_t bytes;
  in_port_t port;  // in network order
};

Endpoint EndpointOf(const sockaddr_storage& socket) {
  if (socket.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(socket);
    return {&v6.sin6_addr, sizeof v6.sin6_addr, v6.sin6_port};
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(socket);
  return {&v4.sin_addr, sizeof v4.sin_addr, v4.sin_port};
}

// The other end of a connection between IPv4 addresses is an IPv4 socket, whatever this one is.
sockaddr_storage WithoutMapping(const sockaddr_storage& socket) {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(socket);
  if (socket.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return socket;
  sockaddr_storage mapped{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(mapped);
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  return mapped;
}

bool ReadEnds(int fd, Ends& ends) {
  sockaddr_storage here{}, there{};
  socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_bytes) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_bytes) != 0) {
    return false;
  }
  ends = {.local = WithoutMapping(there), .remote = WithoutMapping(here)};
  return true;
}

struct Found {
  uid_t owner = 0;
  uint64_t inode = 0;  // 0: no process holds the socket any more, and its owner is not known
};

// Asks the kernel for one socket. None also where the kernel has no module for such questions.
std::optional<Found> AskKernel(const Ends& ends) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question{};
  question.header = {.nlmsg_len = sizeof question,
                     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                     .nlmsg_flags = NLM_F_REQUEST,
                     .nlmsg_seq = 1,
                     .nlmsg_pid = 0};
  inet_diag_req_v2& request = question.request;
  request.sdiag_family = static_cast<uint8_t>(ends.local.ss_family);
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = ~0U;
  const Endpoint local = EndpointOf(ends.local), remote = EndpointOf(ends.remote);
  request.id.idiag_sport = local.port, request.id.idiag_dport = remote.port;
  std::memcpy(request.id.idiag_src, local.address, local.bytes);
  std::memcpy(request.id.idiag_dst, remote.address, remote.bytes);
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  const int fd = ::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) return {};
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  alignas(nlmsghdr) std::array<char, 4096> answer{};
  ssize_t bytes = -1;
  if (::send(fd, &question, sizeof question, 0) == static_cast<ssize_t>(sizeof question))
    bytes = ::recv(fd, answer.data(), answer.size(), 0);
  ::close(fd);
  nlmsghdr header{};
  inet_diag_msg message{};
  if (bytes < static_cast<ssize_t>(NLMSG_LENGTH(sizeof message))) return {};
  std::memcpy(&header, answer.data(), sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return {};
  std::memcpy(&message, answer.data() + NLMSG_HDRLEN, sizeof message);
  return Found{message.idiag_uid, message.idiag_inode};
}

// "ADDRESS:PORT" as the kernel's tables show it: words of 32 bits in this machine's order.
std::string TableText(const sockaddr_storage& socket, std::string_view prefix) {
  const Endpoint end = EndpointOf(socket);
  std::string text(prefix);
  char word[16];
  for (size_t i = 0; i < end.bytes; i += sizeof(uint32_t)) {
    uint32_t value = 0;
    std::memcpy(&value, static_cast<const char*>(end.address) + i, sizeof value);
    std::snprintf(word, sizeof word, "%08X", value);
    text += word;
  }
  std::snprintf(word, sizeof word, ":%04X", ntohs(end.port));
  return text + word;
}

std::optional<Found> ReadTable(const Ends& ends, const char* table, std::string_view prefix) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(table, "re"), &std::fclose);
  if (file == nullptr) return {};
  const std::string wanted =
      " " + TableText(ends.local, prefix) + " " + TableText(ends.remote, prefix) + " ";
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    const char* at = std::strstr(line.data(), wanted.c_str());
    if (at == nullptr) continue;
    unsigned long owner = 0, inode = 0;
    // after state, queues, timer and retransmits: owner, timeout, inode
    if (std::sscanf(at + wanted.size(), "%*s %*s %*s %*s %lu %*s %lu", &owner, &inode) == 2)
      return Found{static_cast<uid_t>(owner), inode};
  }
  return {};
}

// For kernels that do not answer: reads every connection there is.
std::optional<Found> ReadTables(const Ends& ends) {
  if (ends.local.ss_family == AF_INET6) return ReadTable(ends, "/proc/net/tcp6", "");
  if (const auto found = ReadTable(ends, "/proc/net/tcp", "")) return found;
  // an IPv4 connection of a socket that speaks both
  return ReadTable(ends, "/proc/net/tcp6", "0000000000000000FFFF0000");
}

}  // namespace

std::optional<uid_t> PeerOwner(int fd) {
  Ends ends;
  if (!ReadEnds(fd, ends)) return {};
  if (ends.remote.ss_family == AF_UNIX) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return {};
    return peer.uid;
  }
  if (ends.local.ss_family != AF_INET && ends.local.ss_family != AF_INET6) return {};
  std::optional<Found> found = AskKernel(ends);
  if (!found) found = ReadTables(ends);
  if (!found || found->inode == 0) return {};
  return found->owner;
}

std::optional<uid_t> TEST_PeerOwnerByTable(int fd) {
  Ends ends;
  if (!ReadEnds(fd, ends)) return {};
  const std::optional<Found> found = ReadTables(ends);
  return found ? std::optional(found->owner) : std::nullopt;
}

}  // namespace samara
