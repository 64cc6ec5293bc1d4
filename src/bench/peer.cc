#include "bench/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "bench/bench.h"
#include "bench/payload.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "fleet/fleet.h"
#include "fleet/remote/remote.h"

namespace samara::bench {

using nlohmann::json;

json ToJson(const PeerTask& task) {
  return {{"kind", task.kind},       {"address", task.address}, {"ca", task.ca},
          {"payload", task.payload}, {"streams", task.streams}, {"rows", task.rows}};
}

EnvironmentSpec PayloadSpec(uint32_t bytes) {
  EnvironmentSpec spec;
  spec.id = "bench/payload";
  spec.version = "1";
  spec.observation = {.dtype = DType::kUint8, .shape = {bytes}};
  if (bytes == kFrameBytes) spec.observation.shape = {kFrameSide, kFrameSide};
  if (bytes == 4 * kFrameBytes) spec.observation.shape = {kFrameSide, kFrameSide, 4};
  spec.action.n = 4;
  return spec;
}

namespace {

// Slots whose simulators do nothing: an observation is there as soon as an action was given, as
// with the environments of `samara actor --inline`.
class PayloadFleet : public Fleet {
 public:
  PayloadFleet(uint32_t payload, uint32_t slots)
      : spec_(PayloadSpec(payload)), payload_(payload, std::byte{7}), count_(slots), slots_(slots) {
    owed_.reserve(slots);
  }
  const EnvironmentSpec& spec() const override { return spec_; }
  uint32_t slots() const override { return count_; }
  bool answers_at_once() const override { return true; }
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec&) override {
    const MutexLock lock(mu_);
    slots_[slot] = {.episode = episode, .steps = 0, .answered = {}, .reward = 0};
    owed_.push_back(slot);
  }
  void Act(uint32_t slot, const Action& action) override {
    const SlotAction one{slot, action};
    ActMany({&one, 1});
  }
  void ActMany(std::span<const SlotAction> actions) override {
    const MutexLock lock(mu_);
    for (const SlotAction& a : actions) {
      Slot& slot = slots_[a.slot];
      slot.reward = ++slot.steps % kLatencyEvery == 0 ? SecondsSince(slot.answered) : 0;
      owed_.push_back(a.slot);
    }
  }
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    MutexLock lock(mu_);
    if (timeout.count() > 0)
      changed_.WaitFor(mu_, timeout, [this]() REQUIRES(mu_) { return stopped_ || !owed_.empty(); });
    size_t n = 0;
    for (; !stopped_ && n < out.size() && !owed_.empty(); ++n) {
      const uint32_t index = owed_.back();
      owed_.pop_back();
      Slot& slot = slots_[index];
      out[n] = {.kind = SlotEvent::Kind::kObservation,
                .slot = index,
                .episode = slot.episode,
                .step = slot.steps,
                .result = {.reward = slot.reward, .frames = slot.steps > 0 ? 1U : 0U}};
      if (slot.steps % kLatencyEvery == kLatencyEvery - 1) slot.answered = Now();
    }
    return n;
  }
  std::span<const std::byte> observation(uint32_t) const override { return payload_; }
  std::span<const std::byte> pictures(uint32_t) const override { return {}; }
  FleetCounters counters() const override { return {}; }
  Status status() const override { return {}; }
  void Stop() override {
    const MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  }

 private:
  struct Slot {
    uint64_t episode = 0;
    uint32_t steps = 0;
    SteadyTime answered;  // when the observation before the step that is timed was given
    double reward = 0;
  };
  const EnvironmentSpec spec_;
  const std::vector<std::byte> payload_;
  const uint32_t count_;
  Mutex mu_;
  CondVar changed_;  // signalled when stopped_ is set
  // guarded by mu_
  std::vector<Slot> slots_ GUARDED_BY(mu_);
  std::vector<uint32_t> owed_ GUARDED_BY(mu_);  // slots that owe an event
  bool stopped_ GUARDED_BY(mu_) = false;
};

// One remote actor a stream.
Status RunRemotes(const PeerTask& task) {
  std::vector<Status> results(task.streams);
  ThreadGroup threads(nullptr);  // they return when the engine has gone
  RETURN_IF_ERROR(threads.Start("actor", task.streams, [&](size_t s) {
    PayloadFleet fleet(task.payload, task.rows);
    RemoteActorOptions options;
    options.address = task.address;
    options.ca = task.ca;
    options.reconnect_timeout = 1;
    results[s] = RunRemoteActor(fleet, options).status();
  }));
  threads.Join();
  for (const Status& status : results) RETURN_IF_ERROR(status);
  return Status::Ok();
}

}  // namespace

Status ServeAsPeer(const std::string& task_json) {
  const json fields = json::parse(task_json, nullptr, false);
  if (!fields.is_object()) return {Code::kUsage, "--as-peer: expected a JSON object"};
  const PeerTask task{.kind = fields.value("kind", ""),
                      .address = fields.value("address", ""),
                      .ca = fields.value("ca", ""),
                      .payload = fields.value("payload", 0U),
                      .streams = fields.value("streams", 0U),
                      .rows = fields.value("rows", 0U)};
  if (task.kind == "slots") return ServePayloads();
  SetLogLevel(LogLevel::kError);
  if (task.kind == "remote") return RunRemotes(task);
  if (task.kind == "echo") return RunEchoes(task);
  return {Code::kUsage, "--as-peer " + task.kind + ": expected slots, remote or echo"};
}

Result<std::string> OwnProgram() {
  std::error_code failed;
  const Path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return Status(Code::kIoError, "/proc/self/exe: " + failed.message());
  return self.string();
}

Result<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const std::string program, OwnProgram());
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  // our standard output belongs to scripts
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const Result<pid_t> pid = StartChild(std::move(words), nowhere);
  ::close(nowhere);
  if (!pid.ok()) return pid.status();
  return std::unique_ptr<Child>(new Child(*pid));
}

Child::~Child() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Status Child::Wait(std::chrono::milliseconds timeout) {
  const SteadyTime deadline = Now() + timeout;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Now() > deadline) return {Code::kUnavailable, "a peer of the benchmark does not end"};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::Ok();
  return {Code::kUnavailable,
          "a peer of the benchmark failed: wait status " + std::to_string(status)};
}

}  // namespace samara::bench
