// The samara command.
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include "cli/command.h"

namespace {

// Holds signals to stop back until the command has its handlers (core/signals.h), from before the
// libraries' constructors run: such a signal would end the process without the exit code that
// schedulers read. Earlier only the dynamic loader runs, some 20 ms in which no program can do
// anything; a launcher that may stop a process then blocks the signals before exec, and they are
// delivered once the handlers are there. A system call, as sanitizers intercept the C library's
// function before they are ready.
void HoldStopSignalsEarly() {
  constexpr auto bit = [](int signal) { return 1UL << (signal - 1); };
  const unsigned long set = bit(SIGTERM) | bit(SIGINT) | bit(SIGHUP);
  ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, nullptr, sizeof set);
}
__attribute__((section(".preinit_array"),
               used)) void (*const kHoldStopSignals)() = HoldStopSignalsEarly;

}  // namespace

int main(int argc, char** argv) { return samara::RunCommandLine(argc, argv); }
