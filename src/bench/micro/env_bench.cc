// Steps per second of one core (CPU time, so that neighbours matter less) of the native
// environments on one thread: random actions, resets included.
//
//   env_bench [SECONDS [ID ...]]     default: 1 second each, every id of `samara list envs`
//
// One line each: id, steps per second, episodes. src/bench/micro/env_bench.py sets them next to
// Gymnasium's.
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>

#include "core/rng.h"
#include "env/registry.h"

namespace samara {
namespace {

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Random play with ready-made actions, so that only the environment is timed.
class Workload {
 public:
  explicit Workload(const std::string& id)
      : environment_(NativeEnvironment(id).ValueOrThrow()().ValueOrThrow()),
        observation_(environment_->spec().observation.bytes()) {
    const ActionSpec& spec = environment_->spec().action;
    const CounterRng rng(1);
    for (uint64_t i = 0; i < kActions * width(); ++i) {
      indices_.push_back(spec.discrete ? static_cast<int32_t>(rng.UniformInt(i, width())) : 0);
      values_.push_back(static_cast<float>(2 * rng.Uniform(i) - 1));
    }
    Reset();
  }

  void Steps(int count) {
    for (int i = 0; i < count; ++i) {
      const size_t at = steps_++ % kActions;
      const Action action{indices_[at], std::span(values_).subspan(at * width(), width())};
      const StepResult result = environment_->Step(action, observation_);
      if (result.terminated || result.truncated) Reset();
    }
  }
  uint64_t steps() const { return steps_; }
  uint64_t episodes() const { return episodes_; }

 private:
  static constexpr size_t kActions = 4096;
  size_t width() const { return static_cast<size_t>(environment_->spec().action.n); }
  void Reset() { environment_->Reset({.seed = episodes_++}, observation_); }

  const std::unique_ptr<Environment> environment_;
  std::vector<std::byte> observation_;
  std::vector<int32_t> indices_;
  std::vector<float> values_;
  uint64_t steps_ = 0, episodes_ = 0;
};

void Measure(const std::string& id, double budget) {
  Workload work(id);
  work.Steps(100);  // caches and clock speed settle
  const uint64_t before = work.steps();
  const double start = CpuSeconds();
  double spent = 0;
  while (spent < budget) {
    work.Steps(100);
    spent = CpuSeconds() - start;
  }
  fmt::print("{} {:.0f} {}\n", id,
             spent > 0 ? static_cast<double>(work.steps() - before) / spent : 0, work.episodes());
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 1.0;
  std::vector<std::string> ids(argv + std::min(argc, 2), argv + argc);
  if (ids.empty()) ids = samara::NativeEnvironmentIds();
  try {
    for (const std::string& id : ids) samara::Measure(id, budget);
  } catch (const samara::Error& error) {
    fmt::print(stderr, "env_bench: {}\n", error.what());
    return static_cast<int>(error.status().code());
  }
}
