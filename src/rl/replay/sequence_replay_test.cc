#include "rl/replay/sequence_replay.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>

#include "core/bytes.h"
#include "core/rng.h"
#include "rl/replay/parts_test_util.h"
#include "rl/replay/sequence_sampler.h"

namespace samara::sequence_replay_test {
namespace {

constexpr size_t kFrame = 24;
constexpr uint32_t kSlots = 3;

struct Case {
  uint32_t length, overlap;
  bool compress;
};

SequenceShape ShapeOf(const Case& c, uint64_t capacity) {
  return {.capacity = capacity,
          .length = c.length,
          .overlap = c.overlap,
          .observation_bytes = kFrame,
          .state = 2,
          .history_bytes = kFrame,
          .compress = c.compress};
}

// Plays entries of `slots` slots into a store: frames that repeat a number of their own, episodes
// of unequal length, every other one truncated, and an actor that is replaced now and then.
class Player {
 public:
  explicit Player(const Case& c)
      : store_({.observation_bytes = kFrame, .values = 2, .state = 2, .history_bytes = kFrame},
               {.slots = kSlots, .length = c.length, .overlap = c.overlap, .buffers = 64}) {}

  // Sequences that one more entry of every slot completes.
  std::vector<UnrollStore::Loan> Play() {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_TRUE(store_.Reserve(slot));
      Stream& stream = streams_[slot];
      if (++number_ % 97 == 0) stream = {.incarnation = stream.incarnation + 1};
      EntryHeader header;
      header.episode_step = stream.step;
      header.incarnation = stream.incarnation;
      header.reward = static_cast<float>(number_);
      header.action = static_cast<int32_t>(number_ % 5);
      header.policy_version = number_ / 7;
      header.truncated = stream.ended == 2, header.terminated = stream.ended == 1;
      const std::vector<std::byte> frame = Frame(number_), final = Frame(number_ + 100'000);
      const std::vector<float> values = {static_cast<float>(number_), 1},
                               state = {static_cast<float>(number_), 0.5F};
      store_.Append(slot, {.header = header,
                           .observation = frame,
                           .final_observation = header.truncated ? std::span<const std::byte>(final)
                                                                 : std::span<const std::byte>(),
                           .action_values = {},
                           .behaviour = {},
                           .values = values,
                           .state = state,
                           .history = frame});
      stream.ended = ++stream.step == 11 ? 1 + slot % 2 : 0;
      if (stream.ended != 0) stream.step = 0;
    }
    return store_.Take(64);
  }

 private:
  static std::vector<std::byte> Frame(uint64_t number) {
    std::vector<std::byte> frame(kFrame);
    for (size_t i = 0; i < kFrame; ++i)
      frame[i] = static_cast<std::byte>(i < 4 ? number >> (8 * i) : 7);
    return frame;
  }
  struct Stream {
    uint32_t incarnation = 1, step = 0;
    int ended = 0;
  };
  UnrollStore store_;
  uint64_t number_ = 0;
  Stream streams_[kSlots];
};

void ExpectSame(const Unroll& a, const Unroll& b) {
  ASSERT_EQ(a.entries, b.entries);
  EXPECT_EQ(a.slot, b.slot);
  EXPECT_EQ(a.index, b.index);
  EXPECT_EQ(a.overlap, b.overlap);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.history, b.history);
  for (uint32_t t = 0; t < a.entries; ++t) {
    const EntryHeader &x = a.headers[t], &y = b.headers[t];
    EXPECT_EQ(x.absent, y.absent) << t;
    EXPECT_EQ(x.reward, y.reward) << t;
    EXPECT_EQ(x.action, y.action) << t;
    EXPECT_EQ(x.episode_step, y.episode_step) << t;
    EXPECT_EQ(x.truncated, y.truncated) << t;
    EXPECT_EQ(x.terminated, y.terminated) << t;
    if (!x.absent) {
      EXPECT_EQ(0, std::memcmp(a.observations.data() + t * kFrame,
                               b.observations.data() + t * kFrame, kFrame))
          << t;
    }
  }
  ASSERT_EQ(a.finals.size(), b.finals.size());
  for (size_t i = 0; i < a.finals.size(); ++i) {
    EXPECT_EQ(a.finals[i].entry, b.finals[i].entry);
    EXPECT_EQ(a.finals[i].observation, b.finals[i].observation);
  }
}

class SequenceReplayTest : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Shapes, SequenceReplayTest,
                         testing::Values(Case{5, 0, false}, Case{5, 2, false}, Case{4, 9, false},
                                         Case{1, 0, false}, Case{3, 40, true}, Case{8, 4, true}));

