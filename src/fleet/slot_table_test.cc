// The learner process's side of the slots against a well-behaved, a confused and a hostile actor,
// all played by the test in ordinary memory.
#include "fleet/slot_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/rng.h"

namespace samara {
namespace {

using Kind = SlotEvent::Kind;

EnvironmentSpec SpecOfFloats() {
  EnvironmentSpec spec;
  spec.observation = {.dtype = DType::kFloat32, .shape = {3}};
  spec.action.n = 4;
  spec.render_height = 2, spec.render_width = 2, spec.render_frames = 2;
  return spec;
}

// One actor with two slots.
class SlotTableTest : public testing::Test {
 protected:
  SlotTableTest() : table_(2, 1, &bell_) {
    table_.SetSpec(SpecOfFloats(), true);
    memory_.resize(table_.layout(0).segment_bytes() / sizeof(Line));
    table_.Up(0, segment(), 5);
  }
  std::byte* segment() { return reinterpret_cast<std::byte*>(memory_.data()); }
  SlotView view(uint32_t slot) { return {segment(), table_.layout(0), slot}; }

  // The reply that the outstanding command of `slot` deserves.
  SlotReply* Fill(SlotReply& reply, uint32_t slot, std::array<float, 3> values) {
    const SlotCommand& command = view(slot).command();
    const auto observation = view(slot).observation(command.observation);
    std::memcpy(observation.data(), values.data(), observation.size());
    reply.episode = command.episode;
    reply.incarnation = command.incarnation;
    reply.step = command.step;
    reply.frames = 4;
    reply.reward = command.kind == SlotCommandKind::kAct ? 2.5 : 0;
    reply.checksum = ReplyChecksum(reply, observation);
    return &reply;
  }
  void Send(const SlotReply& reply, uint32_t slot, uint64_t sequence) {
    constexpr size_t kFirst = offsetof(SlotReply, episode);
    std::memcpy(reinterpret_cast<std::byte*>(&view(slot).reply()) + kFirst,
                reinterpret_cast<const std::byte*>(&reply) + kFirst, sizeof(reply) - kFirst);
    view(slot).reply().sequence = sequence;
  }
  void Serve(uint32_t slot, std::array<float, 3> values = {1, 2, 3}, uint32_t flags = 0) {
    SlotReply reply{};
    reply.flags = flags;
    Send(*Fill(reply, slot, values), slot, view(slot).command().sequence);
  }
  std::vector<SlotEvent> Take() {
    std::vector<SlotEvent> events(8);
    events.resize(table_.Take(events));
    return events;
  }
  SlotEvent TakeOne() {
    const auto events = Take();
    EXPECT_EQ(events.size(), 1U);
    return events.empty() ? SlotEvent{} : events[0];
  }

