// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asking a running process to stop or to save.
//
//   SIGTERM, SIGINT, SIGHUP
//                     stop. While a GracefulStop lives it is a request: finish the step, save, exit
//                     75; a second one exits with 75 at once. Elsewhere (at the start, at the end,
//                     in what waits or has nothing to save) the process leaves at once with 75
//                     (core/leave.h), so that no such phase has to look at the request.
//                     (SIGHUP after ReloadOnHangUp: read tokens and certificates again instead);
//                     SIGINT and SIGHUP that were ignored at the start stay ignored
//   SIGUSR1, SIGUSR2  save a checkpoint now
//   SIGPIPE, SIGXFSZ  ignored: the write fails instead and is reported
//
// The handlers only set flags, write to an eventfd, and leave. Thread safe.
#pragma once

#include <string>

namespace samara {

// Installs the handlers of stop signals for the whole process, and unblocks the signals that the
// program before this one held back (HoldStopSignals). The first thing in main.
void InstallStopHandlers();
// Before exec: signals to stop wait until the next program has its handlers. false: lets them
// through again.
void HoldStopSignals(bool hold = true);
// The others.
void InstallSignalHandlers();

// While one lives a stop is a request, which the code around it looks at soon (StopRequested,
// StopDescriptor). May be nested; any thread.
class GracefulStop {
 public:
  GracefulStop();
  ~GracefulStop();
  GracefulStop(const GracefulStop&) = delete;
  GracefulStop& operator=(const GracefulStop&) = delete;
};

// Sets the text after "stopped; " when the process ends at once, such as how to continue; empty:
// none. One thread at a time.
void SetStopAdvice(const std::string& advice);
// From now on a stop leaves without a line: another rank speaks for this one.
void StopSilently();
// The next stop changes nothing, the one after it does: for the moment in which the outcome is
// printed, which a reader of the output may yet hold up.
void IgnoreNextStop();

bool StopRequested();
// As if SIGTERM had come: for tests and for limits such as run.minutes.
void RequestStop();
// Readable from the first request to stop on: for poll() next to other descriptors.
int StopDescriptor();
// Sleeps; true at once when a stop is or gets requested.
bool WaitForStop(double seconds);

// Whether a checkpoint was asked for since the last call.
bool TakeCheckpointRequest();

// From now on SIGHUP asks to read tokens and certificates again, as servers do, and stops nothing.
void ReloadOnHangUp();
// Whether that was asked for since the last call.
bool TakeReloadRequest();

// Test only: forgets what was requested.
void TEST_ResetSignals();

}  // namespace samara
