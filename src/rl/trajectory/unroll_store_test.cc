#include "rl/trajectory/unroll_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>

#include "core/rng.h"
#include "rl/trajectory/slot_records.h"

namespace samara::unroll_store_test {
namespace {

// A recurrent "network" of one number: h' = h / 2 + x, value = h'. It shows every entry it has
// seen.
constexpr EntryShape kShape{.observation_bytes = 4,
                            .action_values = 1,
                            .behaviour = 2,
                            .values = 1,
                            .state = 1,
                            .history_bytes = 4};

// One slot's environment and acting: episodes of random lengths, some truncated.
class Actor {
 public:
  Actor(uint64_t seed, uint32_t episode_length) : rng_(seed), length_(episode_length) {}

  // Appends the next entry. `values` collects what acting computed.
  void Step(UnrollStore& store, uint32_t slot, uint32_t incarnation = 1) {
    EntryHeader header;
    header.episode_step = step_;
    header.incarnation = incarnation;
    header.policy_version = draw_;
    header.action = static_cast<int32_t>(draw_ % 7);
    const bool ended = step_ == 0 && draw_ > 0 && !restarted_;
    header.terminated = ended && draw_ % 2 == 0;
    header.truncated = ended && draw_ % 2 == 1;
    restarted_ = false;
    const auto x = static_cast<float>(rng_.Uniform(draw_));
    const float final = 1000 + x;
    if (step_ == 0) state_ = 0;
    const float entering = state_;
    state_ = state_ / 2 + x;
    const float action = past_, behaviour[2] = {x, 2 * x};
    past_ = x;
    const bool needed = store.NeedsState(slot);
    const auto bytes = [](const float& f) { return std::as_bytes(std::span(&f, 1)); };
    store.Append(
        slot, {.header = header,
               .observation = bytes(x),
               .final_observation = header.truncated ? bytes(final) : std::span<const std::byte>(),
               .action_values = {&action, 1},
               .behaviour = behaviour,
               .values = {&state_, 1},
               .state = needed ? std::span(&entering, 1) : std::span<const float>(),
               .history = needed ? bytes(action) : std::span<const std::byte>()});
    ++draw_;
    if (++step_ == length_) step_ = 0, length_ = 2 + (length_ * 7 + 3) % 11;
  }
  void Restart() { step_ = 0, restarted_ = true; }

 private:
  const CounterRng rng_;
  uint32_t length_, step_ = 0;
  uint64_t draw_ = 0;
  bool restarted_ = false;
  float state_ = 0, past_ = 0;  // past: the last observation, which entries carry as their action
};

float ObservationOf(const Unroll& unroll, uint32_t i) {
  float x;
  std::memcpy(&x, unroll.observations.data() + i * 4, 4);
  return x;
}

// Replays the unroll from its stored state, as a learner does.
void ExpectReplayGivesActingsValues(const Unroll& unroll) {
  float h = unroll.state[0], past;
  std::memcpy(&past, unroll.history.data(), 4);
  if (!unroll.headers[0].absent) {
    EXPECT_EQ(past, unroll.action_values[0]) << "the observation before entry 0";
  }
  for (uint32_t i = 0; i < unroll.entries; ++i) {
    if (unroll.headers[i].absent) {
      EXPECT_EQ(h, 0.0f) << "before the beginning there is only the initial state";
      continue;
    }
    if (unroll.headers[i].episode_step == 0) h = 0;
    h = h / 2 + ObservationOf(unroll, i);
    EXPECT_EQ(h, unroll.values[i]) << "entry " << i;
  }
}

TEST(UnrollStoreTest, ReplayFromTheStoredStateGivesTheValuesOfActing) {
  for (const uint32_t overlap : {0U, 1U, 2U, 5U, 40U}) {
    UnrollStore store(kShape, {.slots = 1, .length = 5, .overlap = overlap, .buffers = 2});
    Actor actor(overlap, 6);
    size_t unrolls = 0;
    for (int i = 0; i < 400; ++i) {
      ASSERT_TRUE(store.Reserve(0));
      actor.Step(store, 0);
      for (auto& unroll : store.Take(8)) {
        ExpectReplayGivesActingsValues(*unroll);
        ++unrolls;
      }
    }
    EXPECT_GT(unrolls, 50U);
    EXPECT_EQ(store.counters().completed, unrolls);
  }
}

// Consecutive unrolls share overlap + 1 entries, and every transition is in the learnt part of
// exactly one.
TEST(UnrollStoreTest, EveryTransitionIsLearnedFromOnce) {
  for (const uint32_t overlap : {0U, 3U, 9U}) {
    constexpr uint32_t kLength = 4;
    UnrollStore store(kShape, {.slots = 1, .length = kLength, .overlap = overlap, .buffers = 3});
    Actor actor(5, 6);
    std::vector<uint64_t> learnt;  // the entry at which a transition starts, by its number
    UnrollStore::Loan last(nullptr, {&store});
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(store.Reserve(0));
      actor.Step(store, 0);
      for (auto& unroll : store.Take(1)) {
        ASSERT_EQ(unroll->entries, overlap + kLength + 1);
        for (uint32_t e = overlap; e < overlap + kLength; ++e)
          learnt.push_back(unroll->headers[e].policy_version);
        for (uint32_t e = 0; last != nullptr && e <= overlap; ++e) {
          EXPECT_EQ(ObservationOf(*unroll, e), ObservationOf(*last, kLength + e));
          EXPECT_EQ(unroll->behaviour[2 * e], last->behaviour[2 * (kLength + e)]);
          EXPECT_EQ(unroll->headers[e].absent, last->headers[kLength + e].absent);
        }
        last = std::move(unroll);
      }
    }
    for (uint64_t i = 0; i < learnt.size(); ++i) EXPECT_EQ(learnt[i], i);
    EXPECT_GE(learnt.size(), 90U);
  }
}

// A truncated episode's final observation stands next to the entry that follows it.
TEST(UnrollStoreTest, FinalObservationsStandWhereTheClockRanOut) {
  for (const uint32_t overlap : {0U, 2U}) {
    UnrollStore store(kShape, {.slots = 1, .length = 6, .overlap = overlap, .buffers = 2});
    Actor actor(7, 3);
    size_t finals = 0;
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(store.Reserve(0));
      actor.Step(store, 0);
      for (auto& unroll : store.Take(1)) {
        std::vector<uint32_t> expected, found;
        for (uint32_t e = 0; e < unroll->entries; ++e)
          if (unroll->headers[e].truncated) expected.push_back(e);
        for (const auto& final : unroll->finals) {
          found.push_back(final.entry);
          float value;
          std::memcpy(&value, final.observation.data(), 4);
          EXPECT_EQ(value, 1000 + ObservationOf(*unroll, final.entry));
        }
        EXPECT_EQ(found, expected);
        finals += found.size();
      }
    }
    EXPECT_GT(finals, 10U);
  }
}