TEST_P(SequenceReplayTest, GivesBackTheUnrollsItHas) {
  constexpr uint64_t kCapacity = 10;
  SequenceReplay replay(ShapeOf(GetParam(), kCapacity));
  Player player(GetParam());
  std::vector<Unroll> played;
  for (int i = 0; i < 400; ++i)
    for (const UnrollStore::Loan& unroll : player.Play()) {
      EXPECT_EQ(replay.Add(*unroll), played.size());
      played.push_back(*unroll);
      const uint64_t size = std::min<uint64_t>(played.size(), kCapacity);
      ASSERT_EQ(replay.size(), size);
      const uint64_t number = played.size() - 1 - static_cast<uint64_t>(i) % size;
      Unroll read;
      replay.Read(number, read);
      ExpectSame(played[number], read);
      EXPECT_EQ(replay.NumberAt(replay.PlaceOf(number)), number);
      EXPECT_EQ(replay.Has(played.size() - size - 1), false);
    }
  EXPECT_GT(played.size(), 3 * kCapacity);
}

TEST_P(SequenceReplayTest, ARestoredOneGivesBackTheSameAndGoesOn) {
  SequenceReplay replay(ShapeOf(GetParam(), 12)), other(ShapeOf(GetParam(), 12));
  Player player(GetParam());
  const auto play = [&](int rounds, auto&&... to) {
    for (int i = 0; i < rounds; ++i)
      for (const UnrollStore::Loan& unroll : player.Play()) (to.Add(*unroll), ...);
  };
  play(150, replay);
  const std::string saved = replay.Save();
  ASSERT_TRUE(other.Restore(saved).ok());
  EXPECT_EQ(other.Save(), saved);
  play(50, replay, other);
  EXPECT_EQ(other.Save(), replay.Save());
  Unroll a, b;
  for (uint64_t place = 0; place < replay.size(); ++place) {
    replay.Read(replay.NumberAt(place), a), other.Read(other.NumberAt(place), b);
    ExpectSame(a, b);
  }
}

// Steps that are learned from, divided before each entry of `beginnings`.
TEST(LearnedByEpisodeTest, DividesWhereAnEpisodeBegins) {
  const auto divided = [](std::vector<uint32_t> beginnings) {
    Unroll unroll;
    unroll.overlap = 2, unroll.entries = 8, unroll.headers.resize(8);
    for (uint32_t entry = 0; entry < 8; ++entry) unroll.headers[entry].episode_step = entry + 1;
    for (const uint32_t entry : beginnings) unroll.headers[entry].episode_step = 0;
    return LearnedByEpisode(unroll);
  };
  using Ranges = std::vector<StepRange>;
  EXPECT_EQ(divided({}), (Ranges{{2, 7}}));
  EXPECT_EQ(divided({4}), (Ranges{{2, 4}, {4, 7}}));
  EXPECT_EQ(divided({3, 4, 6}), (Ranges{{2, 3}, {3, 4}, {4, 6}, {6, 7}}));
  EXPECT_EQ(divided({1, 2}), (Ranges{{2, 7}})) << "in the burn-in, and where the first step begins";
  EXPECT_EQ(divided({7}), (Ranges{{2, 7}})) << "of which there is no step";
}

