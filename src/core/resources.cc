// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/resources.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <string_view>
#include <system_error>

#include "core/first_line.h"

namespace samara {
namespace {

Status Exhausted(const std::string& what) {
  return {Code::kNoResources,
          what +
              "; use fewer threads, actors or environments at a time (fleet.threads, "
              "fleet.actors, fleet.slots, learn.environments, learn.threads) or smaller batches "
              "(learn.batch, replay.batch), or raise the limits on processes and memory (ulimit "
              "-u, ulimit -v, those of the container)"};
}

}  // namespace

bool NoResources(int error_number) { return error_number == EAGAIN || error_number == ENOMEM; }

Status SystemError(const std::string& what, int error_number, Code otherwise) {
  const std::string message = what + ": " + std::strerror(error_number);
  return NoResources(error_number) ? Exhausted(message) : Status(otherwise, message);
}

Status StatusOf(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->status();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return Exhausted("out of memory");
  const std::string_view what = error.what();
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && NoResources(system->code().value())) return Exhausted(std::string(what));
  // torch's own type of exception is not known here; its first line is the message
  const std::string line = FirstLine(what);
  const auto says = [&](std::string_view words) { return line.find(words) != line.npos; };
  if (says("can't allocate memory")) return Exhausted("out of memory: " + line);
  // torch's memory on a GPU, the driver's, and that of the libraries of products and convolutions
  if (says("CUDA out of memory") || says("CUDA error: out of memory") || says("_ALLOC_FAILED"))
    return {Code::kUnavailable, line +
                                    "; lower learn.batch, learn.environments or "
                                    "inference.batch, or choose run.device=cpu"};
  return {Code::kInternal, "internal error: " + line};
}

std::optional<uint64_t> AvailableMemory() {
  std::optional<uint64_t> least;
  const auto at_most = [&](uint64_t bytes) { least = std::min(bytes, least.value_or(bytes)); };
  std::ifstream system("/proc/meminfo");
  for (std::string name; system >> name; system.ignore(256, '\n')) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && system >> kib) at_most(kib * 1024);
  }
  // "max" where there is no limit
  uint64_t limit = 0, used = 0, cached = 0;
  std::ifstream kinds("/sys/fs/cgroup/memory.stat");
  for (std::string name; kinds >> name; kinds.ignore(256, '\n'))
    if (name == "inactive_file") kinds >> cached;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    at_most(limit - std::min(limit, used - std::min(used, cached)));
  rlimit space{};  // of addresses: ulimit -v
  uint64_t pages = 0;
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY &&
      std::ifstream("/proc/self/statm") >> pages) {
    const uint64_t held = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    at_most(space.rlim_cur - std::min<uint64_t>(space.rlim_cur, held));
  }
  return least;
}

}  // namespace samara
