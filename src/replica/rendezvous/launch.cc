#include "replica/rendezvous/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/exit_status.h"
#include "core/files.h"
#include "core/log.h"
#include "core/resources.h"
#include "core/signal_disposition.h"
#include "replica/rendezvous/child.h"
#include "replica/rendezvous/secret.h"
#include "replica/rendezvous/socket.h"

namespace samara {
namespace {

constexpr std::chrono::seconds kOneRequest{1};  // signals to stop within it are one
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
  const std::vector<std::string> own = OwnVariables([](std::string_view name) {
    return std::find(std::begin(kReplaced), std::end(kReplaced), name) != std::end(kReplaced) ||
           name.starts_with("TORCHELASTIC_");
  });
  result.insert(result.end(), own.begin(), own.end());
  return result;
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno != EINTR) return;  // the reader has gone
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
  }
}

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
  if (WIFSIGNALED(failure.wait_status))
    return fmt::format("rank {} was {}", failure.rank, DescribeExit(failure.wait_status));
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
  Status OpenOutputs(int rank, ChildCommand& command, OwnedFd& read_end) const;
  bool Running() const {
    return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->running(); });
  }
  void SignalAll(int number) const {
    for (const auto& rank : ranks_) rank->Signal(number);
  }
  void Sleep();
  void Forward();
  void Reap();
  void Hurry();

  const LaunchOptions& options_;
  const std::string& secret_;
  const Signals& signals_;
  bool& stopped_;
  std::vector<std::unique_ptr<Child>> ranks_;
  std::optional<Failure> failure_;
  std::optional<SteadyTime> terminate_at_, kill_at_;
  SteadyTime kill_from_;
};

// Rank 0's standard output is this process's.
Status Attempt::OpenOutputs(int rank, ChildCommand& command, OwnedFd& read_end) const {
  if (!options_.logs.empty()) {
    const Path file = Path(options_.logs) / fmt::format("rank-{}.log", rank);
    const int write_end =
        ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (write_end < 0) return {Code::kCannotCreate, file.string() + ": " + std::strerror(errno)};
    command.err = OwnedFd(write_end);
  } else {
    ASSIGN_OR_RETURN(OutputPipe pipe, MakeOutputPipe());
    read_end = std::move(pipe.ours);
    command.err = std::move(pipe.childs);
  }
  if (rank > 0) command.out = OwnedFd(::fcntl(command.err.get(), F_DUPFD_CLOEXEC, 0));
  return Status::Ok();
}

Status Attempt::Start(int rank, uint16_t port, int restart) {
  ChildCommand command{.program = options_.program,
                       .variables = RankVariables(options_, rank, port, restart, secret_),
                       .umask = options_.umask};
  OwnedFd read_end;
  RETURN_IF_ERROR(OpenOutputs(rank, command, read_end));
  const auto pass_on = [rank](std::string_view line) {
    WriteAll(STDERR_FILENO, fmt::format("[rank {}] {}\n", rank, line));
  };
  ASSIGN_OR_RETURN(auto started, Child::Start(command, std::move(read_end), pass_on));
  ranks_.push_back(std::move(started));
  return Status::Ok();
}

Result<std::optional<Failure>> Attempt::Run(uint16_t port, int restart) {
  for (int rank = 0; rank < options_.ranks; ++rank) RETURN_IF_ERROR(Start(rank, port, restart));
  while (Running()) {
    Sleep();
    for (const auto& rank : ranks_) rank->ReadLines();
    Forward();
    Reap();
    Hurry();
  }
  for (const auto& rank : ranks_) rank->ReadRest();
  return failure_;
}

void Attempt::Sleep() {
  std::vector<pollfd> polls = {{signals_.fd(), POLLIN, 0}};
  for (const auto& rank : ranks_)
    if (rank->output() >= 0) polls.push_back({rank->output(), POLLIN, 0});
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
    const std::optional<int> status = ranks_[static_cast<size_t>(rank)]->Ended();
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
