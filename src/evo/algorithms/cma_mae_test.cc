// CMA-MAE against a plain reading of its archive, and what it promises.
#include "evo/algorithms/cma_mae.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "core/bytes.h"
#include "evo/algorithms/cma_search.h"
#include "evo/evaluate/evaluate_test_util.h"

namespace samara::cma_mae_test {
namespace {

constexpr uint64_t kSeed = 4;
constexpr size_t kEmitters = 2, kMembers = 8;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The first two parameters are the position, the others lower the return.
EpisodeResult Place(const Task&, std::span<const float> theta) {
  double squares = 0;
  for (size_t i = 2; i < theta.size(); ++i) squares += double{theta[i]} * double{theta[i]};
  EpisodeResult result{.fitness = 1 - squares};
  if (theta[0] < -0.3F) result.fitness = kNan;
  result.position = {theta[0], theta[1]};
  return result;
}

std::unique_ptr<EvolutionConfig> MaeConfig(const std::vector<std::string>& more = {}) {
  auto config = MakeCmaMaeConfig();
  ConfigTable table;
  config->Bind(table);
  const auto set = [&](const std::string& text) {
    const size_t equals = text.find('=');
    EXPECT_TRUE(table.Set(text.substr(0, equals), text.substr(equals + 1)).ok()) << text;
  };
  for (const char* text : {"map.emitters=2", "map.population=8", "map.cells=4", "map.low=-1,-1",
                           "map.high=1,1", "map.threshold=-2", "map.learning_rate=0.25"})
    set(text);
  for (const std::string& text : more) set(text);
  config->budget.test_episodes = 1;
  return config;
}

struct MaeExperiment {
  explicit MaeExperiment(const EvolutionConfig& config)
      : evaluator(network.parameter_count, Place) {
    evaluator.SetPosition(2);
    mae = config.Make({kSeed, network, evaluator, {}});
  }
  NetworkDescription network = Network("linear", 3, 2);
  FakeEvaluator evaluator;
  std::unique_ptr<EvolutionAlgorithm> mae;
};

TEST(CmaMaeTest, ArchiveAndEmittersAreThoseOfThePlainReading) {
  struct Held {
    double fitness, threshold;
    std::vector<float> theta;
  };
  MaeExperiment e(*MaeConfig());
  const size_t n = e.network.parameter_count;
  std::map<int, Held> archive;
  std::vector<CmaSearch> searches;
  for (size_t k = 0; k < kEmitters; ++k) {
    searches.emplace_back(kMembers, n, GetNoise(NoiseKind::kNormal));
    ASSERT_TRUE(searches[k].Take(CmaDistribution(std::vector<float>(n), n, 0.2)).ok());
  }
  for (uint64_t g = 1; g <= 20; ++g) {
    ASSERT_TRUE(e.mae->Step(nullptr).ok());
    for (size_t k = 0; k < kEmitters; ++k) {
      std::vector<double> improvements;
      std::vector<uint64_t> keys;
      for (size_t i = 0; i < kMembers; ++i) {
        keys.push_back(DeriveKey(kSeed, Purpose::kMutation, g, k * kMembers + i));
        std::vector<float> theta(n);
        searches[k].Write(keys.back(), theta);
        const EpisodeResult result = Place({}, theta);
        const auto side = [](float x) {
          return std::min(3, std::max(0, static_cast<int>(std::floor((x + 1) * 2))));
        };
        const int cell = 4 * side(theta[0]) + side(theta[1]);
        if (std::isnan(result.fitness)) {
          improvements.push_back(kNan);
          continue;
        }
        if (!archive.contains(cell)) archive[cell] = {-INFINITY, -2, {}};
        Held& held = archive[cell];
        improvements.push_back(result.fitness - held.threshold);
        if (improvements.back() > 0) {
          held.threshold = 0.75 * held.threshold + 0.25 * result.fitness;
          if (result.fitness > held.fitness) held.fitness = result.fitness, held.theta = theta;
        } else if (held.theta.empty()) {
          archive.erase(cell);
        }
      }
      ASSERT_TRUE(searches[k].Take(searches[k].Moved(improvements, keys, g)).ok());
    }
    const std::vector<NamedCandidate> held = e.mae->Candidates();
    ASSERT_EQ(held.size(), archive.size() + 1) << g;
    size_t i = 1;
    for (const auto& [cell, expected] : archive) {
      EXPECT_EQ(std::get<std::vector<float>>(held[i].candidate), expected.theta) << "cell " << cell;
      EXPECT_EQ(held[i++].fitness, expected.fitness);
    }
  }
  EXPECT_GT(archive.size(), 5U);
}

TEST(CmaMaeTest, GoesOnFromItsStateAndArchive) {
  const auto config = MaeConfig();
  MaeExperiment whole(*config), half(*config);
  std::string journal;  // what each generation added
  for (int g = 0; g < 12; ++g) ASSERT_TRUE(whole.mae->Step(nullptr).ok());
  for (int g = 0; g < 6; ++g) {
    const size_t before = half.mae->ArchiveSize();
    ASSERT_TRUE(half.mae->Step(nullptr).ok());
    journal += half.mae->EncodeArchive(before);
  }
  for (const std::string& archive : {journal, half.mae->EncodeArchive(0)}) {
    MaeExperiment rest(*config);
    ASSERT_TRUE(rest.mae->RestoreArchive(archive).ok());
    ASSERT_TRUE(rest.mae->RestoreState(half.mae->EncodeState()).ok());
    for (int g = 0; g < 6; ++g) ASSERT_TRUE(rest.mae->Step(nullptr).ok());
    EXPECT_EQ(rest.mae->EncodeState(), whole.mae->EncodeState());
    EXPECT_EQ(rest.mae->ArchiveCsv(), whole.mae->ArchiveCsv());
  }
  EXPECT_GT(whole.mae->ArchiveSize(), 20U);
}

TEST(CmaMaeTest, AnEmitterAtRestStartsAnewFromTheArchive) {
  MaeExperiment e(*MaeConfig({"map.sigma=1e-12"}));
  ASSERT_TRUE(e.mae->Step(nullptr).ok());
  const GenerationReport report = e.mae->Step(nullptr).ValueOrThrow();
  EXPECT_EQ(report.metrics["restarts"], kEmitters);
}

TEST(CmaMaeTest, AThresholdAboveAllReturnsIsSaid) {
  MaeExperiment e(*MaeConfig({"map.threshold=5"}));
  for (int g = 0; g < 3; ++g) {
    const GenerationReport report = e.mae->Step(nullptr).ValueOrThrow();
    EXPECT_EQ(report.metrics["archive_size"], 0);
    EXPECT_NE(report.note.find("no return is above map.threshold"), std::string::npos);
  }
}

TEST(CmaMaeTest, RefusesDamagedStatesAndArchives) {
  MaeExperiment e(*MaeConfig());
  ASSERT_TRUE(e.mae->Step(nullptr).ok());
  const std::string state = e.mae->EncodeState(), archive = e.mae->EncodeArchive(0);
  for (size_t k = 1; k < archive.size(); k += 5) {
    MaeExperiment other(*MaeConfig());
    const bool taken = other.mae->RestoreArchive(archive.substr(0, k)).ok();
    EXPECT_FALSE(taken && other.mae->RestoreState(state).ok()) << k;
  }
  MaeExperiment finer(*MaeConfig({"map.cells=40"}));
  EXPECT_EQ(finer.mae->RestoreArchive(archive).code(), Code::kBadData);
  MaeExperiment more(*MaeConfig({"map.emitters=3"}));
  ASSERT_TRUE(more.mae->RestoreArchive(archive).ok());
  EXPECT_EQ(more.mae->RestoreState(state).code(), Code::kBadData);
  // a solution without its position, and one of another network; a state without its archive
  const auto solution = [&](std::vector<float> position, size_t parameters) {
    MaeExperiment other(*MaeConfig());
    return other.mae
        ->RestoreArchive(ByteWriter()
                             .Put(uint64_t{0})
                             .Put(1.0)
                             .PutVector(position)
                             .PutVector(std::vector<float>(parameters))
                             .Take())
        .message();
  };
  const std::string another = "the recorded archive is damaged, or of another grid or network";
  EXPECT_EQ(solution({}, 1), another);
  EXPECT_EQ(solution({0, 0}, 0), another);
  EXPECT_EQ(MaeExperiment(*MaeConfig()).mae->RestoreState(state).message(),
            "the recorded archive of solutions is not the one of the state");
  MaeExperiment changed(*MaeConfig());  // a weight of the last solution
  std::string other = archive;
  other.back() = static_cast<char>(other.back() ^ 1);
  ASSERT_TRUE(changed.mae->RestoreArchive(other).ok());
  EXPECT_EQ(changed.mae->RestoreState(state).message(),
            "the recorded archive of solutions is not the one of the state");
  MaeExperiment again(*MaeConfig());
  ASSERT_TRUE(again.mae->RestoreArchive(archive).ok());
  for (size_t k = 0; k < state.size(); k += 7)
    EXPECT_FALSE(again.mae->RestoreState(state.substr(0, k)).ok()) << k;
  ASSERT_TRUE(again.mae->RestoreState(state).ok());
  EXPECT_EQ(again.mae->EncodeState(), state);
}

}  // namespace
}  // namespace samara::cma_mae_test
