#include <algorithm>
#include <vector>

#include "core/clock.h"
#include "evo/evaluate/evaluator.h"

namespace samara {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEpisodeWait{20};  // until a stop is noticed

// Actors play whole episodes next to their simulators. This side only prepares parameters: with two
// slots an actor, those of the next episode while the current one is played.
class EpisodeEvaluator : public Evaluator {
 public:
  EpisodeEvaluator(std::unique_ptr<Fleet> fleet, PolicyPlayer& player,
                   std::unique_ptr<PolicyModel> model)
      : fleet_(std::move(fleet)),
        player_(player),
        model_(std::move(model)),
        workspace_(*model_),
        slots_(fleet_->slots()) {}

  const EnvironmentSpec& spec() const override { return fleet_->spec(); }
  bool records() const override { return false; }

  Status Play(const ParameterSource& source, WorkSource& work) override {
    for (Slot& slot : slots_) slot.loaded = kRandomHandle;  // another source: other policies
    failed_ = false;
    std::vector<SlotEvent> events(slots_.size());
    while (true) {
      // what there is to claim changes with the results
      for (uint32_t s = 0; s < slots_.size(); ++s) {
        if (!slots_[s].busy) slots_[s].busy = StartNext(s, source, work);
      }
      if (Over(work) && std::ranges::none_of(slots_, &Slot::busy)) break;
      const size_t n = fleet_->Wait(events, kEpisodeWait);
      for (size_t i = 0; i < n; ++i) slots_[events[i].slot].busy = Answer(events[i], source, work);
      for (uint32_t s = 0; s < slots_.size(); ++s) {
        if (slots_[s].busy && !Wanted(s, work)) player_.Abandon(s);
      }
    }
    return failed_ ? fleet_->status() : Status::Ok();
  }

  StageSeconds seconds() const override {
    const FleetCounters c = fleet_->counters();
    return {decode_.load(std::memory_order_relaxed), c.inference_seconds, c.step_seconds};
  }
  FleetCounters counters() const override { return fleet_->counters(); }

 private:
  struct Slot {
    PolicyHandle loaded = kRandomHandle;
    uint32_t index = 0;  // of the task
    Task task;
    bool busy = false;
  };

  bool Over(const WorkSource& work) const { return failed_ || work.Finished(); }
  bool Wanted(uint32_t slot, const WorkSource& work) const {
    return !failed_ && work.Wanted(slots_[slot].index);
  }

  // Whether the slot is busy now.
  bool StartNext(uint32_t index, const ParameterSource& source, WorkSource& work) {
    const auto task = Over(work) ? std::nullopt : work.Claim();
    if (!task) return false;
    slots_[index].index = *task;
    slots_[index].task = work.TaskOf(*task);
    Load(index, slots_[index].task.policy, source);
    Begin(index);
    return true;
  }

  void Load(uint32_t index, PolicyHandle policy, const ParameterSource& source) {
    if (policy == kRandomHandle || policy == slots_[index].loaded) return;
    const SteadyTime start = Now();
    const auto bytes = player_.parameters(index);
    model_->Pack(policy, source, workspace_,
                 {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
    slots_[index].loaded = policy;
    decode_.store(decode_.load() + SecondsSince(start), std::memory_order_relaxed);
  }

  void Begin(uint32_t index) {
    const Task& task = slots_[index].task;
    player_.Play(index, slots_[index].index, task.episode, task.policy == kRandomHandle);
  }

  // Whether the slot is busy now.
  bool Answer(const SlotEvent& event, const ParameterSource& source, WorkSource& work) {
    switch (event.kind) {
      case SlotEvent::Kind::kEnded:
        work.Post(slots_[event.slot].index, ResultOf(event));
        return StartNext(event.slot, source, work);
      case SlotEvent::Kind::kLost:
        if (!Wanted(event.slot, work)) return StartNext(event.slot, source, work);
        Begin(event.slot);  // the same episode again: the same bits
        return true;
      case SlotEvent::Kind::kFailed:
        failed_ = true;
        return false;
      case SlotEvent::Kind::kObservation:
        break;
    }
    CHECK(false) << "an observation of an episode that the actor plays";
    return false;
  }

  // Returns the result of an episode that has ended, before the slot plays another.
  EpisodeResult ResultOf(const SlotEvent& event) const {
    EpisodeResult result{.fitness = event.result.reward,
                         .frames = event.result.frames,
                         .steps = event.step,
                         .truncated = event.result.truncated,
                         .done = true};
    const std::span<const float> position = fleet_->position(event.slot);
    result.position.assign(position.begin(), position.end());
    if (const size_t row = RowBytes(slots_[event.slot].task.episode.record, fleet_->spec())) {
      const auto recording = player_.recording(event.slot);
      // the actor counts its steps, and may be wrong
      const auto rows = recording.first(std::min(event.step * row, recording.size()));
      result.recording.assign(rows.begin(), rows.end());
    }
    return result;
  }

  std::unique_ptr<Fleet> fleet_;
  PolicyPlayer& player_;  // the fleet's
  std::unique_ptr<PolicyModel> model_;
  PolicyWorkspace workspace_;
  std::vector<Slot> slots_;
  bool failed_ = false;
  std::atomic<double> decode_{0};  // read by the live view
};

}  // namespace

Result<std::unique_ptr<Evaluator>> MakeEpisodeEvaluator(std::unique_ptr<Fleet> fleet,
                                                        std::unique_ptr<PolicyModel> model,
                                                        size_t recording_bytes) {
  ASSIGN_OR_RETURN(PolicyPlayer* const player, fleet->policy_player());
  RETURN_IF_ERROR(player->InstallPolicies(
      model->Describe(), model->kernel().packed_size() * sizeof(float), recording_bytes));
  return std::unique_ptr<Evaluator>(
      std::make_unique<EpisodeEvaluator>(std::move(fleet), *player, std::move(model)));
}

}  // namespace samara
