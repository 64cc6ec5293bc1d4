#include "fleet/fleet.h"

namespace samara {

FleetCounters operator+(const FleetCounters& a, const FleetCounters& b) {
  return {.respawns = a.respawns + b.respawns,
          .lost_episodes = a.lost_episodes + b.lost_episodes,
          .stale_events = a.stale_events + b.stale_events,
          .steps = a.steps + b.steps,
          .frames = a.frames + b.frames,
          .step_seconds = a.step_seconds + b.step_seconds,
          .inference_seconds = a.inference_seconds + b.inference_seconds};
}

Result<PolicyPlayer*> Fleet::policy_player() {
  return Status(
      Code::kConfig,
      spec().id + ": its environments run inside the learner process, which plays them itself");
}

size_t Fleet::WaitForMany(std::span<SlotEvent> out, size_t, std::chrono::microseconds timeout) {
  return Wait(out, timeout);
}

void Fleet::ActMany(std::span<const SlotAction> actions) {
  for (const SlotAction& a : actions) Act(a.slot, a.action);
}

}  // namespace samara
