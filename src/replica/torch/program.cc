#include "samara/program.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/files.h"
#include "core/parse_number.h"
#include "core/sha256.h"
#include "core/signal_disposition.h"
#include "replica/rendezvous/world.h"
#include "replica/torch/checkpoint_file.h"
#include "replica/torch/programs.h"

namespace samara {
namespace {

constexpr int64_t kEverySteps = 100;  // a line of progress
constexpr const char* kCheckpoint = "/checkpoint.safetensors";

std::atomic<bool> stop_asked = false;  // this process was
std::atomic<bool> stopping = false;    // some rank was, and all know it
static_assert(std::atomic<bool>::is_always_lock_free);

// The second signal does what it always does.
void CatchStops() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_asked = true; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  if (!IsIgnored(SIGINT)) ::sigaction(SIGINT, &action, nullptr);
}

// "a|b|c" as "a, b or c"; empty when `word` is one of them.
std::string NotOneOf(std::string_view words, std::string_view word) {
  std::string list;
  while (!words.empty()) {
    const size_t bar = std::min(words.find('|'), words.size());
    const std::string_view next = words.substr(0, bar);
    if (next == word) return {};
    words.remove_prefix(std::min(bar + 1, words.size()));
    list += (list.empty() ? "" : words.empty() ? " or " : ", ") + std::string(next);
  }
  return list;
}

// Sets a value; returns what is wrong with it, or nothing.
std::string Take(const ProgramOption& option, std::string_view text) {
  if (const auto* number = std::get_if<int64_t*>(&option.value)) {
    const auto value = ParseNumber<int64_t>(text);
    if (!value || *value < 1 || *value > int64_t{1} << 40) return "a number of at least 1";
    **number = *value;
    return {};
  }
  if (text.empty()) return "a " + option.kind;
  if (option.kind.find('|') != std::string::npos)
    if (std::string list = NotOneOf(option.kind, text); !list.empty()) return list;
  *std::get<std::string*>(option.value) = text;
  return {};
}

void PrintFailure(int code, const std::string& what) {
  std::printf("%s\n", nlohmann::json{{"error", what}, {"exit", code}}.dump().c_str());
}

// Negative: go on; else the exit code.
int Parse(int argc, char** argv, ProgramOptions& options, const std::vector<ProgramOption>& more) {
  std::string mode;
  int64_t threads = 0;
  std::vector<ProgramOption> table{
      {"--steps", "N", "steps to run in all", &options.steps},
      {"--batch", "N", "samples of a step, over all replicas", &options.batch},
      {"--mode", "exact|fast",
       "exact: the same bits at any number of ranks; fast: one replica a rank", &mode},
      {"--threads-as-ranks", "N", "N ranks as threads of this process", &threads},
      {"--out", "FOLDER", "save here, and go on from what is here", &options.out}};
  table.insert(table.end(), more.begin(), more.end());
  const auto fail = [&](int code, const std::string& what) {
    std::fprintf(stderr, "%s: %s; see --help\n", argv[0], what.c_str());
    const auto world = DiscoverWorld(ProcessEnvironment());
    if ((!world.ok() || world->rank == 0) &&
        std::any_of(argv, argv + argc, [](std::string_view a) { return a == "--json"; }))
      PrintFailure(code, what);
    return code;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::printf("%s [options]\n", argv[0]);
      for (const ProgramOption& o : table)
        std::printf("  %-24s %s\n", (o.name + " " + o.kind).c_str(), o.help.c_str());
      std::printf(
          "  %-24s nothing on standard output but the result\n"
          "Ranks come from torchrun, mpirun, srun or 'samara launch'; alone without one.\n",
          "--json");
      return 0;
    }
    if (name == "--json") {
      options.json = true;
      continue;
    }
    const auto option = std::find_if(table.begin(), table.end(),
                                     [&](const ProgramOption& o) { return o.name == name; });
    if (option == table.end()) return fail(64, name + ": no such option");
    if (i + 1 == argc) return fail(64, name + ": expected a value");
    const std::string text = argv[++i];
    if (const std::string wanted = Take(*option, text); !wanted.empty())
      return fail(78, name + " " + text + ": expected " + wanted);
  }
  if (!mode.empty()) {
    options.replication.mode = mode == "exact" ? ReplicationMode::kExact : ReplicationMode::kFast;
  }
  // more than an int holds is more than ReplicateThreads takes
  options.threads_as_ranks = static_cast<int>(std::min<int64_t>(threads, 1 << 30));
  return -1;
}

}  // namespace

