#include "rl/replay/unroll_replay.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "core/bytes.h"
#include "rl/replay/parts_test_util.h"

namespace samara::unroll_replay_test {
namespace {

constexpr uint32_t kLength = 3;
constexpr ReplayShape kShape = {
    .capacity = 7, .length = kLength, .observation_bytes = 4, .action_values = 1};

std::vector<std::byte> Bytes(float x) {
  std::vector<std::byte> bytes(sizeof x);
  std::memcpy(bytes.data(), &x, sizeof x);
  return bytes;
}
float Number(std::span<const std::byte> bytes) {
  float x;
  std::memcpy(&x, bytes.data(), sizeof x);
  return x;
}

// Entries of a stream whose observation, action and reward are the entry's number `first`, ...;
// the step that led to `truncated` or `terminated` ended an episode.
Unroll UnrollFrom(float first, int terminated = -1, int truncated = -1) {
  Unroll unroll;
  unroll.entries = kLength + 1;
  unroll.headers.resize(unroll.entries);
  for (uint32_t t = 0; t <= kLength; ++t) {
    const float x = first + static_cast<float>(t);
    const auto bytes = Bytes(x);
    unroll.observations.insert(unroll.observations.end(), bytes.begin(), bytes.end());
    unroll.action_values.push_back(10 * x);
    EntryHeader& header = unroll.headers[t];
    header.reward = 100 * x;
    header.action = static_cast<int32_t>(x);
    header.terminated = static_cast<int>(t) == terminated;
    header.truncated = static_cast<int>(t) == truncated;
    if (header.truncated) unroll.finals.push_back({t, Bytes(-x)});
  }
  return unroll;
}

constexpr ReturnRule kOneStep = {.steps = 1, .gamma = 0.5};

std::vector<float> Of(const Transition& t) {
  return {Number(t.observation), t.action[0], t.reward, Number(t.next_observation), t.discount};
}

TEST(UnrollReplayTest, AStepLeadsToTheNextEntryOrToTheEpisodesLastObservation) {
  UnrollReplay replay(kShape);
  EXPECT_EQ(replay.size(), 0u);
  replay.Add(UnrollFrom(1));
  replay.Add(UnrollFrom(4, /*terminated=*/2, /*truncated=*/3));
  EXPECT_EQ(replay.size(), 6u);
  EXPECT_EQ(Of(replay.At(0, kOneStep)), (std::vector<float>{1, 10, 200, 2, 0.5}));
  EXPECT_EQ(Of(replay.At(2, kOneStep)), (std::vector<float>{3, 30, 400, 4, 0.5}));
  EXPECT_EQ(Of(replay.At(3, kOneStep)), (std::vector<float>{4, 40, 500, 5, 0.5}));
  EXPECT_EQ(Of(replay.At(4, kOneStep)), (std::vector<float>{5, 50, 600, 6, 0}));
  EXPECT_EQ(Of(replay.At(5, kOneStep)), (std::vector<float>{6, 60, 700, -7, 0.5}));
}

// ---- frame stacks

constexpr int64_t kDepth = 3;
constexpr size_t kFrameBytes = 200;

// Each byte as a frame.
std::vector<std::byte> Frames(std::span<const std::byte> bytes) {
  std::vector<std::byte> frames;
  for (const std::byte byte : bytes) frames.insert(frames.end(), kFrameBytes, byte);
  return frames;
}

// A slot's stream of frames, of kFrameBytes alike bytes each: episodes that end now and then, some
// by their clock, cut into unrolls. FrameStack gives what each step and what it leads to should
// look like.
struct FrameStream {
  FrameStream(const FrameStackRule& rule, size_t unrolls) : stack(rule, 1) {
    constexpr size_t kEnds[] = {5, 2, 1, 9, 4};
    size_t episode = 0;
    uint32_t step = 0;
    std::vector<std::byte> frames;  // of the slot so far
    const size_t entries = unrolls * kLength + 1;
    std::vector<EntryHeader> headers(entries);
    std::vector<std::vector<std::byte>> finals(entries);
    for (size_t e = 0; e < entries; ++e) {
      if (e > 0) {
        if (step++ == kEnds[episode % 5]) {
          (episode++ % 2 == 0 ? headers[e].truncated : headers[e].terminated) = true;
          finals[e] = {static_cast<std::byte>(200 + e % 50)};
          stack.Push(std::span(reinterpret_cast<const uint8_t*>(finals[e].data()), 1));
          after.push_back(Stack());
          step = 0;
        }
      }
      headers[e].episode_step = step;
      frames.push_back(static_cast<std::byte>(1 + e % 190));
      const auto frame = std::span(reinterpret_cast<const uint8_t*>(&frames.back()), 1);
      step == 0 ? stack.Reset(frame) : stack.Push(frame);
      if (e > 0 && step > 0) after.push_back(Stack());
      before.push_back(Stack());
    }
    for (size_t u = 0; u < unrolls; ++u) {
      Unroll unroll;
      unroll.entries = kLength + 1;
      const auto first = static_cast<ptrdiff_t>(u * kLength);
      unroll.headers.assign(headers.begin() + first, headers.begin() + first + kLength + 1);
      unroll.observations =
          Frames(std::span(frames).subspan(static_cast<size_t>(first), kLength + 1));
      unroll.action_values.resize(kLength + 1);
      std::vector<std::byte> history;
      for (ptrdiff_t age = 1; age < kDepth; ++age)
        history.push_back(headers[u * kLength].episode_step >= age
                              ? frames[static_cast<size_t>(first - age)]
                              : std::byte{0});
      unroll.history = Frames(history);
      for (uint32_t t = 1; t <= kLength; ++t)
        if (headers[u * kLength + t].truncated)
          unroll.finals.push_back({t, Frames(finals[u * kLength + t])});
      all.push_back(std::move(unroll));
    }
  }
  std::vector<float> Stack() const { return {stack.input().begin(), stack.input().end()}; }

