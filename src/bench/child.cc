// Other programs under a benchmark.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "bench/bench.h"
#include "core/arguments.h"
#include "core/resources.h"

namespace samara::bench {

Result<pid_t> StartChild(std::vector<std::string> command, int output) {
  const std::vector<char*> arguments = NullTerminated(command);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return SystemError(command[0], errno, Code::kUnavailable);
  if (child > 0) return child;
  // only what is safe after fork, until exec
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(126);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace samara::bench
