// Slots over native environments, stepped by threads of the process, or by the caller of the
// command.
//
// Commands wait in one queue, so that a slow environment delays no other; events wait in another
// until Wait takes them. Without threads there is no queue: Begin and Act step.
#include <algorithm>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/ring.h"
#include "core/thread.h"
#include "fleet/checks.h"
#include "fleet/event_queue.h"
#include "fleet/fleet.h"

namespace samara {
namespace {

struct Slot {
  enum class Phase : uint8_t { kIdle, kBusy, kAnswered } phase = Phase::kIdle;
  bool reset = false;  // the outstanding command is Begin
  // the outstanding command; read by the thread that serves it
  uint64_t episode = 0;
  EpisodeSpec spec;
  uint32_t step = 0;
  int32_t index = 0;
  std::vector<float> values;
  // two areas, used by episodes in turn: a final observation outlives the next beginning
  std::vector<float> areas[2];  // floats for the alignment
  uint32_t area = 0;
  std::vector<float> position;  // of the body after the last step
  std::vector<std::byte> picture;
  bool has_picture = false;
  std::unique_ptr<Environment> environment;
};

class ThreadFleet : public Fleet {
 public:
  ThreadFleet(std::vector<Slot> slots, bool at_once)
      : spec_(slots[0].environment->spec()),
        at_once_(at_once),
        slots_(std::move(slots)),
        commands_(slots_.size()),
        events_(static_cast<uint32_t>(slots_.size())) {}

  Status Start(uint32_t threads) {
    return threads_.Start("env ", threads, [this](size_t) { Work(); });
  }

  const EnvironmentSpec& spec() const override { return spec_; }
  uint32_t slots() const override { return static_cast<uint32_t>(slots_.size()); }

  bool answers_at_once() const override { return at_once_; }

  void Begin(uint32_t index, uint64_t episode, const EpisodeSpec& spec) override {
    MutexLock lock(mu_);
    CHECK_LT(index, slots_.size());
    Slot& slot = slots_[index];
    CHECK(slot.phase != Slot::Phase::kBusy) << "slot " << index << " owes an event";
    slot.reset = true;
    slot.episode = episode;
    slot.spec = spec;
    slot.step = 0;
    slot.area ^= 1;
    Enqueue(index);
    lock.Unlock();
    if (at_once_) Serve(index);
  }

  void Act(uint32_t index, const Action& action) override {
    MutexLock lock(mu_);
    CHECK_LT(index, slots_.size());
    Slot& slot = slots_[index];
    CHECK(slot.phase == Slot::Phase::kAnswered) << "slot " << index << " has no observation";
    CheckAction(spec_.action, action);
    slot.reset = false;
    ++slot.step;
    slot.index = action.index;
    if (spec_.action.raw)
      std::ranges::copy(action.values, slot.values.begin());
    else
      ClampAction(action.values, slot.values.data());
    Enqueue(index);
    lock.Unlock();
    if (at_once_) Serve(index);
  }

  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    return WaitForMany(out, 1, timeout);
  }
  size_t WaitForMany(std::span<SlotEvent> out, size_t wanted,
                     std::chrono::microseconds timeout) override {
    MutexLock lock(mu_);
    return events_.Wait(mu_, out, wanted, timeout);
  }

  std::span<const std::byte> observation(uint32_t slot) const override {
    const Slot& s = slots_[slot];
    return std::as_bytes(std::span(s.areas[s.area])).first(spec_.observation.bytes());
  }
  std::span<const float> position(uint32_t slot) const override { return slots_[slot].position; }
  std::span<const std::byte> pictures(uint32_t slot) const override {
    const Slot& s = slots_[slot];
    return s.has_picture ? std::span<const std::byte>(s.picture) : std::span<const std::byte>();
  }
  FleetCounters counters() const override {
    MutexLock lock(mu_);
    return counters_;
  }
  Status status() const override {
    MutexLock lock(mu_);
    return status_;
  }
  void Stop() override {
    MutexLock lock(mu_);
    events_.Stop();
    asked_.NotifyAll();
    events_.Wake();
  }

 private:
  // Without threads the caller serves the command itself, without mu_.
  void Enqueue(uint32_t index) REQUIRES(mu_) {
    slots_[index].phase = Slot::Phase::kBusy;
    if (at_once_) return;
    commands_.Push(index);
    asked_.NotifyOne();
  }

