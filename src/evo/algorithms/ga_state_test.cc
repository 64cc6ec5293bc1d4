#include <limits>

#include "core/bytes.h"
#include "evo/algorithms/ga_test_util.h"
#include "evo/evaluate/finished_episodes.h"

namespace samara::ga_state_test {
namespace {

GaState SomeState() {
  GaState s;
  s.generation = 7, s.frames = 1'000'000'000'000, s.frames_test = 5, s.steps = 11, s.episodes = 13;
  s.parents = {{{NoiseKind::kNormal, InitKind::kFanIn, 3, {{5, 0.002F}, {6, -0.0F}}}, 1.5, 17.5},
               {{NoiseKind::kTable, InitKind::kUnitNorm, UINT64_MAX, {}},
                std::numeric_limits<double>::quiet_NaN(),
                0}};
  s.elite = {{NoiseKind::kQuantile8, InitKind::kFanIn, 9, {{1, 2.0F}}}, -0.0, 1e9};
  s.population_hash[0] = 1, s.population_hash[31] = 2;
  return s;
}

FinishedEpisodes SomeEpisodes() {
  FinishedEpisodes f{.generation = 3, .phase = Phase::kValidation, .results = {}};
  f.results[0] = {.fitness = -1.5, .frames = 10, .steps = 3, .truncated = true, .done = true};
  f.results[4'000'000'000] = {.fitness = 0, .frames = UINT64_MAX, .steps = 0, .done = true};
  f.results[7] = {.fitness = 2,
                  .frames = 4,
                  .steps = 1,
                  .done = true,
                  .novelty = 0.25,
                  .position = {1.5F, -2},
                  .recording = {std::byte{3}}};
  return f;
}

void ExpectSame(const Parent& a, const Parent& b) {
  EXPECT_EQ(a.genome, b.genome);
  EXPECT_EQ(BitsOf({a.fitness, a.frames}), BitsOf({b.fitness, b.frames}));
}

TEST(GaStateTest, DecodesWhatWasEncoded) {
  for (const GaState& state : {SomeState(), GaState()}) {
    const GaState back = GaState::Decode(state.Encode()).ValueOrThrow();
    EXPECT_EQ(back.generation, state.generation);
    EXPECT_EQ(back.frames, state.frames);
    EXPECT_EQ(back.frames_test, state.frames_test);
    EXPECT_EQ(back.steps, state.steps);
    EXPECT_EQ(back.episodes, state.episodes);
    ASSERT_EQ(back.parents.size(), state.parents.size());
    for (size_t i = 0; i < state.parents.size(); ++i) ExpectSame(back.parents[i], state.parents[i]);
    ASSERT_EQ(back.elite.has_value(), state.elite.has_value());
    if (state.elite) ExpectSame(*back.elite, *state.elite);
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
    out.PutBytes(state.parents[i].genome.Encode()).Put(state.parents[i].fitness);
  out.Put(uint8_t{1}).PutBytes(state.elite->genome.Encode()).Put(state.elite->fitness);
  out.Put(state.population_hash);
  GaState expected = state;
  for (Parent& parent : expected.parents) parent.frames = 0;
  expected.elite->frames = 0;
  EXPECT_EQ(GaState::Decode(out.Take()).ValueOrThrow().Encode(), expected.Encode());
}

// Validation was keyed by rank once: such results are not reused now.
TEST(FinishedEpisodesTest, ValidationOfOlderBuildsIsRefused) {
  std::string bytes = SomeEpisodes().Encode();
  EXPECT_EQ(bytes[12], 4);  // after version and generation
  bytes[12] = 2;
  const auto read = FinishedEpisodes::Decode(bytes);
  EXPECT_EQ(read.status().code(), Code::kBadData);
  EXPECT_NE(read.status().message().find("older build"), std::string::npos);
}

TEST(GaStateTest, PartsThatDoNotFitAreRefused) {
  const auto message = [](const std::string& bytes) {
    const Status status = GaState::Decode(bytes).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    return status.message();
  };
  const std::string damaged = "the recorded state of the evolution is damaged";
  GaState state;
  const std::string none = state.Encode();  // version, five counters, parents, elite, hash
  constexpr size_t kParents = 4 + 5 * 8, kElite = kParents + 8;
  std::string bytes = none;
  bytes[kParents + 7] = 1;
  EXPECT_EQ(message(bytes), damaged);
  bytes = none;
  bytes[kElite] = 2;
  EXPECT_EQ(message(bytes), damaged);
  EXPECT_EQ(message(none + "x"), damaged);
  // parameters belong to an elite of safe mutations, and only to one
  state.elite = Parent{.genome = {}, .episode = 5};
  state.elite_parameters = {1, 2};
  EXPECT_EQ(message(state.Encode()), damaged);
  state.elite->genome.mutations = {{.key = 1, .power = 1, .kind = MutationKind::kSmR}};
  EXPECT_TRUE(GaState::Decode(state.Encode()).ok());
  for (size_t size = 0; size < state.Encode().size(); ++size)
    EXPECT_FALSE(GaState::Decode(state.Encode().substr(0, size)).ok()) << size;
  state.elite_parameters.clear();
  EXPECT_EQ(message(state.Encode()), damaged);
}

// One byte of a result says what it holds besides its numbers.
TEST(FinishedEpisodesTest, PartsThatDoNotFitAreRefused) {
  struct Case {
    uint32_t version = 2;
    uint8_t phase = 1;
    uint64_t count = 1;
    std::vector<uint32_t> indices = {3};
    uint8_t parts = 0;
    std::string rest = {};
  };
  const auto decode = [](const Case& c) {
    ByteWriter out;
    out.Put(c.version).Put(uint64_t{9}).Put(c.phase).Put(c.count);
    for (const uint32_t index : c.indices)
      out.Put(index).Put(1.5).Put(uint64_t{4}).Put(uint32_t{2}).Put(c.parts);
    return FinishedEpisodes::Decode(out.Take() + c.rest).status();
  };
  const std::string no_values = ByteWriter().PutBytes("").Take(),
                    odd = ByteWriter().PutBytes("abc").Take();
  const Case refused[] = {
      {.version = 0},
      {.version = 3},
      {.phase = 0},
      {.phase = 5},
      {.version = 1, .parts = 2},
      {.parts = 16},
      {.parts = 2, .rest = no_values},
      {.parts = 2, .rest = odd},
      {.parts = 4, .rest = no_values},
      {.parts = 4, .rest = "x"},
      {.parts = 8, .rest = "x"},
      {.count = 2, .indices = {3, 3}},  // one episode twice
      {.count = 0},
      {.count = 2},
      {.rest = "x"},
  };
  for (const Case& c : refused) {
    const Status status = decode(c);
    EXPECT_EQ(status.code(), Code::kBadData) << &c - refused;
    EXPECT_EQ(status.message(), "a record of finished episodes is damaged") << &c - refused;
  }
  EXPECT_TRUE(decode({.version = 1, .parts = 1}).ok());
  EXPECT_TRUE(decode({.phase = 4, .count = 2, .indices = {3, 4}}).ok());
}

TEST(GaStateTest, AnotherVersionIsNamed) {
  std::string bytes = SomeState().Encode();
  bytes[0] = 9;
  EXPECT_NE(GaState::Decode(bytes).status().message().find("version 9"), std::string::npos);
}

}  // namespace
}  // namespace samara::ga_state_test