  FrameStack stack;
  std::vector<Unroll> all;
  std::vector<std::vector<float>> before, after;  // by step
};

// A replay of ten blocks, saved in parts.
constexpr ReplayShape FramesShape(bool compress) {
  return {.capacity = 10 * kLength,
          .length = kLength,
          .observation_bytes = kFrameBytes,
          .history = kDepth - 1,
          .action_values = 1,
          .compress = compress,
          .parts = {.parts_max = 3, .bytes_min = 1}};
}

// Steps of the stream that a replay's are, once its last 10 of `unrolls` are there.
uint64_t InStream(uint64_t step, uint64_t unrolls) {
  uint64_t number = unrolls - 1;
  while (number % 10 != step / kLength) --number;
  return number * kLength + step % kLength;
}

// Restored replays compress as they are told to, whichever way the saved one did.
void ExpectTheStacksThatTheSlotSaw(bool compress, bool compress_again) {
  constexpr size_t kUnrolls = 25;
  for (const StackReset reset : {StackReset::kRepeat, StackReset::kZeros, StackReset::kFront})
    for (const StackOrder order : {StackOrder::kOldestFirst, StackOrder::kNewestFirst}) {
      // a stack that fills from the front has one order
      if (reset == StackReset::kFront && order == StackOrder::kNewestFirst) continue;
      const FrameStackRule rule{.depth = kDepth, .order = order, .at_reset = reset};
      const FrameStream stream(rule, kUnrolls);
      UnrollReplay replay(FramesShape(compress)), again(FramesShape(compress_again));
      for (const Unroll& unroll : stream.all) replay.Add(unroll);
      SavedParts saved;
      saved.Save(replay);
      EXPECT_FALSE(saved.files.empty());
      ASSERT_TRUE(saved.Restore(again).ok());
      const auto values = [](std::span<const std::byte* const> planes) {
        std::vector<float> seen;
        for (const std::byte* plane : planes) {
          seen.push_back(plane == nullptr ? 0 : std::to_integer<int>(*plane) / 255.0F);
          if (plane != nullptr) {
            const std::span frame(plane, kFrameBytes);
            EXPECT_EQ(std::ranges::count(frame, *plane), std::ssize(frame));
          }
        }
        return seen;
      };
      for (const UnrollReplay* of : {&replay, &again}) {
        ASSERT_EQ(of->size(), FramesShape(false).capacity);
        std::vector<std::byte> memory = of->MakeStackMemory();
        for (uint64_t step = 0; step < of->size(); ++step) {
          const std::byte* planes[kDepth];
          of->StackBefore(step, rule, memory, planes);
          EXPECT_EQ(values(planes), stream.before[InStream(step, kUnrolls)]) << step;
          for (const int64_t steps : {1, 3}) {
            const uint64_t last = of->At(step, {.steps = steps, .gamma = 0.5}).last;
            EXPECT_LT(last, step + static_cast<uint64_t>(steps));
            if (of->terminated(last)) continue;  // what follows has no meaning
            of->StackAfter(last, rule, memory, planes);
            EXPECT_EQ(values(planes), stream.after[InStream(last, kUnrolls)]) << step;
          }
        }
      }
    }
}

TEST(UnrollReplayTest, StacksAreThoseThatTheSlotSaw) {
  for (const bool compress : {false, true})
    for (const bool again : {false, true}) ExpectTheStacksThatTheSlotSaw(compress, again);
}

TEST(UnrollReplayTest, CompressedFramesTakeLessAndHaveNoViews) {
  UnrollReplay plain(FramesShape(false)), packed(FramesShape(true));
  for (const Unroll& unroll : FrameStream({.depth = kDepth}, 9).all)
    plain.Add(unroll), packed.Add(unroll);
  EXPECT_EQ(plain.MakeStackMemory().size(), 0u);
  EXPECT_EQ(packed.MakeStackMemory().size(), kDepth * kFrameBytes);
  EXPECT_EQ(plain.Before(4).size(), kFrameBytes);
  EXPECT_TRUE(packed.Before(4).empty() && packed.After(4).empty());
  const Transition step = packed.At(4, kOneStep);
  EXPECT_TRUE(step.observation.empty() && step.next_observation.empty());
  EXPECT_LT(packed.SavePart(0).size(), plain.SavePart(0).size() / 2);
}

// Any byte may be changed: the result is refused, or its stacks are frames of the replay.
void ExpectNoChangedByteLeadsAStackOutOfTheReplay(bool compress) {
  const FrameStackRule rule{.depth = kDepth};
  UnrollReplay replay(FramesShape(compress));
  for (const Unroll& unroll : FrameStream(rule, 14).all) replay.Add(unroll);
  SavedParts whole;
  whole.Save(replay);
  for (size_t i = 0; i < whole.rest.size(); ++i)
    for (const char change : {'\1', '\x7f', '\xff'}) {
      SavedParts damaged = whole;
      damaged.rest[i] ^= change;
      UnrollReplay other(FramesShape(compress));
      if (!damaged.Restore(other).ok()) continue;
      const std::byte* planes[kDepth];
      std::vector<std::byte> memory = other.MakeStackMemory();
      int sum = 0;
      for (uint64_t step = 0; step < other.size(); ++step) {
        other.StackBefore(step, rule, memory, planes);
        for (const std::byte* plane : planes) sum += std::to_integer<int>(*plane);
        other.StackAfter(other.At(step, kOneStep).last, rule, memory, planes);
        for (const std::byte* plane : planes) sum += std::to_integer<int>(*plane);
      }
      EXPECT_GT(sum, 0);
    }
}
TEST(UnrollReplayTest, NoChangedByteLeadsAStackOutOfTheReplay) {
  for (const bool compress : {false, true}) ExpectNoChangedByteLeadsAStackOutOfTheReplay(compress);
}

// By hand: r_0 + r_1 / 2 + r_2 / 4, cut where the block or an episode ends.
TEST(UnrollReplayTest, RewardsOfSeveralStepsEndWithTheBlockOrTheEpisode) {
  constexpr ReturnRule kThree = {.steps = 3, .gamma = 0.5};
  UnrollReplay replay(kShape);
  replay.Add(UnrollFrom(1));
  replay.Add(UnrollFrom(4, /*terminated=*/2, /*truncated=*/3));
  EXPECT_EQ(Of(replay.At(0, kThree)), (std::vector<float>{1, 10, 200 + 150 + 100, 4, 0.125}));
  EXPECT_EQ(Of(replay.At(0, {.steps = 2, .gamma = 0.5})),
            (std::vector<float>{1, 10, 200 + 150, 3, 0.25}));
  EXPECT_EQ(Of(replay.At(1, kThree)), (std::vector<float>{2, 20, 300 + 200, 4, 0.25}));
  EXPECT_EQ(Of(replay.At(2, kThree)), (std::vector<float>{3, 30, 400, 4, 0.5}));
  EXPECT_EQ(Of(replay.At(3, kThree)), (std::vector<float>{4, 40, 500 + 300, 6, 0}));
  EXPECT_EQ(Of(replay.At(5, kThree)), (std::vector<float>{6, 60, 700, -7, 0.5}));
}

TEST(UnrollReplayTest, ItHasRoomForWholeBlocksAndTheOldestGoesFirst) {
  UnrollReplay replay(kShape);
  for (int i = 0; i < 5; ++i) {
    replay.Add(UnrollFrom(static_cast<float>(10 * i), -1, i == 2 ? 1 : -1));
    EXPECT_EQ(replay.size(), std::min<uint64_t>(6, 3 * static_cast<uint64_t>(i + 1)));
    EXPECT_EQ(replay.added(), 3u * static_cast<uint64_t>(i + 1));
  }
  // the block of 20, with its truncated step, was replaced by that of 40
  EXPECT_EQ(Of(replay.At(0, kOneStep)), (std::vector<float>{40, 400, 4100, 41, 0.5}));
  EXPECT_EQ(Of(replay.At(3, kOneStep)), (std::vector<float>{30, 300, 3100, 31, 0.5}));
  EXPECT_EQ(UnrollReplay({.capacity = 1, .length = 3, .observation_bytes = 4}).size(), 0u);
}

TEST(UnrollReplayTest, TheIndexOfADiscreteActionIsANumber) {
  UnrollReplay replay({.capacity = 3, .length = kLength, .observation_bytes = 4});
  replay.Add(UnrollFrom(5));
  EXPECT_EQ(replay.At(1, kOneStep).action[0], 6);
}

TEST(UnrollReplayTest, WhatIsSavedIsReadBackAndDamageIsRefused) {
  UnrollReplay replay(kShape), other(kShape);
  for (int i = 0; i < 3; ++i) replay.Add(UnrollFrom(static_cast<float>(10 * i), 2, 3));
  const std::string saved = replay.Save();
  ASSERT_TRUE(other.Restore(saved).ok());
  for (uint64_t step = 0; step < replay.size(); ++step)
    EXPECT_EQ(Of(other.At(step, kOneStep)), Of(replay.At(step, kOneStep)));
  replay.Add(UnrollFrom(70)), other.Add(UnrollFrom(70));
  EXPECT_EQ(other.Save(), replay.Save());

  const std::string before = other.Save();
  for (size_t cut = 0; cut < saved.size(); ++cut)
    EXPECT_EQ(other.Restore(saved.substr(0, cut)).code(), Code::kBadData) << cut;
  EXPECT_EQ(other.Restore(saved + "x").code(), Code::kBadData);
  ReplayShape wider = kShape;
  wider.observation_bytes = 8;
  EXPECT_EQ(UnrollReplay(wider).Restore(saved).code(), Code::kBadData);
  EXPECT_EQ(other.Save(), before);
}

// ---- parts

// Ten blocks, saved in parts of two or of four.
ReplayShape InParts(uint64_t parts_max) {
  return {.capacity = 10 * kLength,
          .length = kLength,
          .observation_bytes = 4,
          .action_values = 1,
          .parts = {.parts_max = parts_max, .bytes_min = 1}};
}

Unroll NumberedUnroll(int number) {
  return UnrollFrom(static_cast<float>(10 * number), number % 4 == 1 ? 1 : -1,
                    number % 3 == 0 ? 2 : -1);
}

void ExpectSame(const UnrollReplay& a, const UnrollReplay& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(a.added(), b.added());
  for (uint64_t step = 0; step < a.size(); ++step)
    EXPECT_EQ(Of(a.At(step, kOneStep)), Of(b.At(step, kOneStep))) << step;
  EXPECT_EQ(a.Save(), b.Save());
  ASSERT_EQ(a.parts(), b.parts());
  for (const uint64_t part : a.parts()) EXPECT_EQ(a.SavePart(part), b.SavePart(part)) << part;
}

TEST(UnrollReplayPartsTest, ARestoredReplayIsAsIfItHadNotBeenSaved) {
  for (const uint64_t parts_max : {5, 3, 1}) {
    UnrollReplay replay(InParts(parts_max));
    SavedParts folder;
    for (int number = 0; number < 47; ++number) {
      folder.Save(replay);
      EXPECT_LE(folder.files.size(), parts_max);
      UnrollReplay other(InParts(parts_max));
      ASSERT_TRUE(folder.Restore(other).ok()) << number;
      ExpectSame(other, replay);
      other.Add(NumberedUnroll(number)), replay.Add(NumberedUnroll(number));
      ExpectSame(other, replay);
    }
    // 46 blocks were saved, in parts of 2, 4 or 10, each once
    EXPECT_EQ(folder.written, parts_max == 5 ? 23 : parts_max == 3 ? 11 : 4);
  }
}

// The first checkpoint may come late: blocks of the oldest part have left by then.
TEST(UnrollReplayPartsTest, AFullReplayIsSavedForTheFirstTime) {
  UnrollReplay replay(InParts(3));
  for (int number = 0; number < 27; ++number) replay.Add(NumberedUnroll(number));
  SavedParts folder;
  folder.Save(replay);
  EXPECT_EQ(replay.parts(), (std::vector<uint64_t>{4, 5}));  // from 17 on, and 24 to 26 besides
  UnrollReplay other(InParts(3));
  ASSERT_TRUE(folder.Restore(other).ok());
  ExpectSame(other, replay);
}

TEST(UnrollReplayPartsTest, WhatIsSavedInPartsOfAnotherSizeIsRead) {
  UnrollReplay replay(InParts(5)), other(InParts(1));
  for (int number = 0; number < 25; ++number) replay.Add(NumberedUnroll(number));
  SavedParts folder;
  folder.Save(replay);
  ASSERT_TRUE(folder.Restore(other).ok());
  ExpectSame(other, replay);
}

// After the format, the length, the number of blocks and of unrolls.
constexpr size_t kItemsAt = 3 * sizeof(uint64_t) + sizeof(uint32_t);

TEST(UnrollReplayPartsTest, DamagedAndMissingPartsAreRefusedAndChangeNothing) {
  UnrollReplay replay(InParts(3)), other(InParts(3));
  for (int number = 0; number < 27; ++number) replay.Add(NumberedUnroll(number));
  other.Add(NumberedUnroll(5));
  const std::string before = other.Save();
  SavedParts whole;
  whole.Save(replay);
  const auto refused = [&](const SavedParts& damaged) {
    EXPECT_EQ(damaged.Restore(other).code(), Code::kBadData);
    EXPECT_EQ(other.Save(), before);
    EXPECT_EQ(other.size(), kLength);
  };
  for (const uint64_t part : replay.parts()) {
    SavedParts damaged = whole;
    damaged.files.erase(part);
    refused(damaged);
    damaged.files[part] = whole.files.at(part == 4 ? 5 : 4);
    refused(damaged);
    damaged.files[part] = whole.files.at(part) + "x";
    refused(damaged);
    for (size_t size = 0; size < whole.files.at(part).size(); ++size) {
      damaged.files[part] = whole.files.at(part).substr(0, size);
      refused(damaged);
    }
  }
  SavedParts damaged = whole;
  for (size_t size = 0; size < whole.rest.size(); ++size) {
    damaged.rest = whole.rest.substr(0, size);
    refused(damaged);
  }
  damaged.rest = whole.rest;  // no step in a part
  std::fill_n(damaged.rest.begin() + kItemsAt, sizeof(uint64_t), '\0');
  refused(damaged);
  // of the oldest part, one that was saved later
  replay.Add(NumberedUnroll(27));
  damaged = whole, damaged.files[4] = replay.SavePart(4);
  refused(damaged);
}

// Any byte may be changed: the result is refused or is a replay.
TEST(UnrollReplayPartsTest, NoChangedByteLeadsOutOfTheReplay) {
  UnrollReplay replay(InParts(3));
  for (int number = 0; number < 27; ++number) replay.Add(NumberedUnroll(number));
  SavedParts whole;
  whole.Save(replay);
  for (size_t i = 0; i < whole.files.at(4).size(); ++i)
    for (const char change : {'\1', '\x7f', '\xff'}) {
      SavedParts damaged = whole;
      damaged.files[4][i] ^= change;
      if (i < damaged.rest.size()) damaged.rest[i] ^= change;
      UnrollReplay other(InParts(3));
      if (!damaged.Restore(other).ok()) continue;
      for (uint64_t step = 0; step < other.size(); ++step) (void)other.At(step, kOneStep);
    }
}

// ---- what earlier builds saved

// The bytes of a replay of one block, whole but for what a case spoils.
struct SavedReplay {
  uint64_t format = 1, blocks_max = 2, added = 1;
  uint32_t length = kLength;
  std::vector<std::byte> observations = std::vector<std::byte>(4 * (kLength + 1));
  std::vector<float> actions = {1, 2, 3}, rewards = {4, 5, 6};
  std::vector<uint8_t> ends = {0, 2, 1};  // the second step was cut by the clock
  std::vector<std::pair<uint64_t, std::string>> finals = {{1, "1234"}};