  Doorbell bell_{};
  SlotTable table_;
  struct alignas(64) Line {
    uint64_t words[8];
  };
  std::vector<Line> memory_;  // aligned as mmap would
};

TEST_F(SlotTableTest, CommandsCarryTheEpisode) {
  table_.Begin(1, 77, {.seed = 9, .noops = 3, .frames_max = 1000});
  const SlotCommand& command = view(1).command();
  EXPECT_EQ(command.sequence, 1U);
  EXPECT_EQ(command.kind, SlotCommandKind::kReset);
  EXPECT_EQ(command.episode, 77U);
  EXPECT_EQ(command.seed, 9U);
  EXPECT_EQ(command.noops, 3);
  EXPECT_EQ(command.frames_max, 1000);
  EXPECT_EQ(command.incarnation, 5U);
  EXPECT_EQ(command.step, 0U);
  EXPECT_EQ(view(0).command().sequence, 0U);
  EXPECT_EQ(reinterpret_cast<SegmentHeader*>(segment())->commands.rings(), 1U);
}

TEST_F(SlotTableTest, RepliesBecomeEvents) {
  table_.Begin(0, 7, {});
  EXPECT_TRUE(Take().empty());
  Serve(0);
  SlotEvent event = TakeOne();
  EXPECT_EQ(event.kind, Kind::kObservation);
  EXPECT_EQ(event.result.frames, 0U) << "a reset is no step";
  table_.Act(0, {.index = 2, .values = {}});
  EXPECT_EQ(view(0).command().index, 2);
  EXPECT_EQ(view(0).command().step, 1U);
  Serve(0, {1, 2, 3}, kSlotTruncated | kSlotLifeLost);
  event = TakeOne();
  EXPECT_EQ(event.kind, Kind::kEnded);
  EXPECT_EQ(event.episode, 7U);
  EXPECT_EQ(event.step, 1U);
  EXPECT_EQ(event.result.reward, 2.5);
  EXPECT_TRUE(event.result.truncated && event.result.life_lost && !event.result.terminated);
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(table_.counters().steps, 1U);
  EXPECT_EQ(table_.counters().frames, 4U);
}

TEST_F(SlotTableTest, StaleRepliesAreCountedOnceAndDropped) {
  table_.Begin(0, 7, {});
  uint64_t stale = 0;
  const auto send = [&](auto change, uint64_t sequence) {
    SlotReply reply{};
    Fill(reply, 0, {1, 2, 3});
    change(reply);
    reply.checksum = ReplyChecksum(reply, view(0).observation(view(0).command().observation));
    Send(reply, 0, sequence);
    EXPECT_TRUE(Take().empty());
    EXPECT_TRUE(Take().empty());
    EXPECT_EQ(table_.counters().stale_events, ++stale);
  };
  send([](SlotReply&) {}, 99);                       // another sequence
  send([](SlotReply& r) { r.incarnation = 4; }, 1);  // of the actor's predecessor
  send([](SlotReply&) {}, 98);
  send([](SlotReply& r) { r.episode = 6; }, 1);
  send([](SlotReply&) {}, 97);
  send([](SlotReply& r) { r.step = 1; }, 1);
  EXPECT_TRUE(table_.progress(0).waiting) << "the command is still unanswered";
}

TEST_F(SlotTableTest, BadRepliesAreRefusedWithAReason) {
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    std::function<void(SlotReply&)> change;
    std::array<float, 3> observation;
    const char* reason;
  };
  const Case cases[] = {
      {[](SlotReply& r) { r.flags = kSlotTerminated; }, {1, 2, 3}, "before its first step"},
      {[](SlotReply& r) { r.flags = 8; }, {1, 2, 3}, "flags 8"},
      {[](SlotReply& r) { r.flags = 3; }, {1, 2, 3}, "flags 3"},
      {[](SlotReply& r) { r.pictures = 3; }, {1, 2, 3}, "3 pictures"},
      {[](SlotReply& r) { r.nanoseconds = ~uint64_t{0}; }, {1, 2, 3}, "time"},
      {[](SlotReply& r) { r.reward = NAN; }, {1, 2, 3}, "the reward is not a finite number"},
      {[](SlotReply&) {}, {1, -inf, 3}, "observation[1] is not a finite number"},
  };
  uint32_t incarnation = 5;
  for (const Case& c : cases) {
    table_.Begin(0, 7, {});
    SlotReply reply{};
    Fill(reply, 0, c.observation);
    c.change(reply);
    reply.checksum = ReplyChecksum(reply, view(0).observation(view(0).command().observation));
    Send(reply, 0, view(0).command().sequence);
    EXPECT_TRUE(Take().empty());
    EXPECT_NE(table_.progress(0).offence.find(c.reason), std::string::npos)
        << table_.progress(0).offence;
    table_.Down(0, true, -1);
    EXPECT_EQ(TakeOne().kind, Kind::kLost);
    table_.Up(0, segment(), ++incarnation);
    EXPECT_EQ(table_.progress(0).offence, "");
  }
}

TEST_F(SlotTableTest, EveryFlippedBitOfReplyAndObservationIsNoticed) {
  constexpr size_t kReply = offsetof(SlotReply, played);  // what follows is no part of a reply
  for (size_t bit = 0; bit < (kReply + 12) * 8; ++bit) {
    table_.Begin(0, 7, {});
    Serve(0);
    const auto observation = view(0).observation(view(0).command().observation);
    std::byte& target = bit / 8 < kReply ? reinterpret_cast<std::byte*>(&view(0).reply())[bit / 8]
                                         : observation[bit / 8 - kReply];
    target ^= std::byte{1} << bit % 8;
    EXPECT_TRUE(Take().empty()) << "bit " << bit;
    table_.Down(0, true, -1);
    TakeOne();
    table_.Up(0, segment(), 5);
  }
}

TEST_F(SlotTableTest, AnEpisodePlayedWholeIsAnsweredOnce) {
  table_.Play(0, 7, {.seed = 3}, /*random=*/true);
  EXPECT_EQ(view(0).command().kind, SlotCommandKind::kPlay);
  EXPECT_EQ(view(0).command().options, uint32_t{kSlotRandom});
  SlotReply reply{};
  reply.flags = kSlotTruncated;
  Fill(reply, 0, {1, 2, 3});
  reply.step = 30, reply.frames = 120, reply.reward = -4.5, reply.inference_nanoseconds = 5'000'000;
  reply.checksum = ReplyChecksum(reply, view(0).observation(view(0).command().observation));
  Send(reply, 0, view(0).command().sequence);
  const SlotEvent event = TakeOne();
  EXPECT_EQ(event.kind, SlotEvent::Kind::kEnded);
  EXPECT_EQ(event.step, 30U);
  EXPECT_EQ(event.result.frames, 120U);
  EXPECT_EQ(event.result.reward, -4.5);
  EXPECT_TRUE(event.result.truncated);
  EXPECT_EQ(table_.counters().steps, 30U);
  EXPECT_EQ(table_.counters().inference_seconds, 0.005);
}

TEST_F(SlotTableTest, AnAbandonedEpisodeIsLostAndItsActorIsNot) {
  table_.Begin(1, 8, {});
  table_.Abandon(1);  // no episode played whole: nothing happens
  EXPECT_EQ(view(1).command().abandoned, 0U);
  table_.Play(0, 7, {}, false);
  table_.Abandon(0);
  EXPECT_EQ(view(0).command().abandoned, 1U);
  Serve(0, {1, 2, 3}, kSlotAbandoned);
  EXPECT_EQ(TakeOne().kind, SlotEvent::Kind::kLost);
  EXPECT_EQ(table_.counters().lost_episodes, 0U);
  table_.Play(0, 9, {}, false);
  EXPECT_EQ(view(0).command().abandoned, 0U);
}

TEST_F(SlotTableTest, RepliesThatNoWholeEpisodeHasAreOffences) {
  for (const uint32_t flags : {0U, 4U, kSlotAbandoned | kSlotTerminated}) {
    table_.Play(0, 7, {}, false);
    Serve(0, {1, 2, 3}, flags);
    EXPECT_TRUE(Take().empty());
    EXPECT_NE(table_.progress(0).offence, "") << flags;
    table_.Down(0, true, -1);
    TakeOne();
    table_.Up(0, segment(), 5);
  }
}

TEST_F(SlotTableTest, StepsOfAWholeEpisodeShowThatTheActorLives) {
  table_.Play(0, 7, {}, false);
  const auto before = table_.progress(0);
  EXPECT_TRUE(before.waiting);
  view(0).reply().played = 5;
  EXPECT_NE(table_.progress(0).answered, before.answered);
  EXPECT_EQ(table_.progress(0).offence, "");
  view(0).reply().played = 4;  // written by the wrong side
  EXPECT_EQ(table_.progress(0).offence, "steps that count backwards");
}

TEST_F(SlotTableTest, RandomBytesNeverBecomeEvents) {
  const CounterRng rng(3);
  uint64_t draw = 0;
  for (int round = 0; round < 2000; ++round) {
    table_.Begin(0, 7, {});
    for (Line& line : memory_)
      for (uint64_t& word : line.words) word = rng.Bits64(draw++);
    // the hardest case: the sequence is right by chance
    if (round % 2 == 0) view(0).reply().sequence = static_cast<uint64_t>(round) + 1;
    EXPECT_TRUE(Take().empty());
    (void)table_.progress(0);
    table_.Down(0, true, static_cast<int>(round % 3) - 1);
    EXPECT_EQ(Take().size(), 1U);
    table_.Up(0, segment(), 5);
  }
}

TEST_F(SlotTableTest, DeathAnswersEveryCommandOnce) {
  table_.Begin(0, 7, {});
  Serve(0);
  TakeOne();               // slot 0 owes nothing, its episode runs
  table_.Begin(1, 8, {});  // slot 1 owes an event
  table_.Down(0, false, -1);
  SlotEvent event = TakeOne();
  EXPECT_EQ(event.kind, Kind::kLost);
  EXPECT_EQ(event.slot, 1U);
  table_.Act(0, {});
  event = TakeOne();
  EXPECT_EQ(event.kind, Kind::kLost);
  EXPECT_EQ(event.slot, 0U);
  EXPECT_EQ(event.episode, 7U);
  EXPECT_EQ(table_.counters().lost_episodes, 2U);
  // begun while the actor is down: posted when it is up again
  table_.Begin(0, 9, {});
  EXPECT_EQ(view(0).command().sequence, 0U);
  EXPECT_FALSE(table_.progress(0).waiting);
  table_.Up(0, segment(), 6);
  EXPECT_EQ(view(0).command().episode, 9U);
  EXPECT_EQ(view(0).command().incarnation, 6U);
  EXPECT_TRUE(table_.progress(0).waiting);
  EXPECT_EQ(table_.counters().respawns, 2U);
}

TEST_F(SlotTableTest, BlameSticksToTheEpisodeUntilItEnds) {
  uint32_t incarnation = 5;
  const auto fail = [&](int slot) {
    table_.Begin(0, 7, {});
    table_.Begin(1, 8, {});
    const uint32_t worst = table_.Down(0, true, slot);
    EXPECT_EQ(Take().size(), 2U);
    table_.Up(0, segment(), ++incarnation);
    return worst;
  };
  EXPECT_EQ(fail(0), 1U);
  EXPECT_EQ(fail(0), 2U);
  EXPECT_EQ(fail(1), 1U) << "another episode";
  table_.Begin(0, 7, {});
  Serve(0);
  TakeOne();
  table_.Act(0, {});
  Serve(0, {1, 2, 3}, kSlotTerminated);
  EXPECT_EQ(TakeOne().kind, Kind::kEnded);
  EXPECT_EQ(fail(0), 1U);
}

TEST_F(SlotTableTest, AFailedActorAnswersEverythingByFailed) {
  table_.Begin(0, 7, {});
  table_.Begin(1, 8, {});
  Serve(0);
  EXPECT_EQ(TakeOne().slot, 0U);
  table_.Down(0, true, -1);
  EXPECT_EQ(TakeOne().kind, Kind::kLost);
  table_.Begin(1, 8, {});
  table_.Fail(0);
  EXPECT_EQ(TakeOne().kind, Kind::kFailed);
  table_.Act(0, {});
  EXPECT_EQ(TakeOne().kind, Kind::kFailed);
  table_.Begin(0, 1, {});
  EXPECT_EQ(TakeOne().kind, Kind::kFailed);
}

TEST_F(SlotTableTest, AReplyThatWasNotFetchedIsProgress) {
  EXPECT_FALSE(table_.progress(0).waiting);
  table_.Begin(0, 7, {});
  EXPECT_TRUE(table_.progress(0).waiting);
  const uint64_t before = table_.progress(0).answered;
  Serve(0);
  EXPECT_FALSE(table_.progress(0).waiting);
  EXPECT_EQ(table_.progress(0).answered, before + 1);
  TakeOne();
  EXPECT_EQ(table_.progress(0).answered, before + 1);
}

TEST_F(SlotTableTest, NoSlotStarvesWhenOneEventIsTakenAtATime) {
  for (uint32_t slot : {0, 1}) {
    table_.Begin(slot, slot, {});
    Serve(slot);
  }
  std::array<int, 2> taken{};
  for (int i = 0; i < 10; ++i) {
    SlotEvent event;
    ASSERT_EQ(table_.Take({&event, 1}), 1U);
    ++taken[event.slot];
    table_.Act(event.slot, {});
    Serve(event.slot);
  }
  EXPECT_EQ(taken[0], 5);
  EXPECT_EQ(taken[1], 5);
}

TEST(SlotTableShareTest, SlotsAreSpreadEvenly) {
  Doorbell bell{};
  const SlotTable table(7, 3, &bell);
  EXPECT_EQ(table.SlotsOf(0), 3U);
  EXPECT_EQ(table.SlotsOf(1), 2U);
  EXPECT_EQ(table.SlotsOf(2), 2U);
}

// A lost wake-up would make one side sleep for its whole time-out.
TEST(DoorbellTest, NoRingIsSleptOver) {
  // on the heap: the address sanitizer's own stack does not keep a doorbell's alignment
  const auto bells = std::make_unique<std::array<Doorbell, 2>>();
  Doorbell &ping = (*bells)[0], &pong = (*bells)[1];
  constexpr uint32_t kRounds = 20000;
  const auto spin = std::chrono::nanoseconds(0);
  std::thread other([&] {
    for (uint32_t i = 0; i < kRounds; ++i) {
      ASSERT_TRUE(WaitForRing(ping, i, spin, std::chrono::seconds(10)));
      RingBell(pong);
    }
  });
  for (uint32_t i = 0; i < kRounds; ++i) {
    RingBell(ping);
    ASSERT_TRUE(WaitForRing(pong, i, spin, std::chrono::seconds(10)));
  }
  other.join();
  EXPECT_FALSE(WaitForRing(pong, kRounds, spin, std::chrono::milliseconds(5)));
}

}  // namespace
}  // namespace samara
