// Measures the cost of a step through the fleet beyond its simulator.
//
// Workloads, all with the dummy environment (84 x 84 bytes, no busy time unless said):
//   threads        native environments on one thread of the engine
//   actor, n slots one Python actor process; the engine answers every observation at once
//   actor, 500 us  the same with a simulator of 500 us a step: what an Atari step takes
// A round trip includes: command, wake-up of the actor, Python step, checksum, wake-up of the
// engine.
#include "fleet/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "core/clock.h"
#include "core/venv.h"
#include "env/dummy.h"

namespace samara {
namespace {

constexpr double kSeconds = 2;

double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void Measure(const std::string& name, Fleet& fleet) {
  std::vector<SlotEvent> events(fleet.slots());
  for (uint32_t s = 0; s < fleet.slots(); ++s) fleet.Begin(s, s, {.seed = s});
  uint64_t steps = 0, waits = 0;
  const SteadyTime start = Now();
  const double cpu = CpuSeconds();
  while (SecondsSince(start) < kSeconds) {
    const size_t n = fleet.Wait(events, std::chrono::seconds(1));
    ++waits;
    for (size_t i = 0; i < n; ++i) {
      const SlotEvent& e = events[i];
      if (e.kind == SlotEvent::Kind::kObservation)
        fleet.Act(e.slot, {.index = 1, .values = {}});
      else
        fleet.Begin(e.slot, e.episode, {.seed = e.episode});
      ++steps;
    }
  }
  const double seconds = SecondsSince(start);
  fmt::print(
      "{:<28} {:>9.0f} steps/s {:>7.1f} us/step {:>6.1f} us in the simulator {:>5.1f} us of "
      "engine CPU {:>5.2f} events/wait\n",
      name, static_cast<double>(steps) / seconds, 1e6 * seconds / static_cast<double>(steps),
      1e6 * fleet.counters().step_seconds / static_cast<double>(steps),
      1e6 * (CpuSeconds() - cpu) / static_cast<double>(steps),
      static_cast<double>(steps) / static_cast<double>(waits));
}

void MeasureActors(uint32_t actors, uint32_t slots, int step_us) {
  const ActorFleetOptions options{
      .python = {},
      .python_path = {},
      .environment_json = fmt::format(
          R"({{"kind": "dummy", "observation": "uint8", "length": 1000, "step_us": {}}})", step_us),
      .actors = actors,
      .slots = slots};
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  Measure(fmt::format("{} actor, {} slots, {} us", actors, slots, step_us), *fleet);
}

}  // namespace
}  // namespace samara

int main() {
  using namespace samara;
  try {
    const auto threads =
        MakeThreadFleet([] { return MakeDummyEnvironment({.bytes = true, .length = 1000}); }, 2, 1)
            .ValueOrThrow();
    Measure("threads, 2 slots", *threads);
    for (const uint32_t slots : {1, 2, 4}) MeasureActors(1, slots, 0);
    for (const uint32_t slots : {1, 2, 4}) MeasureActors(1, slots, 500);
    MeasureActors(2, 4, 500);
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "bench_fleet: {}\n", e.what());
    return static_cast<int>(e.status().code());
  }
}
