// The samara command.
#include "cli/command.h"

int main(int argc, char** argv) { return samara::RunCommandLine(argc, argv); }
