#include "fleet/actor_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/arguments.h"
#include "core/clock.h"
#include "core/exit_status.h"
#include "core/log.h"
#include "core/resources.h"
#include "core/venv.h"

extern char** environ;

namespace samara {
namespace {

constexpr size_t kLinesKept = 12;
constexpr int kLinesLoggedMax = 1000;  // of one process: a chatty simulator fills no disk
constexpr size_t kLineBytesMax = 500;  // longer lines are cut
constexpr int kLowestDescriptor = 16;  // ours lie above the numbers that the actor expects
constexpr const char* kOneThread[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
                                      "NUMEXPR_NUM_THREADS"};

// A descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { Close(); }
  void Close() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  // takes `other` and moves it out of the way of the actor's fixed numbers
  void Adopt(int other) {
    fd = fcntl(other, F_DUPFD_CLOEXEC, kLowestDescriptor);
    close(other);
  }
  int Release() { return std::exchange(fd, -1); }
};

Status Failed(const char* what) {
  return SystemError(std::string("starting an actor: ") + what, errno, Code::kIoError);
}

// PYTHONPATH of an actor: `own` in front of the caller's folders, or behind them where pip
// installed the package among others, which those of the caller hide as they do for any Python.
std::string SearchPath(const std::string& own) {
  std::string path;
  const char* given = getenv("PYTHONPATH");
  std::string_view inherited = given != nullptr ? given : "";
  while (!inherited.empty()) {
    const size_t end = std::min(inherited.find(':'), inherited.size());
    // an empty entry would be the current folder, and is there by accident
    if (end > 0) path.append(path.empty() ? "" : ":").append(inherited.substr(0, end));
    inherited.remove_prefix(std::min(end + 1, inherited.size()));
  }
  if (path.empty()) return own;
  return own == SitePackagesOfProgram() ? path + ":" + own : own + ":" + path;
}

// The learner process's environment variables with ours in place of their namesakes.
std::vector<std::string> Variables(const std::string& python_path) {
  std::vector<std::string> result = {"PYTHONPATH=" + SearchPath(python_path)};
  for (const char* name : kOneThread) result.push_back(std::string(name) + "=1");
  const size_t ours = result.size();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    bool replaced = false;
    for (size_t i = 0; i < ours; ++i)
      replaced |= entry.substr(0, entry.find('=') + 1) ==
                  std::string_view(result[i]).substr(0, result[i].find('=') + 1);
    if (!replaced) result.emplace_back(entry);
  }
  return result;
}

