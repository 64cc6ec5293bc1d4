// MAP-Elites against a plain reading of its description, and what it promises.
#include "evo/algorithms/map_elites.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "core/bytes.h"
#include "evo/algorithms/cell_grid.h"
#include "evo/algorithms/ga.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/decode.h"

namespace samara::map_elites_test {
namespace {

constexpr uint64_t kSeed = 9, kPopulation = 12;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns of few values, so that ties are common, some of them NaN; positions inside and outside of
// the grid from (0, 0) to (4, 2).
EpisodeResult Behave(const Task& task, std::span<const float> theta) {
  uint64_t x = task.episode.seed % 3;
  for (float w : theta) x = (x ^ std::bit_cast<uint32_t>(w)) * 0x9E3779B97F4A7C15U + 1;
  const uint64_t level = (x >> 40) % 9;
  EpisodeResult result{.fitness = level == 8 ? kNan : static_cast<double>(level),
                       .frames = 1 + level};
  result.position = {static_cast<float>((x >> 20) % 60) / 10 - 1,
                     static_cast<float>((x >> 30) % 40) / 10 - 1};
  if ((x >> 10) % 13 == 0) result.position[0] = std::numeric_limits<float>::quiet_NaN();
  return result;
}

std::unique_ptr<EvolutionConfig> MapConfig(const std::vector<std::string>& more = {}) {
  auto config = MakeMapElitesConfig();
  ConfigTable table;
  config->Bind(table);
  const auto set = [&](const std::string& text) {
    const size_t equals = text.find('=');
    EXPECT_TRUE(table.Set(text.substr(0, equals), text.substr(equals + 1)).ok()) << text;
  };
  for (const char* text : {"ga.population=12", "ga.mutation_power=0.5", "map.cells=4",
                           "map.low=0,0", "map.high=4,2", "map.offset=-1"})
    set(text);
  for (const std::string& text : more) set(text);
  config->budget.test_episodes = 2;
  return config;
}

struct MapExperiment {
  explicit MapExperiment(const EvolutionConfig& config)
      : evaluator(network.parameter_count, Behave) {
    evaluator.SetPosition(2);
    map = config.Make({kSeed, network, evaluator, {}});
  }
  NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator;
  std::unique_ptr<EvolutionAlgorithm> map;
};

// Whole genomes, cells found by counting borders.
class PlainMap {
 public:
  explicit PlainMap(const NetworkDescription& network) : network_(network) {}

  struct Held {
    Genome genome;
    double fitness;
  };

  void Generation() {
    const uint64_t g = ++generation_;
    std::vector<Genome> members, elites;
    for (const auto& [cell, held] : archive) elites.push_back(held.genome);
    for (uint64_t i = 0; i < kPopulation; ++i) {
      Genome member{NoiseKind::kNormal,
                    InitKind::kFanIn,
                    DeriveKey(kSeed, Purpose::kInitialGenome, g, i),
                    {}};
      if (!elites.empty()) {
        const CounterRng rng(DeriveKey(kSeed, Purpose::kParentChoice, g, i));
        member = elites[rng.UniformInt(0, elites.size())];
        member.mutations.push_back({DeriveKey(kSeed, Purpose::kMutation, g, i), 0.5F});
      }
      members.push_back(member);
    }
    for (uint64_t i = 0; i < kPopulation; ++i) {
      std::vector<float> theta(network_.parameter_count);
      DecodeParameters(members[i], network_, theta);
      Task task;
      task.episode.seed = DeriveKey(kSeed, Purpose::kEpisodePopulation, g, i);
      const EpisodeResult result = Behave(task, theta);
      if (std::isnan(result.fitness) || std::isnan(result.position[0])) continue;
      int column = 0, row = 0;
      while (column < 3 && result.position[0] >= static_cast<float>(column + 1)) ++column;
      while (row < 3 && result.position[1] >= static_cast<float>(row + 1) / 2) ++row;
      const auto cell = static_cast<uint64_t>(4 * column + row);
      if (!archive.contains(cell) || result.fitness > archive.at(cell).fitness)
        archive.insert_or_assign(cell, Held{members[i], result.fitness});
    }
  }
  std::map<uint64_t, Held> archive;