// The parts of an unroll are read as the unroll, each with steps of its own, and stored once.
TEST_P(SequenceReplayTest, PartsOfAnUnrollShareIt) {
  constexpr uint64_t kCapacity = 30;
  SequenceReplay replay(ShapeOf(GetParam(), kCapacity)), other(ShapeOf(GetParam(), kCapacity));
  Player player(GetParam());
  std::vector<std::pair<Unroll, StepRange>> added;
  size_t divided = 0;
  for (int i = 0; i < 300; ++i)
    for (const UnrollStore::Loan& unroll : player.Play()) {
      const auto steps = LearnedByEpisode(*unroll);
      divided += steps.size() > 1;
      ASSERT_EQ(replay.Add(*unroll, steps), added.size());
      for (const StepRange& range : steps) added.emplace_back(*unroll, range);
    }
  EXPECT_EQ(divided > 0, GetParam().length > 1);
  ASSERT_TRUE(other.Restore(replay.Save()).ok());
  for (const SequenceReplay* one : {&replay, &other}) {
    uint64_t unrolls = 0;
    for (uint64_t number = added.size() - kCapacity; number < added.size(); ++number) {
      Unroll read;
      EXPECT_EQ(one->Read(number, read), added[number].second);
      ExpectSame(added[number].first, read);
      if (number == added.size() - kCapacity || added[number - 1].first.index != read.index ||
          added[number - 1].first.slot != read.slot)
        ++unrolls;
    }
    // at most one more for each slot's oldest, and those that the oldest ones reach back to
    const uint64_t back = GetParam().overlap / GetParam().length + 2;
    EXPECT_LE(one->TEST_Blocks(), unrolls + kSlots * back);
  }
}

SequenceShape InParts(const Case& c, uint64_t parts_max) {
  SequenceShape shape = ShapeOf(c, 12);
  shape.parts = {.parts_max = parts_max, .bytes_min = 1};
  return shape;
}

// Blocks that sequences share are in every part that has one of these, and shared again.
TEST_P(SequenceReplayTest, OneThatIsRestoredFromPartsIsAsIfItHadNotBeenSaved) {
  for (const uint64_t parts_max : {4, 3, 1}) {
    const SequenceShape shape = InParts(GetParam(), parts_max);
    SequenceReplay replay(shape);
    SavedParts folder;
    Player player(GetParam());
    for (int i = 0; i < 200; ++i) {
      const auto unrolls = player.Play();
      if (unrolls.empty()) continue;
      folder.Save(replay);
      EXPECT_LE(folder.files.size(), parts_max);
      SequenceReplay other(shape);
      ASSERT_TRUE(folder.Restore(other).ok()) << replay.added();
      EXPECT_EQ(other.TEST_Blocks(), replay.TEST_Blocks());
      for (const auto& unroll : unrolls)
        for (SequenceReplay* one : {&replay, &other}) one->Add(*unroll, LearnedByEpisode(*unroll));
      EXPECT_EQ(other.Save(), replay.Save());
      EXPECT_EQ(other.TEST_Blocks(), replay.TEST_Blocks());
      ASSERT_EQ(other.parts(), replay.parts());
      for (const uint64_t part : replay.parts())
        EXPECT_EQ(other.SavePart(part), replay.SavePart(part)) << part;
      Unroll a, b;
      for (uint64_t place = 0; place < replay.size(); ++place) {
        replay.Read(replay.NumberAt(place), a), other.Read(other.NumberAt(place), b);
        ExpectSame(a, b);
      }
    }
    EXPECT_GT(replay.added(), 36u);
  }
}

// Where a part has its length and overlap, and the rest the number of sequences of a part.
constexpr size_t kPartLengthAt = sizeof(uint64_t),
                 kItemsAt = 3 * sizeof(uint64_t) + 2 * sizeof(uint32_t);

