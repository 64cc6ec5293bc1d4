// Asking a running process to stop or to save.
//
//   SIGTERM, SIGINT, SIGHUP
//                     stop: finish the step, save, exit 75; a second one exits with 75 at once
//                     (SIGHUP after ReloadOnHangUp: read tokens and certificates again instead);
//                     SIGINT and SIGHUP that were ignored at the start stay ignored
//   SIGUSR1, SIGUSR2  save a checkpoint now
//   SIGPIPE, SIGXFSZ  ignored: the write fails instead and is reported
//
// The handlers only set flags and write to an eventfd. Thread safe.
#pragma once

namespace samara {

// For the whole process; call once, before threads start (they inherit the dispositions anyway).
void InstallSignalHandlers();

bool StopRequested();
// As if SIGTERM had come: for tests and for limits such as run.minutes.
void RequestStop();
// Readable from the first request to stop on: for poll() beside other descriptors.
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