// A new incarnation drops what was not complete and begins a stream with absent entries.
TEST(UnrollStoreTest, ANewIncarnationSplicesNothing) {
  UnrollStore store(kShape, {.slots = 2, .length = 4, .overlap = 2, .buffers = 8});
  Actor actor(9, 50), other(10, 50);
  for (int i = 0; i < 11; ++i) {
    ASSERT_TRUE(store.Reserve(0) && store.Reserve(1));
    if (i == 6) {
      actor.Restart();
      store.Drop(0);
    }
    actor.Step(store, 0, i < 6 ? 1 : 2);
    other.Step(store, 1);
  }
  EXPECT_EQ(store.counters().dropped_partial, 1U);
  for (auto& unroll : store.Take(8)) {
    uint32_t incarnation = 0;
    for (uint32_t e = 0; e < unroll->entries; ++e) {
      if (unroll->headers[e].absent) continue;
      if (incarnation == 0) incarnation = unroll->headers[e].incarnation;
      EXPECT_EQ(unroll->headers[e].incarnation, incarnation);
    }
    ExpectReplayGivesActingsValues(*unroll);
    EXPECT_TRUE(unroll->slot == 1 || incarnation == 1 || unroll->headers[0].absent);
  }
}

// Without a free buffer a slot waits and loses nothing; or the oldest is dropped and counted.
TEST(UnrollStoreTest, BackPressureLosesNothingAndDropOldestCounts) {
  UnrollStore store(kShape, {.slots = 1, .length = 3, .buffers = 2});
  Actor actor(3, 100);
  int steps = 0;
  for (; store.Reserve(0); ++steps) actor.Step(store, 0);
  EXPECT_EQ(steps, 3 + 1 + 3);  // the second shares an entry
  auto taken = store.Take(1);
  EXPECT_FALSE(store.Reserve(0)) << "taken is still on loan";
  taken.clear();
  ASSERT_TRUE(store.Reserve(0));
  for (int i = 0; i < 3; ++i) actor.Step(store, 0);
  std::vector<uint64_t> versions;
  for (auto& unroll : store.Take(8)) {
    for (uint32_t e = 0; e < 3; ++e) versions.push_back(unroll->headers[e].policy_version);
  }
  EXPECT_EQ(versions, (std::vector<uint64_t>{3, 4, 5, 6, 7, 8}));

  UnrollStore dropping(kShape, {.slots = 1, .length = 3, .buffers = 2, .drop_oldest = true});
  Actor quick(3, 100);
  for (int i = 0; i < 31; ++i) {
    ASSERT_TRUE(dropping.Reserve(0));
    quick.Step(dropping, 0);
  }
  EXPECT_EQ(dropping.counters().completed, 10U);
  EXPECT_GE(dropping.counters().dropped, 8U);
  EXPECT_EQ(dropping.Take(1)[0]->headers[0].policy_version, 3 * dropping.counters().dropped);
}