TEST_P(SequenceReplayTest, DamagedAndMissingPartsAreRefusedAndChangeNothing) {
  const SequenceShape shape = InParts(GetParam(), 4);
  SequenceReplay replay(shape), other(shape);
  Player player(GetParam());
  while (replay.added() < 20)
    for (const UnrollStore::Loan& unroll : player.Play()) replay.Add(*unroll);
  SavedParts whole;
  whole.Save(replay);
  ASSERT_GE(whole.files.size(), 3u);
  const uint64_t first = whole.files.begin()->first, next = first + 1;
  const auto refused = [&](const SavedParts& damaged) {
    EXPECT_EQ(damaged.Restore(other).code(), Code::kBadData);
    EXPECT_EQ(other.size(), 0u);
  };
  SavedParts damaged = whole;
  damaged.files.erase(next);
  refused(damaged);
  damaged.files[next] = whole.files.at(first);
  refused(damaged);
  damaged.files[next] = whole.files.at(next) + "x";
  refused(damaged);
  for (const size_t at : {kPartLengthAt, kPartLengthAt + sizeof(uint32_t)}) {
    damaged = whole, damaged.files[next][at] ^= 1;
    refused(damaged);
  }
  damaged = whole;  // no sequence in a part
  std::fill_n(damaged.rest.begin() + kItemsAt, sizeof(uint64_t), '\0');
  refused(damaged);
  damaged.rest.resize(kItemsAt + 1);
  refused(damaged);
  damaged = whole;
  const CounterRng rng(7);
  for (size_t i = 0; i < 60; ++i) {
    const std::string& part = whole.files.at(next);
    damaged.files[next] = part.substr(0, rng.UniformInt(i, part.size()));
    refused(damaged);
  }
  // a byte of the numbers that lead through the file: what is still a replay may be read
  for (size_t i = 0; i < 200; ++i) {
    damaged = whole;
    std::string& part = damaged.files[next];
    part[rng.UniformInt(1000 + i, part.size())] ^= static_cast<char>(1 + rng.Bits(i) % 255);
    SequenceReplay reads(shape);
    if (!damaged.Restore(reads).ok()) continue;
    Unroll unroll;
    for (uint64_t place = 0; place < reads.size(); ++place)
      reads.Read(reads.NumberAt(place), unroll);
  }
}

TEST_P(SequenceReplayTest, DamagedOnesAreRefusedAndChangeNothing) {
  SequenceReplay replay(ShapeOf(GetParam(), 12)), other(ShapeOf(GetParam(), 12));
  Player player(GetParam());
  for (int i = 0; i < 100; ++i)
    for (const UnrollStore::Loan& unroll : player.Play()) replay.Add(*unroll);
  const std::string saved = replay.Save();
  const CounterRng rng(5);
  for (size_t i = 0; i < 60; ++i)
    EXPECT_EQ(other.Restore(saved.substr(0, rng.UniformInt(i, saved.size()))).code(),
              Code::kBadData);
  // a byte of the numbers that lead through the file: what is still a replay may be read
  for (size_t i = 0; i < 200; ++i) {
    std::string damaged = saved;
    damaged[rng.UniformInt(1000 + i, saved.size())] ^= static_cast<char>(1 + rng.Bits(i) % 255);
    SequenceReplay reads(ShapeOf(GetParam(), 12));
    if (!reads.Restore(damaged).ok()) continue;
    Unroll unroll;
    for (uint64_t place = 0; place < reads.size(); ++place)
      reads.Read(reads.NumberAt(place), unroll);
  }
  EXPECT_EQ(other.size(), 0u);
  SequenceReplay longer(ShapeOf({GetParam().length + 1, GetParam().overlap, false}, 12));
  EXPECT_EQ(longer.Restore(saved).code(), Code::kBadData);
}

// The bytes of one sequence of five entries in two blocks, the first entry skipped, whole but for
// what a case spoils.
struct SavedSequences {
  uint64_t format = 1, capacity = 12, added = 1;
  uint32_t length = 4, overlap = 0;
  struct Block {
    std::vector<EntryHeader> headers;
    std::string observations;
    uint8_t compressed = 0;
    std::vector<std::pair<uint32_t, std::string>> finals = {};
  };
  std::vector<Block> blocks = {{std::vector<EntryHeader>(2), std::string(2 * kFrame, 'a')},
                               {std::vector<EntryHeader>(4),
                                std::string(4 * kFrame, 'b'),
                                0,
                                {{3, std::string(kFrame, 'c')}}}};
  uint32_t skipped = 1;
  std::vector<uint64_t> numbers = {0, 1};
  std::vector<float> state = {1, 2};
  std::string history = std::string(kFrame, 'd'), rest;

