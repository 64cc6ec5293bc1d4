// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <ctime>
#include <deque>
#include <string>

#include "core/check.h"
#include "core/clock.h"
#include "core/leave.h"
#include "core/signal_disposition.h"
#include "core/status.h"

namespace samara {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<bool> checkpoint_requested{false}, reload_requested{false}, silent{false};
std::atomic<bool> ignore_next_stop{false};
std::atomic<int> stop_fd{-1}, graceful{0};
std::atomic<int64_t> requested_at{0};  // nanoseconds; of the first signal, 1: of no signal
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
                  std::atomic<int64_t>::is_always_lock_free,
              "the handlers may use lock-free atomics only");

// The last message of the process, made before it is needed: a handler makes no strings.
struct StopLines {
  std::string stopped = "stopped", unsaved = "second signal: left without a last save";
};
// kept until the process ends: a handler may read any of them
std::deque<StopLines>& stop_lines = *new std::deque<StopLines>(1);
std::atomic<const StopLines*> current_lines{&stop_lines.front()};

// Requests a stop; whether that was done before. Signals within a tenth of a second are one
// request: coreutils' timeout, for one, tells a process and then the group that it belongs to.
bool RequestStopAgain() {
  constexpr int64_t kOneRequest = 100'000'000;
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  int64_t first = 0;
  const bool earlier = !requested_at.compare_exchange_strong(first, now);
  stop_requested = true;
  return earlier && now - first >= kOneRequest;
}

// async-signal-safe: atomics, clock_gettime, write, Leave
void OnStop(int) {
  if (ignore_next_stop.exchange(false)) return;
  const int saved_errno = errno;
  const bool again = RequestStopAgain();
  const StopLines& words = *current_lines;
  if (graceful == 0 || again) {
    if (silent) LeaveSilently();
    Leave(Code::kTryAgain, graceful == 0 ? words.stopped : words.unsaved);
  }
  const uint64_t one = 1;
  if (stop_fd >= 0) (void)!::write(stop_fd, &one, sizeof one);
  errno = saved_errno;
}

// The kernel and the shell may both tell that the terminal was closed: the second changes nothing.
void OnHangUp(int signal) {
  if (!stop_requested) OnStop(signal);
}

void OnCheckpoint(int) { checkpoint_requested = true; }
void OnReload(int) { reload_requested = true; }

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  action.sa_mask = StopSignals();  // one handler of a stop ends before the next begins
  CHECK(::sigaction(signal, &action, nullptr) == 0) << signal;
}

}  // namespace

int StopDescriptor() {
  static const int fd = [] {
    const int created = ::eventfd(stop_requested ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(created >= 0) << "eventfd";
    return created;
  }();
  stop_fd = fd;
  return fd;
}

GracefulStop::GracefulStop() { ++graceful; }
GracefulStop::~GracefulStop() { --graceful; }

void StopSilently() { silent = true; }
void IgnoreNextStop() { ignore_next_stop = true; }

void SetStopAdvice(const std::string& advice) {
  StopLines& made = stop_lines.emplace_back();
  for (std::string* line : {&made.stopped, &made.unsaved})
    if (!advice.empty()) *line += "; " + advice;
  current_lines = &made;
}

void HoldStopSignals(bool hold) {
  const sigset_t set = StopSignals();
  CHECK(::pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, nullptr) == 0);
}

void InstallStopHandlers() {
  StopDescriptor();
  Handle(SIGTERM, OnStop);
  if (!IsIgnored(SIGINT)) Handle(SIGINT, OnStop);
  if (!IsIgnored(SIGHUP)) Handle(SIGHUP, OnHangUp);
  HoldStopSignals(false);
}

void InstallSignalHandlers() {
  Handle(SIGUSR1, OnCheckpoint);
  Handle(SIGUSR2, OnCheckpoint);
  Handle(SIGPIPE, SIG_IGN);
  Handle(SIGXFSZ, SIG_IGN);
}

bool StopRequested() { return stop_requested.load(std::memory_order_relaxed); }

void RequestStop() {
  const int fd = StopDescriptor();
  const uint64_t one = 1;
  int64_t none = 0;
  requested_at.compare_exchange_strong(none, 1);
  if (!stop_requested.exchange(true)) (void)!::write(fd, &one, sizeof one);
}

bool WaitForStop(double seconds) {
  const SteadyTime start = Now();
  pollfd entry{.fd = StopDescriptor(), .events = POLLIN, .revents = 0};
  while (!StopRequested()) {
    const double left = seconds - SecondsSince(start);
    if (left <= 0) return false;
    // other signals interrupt poll: look again
    (void)::poll(&entry, 1, static_cast<int>(std::ceil(std::min(left, 3600.0) * 1000)));
  }
  return true;
}

void ReloadOnHangUp() { Handle(SIGHUP, OnReload); }

bool TakeReloadRequest() { return reload_requested.exchange(false); }

bool TakeCheckpointRequest() { return checkpoint_requested.exchange(false); }

void TEST_ResetSignals() {
  uint64_t count;
  (void)!::read(StopDescriptor(), &count, sizeof count);
  stop_requested = false;
  requested_at = 0;
  checkpoint_requested = reload_requested = false;
}

}  // namespace samara
