// The learner process's side of all slots in shared memory: which command is outstanding where, and
// which replies are to be believed.
//
// A slot is idle, busy (a command is outstanding), answered (an observation waits for its action)
// or void (its episode was lost before the caller acted; the next action is told so). The caller's
// half (Begin, Act, Take) and the supervisor's half (Up, Down, Fail, ...) meet here.
// Thread safety: every method may be called from any thread; one slot is driven by one caller.
// Invariants: (1) every Begin and Act is answered by exactly one event; (2) an event comes from a
// reply whose sequence, incarnation, episode, step and checksum are those expected, or from the
// supervisor; (3) shared memory of an actor is cleared only while the actor is down.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "fleet/fleet.h"
#include "fleet/slot.h"

namespace samara {

class SlotTable {
 public:
  // Slots s, s + actors, s + 2 actors, ... belong to actor s. `bell` is rung for events of the
  // supervisor.
  SlotTable(uint32_t slots, uint32_t actors, Doorbell* bell);
  uint32_t SlotsOf(uint32_t actor) const;

  // The caller's half; see Fleet for the contract.
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec);
  void Act(uint32_t slot, const Action& action) {
    const SlotAction one{slot, action};
    ActMany({&one, 1});
  }
  void ActMany(std::span<const SlotAction> actions);
  void Play(uint32_t slot, uint64_t episode, const EpisodeSpec& spec, bool random);
  void Abandon(uint32_t slot);
  size_t Take(std::span<SlotEvent> out);  // what is ready now
  std::span<const std::byte> observation(uint32_t slot) const;
  std::span<const std::byte> memory(uint32_t slot) const;
  std::span<const float> position(uint32_t slot) const;
  std::span<const std::byte> pictures(uint32_t slot) const;
  FleetCounters counters() const;

  // The supervisor's half.
  // Once, before the first Up: what all actors play.
  void SetSpec(const EnvironmentSpec& spec, bool render);
  // REQUIRES: SetSpec was called, after which it is constant.
  const SegmentLayout& layout(uint32_t actor) const NO_THREAD_SAFETY_ANALYSIS {
    return actors_[actor].layout;
  }
  // The actor serves commands in `segment` from now on; episodes begun meanwhile are posted.
  void Up(uint32_t actor, std::byte* segment, uint32_t incarnation);
  // The actor's process has ended: running episodes are lost. `blamed`: by its own doing, in
  // `blamed_slot` (-1: in any of its slots). Returns how often in a row one of the lost episodes
  // has been blamed now.
  uint32_t Down(uint32_t actor, bool blamed, int blamed_slot);
  // The actor stays down: every outstanding and later command is answered by kFailed.
  void Fail(uint32_t actor);

  struct Progress {
    bool waiting = false;   // a posted command has no reply yet
    uint64_t answered = 0;  // replies so far, taken or not
    uint64_t steps = 0;     // actions answered so far, taken ones only
    std::string offence;    // the first reply that broke the protocol, of this incarnation
  };
  Progress progress(uint32_t actor);

 private:
  enum class Phase : uint8_t { kIdle, kBusy, kAnswered, kVoid };
  struct Slot {
    Phase phase = Phase::kIdle;
    bool posted = false;  // kBusy: the actor has the command
    bool random = false;  // kPlay
    SlotCommandKind kind = SlotCommandKind::kReset;
    uint64_t sequence = 0;  // of the last command
    uint64_t seen = 0;      // sequence of the last reply that was taken or dropped
    uint64_t played = 0;    // kPlay: steps last seen
    uint64_t episode = 0;
    EpisodeSpec spec;
    uint32_t step = 0;
    uint32_t area = 0;      // observation area of the running episode
    uint32_t pictures = 0;  // of the last reply
  };
  struct Actor {
    SegmentLayout layout;
    std::byte* segment = nullptr;  // stays mapped while the fleet lives
    uint32_t incarnation = 0;
    bool up = false, failed = false;
    bool unrung = false;  // was given commands that it was not woken for
    uint64_t answered = 0, steps = 0;
    std::string offence;
  };

  uint32_t ActorOf(uint32_t slot) const { return slot % actor_count_; }
  SlotView View(uint32_t slot) const REQUIRES(mu_);
  void Start(uint32_t slot, SlotCommandKind kind, uint64_t episode, const EpisodeSpec& spec)
      REQUIRES(mu_);
  void ActOne(uint32_t slot, const Action& action) REQUIRES(mu_);
  void Post(uint32_t slot, const Action* action) REQUIRES(mu_);  // without a ring
  void RingActor(uint32_t actor) REQUIRES(mu_);
  bool TakeReply(uint32_t index, SlotEvent& out) REQUIRES(mu_);
  // Why a reply cannot be accepted; empty when it can.
  std::string Refusal(const Slot& slot, const SlotReply& reply,
                      std::span<const std::byte> observation) const REQUIRES(mu_);
  void PushEvent(SlotEvent::Kind kind, uint32_t slot) REQUIRES(mu_);

  // constant after construction
  Doorbell* const bell_;
  const uint32_t slot_count_, actor_count_;
  mutable Mutex mu_;
  // guarded by mu_
  EnvironmentSpec spec_ GUARDED_BY(mu_);
  uint64_t picture_bytes_ GUARDED_BY(mu_) = 0;  // of one picture
  bool render_ GUARDED_BY(mu_) = false;
  std::vector<Slot> slots_ GUARDED_BY(mu_);
  std::vector<Actor> actors_ GUARDED_BY(mu_);
  std::deque<SlotEvent> events_ GUARDED_BY(mu_);  // made by the supervisor, not yet taken
  std::map<uint64_t, uint32_t> blamed_
      GUARDED_BY(mu_);                 // episodes: times in a row their actor failed
  uint32_t next_ GUARDED_BY(mu_) = 0;  // where the next scan starts, so that no slot starves
  FleetCounters counters_ GUARDED_BY(mu_);
};

}  // namespace samara
