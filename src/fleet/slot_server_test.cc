// The actor's side of the slots against the learner process's side, in ordinary memory.
#include "fleet/slot_server.h"

#include <gtest/gtest.h>

#include <vector>

#include "fleet/slot_table.h"

namespace samara {
namespace {

constexpr uint32_t kSlots = 5;

class SlotServerTest : public testing::Test {
 protected:
  SlotServerTest() : table_(kSlots, 1, &bell_) {
    EnvironmentSpec spec;
    spec.observation = {.dtype = DType::kUint8, .shape = {100}};
    spec.action.n = 1000;
    table_.SetSpec(spec, /*render=*/false);
    memory_.resize(table_.layout(0).segment_bytes() / sizeof(Line));
    auto& header = *reinterpret_cast<SegmentHeader*>(segment());
    header.magic = kSegmentMagic;
    header.protocol = kSlotProtocol;
    header.slots = kSlots;
    header.observation_bytes = 100;
    header.incarnation = 3;
    table_.Up(0, segment(), 3);
  }
  std::byte* segment() { return reinterpret_cast<std::byte*>(memory_.data()); }
  std::string Mismatch(const SegmentLayout& layout) {
    return SlotServer::Mismatch(segment(), memory_.size() * sizeof(Line), layout);
  }
  std::vector<SlotEvent> Take() {
    std::vector<SlotEvent> events(2 * kSlots);
    events.resize(table_.Take(events));
    return events;
  }

  Doorbell bell_{};
  SlotTable table_;
  struct alignas(64) Line {
    uint64_t words[8];
  };
  std::vector<Line> memory_;  // aligned as mmap would
};

// Every command is served once, with its own bytes, whatever the order in which they come and go.
TEST_F(SlotServerTest, ServesEveryCommandOnce) {
  SlotServer server(segment(), table_.layout(0), &bell_, 0);
  std::vector<uint64_t> served(kSlots), taken(kSlots);
  for (uint32_t s = 0; s < kSlots; ++s) table_.Begin(s, 100 + s, {.seed = 7 * s});
  for (int turn = 0; turn < 200; ++turn) {
    for (int i = 0; i < turn % 4 && server.Next(); ++i) {
      ASSERT_EQ(server.Refusal(), "");
      const uint32_t s = server.slot();
      const SlotCommand& command = server.command();
      EXPECT_EQ(command.episode, 100 + s);
      EXPECT_EQ(command.step, served[s]);
      if (command.kind == SlotCommandKind::kReset)
        EXPECT_EQ(command.seed, 7 * s);
      else
        EXPECT_EQ(static_cast<uint64_t>(command.index), served[s] * 3 + s);
      ++served[s];
      SlotReply reply{};
      reply.step = command.step;
      reply.reward = command.kind == SlotCommandKind::kAct ? static_cast<double>(s) : 0;
      std::ranges::fill(server.observation(), static_cast<std::byte>(s + 10 * served[s]));
      server.Publish(reply);
    }
    for (const SlotEvent& event : Take()) {
      const uint32_t s = event.slot;
      EXPECT_EQ(event.kind, SlotEvent::Kind::kObservation);
      EXPECT_EQ(event.step, taken[s]);
      EXPECT_EQ(event.result.reward, taken[s] == 0 ? 0 : static_cast<double>(s));
      ++taken[s];
      for (const std::byte b : table_.observation(s))
        ASSERT_EQ(b, static_cast<std::byte>(s + 10 * taken[s]));
      table_.Act(s, {.index = static_cast<int32_t>(taken[s] * 3 + s), .values = {}});
    }
  }
  EXPECT_EQ(served, taken);
  for (uint32_t s = 0; s < kSlots; ++s) EXPECT_GT(taken[s], 40U) << "slot " << s << " starves";
  EXPECT_EQ(table_.counters().stale_events, 0U);
}

TEST_F(SlotServerTest, RefusesWhatBreaksTheProtocol) {
  SlotServer server(segment(), table_.layout(0), &bell_, 0);
  table_.Begin(1, 1, {});
  ASSERT_TRUE(server.Next());
  EXPECT_EQ(server.Refusal(), "");
  EXPECT_EQ(server.command().kind, SlotCommandKind::kReset);
  const auto refused = [&](auto change) {
    change(server.command());
    const bool broken = !server.Refusal().empty();
    server.command().kind = SlotCommandKind::kReset;
    server.command().incarnation = 3;
    server.command().observation = 0;
    return broken;
  };
  EXPECT_FALSE(refused([](SlotCommand&) {}));
  EXPECT_TRUE(refused([](SlotCommand& c) { c.kind = static_cast<SlotCommandKind>(4); }));
  EXPECT_TRUE(refused([](SlotCommand& c) { c.kind = static_cast<SlotCommandKind>(0); }));
  EXPECT_TRUE(refused([](SlotCommand& c) { c.incarnation = 2; }));
  EXPECT_TRUE(refused([](SlotCommand& c) { c.observation = 2; }));
}

TEST_F(SlotServerTest, MemoryThatWasNotAgreedOnIsRefused) {
  EXPECT_EQ(Mismatch({kSlots, 100, 0}), "");
  EXPECT_NE(Mismatch({kSlots, 99, 0}), "");
  EXPECT_NE(Mismatch({kSlots - 1, 100, 0}), "");
  EXPECT_NE(Mismatch({kSlots, 100, 64}), "");
  EXPECT_NE(Mismatch({kSlots * 100, 100, 0}), "") << "more than is mapped";
  reinterpret_cast<SegmentHeader*>(segment())->protocol = kSlotProtocol + 1;
  EXPECT_NE(Mismatch({kSlots, 100, 0}), "");
}

}  // namespace
}  // namespace samara
