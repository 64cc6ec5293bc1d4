// samara-fail-thread N ARGUMENTS...: `samara ARGUMENTS...` in which the N-th thread cannot be
// started. Prints "no thread N" on standard error where the command starts fewer.
#include <cstdio>
#include <cstdlib>

#include "cli/command.h"
#include "core/thread.h"

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  samara::TEST_FailNthThread(std::atoi(argv[1]));
  argv[1] = argv[0];
  const int code = samara::RunCommandLine(argc - 1, argv + 1);
  if (samara::TEST_ThreadFailurePending()) std::fprintf(stderr, "no thread N\n");
  return code;
}
