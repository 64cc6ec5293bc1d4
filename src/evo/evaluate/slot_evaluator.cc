#include <deque>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "evo/evaluate/evaluator.h"

namespace samara {
namespace {

using std::chrono::milliseconds;

// Large networks cost milliseconds: a thread takes one slot at a time so that the others share the
// rest.
constexpr size_t kLargeNetwork = 100'000;
constexpr size_t kSmallBatch = 8;
constexpr milliseconds kSlotWait{5};  // until idle slots ask for work again and a stop is noticed

// State of one slot. Touched only by the thread that holds the slot's last event.
struct SlotState {
  explicit SlotState(const PolicyModel& model) : policy(model) {}
  PolicyState policy;
  uint32_t index = 0;  // of the task
  Task task;
  EpisodeResult result;
};

// A sum that one thread adds to and any may read.
class Seconds {
 public:
  void AddSince(SteadyTime start) {
    sum_.store(get() + SecondsSince(start), std::memory_order_relaxed);
  }
  double get() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> sum_{0};
};

// State of one inference thread; a cache line of its own.
struct alignas(64) Worker {
  explicit Worker(const PolicyModel& model) : workspace(model) {}
  PolicyWorkspace workspace;
  Seconds materialise, inference;
};

// Every slot is either idle (in idle_) or busy: it owes an event, or one thread is dealing with it.
class SlotEvaluator : public Evaluator {
 public:
  SlotEvaluator(std::unique_ptr<Fleet> fleet, std::unique_ptr<PolicyModel> model, uint32_t threads)
      : fleet_(std::move(fleet)), model_(std::move(model)) {
    for (uint32_t i = 0; i < fleet_->slots(); ++i) slots_.emplace_back(*model_), idle_.push_back(i);
    for (uint32_t i = 0; i < threads; ++i) workers_.emplace_back(*model_);
  }

  const EnvironmentSpec& spec() const override { return fleet_->spec(); }

  Status Play(const ParameterSource& source, WorkSource& work) override {
    {
      const MutexLock lock(mu_);
      CHECK_EQ(idle_.size(), slots_.size());
    }
    for (SlotState& slot : slots_) slot.policy.LoadRandom();
    failed_ = false;
    const Call call{source, work};
    ThreadGroup threads(nullptr);  // they return when the work is finished or the fleet has failed
    RETURN_IF_ERROR(
        threads.Start("inference-", workers_.size(), [&](size_t i) { Serve(call, workers_[i]); }));
    threads.Join();
    return failed_ ? fleet_->status() : Status::Ok();
  }

  StageSeconds seconds() const override {
    StageSeconds sum;
    for (const Worker& worker : workers_) {
      sum.materialise += worker.materialise.get();
      sum.inference += worker.inference.get();
    }
    sum.environment = fleet_->counters().step_seconds;
    return sum;
  }
  FleetCounters counters() const override { return fleet_->counters(); }

 private:
  struct Call {
    const ParameterSource& source;
    WorkSource& work;
  };

  // 1 start idle slots, 2 wait for events, 3 answer each; until the work is over and no slot is
  // busy. When it is stopped, running episodes end at their next event.
  void Serve(const Call& call, Worker& worker) {
    const bool large = model_->kernel().network().parameter_count > kLargeNetwork;
    std::vector<SlotEvent> events(large ? 1 : kSmallBatch);
    while (true) {
      // one at a time, so that the threads share the parameters' materialisation
      while (const auto slot = PopIdle(call)) {
        if (!StartNext(call, *slot, worker)) break;
      }
      // once the work is over a slot is busy only during an empty claim
      if (Over(call) && busy_.load(std::memory_order_relaxed) == 0) return;
      const size_t n = fleet_->Wait(events, kSlotWait);
      for (size_t i = 0; i < n; ++i) Answer(call, events[i], worker);
    }
  }

  bool Over(const Call& call) const {
    return failed_.load(std::memory_order_relaxed) || call.work.Finished();
  }

  std::optional<uint32_t> PopIdle(const Call& call) {
    // no lock in the common case: everything is busy
    if (busy_.load(std::memory_order_relaxed) == slots_.size() || Over(call)) return std::nullopt;
    const MutexLock lock(mu_);
    if (idle_.empty()) return std::nullopt;
    const uint32_t slot = idle_.back();
    idle_.pop_back();
    busy_.fetch_add(1, std::memory_order_relaxed);
    return slot;
  }

