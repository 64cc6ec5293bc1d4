#include "fleet/fleet.h"

#include "core/check.h"

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

Status Fleet::InstallPolicies(const std::string&, size_t) {
  return {Code::kConfig,
          spec().id + ": its simulators run inside the engine, which plays them itself"};
}

std::span<std::byte> Fleet::parameters(uint32_t) {
  CHECK(false) << "no policies were installed";
  return {};
}

void Fleet::Play(uint32_t, uint64_t, const EpisodeSpec&, bool) {
  CHECK(false) << "no policies were installed";
}

void Fleet::Abandon(uint32_t) {}

size_t Fleet::WaitForMany(std::span<SlotEvent> out, size_t, std::chrono::microseconds timeout) {
  return Wait(out, timeout);
}

void Fleet::ActMany(std::span<const SlotAction> actions) {
  for (const SlotAction& a : actions) Act(a.slot, a.action);
}

}  // namespace samara
