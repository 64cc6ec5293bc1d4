// The contract of Fleet, checked over native environments on threads and over Python actor
// processes, both playing the dummy environment.
#include "fleet/fleet.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/rng.h"
#include "env/dummy.h"
#include "fleet/fleet_test_util.h"

namespace samara {
namespace {

using Kind = SlotEvent::Kind;

struct Variant {
  bool actors;    // or threads
  bool bytes;     // observations
  bool discrete;  // actions
};

std::unique_ptr<Fleet> Make(const Variant& v, uint32_t slots, uint32_t workers) {
  if (v.actors) {
    ActorFleetOptions options = DummyActors(std::string(R"({"kind": "dummy", "observation": ")") +
                                            (v.bytes ? "uint8" : "float32") + R"(", "action": ")" +
                                            (v.discrete ? "discrete" : "box") + R"("})");
    options.slots = slots;
    options.actors = workers;
    return MakeActorFleet(options).ValueOrThrow();
  }
  const DummyOptions options{.bytes = v.bytes, .discrete = v.discrete};
  return MakeThreadFleet([=] { return MakeDummyEnvironment(options); }, slots, workers)
      .ValueOrThrow();
}

class FleetTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (GetParam().actors) REQUIRE_ACTORS();
  }
};

// The same game played by the environment itself, without any fleet.
std::vector<PlayedEpisode> PlayDirectly(const Variant& v, uint64_t episodes) {
  auto environment =
      MakeDummyEnvironment({.bytes = v.bytes, .discrete = v.discrete}).ValueOrThrow();
  std::vector<float> buffer(environment->spec().observation.bytes() / 4 + 1);
  const auto observation =
      std::as_writable_bytes(std::span(buffer)).first(environment->spec().observation.bytes());
  std::vector<PlayedEpisode> records(episodes);
  for (uint64_t e = 0; e < episodes; ++e) {
    environment->Reset(EpisodeOf(e), observation);
    records[e].Add(0, {}, observation);
    for (bool ended = false; !ended;) {
      const TestAction action(environment->spec().action, e, records[e].steps() + 1);
      const StepResult result = environment->Step(action.get(), observation);
      records[e].Add(records[e].steps() + 1, result, observation);
      ended = result.terminated || result.truncated;
    }
  }
  return records;
}

TEST_P(FleetTest, SaysWhatItPlays) {
  const auto fleet = Make(GetParam(), 3, 2);
  const auto same =
      MakeDummyEnvironment({.bytes = GetParam().bytes, .discrete = GetParam().discrete})
          .ValueOrThrow();
  EXPECT_EQ(fleet->slots(), 3U);
  EXPECT_EQ(fleet->spec().id, same->spec().id);
  EXPECT_EQ(fleet->spec().observation.shape, same->spec().observation.shape);
  EXPECT_EQ(fleet->spec().observation.dtype, same->spec().observation.dtype);
  EXPECT_EQ(fleet->spec().action.n, same->spec().action.n);
  EXPECT_EQ(fleet->spec().action.low, same->spec().action.low);
  EXPECT_EQ(fleet->spec().action.high, same->spec().action.high);
  EXPECT_EQ(fleet->spec().action_names, same->spec().action_names);
  EXPECT_EQ(fleet->spec().frames_per_step, 4);
  EXPECT_EQ(fleet->spec().steps_max, 20);
}

// One test for observations, final ones too, rewards, frames, flags, steps and episode numbers: the
// record of every episode is that of the bare environment.
TEST_P(FleetTest, EpisodesHaveTheBitsOfTheBareEnvironment) {
  const auto expected = PlayDirectly(GetParam(), 12);
  for (const uint32_t slots : {1, 5}) {
    for (const uint32_t workers : {0, 1, 2}) {
      if (workers > slots || (workers == 0 && GetParam().actors)) continue;
      const auto fleet = Make(GetParam(), slots, workers);
      Player player(*fleet);
      EXPECT_EQ(player.Play(12), expected) << slots << " slots, " << workers << " workers";
      EXPECT_EQ(player.surplus_events(), 0);
      const FleetCounters counters = fleet->counters();
      uint64_t steps = 0, frames = 0;
      for (const auto& record : expected) steps += record.steps(), frames += record.frames();
      EXPECT_EQ(counters.steps, steps);
      EXPECT_EQ(counters.frames, frames);
      EXPECT_EQ(counters.stale_events, 0U);
      EXPECT_EQ(counters.lost_episodes, 0U);
      EXPECT_TRUE(fleet->status().ok());
    }
  }
}

