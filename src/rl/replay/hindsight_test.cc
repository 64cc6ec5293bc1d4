// Goals in hindsight against the definition: streams of random episodes are logged, and what a step
// may become is enumerated from the log.
#include "rl/replay/hindsight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "rl/replay/parts_test_util.h"

namespace samara::hindsight_test {
namespace {

constexpr uint32_t kStreams = 3, kLength = 3;
constexpr size_t kFloats = 3;  // number of the step, achieved, desired
constexpr ReplayShape kShape = {.capacity = 12 * kLength,
                                .length = kLength,
                                .observation_bytes = kFloats * sizeof(float),
                                .episodes = true,
                                .parts = {.parts_max = 3, .bytes_min = 1}};
constexpr GoalSpec kGoes = {.size = 1, .threshold = 0.5, .reached = 2, .missed = -1},
                   kEnds = {.size = 1, .threshold = 0.5, .terminates = true};

using Seen = std::vector<float>;

Seen Floats(std::span<const std::byte> bytes) {
  Seen values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A step as the environment made it.
struct Record {
  Seen before, after;
  float reward = 0;
  bool fallen = false;  // terminated whatever the goal is
  bool ended = false;
  uint64_t episode = 0;
};

// Streams that play in turns of random order, and lose an actor at times.
class World {
 public:
  World(const GoalSpec& rule, uint64_t seed)
      : rule_(rule),
        store_({.observation_bytes = kShape.observation_bytes, .values = 0},
               {.slots = kStreams, .length = kLength, .buffers = 3 * kStreams}),
        replay(kShape),
        rng_(seed) {
    for (Stream& stream : streams_) Begin(stream);
  }

  void Play(int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto slot = static_cast<uint32_t>(Draw(kStreams));
      // one sleeps at times, while the others go around the ring
      if (slot != ++turns_ / 200 % (2 * kStreams)) Step(slot);
    }
  }

  // The steps that the replay holds, by their numbers.
  std::map<float, const Record*> Held() const {
    std::map<float, const Record*> held;
    for (uint64_t step = 0; step < replay.size(); ++step) {
      const float number = Floats(replay.Before(step))[0];
      held[number] = &log_.at(number);
    }
    return held;
  }
  // Numbers of the steps of this one's episode that the replay holds, from it on.
  std::vector<float> From(float number) const {
    const auto held = Held();
    std::vector<float> numbers;
    const uint64_t episode = log_.at(number).episode;
    for (auto at = held.find(number); at != held.end(); ++at) {
      if (at->second->episode != episode) continue;
      numbers.push_back(at->first);
    }
    return numbers;
  }
  const Record& record(float number) const { return log_.at(number); }

 private:
  struct Stream {
    EntryHeader header;
    Seen seen, last;  // last: what ended the episode before
    uint64_t episode = 0;
  };

  uint64_t Draw(uint64_t n) { return rng_.UniformInt(draws_++, n); }
  float Number() { return static_cast<float>(++number_); }
  void Begin(Stream& stream) {
    stream.seen = {Number(), static_cast<float>(Draw(4)), static_cast<float>(Draw(4))};
    stream.header.episode_step = 0;
    stream.episode = ++episodes_;
  }
  void Step(uint32_t slot) {
    Stream& stream = streams_[slot];
    if (Draw(40) == 0) {  // the actor is lost, and with it the episode
      const uint32_t incarnation = stream.header.incarnation + 1;
      stream.header = {.incarnation = incarnation};
      stream.last.clear();
      Begin(stream);
    }
    stream.header.action = static_cast<int32_t>(Draw(5));
    ASSERT_TRUE(store_.Reserve(slot));
    store_.Append(slot, {.header = stream.header,
                         .observation = std::as_bytes(std::span(stream.seen)),
                         .final_observation = std::as_bytes(std::span(stream.last)),
                         .action_values = {},
                         .behaviour = {},
                         .values = {},
                         .state = {},
                         .history = {}});
    for (const auto& unroll : store_.Take(kStreams)) replay.Add(*unroll, 10 + unroll->slot);
    Advance(stream);
  }
  void Advance(Stream& stream) {
    Record record = {.before = stream.seen, .after = stream.seen, .episode = stream.episode};
    record.after[0] = Number(), record.after[1] = static_cast<float>(Draw(4));
    const bool reached = record.after[1] == record.after[2];
    record.reward = static_cast<float>(reached ? rule_.reached : rule_.missed);
    record.fallen = Draw(20) == 0;
    const bool terminated = record.fallen || (reached && rule_.terminates);
    const bool truncated = !terminated && Draw(15) == 0;
    record.ended = terminated || truncated;
    const uint32_t step = stream.header.episode_step;
    stream.header = {.reward = record.reward,
                     .episode_step = step + 1,
                     .incarnation = stream.header.incarnation,
                     .terminated = terminated,
                     .truncated = truncated};
    stream.seen = record.after, stream.last.clear();
    if (record.ended) {
      stream.last = record.after;
      Begin(stream);
    }
    log_[record.before[0]] = record;
  }

  const GoalSpec rule_;
  UnrollStore store_;
  std::map<float, Record> log_;
  Stream streams_[kStreams];
  uint64_t number_ = 0, episodes_ = 0, draws_ = 0, turns_ = 0;

 public:
  UnrollReplay replay;

 private:
  CounterRng rng_;
};

// Reward of a step for `goal` by the definition. `block`: steps up to the end of its block.
struct Worth {
  double reward = 0, discount = 1;
  Seen next;
};
Worth Definition(const World& world, const GoalSpec& rule, float number, float goal,
                 const ReturnRule& returns, uint64_t block) {
  Worth worth;
  uint64_t steps = 0;
  for (const float at : world.From(number)) {
    if (steps == std::min<uint64_t>(static_cast<uint64_t>(returns.steps), block)) break;
    const Record& record = world.record(at);
    const bool reached = std::abs(record.after[1] - goal) <= rule.threshold;
    worth.reward += worth.discount * (reached ? rule.reached : rule.missed);
    worth.discount *= returns.gamma;
    worth.next = record.after, worth.next[2] = goal;
    ++steps;
    // who fell while reaching its goal may have ended by either
    const bool own = record.after[1] == record.after[2];
    const bool fallen = record.fallen && !(rule.terminates && own);
    if (fallen || (reached && rule.terminates)) {
      worth.discount = 0;
      break;
    }
  }
  return worth;
}

constexpr ReturnRule kOne = {.steps = 1, .gamma = 0.9}, kFour = {.steps = 4, .gamma = 0.9};

TEST(HindsightTest, EveryStepIsWhatTheDefinitionMakesOfIt) {
  for (const GoalSpec& rule : {kGoes, kEnds})
    for (const ReturnRule& returns : {kOne, kFour}) {
      World world(rule, 7);
      Hindsight hindsight({rule, 1, kFloats}, 1);
      std::set<bool> over_blocks, terminal;
      for (int time = 0; time < 60; ++time) {  // the ring goes round several times
        world.Play(13);
        for (uint64_t step = 0; step < world.replay.size(); ++step) {
          const float number = Floats(world.replay.Before(step))[0];
          const std::vector<float> from = world.From(number);
          ASSERT_EQ(world.replay.StepsFrom(step), from.size()) << number;
          over_blocks.insert(from.size() > kLength);
          std::set<float> goals;
          for (const float at : from) goals.insert(world.record(at).after[1]);
          const Transition t =
              hindsight.At(world.replay, step, returns,
                           CounterRng(static_cast<uint64_t>(time) * 1000 + step), 0);
          Seen before = Floats(t.observation);
          const float goal = before[2];
          ASSERT_TRUE(goals.contains(goal)) << number;
          const Worth worth =
              Definition(world, rule, number, goal, returns, kLength - step % kLength);
          before[2] = world.record(number).before[2];
          ASSERT_EQ(before, world.record(number).before);
          ASSERT_NEAR(t.reward, worth.reward, 1e-5) << number;
          ASSERT_NEAR(t.discount, worth.discount, 1e-6) << number;
          ASSERT_EQ(Floats(t.next_observation), worth.next) << number;
          terminal.insert(t.discount == 0);
        }
      }
      EXPECT_EQ(over_blocks.size() + terminal.size(), 4u) << "a case that never came";
    }
}

// A resumed run whose slots begin again counts their unrolls from 0, so that numbers of both may
// follow each other.
TEST(HindsightTest, NothingContinuesAStreamThatHasEnded) {
  const auto unroll = [](uint64_t index) {
    Unroll one;
    one.entries = 2, one.index = index;
    one.headers.resize(2);
    one.headers[0].episode_step = static_cast<uint32_t>(index);
    one.headers[1].episode_step = static_cast<uint32_t>(index + 1);
    return one;
  };
  for (const bool ended : {false, true}) {
    BlockLinks links;
    links.Add(0, unroll(4), /*stream=*/2);
    if (ended) links.EndStreams();
    links.Add(1, unroll(5), 2);
    links.Add(2, unroll(6), 2);
    EXPECT_EQ(links.next(0), ended ? BlockLinks::kNone : 1);
    EXPECT_EQ(links.next(1), 2U);
  }
}

// Every step that the replay holds has some 2,000 draws, whose frequencies stay within four
// standard deviations. What decides whether a step gets another goal does not choose it.
TEST(HindsightTest, GoalsAreUniformAmongWhatWasAchievedLater) {
  World world(kGoes, 3);
  world.Play(200);
  constexpr size_t kRows = 4000;
  Hindsight hindsight({kGoes, 0.5, kFloats}, kRows);
  for (uint64_t step = 0; step < world.replay.size(); ++step) {
    const std::vector<float> from = world.From(Floats(world.replay.Before(step))[0]);
    std::map<float, double> expected, counted;
    for (const float at : from)
      expected[world.record(at).after[1]] += 1 / static_cast<double>(from.size());
    const CounterRng rng(step);
    double draws = 0;
    for (size_t row = 0; row < kRows; ++row) {
      const Transition t = hindsight.At(world.replay, step, kOne, rng, row);
      if (t.observation.data() == world.replay.Before(step).data()) continue;
      ++counted[Floats(t.observation)[2]], ++draws;
    }
    for (const auto& [goal, p] : expected)
      EXPECT_NEAR(counted[goal], draws * p, 4 * std::sqrt(draws * p * (1 - p)) + 1e-9) << step;
  }
}

TEST(HindsightTest, TheOtherStepsStayAsTheyWere) {
  World world(kEnds, 5);
  world.Play(200);
  constexpr size_t kRows = 4000;
  Hindsight hindsight({kEnds, 0.8, kFloats}, kRows);
  int stayed = 0;
  for (size_t row = 0; row < kRows; ++row) {
    const uint64_t step = row % world.replay.size();
    const Transition t = hindsight.At(world.replay, step, kFour, CounterRng(1), row);
    const Transition plain = world.replay.At(step, kFour);
    if (t.observation.data() != plain.observation.data()) continue;
    ++stayed;
    ASSERT_EQ(t.reward, plain.reward);
    ASSERT_EQ(t.discount, plain.discount);
    ASSERT_EQ(t.next_observation.data(), plain.next_observation.data());
  }
  EXPECT_NEAR(stayed, 0.2 * kRows, 4 * std::sqrt(kRows * 0.16));
}

// Rows of a minibatch do not share what they see.
TEST(HindsightTest, RowsKeepTheirObservations) {
  World world(kGoes, 9);
  world.Play(200);
  constexpr size_t kRows = 30;
  Hindsight all({kGoes, 1, kFloats}, kRows), one({kGoes, 1, kFloats}, kRows);
  std::vector<Transition> rows;
  for (size_t row = 0; row < kRows; ++row)
    rows.push_back(all.At(world.replay, row, kOne, CounterRng(2), row));
  for (size_t row = 0; row < kRows; ++row) {
    const Transition again = one.At(world.replay, row, kOne, CounterRng(2), row);
    EXPECT_EQ(Floats(rows[row].observation), Floats(again.observation));
    EXPECT_EQ(Floats(rows[row].next_observation), Floats(again.next_observation));
  }
}

TEST(HindsightTest, ASavedReplayFollowsEpisodesAsBeforeAndDamageIsRefused) {
  World world(kEnds, 11);
  UnrollReplay copy(kShape);
  SavedParts saved;
  for (const int steps : {20, 300}) {  // the ring in part, and around
    world.Play(steps);
    saved.Save(world.replay);
    ASSERT_TRUE(saved.Restore(copy).ok());
    EXPECT_EQ(copy.Save(), saved.rest);
    for (uint64_t step = 0; step < copy.size(); ++step) {
      const uint64_t count = copy.StepsFrom(step);
      ASSERT_EQ(count, world.replay.StepsFrom(step));
      ASSERT_EQ(copy.Later(step, count - 1), world.replay.Later(step, count - 1));
      ASSERT_EQ(Floats(copy.Before(step)), Floats(world.replay.Before(step)));
      ASSERT_EQ(Floats(copy.After(step)), Floats(world.replay.After(step)));
    }
    SavedParts damaged = saved;
    for (size_t cut = 0; cut < saved.rest.size(); ++cut) {
      damaged.rest = saved.rest.substr(0, cut);
      ASSERT_EQ(damaged.Restore(copy).code(), Code::kBadData) << cut;
    }
    EXPECT_EQ(copy.Save(), saved.rest);
  }
  EXPECT_GT(saved.files.size(), 1u);
  ReplayShape plain = kShape;
  plain.episodes = false;
  UnrollReplay other(plain);
  EXPECT_EQ(saved.Restore(other).code(), Code::kBadData);
}

// A file in which blocks lead to each other is refused: an episode would never end.
TEST(BlockLinksTest, CirclesAreRefused) {
  const auto restored = [](std::vector<uint64_t> next, uint64_t oldest) {
    const std::string saved = ByteWriter().PutVector(next).Put(uint64_t{0}).Take();
    ByteReader in(saved);
    return BlockLinks().Restore(in, next.size(), oldest);
  };
  constexpr uint64_t kNone = BlockLinks::kNone;
  EXPECT_TRUE(restored({1, 2, kNone}, 0));
  EXPECT_TRUE(restored({kNone, 2, 0}, 1));
  EXPECT_FALSE(restored({1, 2, 0}, 0));
  EXPECT_FALSE(restored({0, kNone, kNone}, 0));
  EXPECT_FALSE(restored({3, kNone, kNone}, 0));
}

}  // namespace
}  // namespace samara::hindsight_test