  std::string Encode() const {
    ByteWriter out;
    out.Put(format).Put(length).Put(overlap).Put(capacity).Put(added).Put(uint64_t{blocks.size()});
    for (const Block& block : blocks) {
      out.PutVector(block.headers).PutBytes(block.observations).Put(block.compressed);
      out.Put(uint64_t{block.finals.size()});
      for (const auto& [entry, observation] : block.finals) out.Put(entry).PutBytes(observation);
    }
    out.Put(uint32_t{0}).Put(uint64_t{0}).Put(skipped);
    out.PutVector(numbers).PutVector(state).PutBytes(history);
    return out.Take() + rest;
  }
};

TEST(SequenceReplayTest, SequencesOfAnotherShapeAreRefused) {
  using Spoil = std::function<void(SavedSequences&)>;
  const auto restore = [](const Spoil& spoil) {
    SavedSequences saved;
    spoil(saved);
    return SequenceReplay(ShapeOf({4, 0, true}, 12)).Restore(saved.Encode());
  };
  const Spoil spoils[] = {
      [](SavedSequences& s) { s.format = 2; },
      [](SavedSequences& s) { s.length = 5; },
      [](SavedSequences& s) { s.overlap = 1; },
      [](SavedSequences& s) { s.capacity = 13; },
      [](SavedSequences& s) { s.added = 0; },
      [](SavedSequences& s) { s.added = UINT64_MAX; },
      [](SavedSequences& s) { s.blocks[0].headers.clear(), s.blocks[0].observations.clear(); },
      [](SavedSequences& s) {
        s.blocks.push_back({std::vector<EntryHeader>(6), ""});
      },
      [](SavedSequences& s) {
        reinterpret_cast<char*>(s.blocks[0].headers.data())[offsetof(EntryHeader, absent)] = 2;
      },
      [](SavedSequences& s) { s.blocks[0].observations.pop_back(); },
      [](SavedSequences& s) { s.blocks[0].compressed = 1; },  // it is not
      [](SavedSequences& s) { s.blocks[1].finals[0].first = 4; },
      [](SavedSequences& s) { s.blocks[1].finals[0].second.pop_back(); },
      [](SavedSequences& s) { s.skipped = 2; },  // and an entry too few
      [](SavedSequences& s) {
        s.skipped = 3, s.numbers = {0, 0, 1};
      },  // the whole first block
      [](SavedSequences& s) {
        s.numbers = {0, 2};
      },
      [](SavedSequences& s) { s.numbers.clear(); },
      [](SavedSequences& s) { s.state.pop_back(); },
      [](SavedSequences& s) { s.history.pop_back(); },
      [](SavedSequences& s) { s.rest = "x"; },
  };
  EXPECT_TRUE(restore([](SavedSequences&) {}).ok());
  const std::string whole = SavedSequences().Encode();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(SequenceReplay(ShapeOf({4, 0, true}, 12)).Restore(whole.substr(0, size)).code(),
              Code::kBadData)
        << size;
  for (size_t i = 0; i < std::size(spoils); ++i) {
    const Status status = restore(spoils[i]);
    EXPECT_EQ(status.code(), Code::kBadData) << i;
    EXPECT_EQ(status.message(), "the saved replay has another shape than this run's") << i;
  }
}