TEST_P(FleetTest, EpisodesTruncateAtTheirLimitOfFrames) {
  const auto fleet = Make(GetParam(), 1, 1);
  fleet->Begin(0, 7, {.seed = 5, .noops = 0, .frames_max = 12});
  SlotEvent event = WaitForOne(*fleet);
  for (uint32_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(event.kind, Kind::kObservation);
    fleet->Act(0, TestAction(fleet->spec().action, 0, step).get());
    event = WaitForOne(*fleet);
  }
  EXPECT_EQ(event.kind, Kind::kEnded);
  EXPECT_TRUE(event.result.truncated);
  EXPECT_FALSE(event.result.terminated);
  EXPECT_EQ(event.step, 3U);
}

TEST_P(FleetTest, FinalObservationOutlivesTheNextBeginning) {
  const auto fleet = Make(GetParam(), 1, 1);
  fleet->Begin(0, 0, {.seed = 5, .noops = 0, .frames_max = 4});
  WaitForOne(*fleet);
  fleet->Act(0, TestAction(fleet->spec().action, 0, 1).get());
  ASSERT_EQ(WaitForOne(*fleet).kind, Kind::kEnded);
  const auto final = fleet->observation(0);
  const std::vector<std::byte> copy(final.begin(), final.end());
  fleet->Begin(0, 1, {.seed = 6, .noops = 3, .frames_max = 0});
  ASSERT_EQ(WaitForOne(*fleet).kind, Kind::kObservation);
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), final.begin()));
  EXPECT_NE(fleet->observation(0).data(), final.data());
}

TEST_P(FleetTest, ARunningEpisodeCanBeAbandoned) {
  const auto fleet = Make(GetParam(), 1, 1);
  fleet->Begin(0, 0, EpisodeOf(3));
  WaitForOne(*fleet);
  Player player(*fleet);
  EXPECT_EQ(player.Play(2), PlayDirectly(GetParam(), 2));
}

TEST_P(FleetTest, ActionsOutsideTheBoxAreForcedInside) {
  if (GetParam().discrete) return;
  std::vector<float> first, second;
  for (auto* observed : {&first, &second}) {
    const auto fleet = Make(GetParam(), 1, 1);
    fleet->Begin(0, 0, EpisodeOf(3));
    WaitForOne(*fleet);
    const float inside[] = {1, 0}, outside[] = {7, NAN};
    fleet->Act(0, {.index = 0, .values = observed == &first ? inside : outside});
    observed->push_back(static_cast<float>(WaitForOne(*fleet).result.reward));
    observed->push_back(ReadFloats(fleet->observation(0))[3]);
  }
  EXPECT_EQ(first, second);
}

TEST_P(FleetTest, WaitReturnsNothingAfterItsTimeOutAndAfterStop) {
  const auto fleet = Make(GetParam(), 2, 1);
  SlotEvent event;
  const SteadyTime start = Now();
  EXPECT_EQ(fleet->Wait({&event, 1}, std::chrono::milliseconds(30)), 0U);
  EXPECT_GE(SecondsSince(start), 0.029);
  std::thread waiter([&] { EXPECT_EQ(fleet->Wait({&event, 1}, std::chrono::seconds(20)), 0U); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fleet->Stop();
  waiter.join();
  EXPECT_LT(SecondsSince(start), 5);
}

TEST_P(FleetTest, IsGoneSoonEvenWithCommandsOutstanding) {
  auto fleet = Make(GetParam(), 4, 2);
  for (uint32_t s = 0; s < 4; ++s) fleet->Begin(s, s, EpisodeOf(s));
  const SteadyTime start = Now();
  fleet.reset();
  EXPECT_LT(SecondsSince(start), 2);
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return std::string(info.param.actors ? "Actors" : "Threads") +
         (info.param.bytes ? "Bytes" : "Floats") + (info.param.discrete ? "Discrete" : "Box");
}
INSTANTIATE_TEST_SUITE_P(All, FleetTest,
                         testing::Values(Variant{false, false, true}, Variant{false, true, false},
                                         Variant{true, false, true}, Variant{true, true, false}),
                         NameOf);

TEST(ThreadFleetTest, RefusesWhatIsNotFinite) {
  const auto fleet =
      MakeThreadFleet([] { return MakeDummyEnvironment({.not_finite = true}); }, 1, 1)
          .ValueOrThrow();
  fleet->Begin(0, 9, EpisodeOf(0));
  SlotEvent event = WaitForOne(*fleet);
  for (; event.kind == Kind::kObservation; event = WaitForOne(*fleet)) fleet->Act(0, {});
  EXPECT_EQ(event.kind, Kind::kFailed);
  EXPECT_EQ(fleet->status().code(), Code::kInternal);
  EXPECT_EQ(fleet->status().message(),
            "dummy/guess: step 3 of episode 9: the reward is not a finite number");
}

TEST(ThreadFleetTest, ReportsAFactoryThatFails) {
  const auto fleet = MakeThreadFleet([] { return MakeDummyEnvironment({.length = 0}); }, 2, 1);
  EXPECT_EQ(fleet.status().code(), Code::kConfig);
}

}  // namespace
}  // namespace samara
