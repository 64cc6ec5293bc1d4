// The environment fleet: N slots, each of which plays one episode at a time.
//
// A slot is begun with an EpisodeSpec and then answers every command with exactly one event. Who
// steps the simulator behind it (a thread of the learner process, an actor process over shared
// memory, a remote actor: remote/remote.h) does not show. When an actor dies or hangs its slots
// report kLost: the caller begins the episode again, which gives the same bits. Thread safety: all
// methods may be called from any thread; one slot is driven by one caller at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "env/interface.h"
#include "fleet/policy_player.h"

namespace samara {

struct SlotEvent {
  enum class Kind : uint8_t {
    kObservation,  // the episode goes on: observation() is valid until the next command to this
                   // slot
    kEnded,        // terminated or truncated: observation() is the final one
    kLost,         // the actor failed, or broke the episode off as asked; the running episode is
                   // void, the slot may be begun again
    kFailed,       // the actor keeps failing: the fleet's status() says why; no more events from it
  } kind = Kind::kObservation;
  uint32_t slot = 0;
  uint64_t episode = 0;  // the number given to Begin
  uint32_t step = 0;     // actions taken so far in this episode
  StepResult result;     // of the last action; zeros after a reset. Of an episode played whole:
                         // sums over its steps
};

// Counters of a fleet, for metrics and the live view.
struct FleetCounters {
  uint64_t respawns = 0, lost_episodes = 0, stale_events = 0, steps = 0, frames = 0;
  double step_seconds = 0;       // simulator time summed over slots
  double inference_seconds = 0;  // of episodes that actors played whole
};
FleetCounters operator+(const FleetCounters& a, const FleetCounters& b);

struct SlotAction {
  uint32_t slot = 0;
  Action action;
};

class Fleet {
 public:
  virtual ~Fleet() = default;
  virtual const EnvironmentSpec& spec() const = 0;
  virtual uint32_t slots() const = 0;
  // Number of slots that are stepped now. A slot without a remote actor is silent: what is begun
  // there waits for one.
  virtual uint32_t live() const { return slots(); }
  // Starts an episode. `episode` is the caller's number, echoed in events: one number for one
  // episode, whatever its slot, since those that bring actors down are known by it. REQUIRES: the
  // slot owes no event; an episode that waits for an action is given up.
  virtual void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec) = 0;
  // Answers the last kObservation event of the slot. Box values are forced into [-1, 1] (NaN: 0).
  virtual void Act(uint32_t slot, const Action& action) = 0;
  // Act for each of them; where commands travel, those of one call travel together.
  virtual void ActMany(std::span<const SlotAction> actions);
  // Whether the event is there when Begin or Act returns. A Wait that had begun before sleeps on:
  // the caller of the command takes it.
  virtual bool answers_at_once() const { return false; }
  // Blocks for the first ready event, then takes what is there; 0 after `timeout` or Stop.
  virtual size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) = 0;
  // The same for a caller that has no use for fewer than `wanted` events before `timeout`: it need
  // not be woken for each of them.
  virtual size_t WaitForMany(std::span<SlotEvent> out, size_t wanted,
                             std::chrono::microseconds timeout);
  // This fleet as one whose actors play whole episodes; kConfig where its slots cannot.
  virtual Result<PolicyPlayer*> policy_player();

  // The newest frame of the slot: spec().observation.bytes() bytes.
  virtual std::span<const std::byte> observation(uint32_t slot) const = 0;
  // Position of the slot's body and memory of its simulator after the last step: spec().position
  // numbers, spec().memory bytes (of episodes that record it). Valid until the next command to the
  // slot; empty where the fleet has none.
  virtual std::span<const float> position(uint32_t /*slot*/) const { return {}; }
  virtual std::span<const std::byte> memory(uint32_t /*slot*/) const { return {}; }
  // RGB pictures of the last step, spec().render_* each; empty when the fleet does not render.
  virtual std::span<const std::byte> pictures(uint32_t slot) const = 0;
  virtual FleetCounters counters() const = 0;
  // Number of messages refused or dropped, by reason; empty where none can be.
  virtual std::map<std::string, uint64_t> drops() const { return {}; }
  virtual Status status() const = 0;  // first fatal failure
  virtual void Stop() = 0;            // wakes every Wait for good
  // The work is done: remote actors end with 0 instead of waiting for the learner process to come
  // back.
  virtual void NotifyShutdown() {}
};

// Slots over native environments, stepped by `threads` threads of the process; 0: by the caller of
// the command, for environments whose steps cost less than waking a thread.
Result<std::unique_ptr<Fleet>> MakeThreadFleet(const EnvironmentFactory& factory, uint32_t slots,
                                               uint32_t threads);

struct ActorFleetOptions {
  std::string python;       // interpreter; empty: that of .venv (core/venv.h)
  std::string python_path;  // folder of the package samara; empty: python/ next to this binary
  // Instead of Python's actor: a program that calls RunNativeActor (native_actor.h), its arguments.
  std::vector<std::string> program;
  std::string
      environment_json;      // what the actor is to build: {"kind": "atari" | "gym" | "dummy", ...}
  bool render = false;       // fill pictures()
  uint32_t actors = 1;       // processes
  uint32_t slots = 2;        // in total, spread over the actors
  double step_timeout = 10;  // s until a silent actor counts as hung
  double hello_timeout = 60;  // s for Python to start and to build its environments
  // The fleet gives up (exit 69) when one actor failed so often in a row without completing a step
  // (of episodes played whole: an episode), or when one episode brought its actors down so often.
  // Those that were killed from outside (SIGKILL, SIGTERM: a supervisor, the kernel out of memory)
  // count only once that has gone on for killed_timeout without a completed step.
  uint32_t failures_max = 5;
  double killed_timeout = 60;  // s
  // An episode that an exception of its environment broke off will be asked for again. False: an
  // exception ends the fleet.
  bool retry_exceptions = true;
};
// Slots over Python actor processes (python -P -m samara.actor), spawned and supervised here.
// Returns once every actor said Hello with the same spec. Errors: kNoInput without the interpreter
// or the package; what the actor itself said when the environment cannot be built (kConfig,
// kNoInput); kUnavailable when it just ends. With fewer slots than actors there are as many actors
// as slots.
Result<std::unique_ptr<Fleet>> MakeActorFleet(const ActorFleetOptions& options);

// Several fleets of one spec as one: the slots of the first, then those of the second, ... kConfig
// names the first difference between specs. Policies cannot be installed.
Result<std::unique_ptr<Fleet>> MakeFleetUnion(std::vector<std::unique_ptr<Fleet>> fleets);

}  // namespace samara
