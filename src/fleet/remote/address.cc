#include "fleet/remote/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/log.h"
#include "core/parse_number.h"

namespace samara {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr size_t kTokenBytes = 32, kTokenCharactersMin = 32, kTokenCharactersMax = 1024;

Status NotAnAddress(const std::string& text) {
  return {Code::kConfig,
          "address '" + Shown(text) +
              "': expected unix:/folder/socket, HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:7777"};
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool Connects(int family, const sockaddr* address, socklen_t size, double seconds) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  bool connected = ::connect(fd, address, size) == 0;
  if (!connected && (errno == EINPROGRESS || errno == EAGAIN)) {
    pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
    int error = 0;
    socklen_t length = sizeof error;
    connected = ::poll(&entry, 1, static_cast<int>(seconds * 1000)) == 1 &&
                ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
  }
  ::close(fd);
  return connected;
}

}  // namespace

std::string RemoteAddress::text() const {
  if (kind == Kind::kUnix) return std::string(kUnixPrefix) + host;
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<RemoteAddress> ParseAddress(const std::string& text) {
  RemoteAddress address;
  if (text.starts_with(kUnixPrefix)) {
    address.kind = RemoteAddress::Kind::kUnix;
    std::string path = text.substr(kUnixPrefix.size());
    if (path.starts_with("//")) path = path.substr(2);  // "unix:///folder/socket"
    if (path.empty() || path.back() == '/') return NotAnAddress(text);
    address.host = std::filesystem::absolute(path).lexically_normal().string();
    if (address.host.size() >= sizeof(sockaddr_un::sun_path)) {
      return Status(Code::kConfig, "address '" + text + "': a socket's path has at most " +
                                       std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                                       " characters: choose a shorter folder");
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return NotAnAddress(text);
  address.host = text.substr(0, colon);
  if (address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  else if (address.host.find(':') != std::string::npos)
    return NotAnAddress(text);
  const auto port = ParseNumber<int>(std::string_view(text).substr(colon + 1));
  if (!port || *port < 0 || *port > 65535 || address.host.empty() ||
      address.host.find_first_of("/ \t\n") != std::string::npos) {
    return NotAnAddress(text);
  }
  address.port = *port;
  address.kind =
      IsLoopback(address.host) ? RemoteAddress::Kind::kLoopback : RemoteAddress::Kind::kRoutable;
  return address;
}

bool Answers(const RemoteAddress& address, double seconds) {
  if (address.kind == RemoteAddress::Kind::kUnix) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    std::memcpy(place.sun_path, address.host.c_str(), address.host.size());
    return Connects(AF_UNIX, reinterpret_cast<const sockaddr*>(&place), sizeof place, seconds);
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) !=
      0)
    return false;
  bool answers = false;
  for (const addrinfo* at = found; at != nullptr && !answers; at = at->ai_next)
    answers = Connects(at->ai_family, at->ai_addr, at->ai_addrlen, seconds);
  ::freeaddrinfo(found);
  return answers;
}

Status PrepareSocketFolder(const RemoteAddress& address) {
  const Path folder = Path(address.host).parent_path();
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) {
    if (::mkdir(folder.c_str(), 0700) == 0) return {};
    return {Code::kCannotCreate,
            folder.string() + ": cannot make a folder for the socket: " + std::strerror(errno)};
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return {Code::kNotPermitted, folder.string() +
                                     ": others may enter this folder: put the socket into one of "
                                     "your own of mode 0700 (a folder that is missing is made so)"};
  }
  return {};
}

Status WriteToken(const Path& file) {
  std::array<unsigned char, kTokenBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return {Code::kInternal, "no random bytes from the system"};
  std::string text;
  for (const unsigned char b : bytes) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  RETURN_IF_ERROR(MustBeNew(file));
  return WriteNewFile(file, text + "\n");
}

Result<std::string> ReadToken(const Path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) {
    return Status(Code::kNoInput, file.string() + ": no such token file: `samara token " +
                                      file.string() + "` makes one");
  }
  if ((info.st_mode & 077) != 0) {
    return Status(Code::kNotPermitted,
                  file.string() + ": others may read this token: chmod 600 " + file.string());
  }
  ASSIGN_OR_RETURN(std::string token, ReadFile(file, 4096));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  bool printable = true;
  for (const char c : token) printable &= c > ' ' && c <= '~';
  if (!printable || token.size() < kTokenCharactersMin || token.size() > kTokenCharactersMax) {
    return Status(Code::kBadData, file.string() +
                                      ": expected one token of 32 to 1024 printable characters: "
                                      "`samara token FILE` makes one");
  }
  return token;
}

}  // namespace samara
