// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/signals.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "core/clock.h"
#include "core/leave.h"
#include "gtest/gtest.h"

namespace samara {
namespace {

// Signals are sent to a child: `body` runs there after the handlers are installed.
int StatusOfChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    InstallStopHandlers();
    InstallSignalHandlers();
    ::_exit(body());
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  return state;
}

TEST(SignalsTest, TermAndIntAskToStopOnce) {
  for (int signal : {SIGTERM, SIGINT}) {
    const int state = StatusOfChild([signal] {
      const GracefulStop looked_at;
      const bool before = StopRequested();
      ::raise(signal);
      pollfd entry{.fd = StopDescriptor(), .events = POLLIN, .revents = 0};
      return !before && StopRequested() && ::poll(&entry, 1, 0) == 1 ? 42 : 1;
    });
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42);
  }
}

// As nohup and a shell's background start a program.
TEST(SignalsTest, WhatWasIgnoredAtTheStartStaysIgnored) {
  for (int signal : {SIGINT, SIGHUP}) {
    int state = 0;
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, SIG_IGN);
      InstallStopHandlers();
      const GracefulStop looked_at;
      ::raise(signal);
      ::raise(signal);
      const bool before = StopRequested();
      ::raise(SIGTERM);
      ::_exit(!before && StopRequested() ? 42 : 1);
    }
    ::waitpid(child, &state, 0);
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42) << signal;
  }
}

// Output of a child that runs `body`, on both streams, before it leaves with 75.
std::string SaysWhenItLeaves(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const int state = StatusOfChild([&] {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    body();
    return 1;
  });
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 75) << state;
  ::close(ends[1]);
  char text[4096];
  const ssize_t n = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  return {text, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

TEST(SignalsTest, LeavesAtOnceWhereNothingIsToBeSaved) {
  EXPECT_EQ(SaysWhenItLeaves([] { ::raise(SIGTERM); }), "samara: stopped\n");
  EXPECT_EQ(SaysWhenItLeaves([] {
              { const GracefulStop over; }
              SetStopAdvice("go on");
              LeaveWithJson();
              ::raise(SIGINT);
            }),
            "samara: stopped; go on\n{\"error\":\"stopped; go on\",\"exit\":75}\n");
}

TEST(SignalsTest, ASecondOneLeavesWithoutALastSave) {
  EXPECT_EQ(SaysWhenItLeaves([] {
              const GracefulStop looked_at;
              SetStopAdvice("go on");
              LeaveWithJson();
              ::raise(SIGTERM);
              ::usleep(150'000);
              ::raise(SIGINT);
            }),
            "samara: second signal: left without a last save; go on\n"
            "{\"error\":\"second signal: left without a last save; go on\",\"exit\":75}\n");
}

TEST(SignalsTest, SignalsAtTheSameTimeAreOneRequest) {
  const int state = StatusOfChild([] {
    const GracefulStop looked_at;
    for (const int signal : {SIGINT, SIGCONT, SIGINT, SIGTERM}) ::raise(signal);
    return StopRequested() ? 42 : 1;
  });
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42) << state;
}

TEST(SignalsTest, ASecondOneAfterTheSaveDoesNotDenyIt) {
  EXPECT_EQ(SaysWhenItLeaves([] {
              {
                const GracefulStop saves;
                ::raise(SIGINT);
              }
              SetStopAdvice("go on");
              ::raise(SIGINT);
            }),
            "samara: stopped; go on\n");
  EXPECT_EQ(SaysWhenItLeaves([] {
              StopSilently();
              ::raise(SIGTERM);
            }),
            "");
  EXPECT_EQ(SaysWhenItLeaves([] {
              LeaveSilently();  // the outcome is being printed
              ::raise(SIGINT);
            }),
            "");
}

TEST(SignalsTest, OneThatComesWhileTheOutcomeIsPrintedDoesNotCutItShort) {
  EXPECT_EQ(SaysWhenItLeaves([] {
              IgnoreNextStop();
              ::raise(SIGINT);
              (void)!::write(STDERR_FILENO, "all of it\n", 10);
              ::raise(SIGINT);
            }),
            "all of it\nsamara: stopped\n");
}

TEST(SignalsTest, OneThatIsHeldArrivesWithTheHandlers) {
  EXPECT_EQ(SaysWhenItLeaves([] {
              HoldStopSignals();
              ::raise(SIGTERM);
              SetStopAdvice("held");
              InstallStopHandlers();
            }),
            "samara: stopped; held\n");
}

TEST(SignalsTest, UsrAsksForACheckpointOncePerSignal) {
  const int state = StatusOfChild([] {
    if (TakeCheckpointRequest()) return 1;
    for (int signal : {SIGUSR1, SIGUSR2}) {
      ::raise(signal);
      if (!TakeCheckpointRequest() || TakeCheckpointRequest()) return 2;
    }
    return StopRequested() ? 3 : 42;
  });
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42);
}

TEST(SignalsTest, AClosedPipeFailsTheWriteInsteadOfKilling) {
  const int state = StatusOfChild([] {
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::close(ends[0]);
    return ::write(ends[1], "x", 1) == -1 && errno == EPIPE ? 42 : 2;
  });
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42);
}

TEST(SignalsTest, WaitingEndsWithTheRequest) {
  TEST_ResetSignals();
  const SteadyTime start = Now();
  EXPECT_FALSE(WaitForStop(0.05));
  EXPECT_GE(SecondsSince(start), 0.05);
  RequestStop();
  EXPECT_TRUE(WaitForStop(1000));
  EXPECT_TRUE(StopRequested());
  TEST_ResetSignals();
  EXPECT_FALSE(StopRequested());
  EXPECT_FALSE(WaitForStop(0.01));
}

TEST(SignalsTest, ASignalWakesAWaiter) {
  const int state = StatusOfChild([] {
    const GracefulStop looked_at;
    const pid_t parent = ::getpid();
    const pid_t sender = ::fork();
    if (sender == 0) {
      ::usleep(20'000);
      ::kill(parent, SIGUSR1);  // does not end the wait
      ::usleep(20'000);
      ::kill(parent, SIGTERM);
      ::_exit(0);
    }
    const bool stopped = WaitForStop(1000);
    ::waitpid(sender, nullptr, 0);
    return stopped && TakeCheckpointRequest() ? 42 : 1;
  });
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 42);
}

}  // namespace
}  // namespace samara