  void Work() {
    for (;;) {
      MutexLock lock(mu_);
      asked_.Wait(mu_, [this]() REQUIRES(mu_) { return events_.stopped() || !commands_.empty(); });
      if (events_.stopped()) return;
      const uint32_t index = commands_.Pop();
      lock.Unlock();
      Serve(index);
    }
  }

  // A busy slot belongs to the thread that took it from the queue.
  void Serve(uint32_t index) {
    Slot& slot = slots_[index];
    const auto observation =
        std::as_writable_bytes(std::span(slot.areas[slot.area])).first(spec_.observation.bytes());
    StepResult result;
    const SteadyTime start = Now();
    if (slot.reset)
      slot.environment->Reset(slot.spec, observation);
    else
      result = slot.environment->Step({slot.index, slot.values}, observation);
    if (!slot.position.empty()) slot.environment->Position(slot.position);
    slot.has_picture = !slot.picture.empty() && slot.environment->Render(slot.picture);
    Publish(index, result, SecondsSince(start),
            NotFinite(result.reward, spec_.observation, observation));
  }

  void Publish(uint32_t index, const StepResult& result, double seconds,
               const std::string& refusal) {
    MutexLock lock(mu_);
    Slot& slot = slots_[index];
    const bool ended = result.terminated || result.truncated;
    SlotEvent event{.kind = ended ? SlotEvent::Kind::kEnded : SlotEvent::Kind::kObservation,
                    .slot = index,
                    .episode = slot.episode,
                    .step = slot.step,
                    .result = result};
    counters_.step_seconds += seconds;
    counters_.frames += result.frames;
    if (!slot.reset) ++counters_.steps;
    if (!refusal.empty()) {
      event.kind = SlotEvent::Kind::kFailed;
      event.result = {};
      if (status_.ok())
        status_ = {Code::kInternal, spec_.id + ": step " + std::to_string(slot.step) +
                                        " of episode " + std::to_string(slot.episode) + ": " +
                                        refusal};
    }
    slot.phase =
        event.kind == SlotEvent::Kind::kObservation ? Slot::Phase::kAnswered : Slot::Phase::kIdle;
    events_.Push(event);
    // the caller of the command looks for its event
    if (!at_once_ && events_.Due()) events_.Wake();
  }

  const EnvironmentSpec spec_;
  const bool at_once_;  // no threads
  mutable Mutex mu_;
  CondVar asked_;  // signalled when commands_ grows or the fleet stops
  // guarded by mu_, but for what a busy slot's thread reads and writes (Serve) and what its caller
  // reads between an event and the next command
  std::vector<Slot> slots_;
  // guarded by mu_
  Ring<uint32_t> commands_ GUARDED_BY(mu_);  // a slot has at most one command, or one event
  EventQueue events_ GUARDED_BY(mu_);
  FleetCounters counters_ GUARDED_BY(mu_);
  Status status_ GUARDED_BY(mu_);
  ThreadGroup threads_{[this] { Stop(); }};  // last: they use everything above
};

}  // namespace

Result<std::unique_ptr<Fleet>> MakeThreadFleet(const EnvironmentFactory& factory, uint32_t slots,
                                               uint32_t threads) {
  if (slots < 1) return Status(Code::kConfig, "fleet.slots: expected at least 1");
  std::vector<Slot> made(slots);
  for (Slot& slot : made) {
    ASSIGN_OR_RETURN(slot.environment, factory());
    const EnvironmentSpec& spec = slot.environment->spec();
    for (auto& area : slot.areas) area.resize((spec.observation.bytes() + 3) / 4);
    slot.values.resize(spec.action.discrete ? 0 : static_cast<size_t>(spec.action.n));
    slot.position.resize(static_cast<size_t>(spec.position));
    // a native environment draws at most one picture a step
    slot.picture.resize(static_cast<size_t>(spec.render_height * spec.render_width * 3));
  }
  auto fleet = std::make_unique<ThreadFleet>(std::move(made), threads == 0);
  RETURN_IF_ERROR(fleet->Start(std::min(threads, slots)));
  return std::unique_ptr<Fleet>(std::move(fleet));
}

}  // namespace samara
