#include "samara/program.h"

#include <atomic>
#include <charconv>
#include <cstdio>
#include <string_view>

namespace samara {
namespace {

constexpr const char* kHelp =
    "options:\n"
    "  --steps N               steps to run in all\n"
    "  --mode exact|fast       exact: the same bits at any number of ranks; fast: one replica a "
    "rank\n"
    "  --threads-as-ranks N    N ranks as threads of this process\n"
    "  --out FOLDER            save here, and go on from what is here\n"
    "  --data FOLDER           a real data set instead of generated data\n"
    "Ranks come from torchrun, mpirun, srun or 'samara launch'; alone without one.\n";

}  // namespace

int ParseProgram(int argc, char** argv, ProgramOptions& options) {
  const auto fail = [&](int code, const std::string& what) {
    std::fprintf(stderr, "%s: %s; see --help\n", argv[0], what.c_str());
    return code;
  };
  const auto number = [](std::string_view text, int64_t low, int64_t high, auto& out) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
      return false;
    out = static_cast<std::decay_t<decltype(out)>>(value);
    return true;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--help" || option == "-h") {
      std::printf("%s [options]\n%s", argv[0], kHelp);
      return 0;
    }
    const bool known = option == "--steps" || option == "--mode" ||
                       option == "--threads-as-ranks" || option == "--out" || option == "--data";
    if (!known) return fail(64, std::string(option) + ": no such option");
    if (i + 1 == argc) return fail(64, std::string(option) + ": expected a value");
    const std::string_view value = argv[++i];
    if (option == "--steps") {
      if (!number(value, 1, int64_t{1} << 40, options.steps))
        return fail(78, "--steps " + std::string(value) + ": expected a number of at least 1");
    } else if (option == "--threads-as-ranks") {
      if (!number(value, 1, 1024, options.threads_as_ranks))
        return fail(
            78, "--threads-as-ranks " + std::string(value) + ": expected a number from 1 to 1024");
    } else if (option == "--mode") {
      if (value != "exact" && value != "fast")
        return fail(78, "--mode " + std::string(value) + ": expected exact or fast");
      options.replication.mode =
          value == "exact" ? ReplicationMode::kExact : ReplicationMode::kFast;
    } else if (value.empty()) {
      return fail(78, std::string(option) + ": expected a folder");
    } else if (option == "--out") {
      options.out = value;
    } else {
      options.data = value;
    }
  }
  return -1;
}

int RunProgram(const ProgramOptions& options, const std::function<void(Replicator&)>& program) {
  if (options.threads_as_ranks > 0)
    return ReplicateThreads(options.threads_as_ranks, program, options.replication);
  return Replicate(program, options.replication);
}

// declared in samara/main.h, which nothing but a program includes
int RunMain(const std::function<int()>& program);
int RunMain(const std::function<int()>& program) {
  std::atomic<int> own = 0;
  const int code = Replicate([&](Replicator&) {
    if (const int c = program(); c != 0) own = c;
  });
  return code != 0 ? code : own.load();
}

}  // namespace samara
