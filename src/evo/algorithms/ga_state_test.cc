#include <limits>

#include "core/bytes.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "evo/evaluate/finished_episodes.h"

namespace samara {
namespace {

GaState SomeState() {
  GaState s;
  s.generation = 7, s.frames = 1'000'000'000'000, s.frames_test = 5, s.steps = 11, s.episodes = 13;
  s.parents = {{NoiseKind::kNormal, InitKind::kFanIn, 3, {{5, 0.002F}, {6, -0.0F}}},
               {NoiseKind::kTable, InitKind::kUnitNorm, UINT64_MAX, {}}};
  s.parent_fitness = {1.5, std::numeric_limits<double>::quiet_NaN()};
  s.parent_frames = {17.5, 0};
  s.has_elite = true;
  s.elite = {NoiseKind::kQuantile8, InitKind::kFanIn, 9, {{1, 2.0F}}};
  s.elite_mean = -0.0, s.elite_frames = 1e9;
  s.population_hash[0] = 1, s.population_hash[31] = 2;
  return s;
}

FinishedEpisodes SomeEpisodes() {
  FinishedEpisodes f{.generation = 3, .phase = Phase::kValidation, .results = {}};
  f.results[0] = {.fitness = -1.5, .frames = 10, .steps = 3, .truncated = true, .done = true};
  f.results[4'000'000'000] = {.fitness = 0, .frames = UINT64_MAX, .steps = 0, .done = true};
  return f;
}

TEST(GaStateTest, DecodesWhatWasEncoded) {
  for (const GaState& state : {SomeState(), GaState()}) {
    const GaState back = GaState::Decode(state.Encode()).ValueOrThrow();
    EXPECT_EQ(back.generation, state.generation);
    EXPECT_EQ(back.frames, state.frames);
    EXPECT_EQ(back.frames_test, state.frames_test);
    EXPECT_EQ(back.steps, state.steps);
    EXPECT_EQ(back.episodes, state.episodes);
    EXPECT_EQ(back.parents, state.parents);
    EXPECT_EQ(BitsOf(back.parent_fitness), BitsOf(state.parent_fitness));
    EXPECT_EQ(back.parent_frames, state.parent_frames);
    EXPECT_EQ(back.elite_frames, state.elite_frames);
    EXPECT_EQ(back.has_elite, state.has_elite);
    EXPECT_EQ(back.elite, state.elite);
    EXPECT_EQ(BitsOf({back.elite_mean}), BitsOf({state.elite_mean}));
    EXPECT_EQ(back.population_hash, state.population_hash);
    EXPECT_EQ(back.Encode(), state.Encode());
  }
}

TEST(FinishedEpisodesTest, DecodesWhatWasEncoded) {
  const FinishedEpisodes f = SomeEpisodes(),
                         back = FinishedEpisodes::Decode(f.Encode()).ValueOrThrow();
  EXPECT_EQ(back.generation, f.generation);
  EXPECT_EQ(back.phase, f.phase);
  EXPECT_EQ(back.results, f.results);
}

// Every cut is refused; every changed bit is refused or changes what is read, and never crashes.
template <typename T>
void Damage(const T& record) {
  const std::string good = record.Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    const auto cut = T::Decode(std::string_view(good).substr(0, size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.status().code(), Code::kBadData);
  }
  EXPECT_FALSE(T::Decode(good + '\0').ok());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const auto read = T::Decode(bad);
    if (read.ok()) {
      EXPECT_NE(read->Encode(), good) << "bit " << bit;
    } else {
      EXPECT_EQ(read.status().code(), Code::kBadData) << "bit " << bit;
    }
  }
}

TEST(GaStateTest, DamageIsRefusedOrSeen) {
  Damage(SomeState());
  Damage(GaState());
}

TEST(FinishedEpisodesTest, DamageIsRefusedOrSeen) { Damage(SomeEpisodes()); }

// As the first builds wrote it.
TEST(GaStateTest, AStateWithoutLengthsIsRead) {
  const GaState state = SomeState();
  ByteWriter out;
  out.Put(uint32_t{1}).Put(state.generation).Put(state.frames).Put(state.frames_test);
  out.Put(state.steps).Put(state.episodes).Put(uint64_t{2});
  for (size_t i = 0; i < 2; ++i)
    out.PutBytes(state.parents[i].Encode()).Put(state.parent_fitness[i]);
  out.Put(uint8_t{1}).PutBytes(state.elite.Encode()).Put(state.elite_mean);
  out.Put(state.population_hash);
  GaState expected = state;
  expected.parent_frames = {0, 0}, expected.elite_frames = 0;
  EXPECT_EQ(GaState::Decode(out.Take()).ValueOrThrow().Encode(), expected.Encode());
}

// Validation was keyed by rank once: such results belong to nobody now.
TEST(FinishedEpisodesTest, ValidationOfOlderBuildsIsRefused) {
  std::string bytes = SomeEpisodes().Encode();
  EXPECT_EQ(bytes[12], 4);  // after version and generation
  bytes[12] = 2;
  const auto read = FinishedEpisodes::Decode(bytes);
  EXPECT_EQ(read.status().code(), Code::kBadData);
  EXPECT_NE(read.status().message().find("older build"), std::string::npos);
}

TEST(GaStateTest, AnotherVersionIsNamed) {
  std::string bytes = SomeState().Encode();
  bytes[0] = 9;
  EXPECT_NE(GaState::Decode(bytes).status().message().find("version 9"), std::string::npos);
}

}  // namespace
}  // namespace samara
