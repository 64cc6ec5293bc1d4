#include "replica/rendezvous/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/arguments.h"
#include "core/log.h"
#include "core/resources.h"

extern char** environ;

namespace samara {
namespace {

constexpr size_t kLineBytesMax = size_t{1} << 16;  // longer ones are broken

// In the new process. Only what is safe after fork, until exec; what went wrong goes to `report`.
[[noreturn]] void BecomeChild(pid_t parent, const ChildCommand& command, int input, int report,
                              char* const* arguments, char* const* variables) {
  ::umask(command.umask);
  ::setpgid(0, 0);  // Ctrl-C reaches the parent only, and the child's children end with it
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // it died before
  ::dup2(input, STDIN_FILENO);
  if (command.out.get() >= 0) ::dup2(command.out.get(), STDOUT_FILENO);
  if (command.err.get() >= 0) ::dup2(command.err.get(), STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(arguments[0], arguments, variables);
  const int error = errno;
  (void)!::write(report, &error, sizeof error);
  ::_exit(127);
}

// Why exec failed; 0: it did not. `report` is closed by exec.
int ErrorOfExec(int report) {
  int error = 0;
  ssize_t n;
  while ((n = ::read(report, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  return n == sizeof error ? error : 0;
}

}  // namespace

Result<std::unique_ptr<Child>> Child::Start(const ChildCommand& command, OwnedFd output,
                                            std::function<void(std::string_view)> on_line) {
  OwnedFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0)
    return Status(Code::kIoError, std::string("pipe: ") + std::strerror(errno));
  OwnedFd report_read(report[0]), report_write(report[1]);
  std::vector<std::string> arguments = command.program, variables = command.variables;
  const std::vector<char*> argv = NullTerminated(arguments), envp = NullTerminated(variables);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0)
    BecomeChild(parent, command, input.get(), report_write.get(), argv.data(), envp.data());
  if (pid < 0)
    return SystemError("fork of " + EscapeControl(command.program[0]), errno, Code::kIoError);
  ::setpgid(pid, pid);  // here too: a signal may be sent before the child has run
  std::unique_ptr<Child> child(new Child(pid, std::move(output), std::move(on_line)));
  report_write.Close();
  const int error = ErrorOfExec(report_read.get());
  if (error == 0) return child;
  const Code code = error == ENOENT   ? Code::kNoInput
                    : error == EACCES ? Code::kNotPermitted
                                      : Code::kConfig;
  return Status(code, EscapeControl(command.program[0]) + ": cannot be started: " +
                          std::strerror(error) + " (a path, or a program on PATH)");
}

Child::~Child() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Reap();
}

void Child::Signal(int number) const {
  if (pid_ >= 0 && ::kill(-pid_, number) != 0) ::kill(pid_, number);
}

std::optional<int> Child::Ended() {
  siginfo_t info{};
  if (pid_ < 0 ||
      ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return std::nullopt;
  // as long as it is not reaped its number is no other group's
  ::kill(-pid_, SIGKILL);
  return Reap();
}

int Child::Reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

bool Child::ReadLines() {
  std::array<char, 65536> bytes;
  const ssize_t n = output_.get() < 0 ? -1 : ::read(output_.get(), bytes.data(), bytes.size());
  if (n == 0) output_.Close();
  if (n <= 0) return false;
  for (const char c : std::string_view(bytes.data(), static_cast<size_t>(n))) {
    if (c != '\n') line_ += c;
    if (c == '\n' || line_.size() >= kLineBytesMax) TakeLine();
  }
  return true;
}

void Child::ReadRest() {
  while (ReadLines()) {
  }
  if (!line_.empty()) TakeLine();
  output_.Close();
}

void Child::TakeLine() {
  const std::string line = std::exchange(line_, {});
  on_line_(line);
}

Result<OutputPipe> MakeOutputPipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Status(Code::kIoError, std::string("pipe: ") + std::strerror(errno));
  OutputPipe pipe{OwnedFd(ends[0]), OwnedFd(ends[1])};
  ::fcntl(pipe.ours.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

std::vector<std::string> OwnVariables(const std::function<bool(std::string_view name)>& replaced) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    if (!replaced(entry.substr(0, entry.find('=')))) variables.emplace_back(entry);
  }
  return variables;
}

int LaunchExitCode(int wait_status, bool stopped) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  const int number = WTERMSIG(wait_status);
  for (const int crash : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP})
    if (number == crash) return static_cast<int>(Code::kInternal);
  return static_cast<int>(stopped ? Code::kTryAgain : Code::kUnavailable);
}

}  // namespace samara