  void PushIdle(uint32_t slot) {
    const MutexLock lock(mu_);
    idle_.push_back(slot);
    busy_.fetch_sub(1, std::memory_order_relaxed);
  }

  // The next task in a busy slot; without one it becomes idle and the answer is false.
  bool StartNext(const Call& call, uint32_t slot, Worker& worker) {
    const auto task = failed_ ? std::nullopt : call.work.Claim();
    if (!task) {
      PushIdle(slot);
      return false;
    }
    SlotState& state = slots_[slot];
    state.index = *task;
    state.task = call.work.TaskOf(*task);
    const SteadyTime start = Now();
    state.policy.Load(worker.workspace, state.task.policy, call.source);
    worker.materialise.AddSince(start);
    Begin(slot);
    return true;
  }

  void Begin(uint32_t slot) {
    SlotState& state = slots_[slot];
    state.result = {};
    state.policy.StartEpisode(state.task.episode, state.task.experience);
    fleet_->Begin(slot, state.index, state.task.episode);
  }

  void Answer(const Call& call, const SlotEvent& event, Worker& worker) {
    SlotState& state = slots_[event.slot];
    const bool wanted = !failed_.load(std::memory_order_relaxed) && call.work.Wanted(state.index);
    switch (event.kind) {
      case SlotEvent::Kind::kObservation:
        if (!wanted) break;  // abandoned: Begin resets the slot
        if (event.step > 0) Count(state, event);
        if (event.result.new_sequence) state.policy.StartSequence();
        return Infer(event.slot, worker);
      case SlotEvent::Kind::kEnded:
        Count(state, event);
        End(state.result, event);
        if (state.task.experience)
          call.work.PostExperience(state.index,
                                   std::make_shared<Experience>(state.policy.experience()));
        call.work.Post(state.index, state.result);
        break;
      case SlotEvent::Kind::kLost:
        if (!wanted) break;
        return Begin(event.slot);  // the same episode again: the same bits
      case SlotEvent::Kind::kFailed:
        failed_ = true;
        return PushIdle(event.slot);
    }
    StartNext(call, event.slot, worker);
  }

  void Count(SlotState& state, const SlotEvent& event) const {
    EpisodeResult& result = state.result;
    result.fitness += FitnessOf(event.result.reward, state.task.episode);
    result.frames += event.result.frames;
    ++result.steps;
    switch (state.task.episode.record) {
      case RecordKind::kNothing:
      case RecordKind::kObservations:  // before the step
        return;
      case RecordKind::kPositions:
        return AppendRow(fleet_->position(event.slot), result.recording);
      case RecordKind::kMemory:
        return AppendRow(fleet_->memory(event.slot), result.recording);
    }
  }

  void End(EpisodeResult& result, const SlotEvent& event) const {
    result.truncated = event.result.truncated;
    result.done = true;
    const std::span<const float> position = fleet_->position(event.slot);
    result.position.assign(position.begin(), position.end());
  }

  void Infer(uint32_t slot, Worker& worker) {
    const SteadyTime start = Now();
    SlotState& state = slots_[slot];
    if (state.task.episode.record == RecordKind::kObservations)
      AppendRow(fleet_->observation(slot), state.result.recording);
    const Action action = state.policy.Decide(worker.workspace, fleet_->observation(slot));
    worker.inference.AddSince(start);
    fleet_->Act(slot, action);
  }

  // constant after construction, or synchronised by itself
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<PolicyModel> model_;
  std::deque<SlotState> slots_;
  std::deque<Worker> workers_;       // one per thread
  std::atomic<bool> failed_{false};  // the fleet, in this call
  std::atomic<size_t> busy_{0};      // slots that are not in idle_; written under mu_
  Mutex mu_;
  std::vector<uint32_t> idle_ GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Evaluator> MakeSlotEvaluator(std::unique_ptr<Fleet> fleet,
                                             std::unique_ptr<PolicyModel> model, uint32_t threads) {
  return std::make_unique<SlotEvaluator>(std::move(fleet), std::move(model), threads);
}

}  // namespace samara