  std::string Encode() const {
    ByteWriter out;
    out.Put(format).Put(length).Put(blocks_max).Put(added);
    out.PutVector(observations).PutVector(actions).PutVector(rewards).PutVector(ends);
    out.Put(uint64_t{finals.size()});
    for (const auto& [step, observation] : finals) out.Put(step).PutBytes(observation);
    return out.Take();
  }
};

TEST(UnrollReplayTest, OneOfAnotherShapeIsRefused) {
  using Spoil = std::function<void(SavedReplay&)>;
  const auto restore = [](const Spoil& spoil) {
    SavedReplay saved;
    spoil(saved);
    return UnrollReplay(kShape).Restore(saved.Encode());
  };
  const Spoil spoils[] = {
      [](SavedReplay& s) { s.format = 2; },
      [](SavedReplay& s) { s.length = kLength + 1; },
      [](SavedReplay& s) { s.blocks_max = 3; },
      [](SavedReplay& s) { s.added = 0; },
      [](SavedReplay& s) { s.added = UINT64_MAX; },
      [](SavedReplay& s) { s.observations.pop_back(); },
      [](SavedReplay& s) { s.actions.push_back(4); },
      [](SavedReplay& s) { s.rewards.pop_back(); },
      [](SavedReplay& s) { s.ends.push_back(0); },
      [](SavedReplay& s) { s.ends[0] = 3; },  // no such end
      [](SavedReplay& s) { s.ends[0] = 2; },  // without its last observation
      [](SavedReplay& s) { s.finals.clear(); },
      [](SavedReplay& s) { s.finals[0].second = "123"; },
      [](SavedReplay& s) {
        s.finals.push_back({3, "1234"});
      },
  };
  EXPECT_TRUE(restore([](SavedReplay&) {}).ok());
  const std::string whole = SavedReplay().Encode();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(UnrollReplay(kShape).Restore(whole.substr(0, size)).code(), Code::kBadData) << size;
  for (size_t i = 0; i < std::size(spoils); ++i) {
    const Status status = restore(spoils[i]);
    EXPECT_EQ(status.code(), Code::kBadData) << i;
    EXPECT_EQ(status.message(), "the saved replay has another shape than this run's") << i;
  }
}

TEST(UnrollReplayTest, ActionsThatAreNoChoiceAreRefused) {
  ReplayShape shape = kShape;
  shape.choices = 4;  // actions are 1, 2 and 3
  SavedReplay saved;
  EXPECT_TRUE(UnrollReplay(shape).Restore(saved.Encode()).ok());
  for (const float action : {4.0F, -1.0F, 1.5F, std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity()}) {
    saved.actions[1] = action;
    EXPECT_EQ(UnrollReplay(shape).Restore(saved.Encode()).code(), Code::kBadData) << action;
  }
}

// Two blocks, numbers 3 and 4 in places 1 and 0.
TEST(UnrollReplayTest, OneWithoutPartsIsReadAndGoesOn) {
  SavedReplay saved;
  saved.added = 5;
  saved.observations.clear();
  for (const float x : {40, 41, 42, 43, 30, 31, 32, 33})
    for (const std::byte byte : Bytes(x)) saved.observations.push_back(byte);
  saved.actions = {400, 410, 420, 300, 310, 320};
  saved.rewards = {4100, 4200, 4300, 3100, 3200, 3300};
  saved.ends = {0, 0, 0, 0, 2, 0};
  saved.finals = {{4, std::string(reinterpret_cast<const char*>(Bytes(-32).data()), 4)}};
  ReplayShape shape = kShape;
  shape.parts = {.parts_max = 2, .bytes_min = 1};
  UnrollReplay replay(shape), undisturbed(shape);
  ASSERT_TRUE(replay.Restore(saved.Encode()).ok());
  for (int number = 0; number < 5; ++number)
    undisturbed.Add(UnrollFrom(static_cast<float>(10 * number), -1, number == 3 ? 2 : -1));
  ExpectSame(replay, undisturbed);
  replay.Add(UnrollFrom(50)), undisturbed.Add(UnrollFrom(50));
  ExpectSame(replay, undisturbed);
  SavedParts folder;
  folder.Save(replay);
  EXPECT_EQ(folder.files.size(), 2u);
  UnrollReplay again(shape);
  ASSERT_TRUE(folder.Restore(again).ok());
  ExpectSame(again, undisturbed);
}

TEST(UnrollReplayTest, TheMemoryWhenFullIsKnownBefore) {
  // two blocks: 4 observations of 4 bytes, 3 steps of an action, a reward and an end
  EXPECT_EQ(UnrollReplay::Bytes(kShape), 2u * (4 * 4 + 3 * (4 + 4 + 1)));
}

}  // namespace
}  // namespace samara::unroll_replay_test