// A restored checkpoint continues as if nothing had happened.
TEST(UnrollStoreTest, ARestoredStreamContinuesWithTheSameUnrolls) {
  for (const uint32_t overlap : {0U, 3U, 9U}) {
    const UnrollConfig config{.slots = 1, .length = 4, .overlap = overlap, .buffers = 2};
    UnrollStore one(kShape, config), two(kShape, config);
    Actor actor(11, 3), twin(11, 3);
    const auto unroll = [](UnrollStore& store, Actor& player) {
      for (;;) {
        CHECK(store.Reserve(0));
        player.Step(store, 0);
        if (auto taken = store.Take(1); !taken.empty()) return std::move(taken[0]);
      }
    };
    for (int i = 0; i < 5; ++i) unroll(one, actor), unroll(two, twin);
    const std::string saved = one.Save(0);
    UnrollStore restored(kShape, config);
    ASSERT_TRUE(restored.Restore(0, saved).ok());
    for (int i = 0; i < 10; ++i) {
      const auto a = unroll(restored, actor), b = unroll(two, twin);
      EXPECT_EQ(a->index, b->index);
      EXPECT_EQ(a->observations, b->observations);
      EXPECT_EQ(a->state, b->state);
      EXPECT_EQ(a->history, b->history);
      EXPECT_EQ(a->finals.size(), b->finals.size());
      ExpectReplayGivesActingsValues(*a);
    }
    EXPECT_EQ(restored.Restore(0, saved.substr(1)).code(), Code::kBadData);
    UnrollStore longer(kShape, {.slots = 1, .length = 4, .overlap = overlap + 1, .buffers = 2});
    EXPECT_EQ(longer.Restore(0, saved).code(), Code::kBadData);
  }
}

// The bytes of a stream of kShape without overlap, whole but for what a case spoils.
struct SavedStream {
  char begun = 1;
  uint64_t entries = 5, unrolls = 1;
  std::vector<EntryHeader> headers = std::vector<EntryHeader>(1);
  std::string observations = "1234", action_values = "1234", behaviour = "12345678",
              values = "1234";
  std::vector<std::pair<uint32_t, std::string>> finals = {{0, "1234"}};
  uint64_t beginnings = 1;
  std::string state = "1234", history = "1234", rest;

  std::string Encode() const {
    ByteWriter out;
    out.Put(begun).Put(uint32_t{1}).Put(entries).Put(unrolls).Put(uint64_t{0});
    out.PutVector(headers).PutBytes(observations).PutBytes(action_values);
    out.PutBytes(behaviour).PutBytes(values).Put(uint64_t{finals.size()});
    for (const auto& [entry, observation] : finals) out.Put(entry).PutBytes(observation);
    out.Put(beginnings);
    for (uint64_t i = 0; i < std::min<uint64_t>(beginnings, 3); ++i)
      out.PutBytes(state).PutBytes(history);
    return out.Take() + rest;
  }
};

