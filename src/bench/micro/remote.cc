// Rows a second through gRPC: an engine that answers at once, actors whose environments cost
// nothing.
//
//   bench_remote [payload_bytes [slots_per_stream [streams [seconds [processes [address]]]]]]
// Default: 64 bytes, one stream of 1024 slots, 3 seconds, at most 4 processes, a Unix socket. A
// stream is an actor with a connection of its own. Prints one JSON object.
#include "fleet/remote/remote.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/ring.h"

namespace samara {
namespace {

// Answers every command at once, in the thread that gives it.
class NullFleet : public Fleet {
 public:
  NullFleet(const EnvironmentSpec& spec, uint32_t slots)
      : spec_(spec), slots_(slots), events_(slots), observation_(spec.observation.bytes()) {}
  const EnvironmentSpec& spec() const override { return spec_; }
  uint32_t slots() const override { return slots_; }
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec&) override {
    MutexLock lock(mu_);
    events_.Push({.slot = slot, .episode = episode, .result = {}});
    ready_.NotifyOne();
  }
  void Act(uint32_t slot, const Action&) override {
    MutexLock lock(mu_);
    events_.Push({.slot = slot, .result = {}});
    ready_.NotifyOne();
  }
  void ActMany(std::span<const SlotAction> actions) override {
    MutexLock lock(mu_);
    for (const SlotAction& a : actions) events_.Push({.slot = a.slot, .result = {}});
    ready_.NotifyOne();
  }
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    MutexLock lock(mu_);
    ready_.WaitFor(mu_, timeout, [this]() REQUIRES(mu_) { return !events_.empty(); });
    size_t n = 0;
    for (; n < out.size() && !events_.empty(); ++n) out[n] = events_.Pop();
    return n;
  }
  std::span<const std::byte> observation(uint32_t) const override { return observation_; }
  std::span<const std::byte> pictures(uint32_t) const override { return {}; }
  FleetCounters counters() const override { return {}; }
  Status status() const override { return {}; }
  void Stop() override {}

 private:
  const EnvironmentSpec spec_;
  const uint32_t slots_;
  Mutex mu_;
  CondVar ready_;
  Ring<SlotEvent> events_ GUARDED_BY(mu_);
  std::vector<std::byte> observation_;
};

EnvironmentSpec SpecOf(size_t payload) {
  EnvironmentSpec spec;
  spec.id = "null";
  spec.version = "1";
  spec.observation.dtype = DType::kUint8;
  spec.observation.shape = {static_cast<int64_t>(payload)};
  spec.action.n = 4;
  return spec;
}

struct Load {
  size_t payload = 64;
  uint32_t slots = 1024, streams = 1, processes = 1;
  double seconds = 3;
  std::string address;
};

// One process of actors, a thread and a connection each.
int Act(const Load& load, uint32_t streams, const char* address) {
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (uint32_t i = 0; i < streams; ++i) {
    threads.emplace_back([&] {
      NullFleet fleet(SpecOf(load.payload), load.slots);
      if (!RunRemoteActor(fleet, {.address = address, .reconnect_timeout = 20}).ok()) ++failed;
    });
  }
  for (std::thread& t : threads) t.join();
  return failed > 0 ? 1 : 0;
}

double ResidentMb() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  unsigned long size = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%lu %lu", &size, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return static_cast<double>(resident) * 4096 / 1e6;
}

// Jain's index: 1 when all are equal.
double Fairness(const std::vector<uint64_t>& steps) {
  double sum = 0, squares = 0;
  for (const uint64_t s : steps) {
    sum += static_cast<double>(s);
    squares += static_cast<double>(s) * static_cast<double>(s);
  }
  return sum * sum / (static_cast<double>(steps.size()) * squares);
}

