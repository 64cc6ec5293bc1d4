// Where a learner process listens and an actor connects, and whether that is safe.
#pragma once

#include <string>

#include "core/files.h"
#include "core/status.h"

namespace samara {

struct RemoteAddress {
  enum class Kind {
    kUnix,      // a socket in a folder of the user alone
    kLoopback,  // this machine, any of its users
    kRoutable,  // anything else, and what only a name server knows
  } kind = Kind::kRoutable;
  std::string host;  // or the socket's path
  int port = 0;
  // As gRPC wants it: "unix:/folder/socket", "127.0.0.1:5000", "[::1]:5000".
  std::string text() const;
};
// kConfig with the forms that are understood.
Result<RemoteAddress> ParseAddress(const std::string& text);

// Whether a process accepts a connection there within `seconds`; it is closed at once.
bool Answers(const RemoteAddress& address, double seconds);

// A socket's folder belongs to the user alone: makes it (0700) or checks it. kNotPermitted when
// others may enter, kConfig when the path is too long for a socket.
Status PrepareSocketFolder(const RemoteAddress& address);

// A token: 32 random bytes as 64 hexadecimal digits and a line feed, in a new file of mode 0600.
Status WriteToken(const Path& file);
// The token in `file`. kNotPermitted when others may read it, kBadData when it is shorter than 128
// bits (32 characters) or holds anything but printable characters.
Result<std::string> ReadToken(const Path& file);

}  // namespace samara