// By hand: one sequence, with and without its steps, after the last part.
TEST(SequenceReplayTest, StepsOfASequenceAreThoseOfItsUnrollInOlderFiles) {
  const SequenceShape shape = ShapeOf({4, 0, false}, 12);
  const auto restore = [&](uint64_t format, std::vector<uint32_t> steps) -> Result<StepRange> {
    ByteWriter out;
    out.Put(format).Put(shape.length).Put(shape.overlap).Put(shape.capacity).Put(uint64_t{1});
    out.Put(uint64_t{12}).Put(uint64_t{0}).Put(uint64_t{1}).Put(uint64_t{1}).Put(uint64_t{0});
    out.PutVector(std::vector<EntryHeader>(5)).PutBytes(std::string(5 * kFrame, 'a'));
    out.Put(uint8_t{0}).Put(uint64_t{0});
    out.Put(uint32_t{0}).Put(uint64_t{0}).Put(uint32_t{0});
    for (const uint32_t step : steps) out.Put(step);
    out.PutVector(std::vector<uint64_t>{0}).PutVector(std::vector<float>{1, 2});
    out.PutBytes(std::string(kFrame, 'd'));
    SequenceReplay replay(shape);
    RETURN_IF_ERROR(replay.Restore(out.Take()));
    Unroll read;
    return replay.Read(0, read);
  };
  EXPECT_EQ(restore(2, {}).ValueOrThrow(), (StepRange{0, 4}));
  // a part of such a build, and what this one saved next to it, or that one
  ByteWriter part;
  part.Put(uint64_t{3}).Put(shape.length).Put(shape.overlap);
  part.Put(uint64_t{0}).Put(uint64_t{1}).Put(uint64_t{1}).Put(uint64_t{0});
  part.PutVector(std::vector<EntryHeader>(5)).PutBytes(std::string(5 * kFrame, 'a'));
  part.Put(uint8_t{0}).Put(uint64_t{0}).Put(uint32_t{0}).Put(uint64_t{0}).Put(uint32_t{0});
  part.PutVector(std::vector<uint64_t>{0}).PutVector(std::vector<float>{1, 2});
  part.PutBytes(std::string(kFrame, 'd'));
  const std::string saved_part = part.Take();
  for (const uint64_t format : {2, 4}) {
    ByteWriter out;
    out.Put(format).Put(shape.length).Put(shape.overlap).Put(shape.capacity).Put(uint64_t{1});
    out.Put(uint64_t{1}).Put(uint64_t{1}).Put(uint64_t{1}).Put(uint64_t{0});
    SequenceReplay replay(shape);
    ASSERT_TRUE(
        replay.Restore(out.Take(), [&](uint64_t) { return std::string_view(saved_part); }).ok());
    Unroll read;
    EXPECT_EQ(replay.Read(0, read), (StepRange{0, 4}));
  }
  EXPECT_EQ(restore(4, {1, 3}).ValueOrThrow(), (StepRange{1, 3}));
  for (const auto& bad : {std::vector<uint32_t>{3, 3}, {1, 5}, {2, 1}, {}})
    EXPECT_EQ(restore(4, bad).status().code(), Code::kBadData);
}

// By hand: the last two of three sequences of five entries. Each shares an entry with the one
// before, the first of them with one that is gone.
TEST(SequenceReplayTest, OneWithoutPartsIsReadAndGoesOn) {
  SequenceShape shape = ShapeOf({4, 0, false}, 2);
  shape.parts = {.parts_max = 2, .bytes_min = 1};
  ByteWriter out;
  out.Put(uint64_t{1}).Put(shape.length).Put(shape.overlap).Put(shape.capacity).Put(uint64_t{3});
  out.Put(uint64_t{3});
  for (const auto& [entries, frame] : {std::pair<size_t, char>{5, 'a'}, {4, 'b'}, {4, 'c'}}) {
    out.PutVector(std::vector<EntryHeader>(entries)).PutBytes(std::string(entries * kFrame, frame));
    out.Put(uint8_t{0}).Put(uint64_t{0});
  }
  for (const uint64_t number : {1, 2}) {
    out.Put(uint32_t{0}).Put(number).Put(uint32_t{number == 1 ? 4U : 3U});
    out.PutVector(std::vector<uint64_t>{number - 1, number});
    out.PutVector(std::vector<float>{1, 2}).PutBytes(std::string(kFrame, 'd'));
  }
  SequenceReplay replay(shape), again(shape);
  ASSERT_TRUE(replay.Restore(out.Take()).ok());
  const auto expect = [](const SequenceReplay& read) {
    EXPECT_EQ(read.TEST_Blocks(), 3u);
    for (const auto& [number, frames] : {std::pair{1, "abbbb"}, {2, "bcccc"}}) {
      Unroll unroll;
      read.Read(static_cast<uint64_t>(number), unroll);
      ASSERT_EQ(unroll.observations.size(), 5 * kFrame);
      for (size_t t = 0; t < 5; ++t)
        EXPECT_EQ(static_cast<char>(unroll.observations[t * kFrame]), frames[t]) << number;
    }
  };
  expect(replay);
  SavedParts folder;
  folder.Save(replay);
  EXPECT_EQ(folder.files.size(), 2u);
  ASSERT_TRUE(folder.Restore(again).ok());
  expect(again);
}

