// Shared by the tests of evolution: small networks and environments, evaluators that invent
// returns, fleets that fail.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/allocations_test_util.h"
#include "core/rng.h"
#include "env/registry.h"
#include "evo/evaluate/evaluator.h"
#include "nn/network.h"

namespace samara {

inline NetworkDescription Network(const std::string& name, int64_t inputs, int64_t outputs) {
  return MakeNetwork(name, 1, 1, inputs, outputs).ValueOrThrow();
}

inline EnvironmentFactory Native(const std::string& id) {
  return NativeEnvironment(id).ValueOrThrow();
}

inline std::unique_ptr<PolicyModel> ModelFor(const EnvironmentFactory& factory,
                                             const std::string& network) {
  const EnvironmentSpec spec = factory().ValueOrThrow()->spec();
  const auto inputs = static_cast<int64_t>(spec.observation.elements());
  return std::make_unique<PolicyModel>(Network(network, inputs, spec.action.n), InputRule{},
                                       spec.action);
}

// Adds the observation (member, 1, 2) to `result` where the task says that they are recorded.
inline EpisodeResult WithObservation(const Task& task, EpisodeResult result) {
  if (task.episode.record != RecordKind::kObservations) return result;
  const std::vector<float> row = {static_cast<float>(task.policy.id), 1, 2};
  const auto bytes = std::as_bytes(std::span(row));
  result.recording.assign(bytes.begin(), bytes.end());
  return result;
}

// Doubles as bits: NaN equals NaN.
inline std::vector<uint64_t> BitsOf(const std::vector<double>& values) {
  std::vector<uint64_t> bits;
  for (double v : values) bits.push_back(std::bit_cast<uint64_t>(v));
  return bits;
}

// Invents every episode's result from the task and the parameters that the source writes for it.
class FakeEvaluator : public Evaluator {
 public:
  using Score = std::function<EpisodeResult(const Task&, std::span<const float> parameters)>;
  FakeEvaluator(size_t parameter_count, Score score)
      : score_(std::move(score)), parameters_(parameter_count) {}

  const EnvironmentSpec& spec() const override { return spec_; }
  Status Play(const ParameterSource& source, WorkSource& work) override {
    while (const auto index = work.Claim()) {
      const Task task = work.TaskOf(*index);
      source.Write(task.policy, parameters_);
      EpisodeResult result = score_(task, parameters_);
      result.done = true;
      work.Post(*index, result);
      ++played_;
      if (played_ == fail_after_) return {Code::kUnavailable, "the fake fleet failed"};
    }
    return Status::Ok();
  }
  StageSeconds seconds() const override { return {}; }
  FleetCounters counters() const override { return {}; }

  size_t played() const { return played_; }
  void SetPosition(int64_t numbers) { spec_.position = numbers; }
  void SetMemory(int64_t bytes) { spec_.memory = bytes; }
  void FailAfter(size_t episodes) { fail_after_ = episodes; }

 private:
  Score score_;
  EnvironmentSpec spec_;
  std::vector<float> parameters_;
  size_t played_ = 0, fail_after_ = 0;
};

// Threads that claim several tasks at once and answer them after random delays in random order;
// what is not wanted any more they drop, or answer all the same.
class DisorderlyEvaluator : public Evaluator {
 public:
  struct Manner {
    uint64_t seed = 0;
    uint32_t threads = 1, batch = 1;
    double delay_us_max = 0;
  };
  DisorderlyEvaluator(size_t parameter_count, FakeEvaluator::Score score, Manner manner)
      : parameter_count_(parameter_count), score_(std::move(score)), manner_(manner) {}

  const EnvironmentSpec& spec() const override { return spec_; }
  Status Play(const ParameterSource& source, WorkSource& work) override {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < manner_.threads; ++t)
      threads.emplace_back(
          [&, t] { Serve(DeriveKey(manner_.seed + calls_, {}, t), source, work); });
    for (auto& thread : threads) thread.join();
    ++calls_;
    return failed_ ? Status(Code::kUnavailable, "the fake fleet failed") : Status::Ok();
  }
  StageSeconds seconds() const override { return {}; }
  FleetCounters counters() const override { return {}; }

  void FailAfter(size_t episodes) { fail_after_ = episodes; }
  size_t dropped() const { return dropped_; }
  void SetPosition(int64_t numbers) { spec_.position = numbers; }
  void SetMemory(int64_t bytes) { spec_.memory = bytes; }

 private:
  void Serve(uint64_t key, const ParameterSource& source, WorkSource& work) {
    const CounterRng rng(key);
    std::vector<float> parameters(parameter_count_);
    uint64_t draws = 0;
    while (!work.Finished() && !failed_) {
      std::vector<uint32_t> batch;
      while (batch.size() < manner_.batch) {
        const auto index = work.Claim();
        if (!index) break;
        batch.push_back(*index);
      }
      for (size_t i = batch.size(); i > 1; --i)
        std::swap(batch[i - 1], batch[rng.UniformInt(draws++, i)]);
      for (const uint32_t index : batch) {
        const Task task = work.TaskOf(index);
        source.Write(task.policy, parameters);
        std::this_thread::sleep_for(
            std::chrono::duration<double, std::micro>(manner_.delay_us_max * rng.Uniform(draws++)));
        if (!work.Wanted(index)) {
          ++dropped_;
          if (rng.Uniform(draws++) < 0.5) continue;
        }
        EpisodeResult result = score_(task, parameters);
        result.done = true;
        if (posted_++ == fail_after_) failed_ = true;
        if (failed_) return;
        work.Post(index, result);
      }
      if (batch.empty()) std::this_thread::yield();
    }
  }

  const size_t parameter_count_;
  const FakeEvaluator::Score score_;
  const Manner manner_;
  EnvironmentSpec spec_;
  uint64_t calls_ = 0;
  size_t fail_after_ = SIZE_MAX;
  std::atomic<bool> failed_{false};
  std::atomic<size_t> posted_{0}, dropped_{0};
};

// A fleet in front of another; what it changes is up to `change`, per event.
class ChangedFleet : public Fleet {
 public:
  using Change = std::function<void(SlotEvent&)>;
  ChangedFleet(std::unique_ptr<Fleet> fleet, Change change)
      : fleet_(std::move(fleet)), change_(std::move(change)) {}
  const EnvironmentSpec& spec() const override { return fleet_->spec(); }
  uint32_t slots() const override { return fleet_->slots(); }
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec) override {
    fleet_->Begin(slot, episode, spec);
  }
  void Act(uint32_t slot, const Action& action) override { fleet_->Act(slot, action); }
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    const size_t n = fleet_->Wait(out, timeout);
    for (SlotEvent& event : out.first(n)) change_(event);
    return n;
  }
  std::span<const std::byte> observation(uint32_t slot) const override {
    return fleet_->observation(slot);
  }
  std::span<const float> position(uint32_t slot) const override { return fleet_->position(slot); }
  std::span<const std::byte> memory(uint32_t slot) const override { return fleet_->memory(slot); }
  std::span<const std::byte> pictures(uint32_t slot) const override {
    return fleet_->pictures(slot);
  }
  FleetCounters counters() const override { return fleet_->counters(); }
  Status status() const override { return {Code::kUnavailable, "the changed fleet failed"}; }
  void Stop() override { fleet_->Stop(); }

 private:
  std::unique_ptr<Fleet> fleet_;
  Change change_;
};

}  // namespace samara
