// Which user a connection's other end belongs to.
#pragma once

#include <sys/types.h>

#include <optional>

namespace samara {

// Owner of the process at the other end of `fd`, a connected Unix socket, or a TCP socket between
// two ends on this machine. None: the other end is not on this machine, is closed already, or the
// kernel does not tell; the caller treats it as a stranger.
std::optional<uid_t> PeerOwner(int fd);

// Test only: the same for TCP from the tables in /proc, where the kernel answers no questions.
std::optional<uid_t> TEST_PeerOwnerByTable(int fd);

}  // namespace samara
