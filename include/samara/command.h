// The command `samara` as a function: train, resume, eval, play, report and the rest, with what the
// program has registered before.
#pragma once

namespace samara {

// Runs the command line; returns the exit code of the process.
int RunCommandLine(int argc, char** argv);

}  // namespace samara
