#include "replica/rendezvous/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "core/arguments.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/files.h"
#include "core/log.h"
#include "core/resources.h"
#include "core/signal_disposition.h"
#include "replica/rendezvous/secret.h"
#include "replica/rendezvous/socket.h"

extern char** environ;

namespace samara {
namespace {

constexpr size_t kLineBytesMax = size_t{1} << 16;  // longer ones are broken
constexpr std::chrono::seconds kOneRequest{1};     // signals to stop within it are one
constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kOtherSignals[] = {SIGUSR1, SIGUSR2};

// Variables set for another launcher's ranks, and those that are set again for ours.
constexpr const char* kReplaced[] = {
    "RANK",         "WORLD_SIZE",  "LOCAL_RANK",       "LOCAL_WORLD_SIZE",
    "GROUP_RANK",   "MASTER_ADDR", "MASTER_PORT",      "SAMARA_LAUNCH",
    "ROLE_RANK",    "ROLE_NAME",   "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE",
    kSecretVariable};

std::vector<std::string> RankVariables(const LaunchOptions& options, int rank, uint16_t port,
                                       int restart, const std::string& secret) {
  std::vector<std::string> result = {fmt::format("RANK={}", rank),
                                     fmt::format("WORLD_SIZE={}", options.ranks),
                                     fmt::format("LOCAL_RANK={}", rank),
                                     fmt::format("LOCAL_WORLD_SIZE={}", options.ranks),
                                     "GROUP_RANK=0",
                                     "MASTER_ADDR=" + options.address,
                                     fmt::format("MASTER_PORT={}", port),
                                     "SAMARA_LAUNCH=1",
                                     std::string(kSecretVariable) + "=" + secret,
                                     fmt::format("TORCHELASTIC_RESTART_COUNT={}", restart),
                                     fmt::format("TORCHELASTIC_MAX_RESTARTS={}", options.restarts)};
  if (::getenv("OMP_NUM_THREADS") == nullptr)
    result.push_back(
        fmt::format("OMP_NUM_THREADS={}", std::max(1, static_cast<int>(Cores()) / options.ranks)));
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry(*variable), name = entry.substr(0, entry.find('='));
    const bool replaced =
        std::find(std::begin(kReplaced), std::end(kReplaced), name) != std::end(kReplaced) ||
        name.starts_with("TORCHELASTIC_");
    if (!replaced) result.emplace_back(entry);
  }
  return result;
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;  // the reader has gone
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

// Where a rank's two outputs go; -1: to ours.
struct Outputs {
  OwnedFd out, err;
};

// In the new process. Only what is safe after fork, until exec; what went wrong goes to `report`.
[[noreturn]] void BecomeRank(pid_t launcher, const Outputs& outputs, int input, int report,
                             mode_t mask, char* const* arguments, char* const* variables) {
  ::umask(mask);
  ::setpgid(0, 0);  // Ctrl-C reaches the launcher only, and the rank's children end with it
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(0);  // it died before
  ::dup2(input, STDIN_FILENO);
  if (outputs.out.get() >= 0) ::dup2(outputs.out.get(), STDOUT_FILENO);
  if (outputs.err.get() >= 0) ::dup2(outputs.err.get(), STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(arguments[0], arguments, variables);
  const int error = errno;
  (void)!::write(report, &error, sizeof error);
  ::_exit(127);
}

class Rank {
 public:
  Rank(int rank, pid_t pid, OwnedFd output) : rank_(rank), pid_(pid), output_(std::move(output)) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    if (pid_ < 0) return;
    Signal(SIGKILL);
    Reap();
  }

  bool running() const { return pid_ >= 0; }
  int output() const { return output_.get(); }
  // To the rank and to the processes that it started itself.
  void Signal(int number) const {
    if (pid_ >= 0 && ::kill(-pid_, number) != 0) ::kill(pid_, number);
  }
  // The wait status, once it has ended.
  std::optional<int> Ended() {
    siginfo_t info{};
    if (pid_ < 0 ||
        ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != pid_)
      return std::nullopt;
    // as long as it is not reaped its number is no other group's
    ::kill(-pid_, SIGKILL);
    return Reap();
  }
  // Passes whole lines on; false when there is nothing more now.
  bool PassOn() {
    std::array<char, 65536> bytes;
    const ssize_t n = output_.get() < 0 ? -1 : ::read(output_.get(), bytes.data(), bytes.size());
    if (n == 0) output_.Close();
    if (n <= 0) return false;
    std::string lines;
    for (const char c : std::string_view(bytes.data(), static_cast<size_t>(n))) {
      line_ += c;
      if (c == '\n' || line_.size() >= kLineBytesMax) AddLine(lines);
    }
    WriteAll(STDERR_FILENO, lines);
    return true;
  }
  void PassOnRest() {
    while (PassOn()) {
    }
    std::string last;
    if (!line_.empty()) AddLine(last);
    WriteAll(STDERR_FILENO, last);
    output_.Close();
  }

 private:
  int Reap() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }
  void AddLine(std::string& lines) {
    lines += fmt::format("[rank {}] {}{}", rank_, line_, line_.ends_with('\n') ? "" : "\n");
    line_.clear();
  }