// posix_spawn and not fork: a large learner process is not copied, and no code runs between fork
// and exec.
int SpawnProcess(const ActorCommand& command, int control, int output, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, control, kActorControl);
  posix_spawn_file_actions_adddup2(&actions, command.segment_fd, kActorSegment);
  posix_spawn_file_actions_adddup2(&actions, command.bell_fd, kActorBell);
  posix_spawn_file_actions_adddup2(&actions, command.policies_fd, kActorPolicies);
  // own process group, so that Ctrl-C reaches the learner process only; signals as in a fresh
  // process
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  std::vector<std::string> arguments = command.program;
  std::vector<std::string> variables = Variables(command.python_path);
  const int error = posix_spawn(pid, arguments.front().c_str(), &actions, &attributes,
                                NullTerminated(arguments).data(), NullTerminated(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

std::string DefaultPythonPath() {
  std::error_code ignored;
  if (const Path site = SitePackagesOfProgram(); !site.empty()) return site.string();
  return (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "python")
      .string();
}

Result<std::unique_ptr<ActorProcess>> ActorProcess::Spawn(const ActorCommand& command) {
  CHECK(command.segment_fd >= 0 && command.bell_fd >= 0 && command.policies_fd >= 0);
  int sockets[2], pipes[2];
  Descriptor ours, theirs, read_end, write_end, segment, bell, policies;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    return Failed("socketpair");
  ours.Adopt(sockets[0]);
  theirs.Adopt(sockets[1]);
  if (pipe2(pipes, O_CLOEXEC) != 0) return Failed("pipe");
  read_end.Adopt(pipes[0]);
  write_end.Adopt(pipes[1]);
  segment.fd = fcntl(command.segment_fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  bell.fd = fcntl(command.bell_fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  policies.fd = fcntl(command.policies_fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (ours.fd < 0 || theirs.fd < 0 || read_end.fd < 0 || write_end.fd < 0 || segment.fd < 0 ||
      bell.fd < 0 || policies.fd < 0)
    return Failed("duplicating descriptors");
  fcntl(read_end.fd, F_SETFL, O_NONBLOCK);
  ActorCommand moved = command;
  moved.segment_fd = segment.fd;
  moved.bell_fd = bell.fd;
  moved.policies_fd = policies.fd;
  pid_t pid = -1;
  if (const int error = SpawnProcess(moved, theirs.fd, write_end.fd, &pid); error != 0) {
    errno = error;
    return Failed(command.program.front().c_str());
  }
  return std::unique_ptr<ActorProcess>(
      new ActorProcess(command.name, pid, ours.Release(), read_end.Release()));
}

ActorProcess::ActorProcess(std::string name, pid_t pid, int control, int output)
    : name_(std::move(name)), pid_(pid), control_(control), output_(output) {}

ActorProcess::~ActorProcess() {
  Kill();
  close(control_);
  close(output_);
}

void ActorProcess::Send(std::string_view packet) {
  const ssize_t n = send(control_, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n != static_cast<ssize_t>(packet.size())) hung_up_ = true;
}

std::optional<std::string> ActorProcess::Receive() {
  packet_.resize(kPacketBytesMax);
  const ssize_t n = recv(control_, packet_.data(), packet_.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  // an end, an error or a packet beyond the limit: this actor is done
  if (n <= 0 || n > static_cast<ssize_t>(packet_.size())) {
    hung_up_ = true;
    return std::nullopt;
  }
  return packet_.substr(0, static_cast<size_t>(n));
}

void ActorProcess::HangUp() { shutdown(control_, SHUT_RDWR); }

void ActorProcess::ReadOutput() {
  std::array<char, 4096> buffer;
  for (int rounds = 0; rounds < 64; ++rounds) {  // bounded work per turn
    const ssize_t n = read(output_, buffer.data(), buffer.size());
    output_ended_ |= n == 0;
    if (n <= 0) return;
    for (const char c : std::string_view(buffer.data(), static_cast<size_t>(n))) {
      if (c != '\n') {
        if (partial_line_.size() < kLineBytesMax) partial_line_ += c;
        continue;
      }
      if (!partial_line_.empty()) {
        last_lines_.push_back(EscapeControl(partial_line_));
        traceback_.Take(last_lines_.back());
        if (last_lines_.size() > kLinesKept) last_lines_.pop_front();
        if (lines_logged_++ < kLinesLoggedMax)
          Log(LogLevel::kDebug, name_ + ": " + last_lines_.back());
      }
      partial_line_.clear();
    }
  }
}

// The process stays a zombie until Kill: its number is not reused meanwhile.
bool ActorProcess::Ended() const {
  if (reaped_) return true;
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

bool ActorProcess::gone() { return hung_up_ || Ended(); }

void ActorProcess::Kill() {
  if (reaped_) return;
  // the group outlives its leader when a simulator started children of its own
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  ReadOutput();
}

void ActorProcess::End(std::chrono::milliseconds grace) {
  const SteadyTime deadline = Now() + grace;
  pollfd hang_up{control_, 0, 0};
  while (!Ended() && Now() < deadline) {
    // returns at once when the socket is closed; then the process is about to end
    poll(&hang_up, 1, 1);
    if (hang_up.revents != 0) usleep(1000);
  }
  Kill();
}

std::vector<std::string> ActorProcess::Explanation() const {
  if (!traceback_.lines().empty()) return traceback_.lines();
  return {last_lines_.begin(), last_lines_.end()};
}

std::string ActorProcess::Cause() const {
  const bool said = WIFEXITED(wait_status_) && !last_lines_.empty();
  return DescribeExit(wait_status_) + (said ? ": " + last_lines_.back() : "");
}

bool ActorProcess::own_fault() const {
  return !WIFSIGNALED(wait_status_) ||
         (WTERMSIG(wait_status_) != SIGKILL && WTERMSIG(wait_status_) != SIGTERM);
}

}  // namespace samara