int RunProgram(int argc, char** argv, ProgramOptions& options,
               const std::vector<ProgramOption>& more,
               const std::function<void(Replicator&)>& program) {
  if (const int code = Parse(argc, argv, options, more); code >= 0) return code;
  if (!options.out.empty()) CatchStops();
  Failed failed = nullptr;
  if (options.json) failed = PrintFailure;
  if (options.threads_as_ranks > 0)
    return ReplicateThreads(options.threads_as_ranks, program, options.replication, failed);
  return Replicate(program, options.replication, failed);
}

void Load(Replicator& replicator, const ProgramOptions& options, Checkpoint& checkpoint) {
  if (options.out.empty()) return;
  if (replicator.IsMain()) {  // before hours of work, not after them
    Status room = CreateFolders(options.out);
    if (room.ok() && ::access(options.out.c_str(), W_OK) != 0)
      room = {Code::kCannotCreate, options.out + ": " + std::strerror(errno)};
    if (!room.ok())
      throw ReplicationError(static_cast<int>(room.code()), "--out " + room.message());
  }
  const std::string path = options.out + kCheckpoint;
  if (!Load(replicator, path, checkpoint)) return;
  if (replicator.mode() == ReplicationMode::kExact)
    RefuseOther(path, checkpoint.notes, "batch", std::to_string(options.batch));
}

void Save(Replicator& replicator, const ProgramOptions& options, const Checkpoint& checkpoint,
          const Numbers& numbers) {
  if (options.out.empty()) return;
  Checkpoint noted = checkpoint;
  noted.notes["batch"] = std::to_string(options.batch);
  for (const auto& [name, value] : numbers) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value.item<double>());
    noted.notes[name] = text;
  }
  Save(replicator, options.out + kCheckpoint, noted);
  if (stopping)
    throw Stopped("asked to stop after step " + std::to_string(replicator.step()) + ", saved in " +
                  options.out + ": the same command goes on");
}

torch::Tensor Saved(const Checkpoint& checkpoint, const std::string& name) {
  const auto it = checkpoint.notes.find(name);
  return torch::tensor(
      it == checkpoint.notes.end() ? NAN : std::strtod(it->second.c_str(), nullptr),
      torch::kDouble);
}

bool Going(Replicator& replicator, const ProgramOptions& options, bool more, Site site) {
  if (!more || options.out.empty()) return more;
  const std::byte mine{stop_asked ? uint8_t{1} : uint8_t{0}};
  std::vector<std::byte> all(static_cast<size_t>(replicator.world_size()));
  ThrowReplication(
      replicator.state().communicator().AllGather({"go on", "", site}, {&mine, 1}, all));
  stopping = std::find(all.begin(), all.end(), std::byte{1}) != all.end();
  return !stopping;
}

void SetLearningRate(WrappedOptimizer& optimizer, double rate) {
  for (auto& group : optimizer.base().param_groups()) group.options().set_lr(rate);
}

void PrintProgress(const Replicator& replicator, const ProgramOptions& options, int64_t step,
                   const torch::Tensor& loss) {
  if (options.json || !replicator.IsMain()) return;
  if (step != 1 && step % kEverySteps != 0 && step != options.steps) return;
  std::printf("step %lld of %lld: loss %.4f\n", static_cast<long long>(step),
              static_cast<long long>(options.steps), loss.item<double>());
  std::fflush(stdout);
}

void PrintResult(const Replicator& replicator, const ProgramOptions& options,
                 const torch::Tensor& loss, const std::vector<const WrappedOptimizer*>& optimizers,
                 const std::vector<std::pair<std::string, double>>& more, Site site) {
  std::string hash = optimizers.at(0)->parameter_hash();
  if (optimizers.size() > 1) {
    Sha256 all;
    for (const WrappedOptimizer* optimizer : optimizers) all.Update(optimizer->parameter_hash());
    hash = Hex(all.Finish());
  }
  if (replicator.state().compares())
    replicator.state().RequireAgreement("the hash of the parameters at the end", hash,
                                        {"hash of the parameters", "", site});
  if (!replicator.IsMain()) return;
  std::string numbers;
  const auto add = [&](const std::string& name, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    numbers += "\"" + name + "\": " + (std::isfinite(value) ? text : "null") + ", ";
  };
  add("loss", loss.item<double>());
  for (const auto& [name, value] : more) add(name, value);
  // a checkpoint may have had more; several optimizers take several calls of Run a step
  const int64_t steps =
      optimizers.size() > 1 ? options.steps : std::max(options.steps, replicator.step());
  std::printf("{\"world_size\": %d, \"steps\": %lld, %s\"parameter_hash\": \"%s\"}\n",
              replicator.world_size(), static_cast<long long>(steps), numbers.c_str(),
              hash.c_str());
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