TEST(SequenceSamplerTest, DamagedOnesAreRefused) {
  SequenceSampler sampler(ShapeOf({4, 1, false}, 2), /*alpha=*/1, /*beta=*/1);
  const std::string saved = sampler.Save();
  EXPECT_TRUE(sampler.Restore(saved).ok());
  const auto refused = [&](const std::string& bytes, const char* message) {
    const Status status = sampler.Restore(bytes);
    EXPECT_EQ(status.code(), Code::kBadData);
    EXPECT_EQ(status.message(), message);
  };
  refused(saved + "x", "the saved replay is damaged");
  for (size_t size = 0; size < saved.size(); ++size)
    refused(saved.substr(0, size), "the saved replay is damaged");
  ByteReader in(saved);
  const std::string replay(in.GetBytes());
  refused(ByteWriter().PutBytes("").PutBytes("").Take(),
          "the saved replay has another shape than this run's");
  refused(ByteWriter().PutBytes(replay).PutBytes("").Take(),
          "the saved priorities have another shape than this run's");
}

// Entries that two sequences share are stored once; frames of a game compress.
TEST(SequenceReplayTest, AnEntryIsStoredOnce) {
  const Case plain{8, 8, false}, packed{8, 8, true};
  SequenceReplay replay(ShapeOf(plain, 1000)), small(ShapeOf(packed, 1000));
  Player player(plain);
  uint64_t unrolls = 0;
  for (int i = 0; i < 30; ++i)
    for (const UnrollStore::Loan& unroll : player.Play())
      ++unrolls, replay.Add(*unroll), small.Add(*unroll);
  const size_t each = kFrame + sizeof(EntryHeader);
  EXPECT_LT(replay.Save().size(), unrolls * (8 * each + 200) + 2 * kSlots * 17 * each);
  EXPECT_GT(replay.Save().size(), unrolls * 8 * each);
  EXPECT_LT(small.Save().size() + unrolls * 8 * kFrame / 4, replay.Save().size());
}

// The reference wrote priorities back by place alone: to whichever sequence was there by then.
TEST(SequenceSamplerTest, ThePriorityOfASequenceThatIsGoneIsDropped) {
  const Case c{4, 1, false};
  SequenceSampler sampler(ShapeOf(c, 2), /*alpha=*/1, /*beta=*/1);
  Player player(c);
  std::vector<Unroll> played;
  while (played.size() < 4)
    for (const UnrollStore::Loan& unroll : player.Play()) played.push_back(*unroll);
  const auto add = [&](size_t i, double priority) {
    const StepRange all = LearnedSteps(played[i]);
    sampler.Add(played[i], {&all, 1}, {&priority, 1});
  };
  add(0, 1), add(1, 1);
  sampler.Draw(CounterRng(1), 6, 2, 1);
  ASSERT_EQ(sampler.unrolls().size(), 6u);
  for (const float weight : sampler.weights()) EXPECT_EQ(weight, 1);
  add(2, 1), add(3, 3);
  const std::string before = sampler.Save();
  sampler.SetPriorities(std::vector<double>(6, 100));
  EXPECT_EQ(sampler.Save(), before);
  sampler.Draw(CounterRng(2), 400, 2, 1);
  size_t last = 0;
  for (const Unroll* unroll : sampler.unrolls())
    last += unroll->index == played[3].index && unroll->slot == played[3].slot;
  EXPECT_NEAR(static_cast<double>(last), 300, 30);
}

}  // namespace
}  // namespace samara::sequence_replay_test
