// Many remote actors in one process: a stream of one slot each, native environments stepped in the
// thread that hears the command. For runs with more streams than a machine has room for processes.
//
//   remote_streams ADDRESS ENVIRONMENT STREAMS
// Prints one JSON object for every line on standard input, and one when the learner process said
// that it shuts down to all: {"steps": [of each stream], "ended", "failed": [messages]}.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/log.h"
#include "core/ring.h"
#include "env/registry.h"
#include "fleet/remote/remote.h"

namespace samara {
namespace {

// One slot without threads of its own.
class InlineFleet : public Fleet {
 public:
  explicit InlineFleet(std::unique_ptr<Environment> environment)
      : environment_(std::move(environment)),
        spec_(environment_->spec()),
        observation_(spec_.observation.bytes()),
        events_(1) {}
  const EnvironmentSpec& spec() const override { return spec_; }
  uint32_t slots() const override { return 1; }
  void Begin(uint32_t, uint64_t episode, const EpisodeSpec& spec) override {
    episode_ = episode;
    step_ = 0;
    environment_->Reset(spec, observation_);
    Push(SlotEvent::Kind::kObservation, {});
  }
  void Act(uint32_t, const Action& action) override {
    ++step_;
    const StepResult result = environment_->Step(action, observation_);
    steps_.fetch_add(1, std::memory_order_relaxed);
    const bool ended = result.terminated || result.truncated;
    Push(ended ? SlotEvent::Kind::kEnded : SlotEvent::Kind::kObservation, result);
  }
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    std::unique_lock lock(mu_);
    ready_.wait_for(lock, timeout, [this] { return !events_.empty(); });
    if (events_.empty()) return 0;
    out[0] = events_.Pop();
    return 1;
  }
  std::span<const std::byte> observation(uint32_t) const override { return observation_; }
  std::span<const std::byte> pictures(uint32_t) const override { return {}; }
  FleetCounters counters() const override { return {}; }
  Status status() const override { return {}; }
  void Stop() override {}
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

 private:
  void Push(SlotEvent::Kind kind, const StepResult& result) {
    std::lock_guard lock(mu_);
    events_.Push({.kind = kind, .slot = 0, .episode = episode_, .step = step_, .result = result});
    ready_.notify_one();
  }

  const std::unique_ptr<Environment> environment_;
  const EnvironmentSpec spec_;
  std::atomic<uint64_t> steps_{0};
  // the command's
  std::vector<std::byte> observation_;
  uint64_t episode_ = 0;
  uint32_t step_ = 0;
  std::mutex mu_;
  std::condition_variable ready_;
  Ring<SlotEvent> events_;  // guarded by mu_
};

struct Streams {
  std::vector<std::unique_ptr<InlineFleet>> fleets;
  std::atomic<uint32_t> ended{0};
  std::mutex mu;
  std::vector<std::string> failed;  // guarded by mu
};

void Print(Streams& streams) {
  nlohmann::json steps = nlohmann::json::array();
  for (const auto& fleet : streams.fleets) steps.push_back(fleet->steps());
  std::lock_guard lock(streams.mu);
  const nlohmann::json line = {
      {"steps", steps}, {"ended", streams.ended.load()}, {"failed", streams.failed}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

Status Run(const std::string& address, const std::string& id, size_t count) {
  ASSIGN_OR_RETURN(const EnvironmentFactory factory, NativeEnvironment(id));
  Streams streams;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(auto environment, factory());
    streams.fleets.push_back(std::make_unique<InlineFleet>(std::move(environment)));
  }
  std::vector<std::thread> threads;
  for (auto& fleet : streams.fleets) {
    threads.emplace_back([&, f = fleet.get()] {
      const auto result = RunRemoteActor(*f, {.address = address, .reconnect_timeout = 60});
      ++streams.ended;
      if (result.ok()) return;
      std::lock_guard lock(streams.mu);
      streams.failed.push_back(result.status().message());
    });
  }
  std::thread asked([&] {
    for (std::string line; std::getline(std::cin, line);) Print(streams);
  });
  for (std::thread& t : threads) t.join();
  Print(streams);
  asked.join();  // the harness closes standard input
  return streams.failed.empty() ? Status() : Status(Code::kUnavailable, streams.failed[0]);
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  using namespace samara;
  SetLogLevel(LogLevel::kWarning);
  if (argc != 4) {
    std::fprintf(stderr, "usage: remote_streams ADDRESS ENVIRONMENT STREAMS\n");
    return static_cast<int>(Code::kUsage);
  }
  const Status status = Run(argv[1], argv[2], std::strtoul(argv[3], nullptr, 10));
  if (!status.ok()) std::fprintf(stderr, "remote_streams: %s\n", status.message().c_str());
  return static_cast<int>(status.code());
}
