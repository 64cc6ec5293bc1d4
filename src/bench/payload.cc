#include "bench/payload.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/peer.h"
#include "core/clock.h"
#include "core/futex.h"
#include "fleet/native_actor.h"

namespace samara::bench {

// ---- latencies

void Latencies::Add(double seconds) {
  const auto ns = static_cast<uint64_t>(std::max(1.0, seconds * 1e9));
  const auto octave = static_cast<size_t>(std::bit_width(ns) - 1);
  const size_t part = octave < 4 ? 0 : (ns >> (octave - 4)) & 15;
  ++counts_[std::min(octave * 16 + part, counts_.size() - 1)];
  ++all_;
}

double Latencies::Microseconds(double quantile) const {
  const auto wanted = static_cast<uint64_t>(quantile * static_cast<double>(all_));
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    // the middle of the bucket
    if (below > wanted)
      return static_cast<double>(uint64_t{1} << (i / 16)) *
             (1 + (static_cast<double>(i % 16) + 0.5) / 16) * 1e-3;
  }
  return 0;
}

// ---- environments that only write

namespace {

class PayloadEnvironment : public Environment {
 public:
  explicit PayloadEnvironment(uint32_t bytes) : spec_(PayloadSpec(bytes)), payload_(bytes) {
    for (size_t i = 0; i < payload_.size(); ++i) payload_[i] = static_cast<std::byte>(i * 31);
  }
  const EnvironmentSpec& spec() const override { return spec_; }
  void Reset(const EpisodeSpec&, std::span<std::byte> observation) override {
    std::ranges::copy(payload_, observation.begin());
  }
  StepResult Step(const Action&, std::span<std::byte> observation) override {
    StepResult result{.frames = 1};
    if (steps_ % kLatencyEvery == 1) result.reward = SecondsSince(answered_);
    std::memcpy(observation.data(), payload_.data(), payload_.size());
    if (steps_++ % kLatencyEvery == 0) answered_ = Now();
    return result;
  }

 private:
  const EnvironmentSpec spec_;
  std::vector<std::byte> payload_;
  uint64_t steps_ = 0;
  SteadyTime answered_;
};

}  // namespace

Status ServePayloads() {
  return RunNativeActor([](const std::string& environment) -> Result<std::unique_ptr<Environment>> {
    const auto wanted = nlohmann::json::parse(environment, nullptr, false);
    const uint32_t bytes = wanted.is_object() ? wanted.value("bytes", 0U) : 0;
    if (bytes < 1) return Status(Code::kConfig, "payload: expected at least one byte");
    return std::unique_ptr<Environment>(std::make_unique<PayloadEnvironment>(bytes));
  });
}

// ---- the bare ring

namespace {

// One direction of one place: the number of the row that it holds.
struct alignas(64) Word {
  std::atomic<uint64_t> sequence;
  uint64_t action;
};

class Ring {
 public:
  Ring(std::byte* memory, uint64_t payload_bytes, uint32_t places)
      : memory_(memory), stride_((payload_bytes + 63) / 64 * 64), places_(places) {}
  static size_t Bytes(uint64_t payload_bytes, uint32_t places) {
    return places * (2 * sizeof(Word) + (payload_bytes + 63) / 64 * 64) + sizeof(Word);
  }
  Word& asked(uint64_t row) { return words()[row % places_]; }
  Word& answered(uint64_t row) { return words()[places_ + row % places_]; }
  Word& stop() { return words()[size_t{2} * places_]; }
  std::byte* payload(uint64_t row) {
    return memory_ + sizeof(Word) * (size_t{2} * places_ + 1) + row % places_ * stride_;
  }

 private:
  Word* words() { return reinterpret_cast<Word*>(memory_); }
  std::byte* memory_;
  size_t stride_;
  uint32_t places_;
};

// Spins until `word` holds `sequence`; false once `stop` is set.
bool Await(Word& word, uint64_t sequence, Word& stop) {
  // acquire: pairs with the release of the other process
  for (uint32_t spins = 0; word.sequence.load(std::memory_order_acquire) != sequence; ++spins) {
    CpuRelax();
    if (spins % 1024 != 1023) continue;
    if (stop.sequence.load(std::memory_order_relaxed) != 0) return false;
    sched_yield();  // the other process may be waiting for this core
  }
  return true;
}

// The actor's part. Allocates nothing: it runs in a fork.
void Ask(Ring ring, std::span<const std::byte> payload, uint32_t outstanding) {
  for (uint64_t row = 1;; ++row) {
    if (row > outstanding && !Await(ring.answered(row), row - outstanding, ring.stop())) return;
    std::memcpy(ring.payload(row), payload.data(), payload.size());
    ring.asked(row).sequence.store(row, std::memory_order_release);
  }
}

}  // namespace

Result<double> BareRing(uint64_t payload_bytes, uint32_t outstanding, double seconds) {
  const size_t bytes = Ring::Bytes(payload_bytes, outstanding);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Status(Code::kIoError, std::string("bare ring: mmap: ") + std::strerror(errno));
  Ring ring(static_cast<std::byte*>(memory), payload_bytes, outstanding);
  const std::vector<std::byte> payload(payload_bytes, std::byte{7});
  const pid_t engine = getpid();
  const pid_t child = fork();
  if (child < 0) {
    munmap(memory, bytes);
    return Status(Code::kIoError, std::string("bare ring: fork: ") + std::strerror(errno));
  }
  if (child == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == engine)
      Ask(ring, payload, outstanding);
    _exit(0);
  }
  // rows are gathered as a batch of a network would be
  std::vector<std::byte> batch(payload_bytes * outstanding);
  SteadyTime start = Now();
  bool warm = false;
  double passed = 0;
  uint64_t row = 1, first = 0;
  for (; passed < seconds && Await(ring.asked(row), row, ring.stop()); ++row) {
    std::memcpy(batch.data() + row % outstanding * payload_bytes, ring.payload(row), payload_bytes);
    ring.answered(row).action = 0;
    ring.answered(row).sequence.store(row, std::memory_order_release);
    if (row % 64 != 0) continue;
    passed = SecondsSince(start);
    // the first tenth warms up
    if (!warm && passed > seconds / 10) warm = true, first = row, start = Now(), passed = 0;
  }
  ring.stop().sequence.store(1);
  int status = 0;
  waitpid(child, &status, 0);
  munmap(memory, bytes);
  return static_cast<double>(row - first) / passed;
}

}  // namespace samara::bench