  int rank_;
  pid_t pid_;  // -1 once reaped; the group's number too
  OwnedFd output_;
  std::string line_;
};

// Signals to be read instead of handled, as long as this lives.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    // blocked, an ignored signal would be read all the same
    for (const int number : kStopSignals)
      if (number == SIGTERM || !IsIgnored(number)) sigaddset(&set, number);
    for (const int number : kOtherSignals) sigaddset(&set, number);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
    fd_ = OwnedFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    CHECK(fd_.get() >= 0) << "signalfd";
  }
  ~Signals() {
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    ::signal(SIGPIPE, pipe_before_);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_.get(); }
  // 0: none left.
  int Next() const {
    signalfd_siginfo info;
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  sigset_t before_;
  sighandler_t pipe_before_;
  OwnedFd fd_;
};

struct Failure {
  int rank, wait_status;
};

std::string Says(const Failure& failure) {
  if (WIFSIGNALED(failure.wait_status)) {
    const int number = WTERMSIG(failure.wait_status);
    return fmt::format("rank {} was killed by signal {} ({})", failure.rank, number,
                       ::strsignal(number));
  }
  return fmt::format("rank {} exited with {}", failure.rank, WEXITSTATUS(failure.wait_status));
}

// One try: from the start of all ranks to the end of the last.
class Attempt {
 public:
  Attempt(const LaunchOptions& options, const std::string& secret, const Signals& signals,
          bool& stopped)
      : options_(options), secret_(secret), signals_(signals), stopped_(stopped) {}
  // The first failure, none when all returned 0.
  Result<std::optional<Failure>> Run(uint16_t port, int restart);

 private:
  Status Start(int rank, uint16_t port, int restart);
  Result<Outputs> OpenOutputs(int rank, OwnedFd& read_end) const;
  bool Running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running(); });
  }
  void SignalAll(int number) const {
    for (const Rank& rank : ranks_) rank.Signal(number);
  }
  void Sleep();
  void Forward();
  void Reap();
  void Hurry();

  const LaunchOptions& options_;
  const std::string& secret_;
  const Signals& signals_;
  bool& stopped_;
  std::deque<Rank> ranks_;  // they stay where they are
  std::optional<Failure> failure_;
  std::optional<SteadyTime> terminate_at_, kill_at_;
  SteadyTime kill_from_;
};

Result<Outputs> Attempt::OpenOutputs(int rank, OwnedFd& read_end) const {
  Outputs outputs;
  int write_end = -1;
  if (!options_.logs.empty()) {
    const Path file = Path(options_.logs) / fmt::format("rank-{}.log", rank);
    write_end = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (write_end < 0)
      return Status(Code::kCannotCreate, file.string() + ": " + std::strerror(errno));
  } else {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      return Status(Code::kIoError, std::string("pipe: ") + std::strerror(errno));
    read_end = OwnedFd(ends[0]);
    write_end = ends[1];
    ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  }
  outputs.err = OwnedFd(write_end);
  if (rank > 0) outputs.out = OwnedFd(::fcntl(write_end, F_DUPFD_CLOEXEC, 0));
  return outputs;
}

Status Attempt::Start(int rank, uint16_t port, int restart) {
  OwnedFd read_end;
  ASSIGN_OR_RETURN(const Outputs outputs, OpenOutputs(rank, read_end));
  OwnedFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0)
    return {Code::kIoError, std::string("pipe: ") + std::strerror(errno)};
  OwnedFd report_read(report[0]), report_write(report[1]);
  std::vector<std::string> arguments = options_.program;
  std::vector<std::string> variables = RankVariables(options_, rank, port, restart, secret_);
  const std::vector<char*> argv = NullTerminated(arguments), envp = NullTerminated(variables);
  const pid_t launcher = ::getpid(), pid = ::fork();
  if (pid == 0)
    BecomeRank(launcher, outputs, input.get(), report_write.get(), options_.umask, argv.data(),
               envp.data());
  if (pid < 0)
    return SystemError(fmt::format("launch: fork of rank {}", rank), errno, Code::kIoError);
  ::setpgid(pid, pid);  // here too: a signal may be sent before the child has run
  ranks_.emplace_back(rank, pid, std::move(read_end));
  // closed by exec, or the reason why there is none
  report_write.Close();
  int error = 0;
  ssize_t n;
  while ((n = ::read(report_read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n != sizeof error) return {};
  const Code code = error == ENOENT   ? Code::kNoInput
                    : error == EACCES ? Code::kNotPermitted
                                      : Code::kConfig;
  return {code, EscapeControl(options_.program[0]) + ": cannot be started: " +
                    std::strerror(error) + " (a path, or a program on PATH)"};
}

Result<std::optional<Failure>> Attempt::Run(uint16_t port, int restart) {
  for (int rank = 0; rank < options_.ranks; ++rank) RETURN_IF_ERROR(Start(rank, port, restart));
  while (Running()) {
    Sleep();
    for (Rank& rank : ranks_) rank.PassOn();
    Forward();
    Reap();
    Hurry();
  }
  for (Rank& rank : ranks_) rank.PassOnRest();
  return failure_;
}

void Attempt::Sleep() {
  std::vector<pollfd> polls = {{signals_.fd(), POLLIN, 0}};
  for (const Rank& rank : ranks_)
    if (rank.output() >= 0) polls.push_back({rank.output(), POLLIN, 0});
  int ms = -1;
  if (const auto next = terminate_at_.has_value() ? terminate_at_ : kill_at_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Now());
    ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  }
  (void)::poll(polls.data(), polls.size(), ms);
}

