// Replicate: programs as ranks, in this process or on threads of it.
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/first_line.h"
#include "core/resources.h"
#include "core/thread.h"
#include "replica/torch/programs.h"
#include "replica/torch/rank_gate.h"
#include "replica/torch/replicator_options.h"
#include "replica/torch/state.h"

namespace samara {
namespace {

thread_local Replicator* current = nullptr;  // of the program that this thread runs

// Reports the failure of this process; returns its exit code.
int Report(int code, const std::string& what, const Failed& failed) {
  std::fprintf(stderr, "samara: %s\n", what.c_str());
  if (failed) failed(code, what);
  return code;
}

int RunOne(const std::function<void(Replicator&)>& program, const ReplicatorOptions& options,
           const Failed& failed) {
  const auto report = [&](int code, const std::string& what) {
    int rank = 0;
    if (thread_rank != nullptr)
      rank = thread_rank->world.rank;
    else if (const auto world = DiscoverWorld(ProcessEnvironment()); world.ok())
      rank = world->rank;
    return Report(code, what, rank == 0 ? failed : nullptr);
  };
  std::optional<Replicator> replicator;
  try {
    replicator.emplace(Replicator::FromEnvironment(options));
    current = &*replicator;
    const std::shared_ptr<void> reset(nullptr, [](void*) { current = nullptr; });
    std::optional<Stopped> stopped;
    try {
      program(*replicator);
    } catch (const Stopped& why) {
      stopped = why;
    }
    replicator->Shutdown();
    return stopped ? report(stopped->exit_code(), stopped->what()) : 0;
  } catch (const ReplicationError& error) {
    if (replicator) replicator->Abort(error.what(), error.exit_code());
    return report(error.exit_code(), error.what());
  } catch (const std::exception& error) {
    const Status why = StatusOf(error);
    const int code = static_cast<int>(why.code());
    const std::string line =
        FirstLine(why.code() == Code::kInternal ? error.what() : why.message());
    if (replicator) replicator->Abort("its program threw: " + line, code);
    return report(code, line);
  }
}

}  // namespace

Replicator& Replicator::Current() {
  if (current == nullptr)
    throw ReplicationError(78, "no replicator: expected a program that samara::Replicate runs");
  return *current;
}

int ReplicateThreads(int ranks, const std::function<void(Replicator&)>& program,
                     const ReplicatorOptions& options, const Failed& failed) {
  if (ranks < 1 || ranks > 1024)
    return Report(78, std::to_string(ranks) + " ranks as threads: expected 1 to 1024", failed);
  const auto store = MakeMemoryStore();
  const auto hub = MakeMonitorHub(ranks);
  const auto gate = std::make_shared<RankGate>(ranks);
  std::vector<int> codes(static_cast<size_t>(ranks));
  ThreadGroup threads(nullptr);  // they return with their programs
  const Status started = threads.Start("rank", static_cast<size_t>(ranks), [&](size_t index) {
    const int r = static_cast<int>(index);
    ThreadRank mine{{}, store, hub, gate};
    mine.world.rank = mine.world.local_rank = r;
    mine.world.size = mine.world.local_size = ranks;
    mine.world.launcher = "threads";
    thread_rank = &mine;
    codes[index] = RunOne(program, options, failed);
    gate->Leave(r);
    thread_rank = nullptr;
  });
  if (!started.ok()) return Report(static_cast<int>(started.code()), started.message(), failed);
  threads.Join();
  for (const int code : codes)
    if (code != 0) return code;
  return 0;
}

int ReplicateThreads(int ranks, const std::function<void(Replicator&)>& program,
                     const ReplicatorOptions& options) {
  return ReplicateThreads(ranks, program, options, nullptr);
}

int Replicate(const std::function<void(Replicator&)>& program, const ReplicatorOptions& options,
              const Failed& failed) {
  std::optional<int> ranks;
  try {
    ranks = ThreadsFromEnv();
  } catch (const ReplicationError& error) {
    return Report(error.exit_code(), error.what(), failed);
  }
  if (!ranks) return RunOne(program, options, failed);
  return ReplicateThreads(*ranks, program, options, failed);
}

int Replicate(const std::function<void(Replicator&)>& program, const ReplicatorOptions& options) {
  return Replicate(program, options, nullptr);
}

}  // namespace samara
