#include "replica/torch/terminate_handler.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "core/first_line.h"
#include "core/mutex.h"

namespace samara {
namespace {

// The replicator of the process, for the handler; never destroyed.
struct ProcessReplicator {
  Mutex mu;
  std::weak_ptr<ReplicatorState> state GUARDED_BY(mu);
  std::terminate_handler previous GUARDED_BY(mu) = nullptr;
};
ProcessReplicator& TheProcess() {
  static auto* process = new ProcessReplicator();
  return *process;
}

[[noreturn]] void EndUncaught() {
  std::shared_ptr<ReplicatorState> state;
  std::terminate_handler previous = nullptr;
  {
    ProcessReplicator& process = TheProcess();
    const MutexLock lock(process.mu);
    state = process.state.lock();
    previous = process.previous;
  }
  std::string line;
  int code = 0;
  try {
    if (std::current_exception()) throw;
  } catch (const ReplicationError& error) {
    line = error.what();
    code = error.exit_code();
  } catch (const std::exception& error) {
    line = FirstLine(error.what());
    code = state ? 70 : 0;
  } catch (...) {
  }
  if (code != 0) {
    std::fprintf(stderr, "samara: %s\n", line.c_str());
    if (state) state->Abort(Status(static_cast<Code>(code), line));
    std::fflush(nullptr);
    std::_Exit(code);
  }
  if (previous != nullptr) previous();
  std::abort();
}

}  // namespace

void InstallTerminateHandler(const std::shared_ptr<ReplicatorState>& state) {
  ProcessReplicator& process = TheProcess();
  const MutexLock lock(process.mu);
  if (state) process.state = state;
  if (process.previous == nullptr) process.previous = std::set_terminate(EndUncaught);
}

}  // namespace samara
