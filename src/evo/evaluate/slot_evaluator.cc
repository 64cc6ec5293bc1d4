#include <deque>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "evo/evaluate/evaluator.h"
#include "evo/evaluate/slot_policies.h"

namespace samara {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlotWait{5};  // until idle slots ask for work again and a stop is noticed

// State of one slot. Touched only by the thread that holds the slot's last event.
struct SlotState {
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
  Worker(std::unique_ptr<SlotPolicies::Worker> scratch_of, size_t batch)
      : scratch(std::move(scratch_of)), events(batch), observations(batch), actions(batch) {}
  std::unique_ptr<SlotPolicies::Worker> scratch;
  std::vector<SlotEvent> events;
  std::vector<uint32_t> slots;  // that wait for an action
  std::vector<std::span<const std::byte>> observations;
  std::vector<Action> actions;
  Seconds decode, inference;
};

// Every slot is either idle (in idle_) or busy: it owes an event, or one thread is dealing with it.
class SlotEvaluator : public Evaluator {
 public:
  SlotEvaluator(std::unique_ptr<Fleet> fleet, std::unique_ptr<SlotPolicies> policies)
      : fleet_(std::move(fleet)), policies_(std::move(policies)), slots_(fleet_->slots()) {
    for (uint32_t i = 0; i < fleet_->slots(); ++i) idle_.push_back(i);
  }
  Status AddWorkers(uint32_t threads) {
    for (uint32_t i = 0; i < threads; ++i) {
      ASSIGN_OR_RETURN(auto scratch, policies_->MakeWorker());
      workers_.emplace_back(std::move(scratch), policies_->batch());
    }
    return Status::Ok();
  }

  const EnvironmentSpec& spec() const override { return fleet_->spec(); }

  Status Play(const ParameterSource& source, WorkSource& work) override {
    {
      const MutexLock lock(mu_);
      CHECK_EQ(idle_.size(), slots_.size());
      policies_failed_ = Status::Ok();
    }
    policies_->Reset();
    failed_ = false;
    const Call call{source, work};
    ThreadGroup threads(nullptr);  // they return when the work is finished or the fleet has failed
    RETURN_IF_ERROR(
        threads.Start("inference-", workers_.size(), [&](size_t i) { Serve(call, workers_[i]); }));
    threads.Join();
    {
      const MutexLock lock(mu_);
      RETURN_IF_ERROR(policies_failed_);
    }
    return failed_ ? fleet_->status() : Status::Ok();
  }
  bool records() const override { return policies_->records(); }

  StageSeconds seconds() const override {
    StageSeconds sum;
    for (const Worker& worker : workers_) {
      sum.decode += worker.decode.get();
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
    while (true) {
      // one at a time, so that the threads share the decoding of parameters
      while (const auto slot = PopIdle(call)) {
        if (!StartNext(call, *slot, worker)) break;
      }
      // once the work is over a slot is busy only during an empty claim
      if (Over(call) && busy_.load(std::memory_order_relaxed) == 0) return;
      const size_t n = fleet_->Wait(worker.events, kSlotWait);
      worker.slots.clear();
      for (size_t i = 0; i < n; ++i) Answer(call, worker.events[i], worker);
      Infer(worker);
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
    const Status loaded = policies_->Load(*worker.scratch, slot, state.task.policy, call.source);
    worker.decode.AddSince(start);
    if (!loaded.ok()) {
      Fail(loaded);
      PushIdle(slot);
      return false;
    }
    Begin(slot);
    return true;
  }

  // The policies cannot go on, and so this call cannot.
  void Fail(const Status& status) {
    failed_ = true;
    const MutexLock lock(mu_);
    if (policies_failed_.ok()) policies_failed_ = status;
  }

  void Begin(uint32_t slot) {
    SlotState& state = slots_[slot];
    state.result = {};
    policies_->StartEpisode(slot, state.task.episode, state.task.experience);
    fleet_->Begin(slot, state.index, state.task.episode);
  }

  void Answer(const Call& call, const SlotEvent& event, Worker& worker) {
    SlotState& state = slots_[event.slot];
    const bool wanted = !failed_.load(std::memory_order_relaxed) && call.work.Wanted(state.index);
    switch (event.kind) {
      case SlotEvent::Kind::kObservation:
        if (!wanted) break;  // abandoned: Begin resets the slot
        if (event.step > 0) Count(state, event);
        if (event.result.new_sequence) policies_->StartSequence(event.slot);
        worker.slots.push_back(event.slot);
        return;
      case SlotEvent::Kind::kEnded:
        Count(state, event);
        End(state.result, event);
        if (state.task.experience)
          call.work.PostExperience(state.index,
                                   std::make_shared<Experience>(policies_->experience(event.slot)));
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

  void Infer(Worker& worker) {
    const size_t n = worker.slots.size();
    if (n == 0) return;
    const SteadyTime start = Now();
    for (size_t i = 0; i < n; ++i) {
      SlotState& state = slots_[worker.slots[i]];
      worker.observations[i] = fleet_->observation(worker.slots[i]);
      if (state.task.episode.record == RecordKind::kObservations)
        AppendRow(worker.observations[i], state.result.recording);
    }
    const Status decided = policies_->Decide(
        *worker.scratch, worker.slots, std::span(worker.observations).first(n), worker.actions);
    worker.inference.AddSince(start);
    if (!decided.ok()) {
      Fail(decided);
      for (const uint32_t slot : worker.slots) PushIdle(slot);
      return;
    }
    for (size_t i = 0; i < n; ++i) fleet_->Act(worker.slots[i], worker.actions[i]);
  }

  // constant after construction, or synchronised by itself
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<SlotPolicies> policies_;
  std::vector<SlotState> slots_;
  std::deque<Worker> workers_;       // one per thread
  std::atomic<bool> failed_{false};  // the fleet or the policies, in this call
  std::atomic<size_t> busy_{0};      // slots that are not in idle_; written under mu_
  Mutex mu_;
  std::vector<uint32_t> idle_ GUARDED_BY(mu_);
  Status policies_failed_ GUARDED_BY(mu_);
};

}  // namespace

Result<std::unique_ptr<Evaluator>> MakeSlotEvaluator(std::unique_ptr<Fleet> fleet,
                                                     std::unique_ptr<SlotPolicies> policies,
                                                     uint32_t threads) {
  auto evaluator = std::make_unique<SlotEvaluator>(std::move(fleet), std::move(policies));
  RETURN_IF_ERROR(evaluator->AddWorkers(threads));
  return std::unique_ptr<Evaluator>(std::move(evaluator));
}

std::unique_ptr<Evaluator> MakeSlotEvaluator(std::unique_ptr<Fleet> fleet,
                                             std::unique_ptr<PolicyModel> model, uint32_t threads) {
  const uint32_t slots = fleet->slots();
  return MakeSlotEvaluator(std::move(fleet), MakeCpuPolicies(std::move(model), slots), threads)
      .ValueOrThrow();
}

}  // namespace samara