TEST(UnrollStoreTest, AStreamOfAnotherShapeIsRefused) {
  using Spoil = std::function<void(SavedStream&)>;
  const Spoil spoils[] = {
      [](SavedStream& s) { s.begun = 2; },
      [](SavedStream& s) { s.headers.resize(2); },
      [](SavedStream& s) {
        reinterpret_cast<char*>(s.headers.data())[offsetof(EntryHeader, truncated)] = 2;
      },
      [](SavedStream& s) { s.observations += "5"; },
      [](SavedStream& s) { s.action_values.clear(); },
      [](SavedStream& s) { s.behaviour.pop_back(); },
      [](SavedStream& s) { s.values = "12345678"; },
      [](SavedStream& s) { s.finals[0].first = 1; },
      [](SavedStream& s) { s.finals[0].second = "123"; },
      [](SavedStream& s) { s.headers[0].action = 3; },
      [](SavedStream& s) { s.headers[0].previous_action = -1; },
      [](SavedStream& s) { s.begun = 0; },
      [](SavedStream& s) { s.entries = 4; },
      [](SavedStream& s) { s.unrolls = 2; },
      [](SavedStream& s) { s.entries = s.unrolls = 0; },
      [](SavedStream& s) { s.beginnings = 0; },
      [](SavedStream& s) { s.beginnings = 3; },
      [](SavedStream& s) { s.beginnings = UINT64_MAX; },
      [](SavedStream& s) { s.state = "123"; },
      [](SavedStream& s) { s.history = "123"; },
      [](SavedStream& s) { s.rest = "x"; },
  };
  EntryShape shape = kShape;
  shape.choices = 3;
  const auto restore = [&shape](const Spoil& spoil) {
    UnrollStore store(shape, {.slots = 1, .length = 4, .overlap = 0, .buffers = 2});
    SavedStream stream;
    spoil(stream);
    return store.Restore(0, stream.Encode());
  };
  EXPECT_TRUE(restore([](SavedStream&) {}).ok());
  const std::string whole = SavedStream().Encode();
  UnrollStore cut(kShape, {.slots = 1, .length = 4, .overlap = 0, .buffers = 2});
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(cut.Restore(0, whole.substr(0, size)).code(), Code::kBadData) << size;
  for (size_t i = 0; i < std::size(spoils); ++i) {
    const Status status = restore(spoils[i]);
    EXPECT_EQ(status.code(), Code::kBadData) << i;
    EXPECT_EQ(status.message(), "the unroll of slot 0 has another shape than this run's") << i;
  }
}

TEST(UnrollStoreTest, SlotsAndALearnerOnTheirOwnThreads) {
  constexpr uint32_t kSlots = 4;
  UnrollStore store(kShape, {.slots = kSlots, .length = 5, .overlap = 3, .buffers = 6});
  std::atomic<bool> stop{false};
  std::thread learner([&] {
    while (!stop) {
      for (auto& unroll : store.Take(2)) {
        ExpectReplayGivesActingsValues(*unroll);
      }
    }
  });
  std::vector<std::thread> actors;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    actors.emplace_back([&store, slot] {
      Actor actor(slot, 7);
      for (int done = 0; done < 2000;) {
        if (!store.Reserve(slot)) {
          std::this_thread::yield();
          continue;
        }
        actor.Step(store, slot);
        ++done;
      }
    });
  }
  for (auto& actor : actors) actor.join();
  stop = true;
  learner.join();
  EXPECT_GT(store.counters().completed, kSlots * 390U);
}

TEST(SlotRecordsTest, ReadsBothVersionsAndRefusesALaterOne) {
  const std::vector<std::string> records = {"first", "", "third"};
  const std::string file = WriteSlotRecords(records);
  const std::string version1 = file.substr(sizeof(uint64_t));  // began with the number of slots
  for (const std::string& saved : {file, version1}) {
    const auto read = ReadSlotRecords(saved, {}, 3).ValueOrThrow();
    EXPECT_TRUE(std::ranges::equal(read, records));
    EXPECT_EQ(ReadSlotRecords(saved, {.first = 2, .all = 3}, 1).ValueOrThrow().front(), "third");
    EXPECT_EQ(ReadSlotRecords(saved, {.first = 0, .all = 3}, 1).ValueOrThrow().front(), "first");
  }
  std::string later = file;
  ++later[0];
  EXPECT_EQ(ReadSlotRecords(later, {}, 3).status().message(),
            "saved slots of version 3, expected at most 2");
  const auto refused = [](const std::string& bytes, const SlotShare& share, uint32_t slots) {
    const Status status = ReadSlotRecords(bytes, share, slots).status();
    EXPECT_EQ(status.message(), "the saved slots have another shape than this run's");
    return status.code() == Code::kBadData;
  };
  EXPECT_TRUE(refused(file, {}, 2));
  EXPECT_TRUE(refused(file, {.first = 0, .all = 4}, 3));
  EXPECT_TRUE(refused(file, {.first = 2, .all = 3}, 2));
  EXPECT_TRUE(refused(file + "x", {}, 3));
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_TRUE(refused(file.substr(0, size), {}, 3)) << size;
}

TEST(SlotRecordsTest, JoinsTheFilesOfSeveralLearners) {
  const std::vector<std::string> records = {"first", "second", "third"};
  const std::vector<std::string> parts = {WriteSlotRecords(std::span(records).first(2)),
                                          WriteSlotRecords(std::span(records).last(1))};
  EXPECT_EQ(JoinSlotRecords(parts).ValueOrThrow(), WriteSlotRecords(records));
  const std::string version1 = parts[0].substr(sizeof(uint64_t));
  for (const std::string& wrong : {std::string(), parts[0].substr(0, 12), version1}) {
    const Status status = JoinSlotRecords(std::vector<std::string>{parts[0], wrong}).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), "the slots of a learner are missing");
  }
}

}  // namespace
}  // namespace samara::unroll_store_test