Status Measure(const Load& load) {
  std::vector<pid_t> children;
  int ready[2];
  if (::pipe(ready) != 0) return {Code::kInternal, "no pipe"};
  for (uint32_t i = 0; i < load.processes; ++i) {
    const uint32_t streams = load.streams / load.processes + (i < load.streams % load.processes);
    if (const pid_t pid = ::fork(); pid == 0) {
      char bytes[200] = {};
      // the address, once the engine listens
      if (::read(ready[0], bytes, sizeof bytes) <= 0) ::_exit(1);
      ::_exit(Act(load, streams, bytes));
    } else {
      children.push_back(pid);
    }
  }
  RemoteFleetOptions options;
  options.address = load.address;
  options.slots = load.slots * load.streams;
  options.spec = SpecOf(load.payload);
  ASSIGN_OR_RETURN(RemoteFleet remote, MakeRemoteFleet(options));
  const double memory = ResidentMb();
  const SteadyTime began = Now();
  char bytes[200] = {};
  std::snprintf(bytes, sizeof bytes, "%s", remote.address.c_str());
  for (uint32_t i = 0; i < load.processes; ++i)
    if (::write(ready[1], bytes, sizeof bytes) < 0) return {Code::kInternal, "no pipe"};
  Fleet& fleet = *remote.fleet;
  while (fleet.live() < fleet.slots() && SecondsSince(began) < 120) ::usleep(1000);
  const double connected = SecondsSince(began);
  const uint32_t live = fleet.live();
  for (uint32_t s = 0; s < fleet.slots(); ++s) fleet.Begin(s, s, {});
  std::vector<SlotEvent> events(fleet.slots());
  std::vector<SlotAction> actions;
  std::vector<uint64_t> steps(fleet.slots());
  uint64_t rows = 0, rounds = 0;
  SteadyTime start = Now();
  bool warm = false;
  while (SecondsSince(start) < load.seconds) {
    if (!warm && SecondsSince(start) > 0.5) {
      warm = true, rows = rounds = 0, start = Now();
      std::fill(steps.begin(), steps.end(), 0);
    }
    const size_t n = fleet.Wait(events, std::chrono::milliseconds(100));
    rows += n;
    ++rounds;
    actions.clear();
    for (size_t i = 0; i < n; ++i) {
      ++steps[events[i].slot];
      // an actor that is lost comes back
      if (events[i].kind == SlotEvent::Kind::kLost)
        fleet.Begin(events[i].slot, events[i].episode, {});
      else
        actions.push_back({events[i].slot, {1, {}}});
    }
    fleet.ActMany(actions);
  }
  const double took = SecondsSince(start);
  const double grown = ResidentMb() - memory;
  const FleetCounters counters = fleet.counters();
  fleet.NotifyShutdown();
  std::printf(
      "{\"payload_bytes\": %zu, \"streams\": %u, \"processes\": %u, \"slots\": %u, \"live\": %u, "
      "\"rows_per_second\": %.0f, \"rows_per_wait\": %.1f, \"connect_seconds\": %.2f, "
      "\"kb_per_stream\": %.1f, \"fairness\": %.4f, \"lost\": %llu}\n",
      load.payload, load.streams, load.processes, fleet.slots(), live,
      static_cast<double>(rows) / took, static_cast<double>(rows) / static_cast<double>(rounds),
      connected, grown * 1000 / load.streams, Fairness(steps),
      static_cast<unsigned long long>(counters.lost_episodes));
  std::fflush(stdout);
  remote.fleet.reset();
  bool well = true;
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return well ? Status::Ok() : Status(Code::kUnavailable, "an actor failed");
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  const auto number = [&](int i, double otherwise) {
    return argc > i ? std::atof(argv[i]) : otherwise;
  };
  samara::SetLogLevel(samara::LogLevel::kWarning);
  samara::Load load;
  load.payload = static_cast<size_t>(number(1, 64));
  load.slots = static_cast<uint32_t>(number(2, 1024));
  load.streams = static_cast<uint32_t>(number(3, 1));
  load.seconds = number(4, 3);
  load.processes = std::min(load.streams, static_cast<uint32_t>(number(5, 4)));
  load.address =
      argc > 6 ? argv[6] : "unix:/tmp/samara-bench-" + std::to_string(::getpid()) + "/socket";
  const samara::Status status = samara::Measure(load);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return static_cast<int>(status.code());
}