 private:
  const NetworkDescription network_;
  uint64_t generation_ = 0;
};

TEST(MapElitesTest, EveryArchiveIsThatOfThePlainReading) {
  MapExperiment e(*MapConfig());
  PlainMap plain(e.network);
  for (int g = 0; g < 15; ++g) {
    const GenerationReport report = e.map->Step(nullptr).ValueOrThrow();
    plain.Generation();
    double score = 0;
    for (const auto& [cell, held] : plain.archive) score += held.fitness + 1;
    ASSERT_EQ(report.metrics["archive_size"], plain.archive.size()) << g;
    EXPECT_EQ(report.metrics["qd_score"], score);
    EXPECT_EQ(report.metrics["coverage"], static_cast<double>(plain.archive.size()) / 16);
    const std::vector<NamedCandidate> held = e.map->Candidates();
    size_t i = 1;  // after the elite
    for (const auto& [cell, expected] : plain.archive) {
      EXPECT_EQ(std::get<Genome>(held[i].candidate), expected.genome) << "cell " << cell;
      EXPECT_EQ(held[i++].fitness, expected.fitness);
    }
    EXPECT_EQ(i, held.size());
  }
  EXPECT_GT(plain.archive.size(), 8U);
}

TEST(MapElitesTest, GoesOnFromItsState) {
  const auto config = MapConfig();
  MapExperiment whole(*config), half(*config);
  for (int g = 0; g < 6; ++g) ASSERT_TRUE(whole.map->Step(nullptr).ok());
  for (int g = 0; g < 3; ++g) ASSERT_TRUE(half.map->Step(nullptr).ok());
  MapExperiment rest(*config);
  ASSERT_TRUE(rest.map->RestoreState(half.map->EncodeState()).ok());
  for (int g = 0; g < 3; ++g) ASSERT_TRUE(rest.map->Step(nullptr).ok());
  EXPECT_EQ(rest.map->EncodeState(), whole.map->EncodeState());
  EXPECT_EQ(rest.map->ArchiveCsv(), whole.map->ArchiveCsv());
  EXPECT_EQ(rest.map->ArchiveCsv().substr(0, 43), "cell,position0,position1,return,mutations\n0");
}

TEST(MapElitesTest, RefusesDamagedStatesAndThoseOfAnotherGrid) {
  MapExperiment e(*MapConfig());
  ASSERT_TRUE(e.map->Step(nullptr).ok());
  const std::string state = e.map->EncodeState();
  for (size_t n = 0; n < state.size(); n += 7)
    EXPECT_FALSE(e.map->RestoreState(state.substr(0, n)).ok()) << n;
  MapExperiment finer(*MapConfig({"map.cells=40"}));
  EXPECT_EQ(finer.map->RestoreState(state).code(), Code::kBadData);
  ASSERT_TRUE(e.map->RestoreState(state).ok());
  EXPECT_EQ(e.map->EncodeState(), state);

  // version, the GA's state, number of cells, genomes, and for each cell its number, fitness,
  // frames, episode and two floats of its position with their size
  ByteReader in(state);
  (void)in.Get<uint32_t>();
  const std::string rest(in.GetBytes());
  const auto cells = in.Get<uint64_t>();
  const std::string genomes(in.GetBytes());
  ASSERT_GE(cells, 2U);
  constexpr size_t kRow = 4 * 8 + 8 + 2 * 4;
  const std::string rows = state.substr(state.size() - cells * kRow);
  const auto restore = [&](const std::string& ga, uint64_t count, const std::string& table) {
    ByteWriter out;
    out.Put(uint32_t{1}).PutBytes(ga).Put(count).PutBytes(genomes);
    return e.map->RestoreState(out.Take() + table);
  };
  EXPECT_TRUE(restore(rest, cells, rows).ok());
  const std::string damaged = "the recorded state of the evolution is damaged";
  EXPECT_EQ(restore(rest, cells + 1, rows).message(), damaged);
  EXPECT_EQ(restore(rest, cells, rows + "x").message(), damaged);
  GaState with_parents = GaState::Decode(rest).ValueOrThrow();
  with_parents.parents.emplace_back();  // which are the cells'
  EXPECT_EQ(restore(with_parents.Encode(), cells, rows).message(), damaged);
  const std::string swapped =
      rows.substr(kRow, kRow) + rows.substr(0, kRow) + rows.substr(2 * kRow);
  EXPECT_EQ(restore(rest, cells, swapped).message(), "the recorded archive is damaged");
  const std::string longer = ByteWriter().PutVector(std::vector<float>{1, 2, 3}).Take();
  EXPECT_EQ(restore(rest, cells, rows.substr(0, 32) + longer + rows.substr(kRow)).message(),
            "the recorded archive is of another grid");
}

TEST(MapElitesTest, AskedForCornersWhereThereIsNoMap) {
  FakeEvaluator evaluator(9, Behave);
  evaluator.SetPosition(2);
  const NetworkDescription network = Network("linear", 3, 2);
  const auto refusal = [&](const std::vector<std::string>& settings) {
    return MapConfig(settings)->Records(evaluator.spec(), network).status().message();
  };
  EXPECT_TRUE(MapConfig()->Records(evaluator.spec(), network).ok());
  EXPECT_NE(refusal({"map.low=", "map.high="}).find("has no map"), std::string::npos);
  EXPECT_NE(refusal({"map.low=0"}).find("map.low has 1 numbers, map.high 2"), std::string::npos);
  EXPECT_NE(refusal({"map.low=0,2"}).find("expected the first below"), std::string::npos);
  EXPECT_NE(refusal({"map.low=0;0"}).find("map.low=0;0: expected numbers"), std::string::npos);
  EXPECT_NE(refusal({"map.low=1", "map.high=2"}).find("expected 2"), std::string::npos);
}

TEST(CellGridTest, CellsHaveEqualSidesAndTheBordersHoldTheRest) {
  const CellGrid grid = CellGrid::Make({0, -1}, {4, 1}, 4).ValueOrThrow();
  EXPECT_EQ(grid.size(), 16U);
  const auto cell = [&](float x, float y) { return grid.CellOf(std::vector<float>{x, y}); };
  EXPECT_EQ(cell(0, -1), 0U);
  EXPECT_EQ(cell(0.99F, -0.51F), 0U);
  EXPECT_EQ(cell(0.99F, -0.5F), 1U);
  EXPECT_EQ(cell(1, -1), 4U);
  EXPECT_EQ(cell(3.99F, 0.99F), 15U);
  EXPECT_EQ(cell(4, 1), 15U);
  EXPECT_EQ(cell(1e30F, -1e30F), 12U);
  EXPECT_EQ(cell(-INFINITY, INFINITY), 3U);
  EXPECT_FALSE(cell(NAN, 0));
  EXPECT_FALSE(cell(0, NAN));
  EXPECT_FALSE(CellGrid::Make({0, 0, 0}, {1, 1, 1}, 101).ok());
  EXPECT_FALSE(CellGrid::Make({}, {}, 2).ok());
}

TEST(CellGridTest, PositionsAreNumbersWithCommas) {
  EXPECT_EQ(ParsePosition("map.low", "0,-2.5").ValueOrThrow(), (std::vector<double>{0, -2.5}));
  EXPECT_TRUE(ParsePosition("map.low", "").ValueOrThrow().empty());
  for (const char* bad : {"1,", ",1", "1 2", "a", "1,,2", "inf", "nan,1"})
    EXPECT_FALSE(ParsePosition("map.low", bad).ok()) << bad;
}

}  // namespace
}  // namespace samara::map_elites_test