void Attempt::Forward() {
  for (int number; (number = signals_.Next()) != 0;) {
    if (number == SIGCHLD) continue;
    const bool stop = std::find(std::begin(kStopSignals), std::end(kStopSignals), number) !=
                      std::end(kStopSignals);
    // a second request kills; two at once are one, as from timeout, which tells its child and its
    // child's group
    const SteadyTime now = Now();
    if (stop && stopped_ && now < kill_from_) continue;
    SignalAll(stop && stopped_ ? SIGKILL : number);
    if (!stop) continue;
    if (!stopped_) kill_from_ = now + kOneRequest;
    stopped_ = true;
    terminate_at_.reset();
    kill_at_ = now + options_.grace;
  }
}

// A rank that fails because another one did returns 69: of those that ended meanwhile another one
// is to blame.
void Attempt::Reap() {
  std::optional<Failure> first;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const std::optional<int> status = ranks_[static_cast<size_t>(rank)].Ended();
    if (!status.has_value() || *status == 0) continue;
    const auto follows = [](int wait_status) {
      return WIFEXITED(wait_status) &&
             WEXITSTATUS(wait_status) == static_cast<int>(Code::kUnavailable);
    };
    if (!first.has_value() || (follows(first->wait_status) && !follows(*status)))
      first = Failure{rank, *status};
  }
  if (!first.has_value() || failure_.has_value()) return;
  failure_ = first;
  if (!stopped_) terminate_at_ = Now() + options_.notice;
}

void Attempt::Hurry() {
  if (terminate_at_.has_value() && Now() >= *terminate_at_) {
    SignalAll(SIGTERM);
    SignalAll(SIGCONT);  // a stopped one cannot answer
    terminate_at_.reset();
    kill_at_ = Now() + options_.grace;
  }
  if (kill_at_.has_value() && Now() >= *kill_at_) {
    LogWarning("launch: killing the ranks that have not ended in time");
    SignalAll(SIGKILL);
    kill_at_.reset();
  }
}

// Bad usage, data or configuration stay as they are.
bool AnotherTryMayHelp(int exit_code) {
  static constexpr Code kNever[] = {Code::kUsage, Code::kBadData, Code::kNoInput,
                                    Code::kNotPermitted, Code::kConfig};
  return std::none_of(std::begin(kNever), std::end(kNever),
                      [exit_code](Code code) { return static_cast<int>(code) == exit_code; });
}

}  // namespace

int LaunchExitCode(int wait_status, bool stopped) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  const int number = WTERMSIG(wait_status);
  for (const int crash : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP})
    if (number == crash) return static_cast<int>(Code::kInternal);
  return static_cast<int>(stopped ? Code::kTryAgain : Code::kUnavailable);
}

Result<LaunchResult> Launch(const LaunchOptions& given) {
  CHECK(!given.program.empty() && given.ranks >= 1);
  LaunchOptions options = given;
  if (options.address.empty()) options.address = "127.0.0.1";
  if (!options.logs.empty()) RETURN_IF_ERROR(CreateFolders(options.logs));
  ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  const Signals signals;
  bool stopped = false;
  LaunchResult result;
  for (;; ++result.restarts) {
    uint16_t port = options.port;
    if (port == 0) {
      ASSIGN_OR_RETURN(const Listener free, ListenAt(options.address));
      port = free.endpoint.port;
    }
    Attempt attempt(options, secret, signals, stopped);
    ASSIGN_OR_RETURN(const auto failure, attempt.Run(port, result.restarts));
    if (!failure.has_value()) return LaunchResult{.restarts = result.restarts};
    result.exit_code = LaunchExitCode(failure->wait_status, stopped);
    result.failed_rank = failure->rank;
    const bool again =
        !stopped && result.restarts < options.restarts && AnotherTryMayHelp(result.exit_code);
    LogWarning(fmt::format("launch: {}{}", Says(*failure),
                           again ? fmt::format("; starting all ranks again ({} of {})",
                                               result.restarts + 1, options.restarts)
                                 : ""));
    if (!again) return result;
  }
}

}  // namespace samara
