// The GA against a plain reading of the published pseudo-code, and what it promises.
#include "evo/algorithms/ga.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <tuple>

#include "evo/algorithms/ga_test_util.h"
#include "evo/algorithms/ranking.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"

namespace samara::ga_test {
namespace {

constexpr uint64_t kSeed = 21;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// frames_max tells test episodes from others
const EpisodeRule kRule{.noops = nullptr, .frames_max = 1, .frames_max_test = 2};

// A return of few values, so that ties are common, and of NaN; from parameters and episode alone.
EpisodeResult Invent(const Task& task, std::span<const float> theta) {
  uint64_t x = task.episode.seed;
  for (float w : theta) x = (x ^ std::bit_cast<uint32_t>(w)) * 0x9E3779B97F4A7C15U + 1;
  const uint64_t level = (x >> 40) % 9;
  return {.fitness = level == 8 ? kNan : static_cast<double>(level) - 3,
          .frames = 4 * (1 + level),
          .steps = static_cast<uint32_t>(1 + level)};
}

GaConfig SmallConfig() {
  GaConfig c;
  c.population = 12, c.parents = 4;
  c.validation_candidates = 3, c.validation_episodes = 2;
  c.budget.test_episodes = 3;
  c.mutation_power = 0.5;
  return c;
}

struct ReferenceState : EvolutionCounters {
  std::vector<Genome> parents;
  std::vector<double> parent_fitness;
  bool has_elite = false;
  Genome elite;
  double elite_mean = 0;
  Digest population_hash{};
};

// The loops as doc/deep-ga.md writes them: whole genomes, nothing shared, no cleverness.
class Reference {
 public:
  Reference(GaConfig config, NetworkDescription network)
      : c_(std::move(config)), network_(std::move(network)) {}

  void Generation() {
    const uint64_t g = ++state.generation;
    // 1
    std::vector<Genome> tasks;
    for (uint64_t i = 0; i < static_cast<uint64_t>(c_.population); ++i) {
      const NoiseKind noise = NoiseKind::kNormal;
      if (state.parents.empty()) {
        tasks.push_back(
            {noise, InitKind::kFanIn, DeriveKey(kSeed, Purpose::kInitialGenome, g, i), {}});
        continue;
      }
      const CounterRng rng(DeriveKey(kSeed, Purpose::kParentChoice, g, i));
      Genome child = state.parents[rng.UniformInt(0, state.parents.size())];
      child.mutations.push_back({DeriveKey(kSeed, Purpose::kMutation, g, i), 0.5F});
      tasks.push_back(child);
    }
    if (c_.elite_mode == EliteMode::kMember && state.has_elite && !state.parents.empty())
      tasks.back() = state.elite;
    // 2
    std::vector<double> fitness;
    for (uint64_t i = 0; i < tasks.size(); ++i)
      fitness.push_back(Mean(tasks[i], Purpose::kEpisodePopulation, i, c_.episodes));
    const std::vector<size_t> order = Sort(fitness);
    // 3 and 5
    if (c_.loop == GaLoop::kUberDist)
      Distributed(tasks, fitness, order);
    else
      Truncate(tasks, fitness, order);
    // members, fitness and elite, in this order
    Sha256 hash;
    for (const Genome& genome : tasks) hash.Update(genome.Encode());
    for (double f : fitness) hash.UpdateU64(std::bit_cast<uint64_t>(f));
    hash.Update(state.elite.Encode());
    state.population_hash = hash.Finish();
  }

  ReferenceState state;

 private:
  double Mean(const Genome& genome, Purpose purpose, uint64_t individual, int64_t episodes) {
    std::vector<float> theta(network_.parameter_count);
    DecodeParameters(genome, network_, theta);
    double sum = 0;
    for (int64_t e = 0; e < episodes; ++e) {
      const uint64_t key =
          DeriveKey(kSeed, purpose, state.generation, individual, static_cast<uint64_t>(e));
      const EpisodeResult r = Invent({{}, Role::kTrain, kRule.Make(key, false)}, theta);
      sum += r.fitness;
      state.frames += r.frames, state.steps += r.steps, ++state.episodes;
    }
    return sum / static_cast<double>(episodes);
  }

  // Takes the best that is left, from the left, again and again.
  static std::vector<size_t> Sort(const std::vector<double>& fitness) {
    std::vector<size_t> order;
    std::vector<bool> taken(fitness.size());
    while (order.size() < fitness.size()) {
      size_t best = fitness.size();
      for (size_t i = 0; i < fitness.size(); ++i) {
        if (taken[i]) continue;
        if (best == fitness.size() || fitness[i] > fitness[best] ||
            (std::isnan(fitness[best]) && !std::isnan(fitness[i])))
          best = i;
      }
      taken[best] = true;
      order.push_back(best);
    }
    return order;
  }

  void Truncate(const std::vector<Genome>& tasks, const std::vector<double>& fitness,
                const std::vector<size_t>& order) {
    if (c_.validation_candidates > 0) {
      std::vector<Genome> cand;
      std::vector<uint64_t> individual;  // the old elite comes after the members
      for (size_t i = 0; i < static_cast<size_t>(c_.validation_candidates); ++i)
        cand.push_back(tasks[order[i]]), individual.push_back(order[i]);
      if (state.has_elite && cand.size() == 1)
        cand.push_back(state.elite), individual.push_back(tasks.size());
      else if (state.has_elite)
        cand[cand.size() - 1] = state.elite, individual[cand.size() - 1] = tasks.size();
      std::vector<double> means;
      for (size_t i = 0; i < cand.size(); ++i)
        means.push_back(
            Mean(cand[i], Purpose::kEpisodeValidation, individual[i], c_.validation_episodes));
      state.elite = cand[Sort(means)[0]];
      state.elite_mean = means[Sort(means)[0]];
    } else if (!state.has_elite || fitness[order[0]] > state.elite_mean ||
               (std::isnan(state.elite_mean) && !std::isnan(fitness[order[0]]))) {
      state.elite = tasks[order[0]], state.elite_mean = fitness[order[0]];
    }
    state.has_elite = true;
    state.parents.clear(), state.parent_fitness.clear();
    bool elite_in_parents = false;
    for (size_t i = 0; i < static_cast<size_t>(c_.parents); ++i) {
      state.parents.push_back(tasks[order[i]]), state.parent_fitness.push_back(fitness[order[i]]);
      elite_in_parents = elite_in_parents || tasks[order[i]] == state.elite;
    }
    if (c_.parents > 0 && !elite_in_parents)
      state.parents.back() = state.elite, state.parent_fitness.back() = state.elite_mean;
  }

  // parents := best `parents` of (kept elites + results)
  void Distributed(const std::vector<Genome>& tasks, const std::vector<double>& fitness,
                   const std::vector<size_t>& order) {
    if (c_.parents == 0) {  // keeps the best single episode
      if (!state.has_elite || fitness[order[0]] > state.elite_mean)
        state.elite = tasks[order[0]], state.elite_mean = fitness[order[0]];
      state.has_elite = true;
      return;
    }
    std::vector<Genome> pool;
    std::vector<double> scores;
    for (size_t i = 0; i < state.parents.size() && i < static_cast<size_t>(c_.elites); ++i)
      pool.push_back(state.parents[i]), scores.push_back(state.parent_fitness[i]);
    pool.insert(pool.end(), tasks.begin(), tasks.end());
    scores.insert(scores.end(), fitness.begin(), fitness.end());
    const std::vector<size_t> best = Sort(scores);
    state.parents.clear(), state.parent_fitness.clear();
    for (size_t i = 0; i < static_cast<size_t>(c_.parents); ++i)
      state.parents.push_back(pool[best[i]]), state.parent_fitness.push_back(scores[best[i]]);
    state.elite = state.parents[0], state.elite_mean = state.parent_fitness[0];
    state.has_elite = true;
  }

  const GaConfig c_;
  const NetworkDescription network_;
};

void ExpectSame(const GaState& a, const ReferenceState& b) {
  std::vector<Genome> parents;
  std::vector<double> fitness;
  for (const Parent& p : a.parents) parents.push_back(p.genome), fitness.push_back(p.fitness);
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.frames, b.frames);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.episodes, b.episodes);
  EXPECT_EQ(parents, b.parents);
  EXPECT_EQ(BitsOf(fitness), BitsOf(b.parent_fitness));
  EXPECT_EQ(a.elite->genome, b.elite);
  EXPECT_EQ(BitsOf({a.elite->fitness}), BitsOf({b.elite_mean}));
  EXPECT_EQ(Hex(a.population_hash), Hex(b.population_hash));
}

// A GA on a fake evaluator, with all it needs.
struct Experiment {
  explicit Experiment(const GaConfig& config, FakeEvaluator::Score score = Invent)
      : network(Network("linear", 3, 2)),
        evaluator(network.parameter_count, std::move(score)),
        ga(config, kSeed, network, evaluator, kRule) {}
  GenerationReport Step() { return ga.Step(nullptr).ValueOrThrow(); }
  double EliteMeanAfterStep() {
    Step();
    return ga.state().elite->fitness;
  }

  NetworkDescription network;
  FakeEvaluator evaluator;
  DeepGa ga;
};

struct Variant {
  GaLoop loop;
  int64_t population, parents, candidates, episodes;
  EliteMode elite_mode = EliteMode::kParentSlot;
  int64_t elites = 1;
};

class LoopTest : public testing::TestWithParam<Variant> {};

TEST_P(LoopTest, AgreesWithTheReference) {
  const Variant& v = GetParam();
  GaConfig c = SmallConfig();
  c.loop = v.loop, c.population = v.population, c.parents = v.parents;
  c.validation_candidates = v.candidates, c.episodes = v.episodes;
  c.elite_mode = v.elite_mode, c.elites = v.elites;
  Experiment e(c);
  Reference reference(c, e.network);
  for (int g = 0; g < 12; ++g) {
    e.Step();
    reference.Generation();
    ExpectSame(e.ga.state(), reference.state);
    if (HasFailure()) FAIL() << "generation " << g + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, LoopTest,
    testing::Values(Variant{GaLoop::kUberGpu, 12, 4, 3, 1}, Variant{GaLoop::kUberGpu, 12, 4, 1, 2},
                    Variant{GaLoop::kUberGpu, 12, 4, 0, 1}, Variant{GaLoop::kUberGpu, 12, 1, 3, 1},
                    Variant{GaLoop::kUberGpu, 12, 12, 12, 1}, Variant{GaLoop::kUberGpu, 1, 1, 1, 1},
                    Variant{GaLoop::kUberGpu, 12, 0, 3, 1}, Variant{GaLoop::kUberGpu, 12, 0, 0, 1},
                    Variant{GaLoop::kUberGpu, 12, 4, 3, 1, EliteMode::kMember},
                    Variant{GaLoop::kUberGpu, 12, 4, 0, 1, EliteMode::kMember},
                    Variant{GaLoop::kUberDist, 12, 4, 0, 1},
                    Variant{GaLoop::kUberDist, 12, 4, 0, 2, EliteMode::kParentSlot, 0},
                    Variant{GaLoop::kUberDist, 12, 4, 0, 1, EliteMode::kParentSlot, 3},
                    Variant{GaLoop::kUberDist, 12, 0, 0, 1},
                    Variant{GaLoop::kUberDist, 12, 12, 0, 1, EliteMode::kParentSlot, 100}));

TEST(GaTest, RankPutsTiesInOrderAndNanLast) {
  const std::vector<double> fitness = {kNan, 1, 5, kNan, 5, -HUGE_VAL, 1, HUGE_VAL};
  EXPECT_EQ(RankDescending(fitness), (std::vector<uint32_t>{7, 2, 4, 1, 6, 5, 0, 3}));
  EXPECT_TRUE(RankDescending({}).empty());
}

// By hand: fitness is the individual's number, validation prefers the second of two candidates.
TEST(GaTest, TheEliteIsTheBestInValidationAndTakesTheLastPlaceOfTheParents) {
  GaConfig c = SmallConfig();
  c.population = 6, c.parents = 2, c.validation_candidates = 3, c.validation_episodes = 1;
  c.budget.test_every = 0;
  Experiment e(c, [](const Task& task, std::span<const float>) {
    const std::map<uint32_t, double> validation = {{5, 1.0}, {4, 0.0}, {3, 9.0}};
    if (task.role == Role::kTrain)
      return EpisodeResult{.fitness = static_cast<double>(task.policy.id)};
    return EpisodeResult{.fitness = validation.at(task.policy.id)};
  });
  e.Step();
  const auto fresh = [](uint64_t i) {
    return Genome{.initial = DeriveKey(kSeed, Purpose::kInitialGenome, 1, i), .mutations = {}};
  };
  // candidates are members 5, 4, 3; the third wins, and 5, 4 would be the parents
  EXPECT_EQ(e.ga.state().elite->genome, fresh(3));
  EXPECT_EQ(e.ga.state().elite->fitness, 9);
  const std::vector<Parent> parents = e.ga.state().parents;
  ASSERT_EQ(parents.size(), 2U);
  EXPECT_EQ(parents[0].genome, fresh(5));
  EXPECT_EQ(parents[1].genome, fresh(3));
  EXPECT_EQ(parents[0].fitness, 5);
  EXPECT_EQ(parents[1].fitness, 9);
}

// The released program compared the mean over all candidates.
TEST(GaTest, TheEliteIsJudgedOnItsOwnMean) {
  GaConfig c = SmallConfig();
  c.validation_candidates = 2, c.validation_episodes = 1, c.budget.test_every = 0;
  int generation = 1;
  Experiment e(c, [&](const Task& task, std::span<const float>) {
    if (task.role == Role::kTrain)
      return EpisodeResult{.fitness = static_cast<double>(task.policy.id)};
    // generation 1: means 10 and -20; generation 2: the new one gets 8, the defender 9: the mean
    // over candidates rises from -5 to 8.5, and still no candidate beats the defender
    const std::map<uint32_t, double> scores[2] = {{{11, 10}, {10, -20}}, {{11, 8}, {12, 9}}};
    return EpisodeResult{.fitness = scores[generation - 1].at(task.policy.id)};
  });
  EXPECT_EQ(e.EliteMeanAfterStep(), 10);
  const Genome first = e.ga.state().elite->genome;
  generation = 2;
  EXPECT_EQ(e.EliteMeanAfterStep(), 9);
  EXPECT_EQ(e.ga.state().elite->genome, first);
}

TEST(GaTest, OneCandidateMustBeatTheEliteToReplaceIt) {
  GaConfig c = SmallConfig();
  c.validation_candidates = 1, c.validation_episodes = 1;
  double challenger = 1;
  Experiment e(c, [&](const Task& task, std::span<const float>) {
    const bool defends = task.role == Role::kEvaluate && task.policy.id == 12;
    return EpisodeResult{.fitness = defends ? 5 : challenger};
  });
  e.Step();
  const Genome first = e.ga.state().elite->genome;
  e.Step();  // 1 against 5
  EXPECT_EQ(e.ga.state().elite->genome, first);
  challenger = 5;
  e.Step();  // a tie goes to the lower index: the challenger
  EXPECT_NE(e.ga.state().elite->genome, first);
}

TEST(GaTest, ANumberReplacesAnEliteThatWasNotOne) {
  GaConfig c = SmallConfig();
  c.validation_candidates = 0;
  double fitness = kNan;
  Experiment e(c, [&](const Task&, std::span<const float>) { return EpisodeResult{fitness}; });
  EXPECT_TRUE(std::isnan(e.EliteMeanAfterStep()));
  fitness = -4;
  EXPECT_EQ(e.EliteMeanAfterStep(), -4);
}

// No long episode is left for the end of a phase.
TEST(GaTest, LongestExpectedEpisodesArePlayedFirst) {
  GaConfig c = SmallConfig();
  std::vector<Task> played;
  const auto frames = [](const Task& task) { return 10 + 7 * (task.episode.seed % 5); };
  Experiment e(c, [&](const Task& task, std::span<const float> theta) {
    played.push_back(task);
    EpisodeResult result = Invent(task, theta);
    result.frames = frames(task);
    return result;
  });
  for (int g = 1; g <= 6; ++g) {
    const GaState before = e.ga.state();
    played.clear();
    e.Step();
    std::vector<double> expected, own(12);  // in the order of play
    std::vector<uint64_t> individuals;
    for (size_t i = 0; i < 12; ++i) {
      const uint64_t id = played[i].policy.id;
      const CounterRng rng(DeriveKey(kSeed, Purpose::kParentChoice, before.generation + 1, id));
      individuals.push_back(id);
      expected.push_back(g == 1 ? 0 : before.parents[rng.UniformInt(0, 4)].frames);
      own[id] = static_cast<double>(frames(played[i]));
    }
    for (size_t i = 1; i < 12; ++i) {
      const bool tie = expected[i - 1] == expected[i];
      EXPECT_TRUE(tie ? individuals[i - 1] < individuals[i] : expected[i - 1] > expected[i]);
    }
    // a parent's frames are those of its own episode, the elite's those of its validation
    const GaState after = e.ga.state();
    for (size_t p = 0; p + 1 < after.parents.size(); ++p)
      EXPECT_NE(std::find(own.begin(), own.end(), after.parents[p].frames), own.end());
    EXPECT_GE(after.elite->frames, 10);
    EXPECT_LE(after.elite->frames, 38);
  }
}

TEST(GaTest, UnknownLengthsChangeTheOrderAndNothingElse) {
  Experiment known(SmallConfig()), unknown(SmallConfig());
  for (int g = 0; g < 6; ++g) {
    GaState state = unknown.ga.state();
    for (Parent& parent : state.parents) parent.frames = 0;
    if (state.elite) state.elite->frames = 0;
    unknown.ga.Restore(state);
    known.Step(), unknown.Step();
  }
  EXPECT_EQ(known.ga.state().Encode(), unknown.ga.state().Encode());
}

TEST(GaTest, RandomSearchDrawsEveryMemberAfresh) {
  GaConfig c = SmallConfig();
  c.parents = 0;
  for (const GaLoop loop : {GaLoop::kUberGpu, GaLoop::kUberDist}) {
    c.loop = loop;
    Experiment e(c);
    for (int g = 0; g < 5; ++g) {
      e.Step();
      EXPECT_TRUE(e.ga.state().parents.empty());
      EXPECT_TRUE(e.ga.state().elite->genome.mutations.empty());
    }
  }
}

TEST(GaTest, FramesAreThoseOfPopulationAndValidation) {
  GaConfig c = SmallConfig();
  c.budget.test_every = 2;
  Experiment e(c, [](const Task& task, std::span<const float>) {
    return EpisodeResult{
        .fitness = 0, .frames = task.episode.frames_max == 2 ? 1000U : 10U, .steps = 1};
  });
  EXPECT_TRUE(e.Step().test_returns.empty());
  EXPECT_EQ(e.ga.state().frames, (12U + 3 * 2) * 10);
  EXPECT_EQ(e.ga.state().episodes, 12U + 3 * 2);
  const GenerationReport second = e.Step();
  EXPECT_EQ(second.test_returns.size(), 3U);
  EXPECT_EQ(second.frames, (12U + 3 * 2) * 10);
  EXPECT_EQ(second.frames_test, 3000U);
  EXPECT_EQ(e.ga.state().frames, 2 * (12U + 3 * 2) * 10);
  EXPECT_EQ(e.ga.state().frames_test, 3000U);
}

TEST(GaTest, CountsAreClampedToASmallPopulation) {
  GaConfig c = SmallConfig();
  EXPECT_TRUE(c.Settle().empty());
  c.population = 3, c.parents = 20, c.validation_candidates = 10;
  Experiment e(c);
  for (int g = 0; g < 3; ++g) e.Step();
  EXPECT_EQ(e.ga.state().parents.size(), 3U);
  EXPECT_EQ(e.ga.state().episodes, 3U * (3 + 3 * 2));
  EXPECT_EQ(c.Settle().size(), 2U);
  EXPECT_EQ(c.parents, 3);
  EXPECT_EQ(c.validation_candidates, 3);
}

TEST(GaTest, SchedulesAtTheirBeginningMiddleEndAndBeyond) {
  GaConfig c;
  c.mutation_power = 0.08, c.mutation_power_end = 0.02, c.mutation_schedule_frames = 1000;
  const auto powers = [&](Schedule schedule) {
    c.mutation_schedule = schedule;
    std::vector<float> values;
    for (const uint64_t frames : {0U, 500U, 1000U, 5000U})
      values.push_back(MutationPowerAt(c, frames));
    return values;
  };
  EXPECT_EQ(powers(Schedule::kConstant), (std::vector<float>{0.08F, 0.08F, 0.08F, 0.08F}));
  EXPECT_EQ(powers(Schedule::kLinear), (std::vector<float>{0.08F, 0.05F, 0.02F, 0.02F}));
  EXPECT_EQ(powers(Schedule::kExponential), (std::vector<float>{0.08F, 0.04F, 0.02F, 0.02F}));
  c.mutation_power_end = 0;
  EXPECT_EQ(powers(Schedule::kExponential), (std::vector<float>{0.08F, 0, 0, 0}));
  c.mutation_power = 0, c.mutation_power_end = 1;
  EXPECT_EQ(powers(Schedule::kExponential), (std::vector<float>{0, 0, 1, 1}));
  EXPECT_EQ(powers(Schedule::kLinear), (std::vector<float>{0, 0.5F, 1, 1}));
}

TEST(GaTest, ExponentialScheduleAgreesWithPow) {
  GaConfig c;
  c.mutation_schedule = Schedule::kExponential, c.mutation_schedule_frames = 100'000;
  c.mutation_power = 0.002, c.mutation_power_end = 3e-6;
  for (uint64_t frames = 0; frames <= 100'000; frames += 7) {
    const double exact = 0.002 * std::pow(3e-6 / 0.002, static_cast<double>(frames) / 100'000);
    ASSERT_FLOAT_EQ(MutationPowerAt(c, frames), static_cast<float>(exact));
  }
}

TEST(GaTest, AChildCarriesThePowerOfItsTime) {
  GaConfig c = SmallConfig();
  c.mutation_schedule = Schedule::kLinear, c.mutation_power_end = 0.1,
  c.mutation_schedule_frames = 10'000;
  Experiment e(c);
  for (int g = 0; g < 6; ++g) {
    const uint64_t frames = e.ga.state().frames;
    e.Step();
    const Genome best = e.ga.state().parents[0].genome;
    if (g == 0) continue;
    EXPECT_EQ(best.mutations.back().power, MutationPowerAt(c, frames));
  }
}

TEST(GaTest, TableNoiseStartsAtMultiplesInsideTheTable) {
  // Fresh and mutation keys of the table kind, without reading the table
  GaConfig c = SmallConfig();
  c.noise = NoiseKind::kTable, c.population = 200, c.parents = 200, c.validation_candidates = 0;
  const NetworkDescription network = Network("linear", 3, 2);
  class Idle : public FakeEvaluator {
   public:
    using FakeEvaluator::FakeEvaluator;
    Status Play(const ParameterSource&, WorkSource& work) override {
      while (const auto index = work.Claim()) work.Post(*index, {.fitness = 1});
      return Status::Ok();
    }
  } evaluator(network.parameter_count, Invent);
  c.budget.test_every = 0, c.cache_megabytes = 1;
  DeepGa ga(c, kSeed, network, evaluator, kRule);
  ASSERT_TRUE(ga.Step(nullptr).ok());
  for (const Parent& parent : ga.state().parents) {
    EXPECT_EQ(parent.genome.initial % 64, 0U);
    EXPECT_TRUE(CheckKeys(parent.genome, network.parameter_count).ok());
  }
}

// The same for every number of threads and slots, and for a stop anywhere.
class Real {
 public:
  static GaConfig Config() {
    GaConfig c = SmallConfig();
    c.population = 20, c.budget.test_every = 1;
    return c;
  }
  explicit Real(std::unique_ptr<Evaluator> made)
      : evaluator(std::move(made)), ga(Config(), kSeed, network, *evaluator, {}) {}
  static std::unique_ptr<Evaluator> Direct(uint32_t threads) {
    const auto factory = Native("CartPole-v1");
    return MakeDirectEvaluator(factory, ModelFor(factory, "linear"), threads).ValueOrThrow();
  }
  static std::unique_ptr<Evaluator> Slots(uint32_t slots, uint32_t threads) {
    const auto factory = Native("CartPole-v1");
    return MakeSlotEvaluator(MakeThreadFleet(factory, slots, 2).ValueOrThrow(),
                             ModelFor(factory, "linear"), threads);
  }
  std::string Run(int generations) {
    for (int g = 0; g < generations; ++g) EXPECT_TRUE(ga.Step(nullptr).ok());
    return ga.state().Encode();
  }

  std::unique_ptr<Evaluator> evaluator;
  NetworkDescription network = Network("linear", 4, 2);
  DeepGa ga;
};

TEST(GaTest, TheStateIsTheSameForAnyThreadsAndSlots) {
  const std::string expected = Real(Real::Direct(1)).Run(4);
  for (uint32_t threads = 1; threads <= 3; ++threads) {
    EXPECT_EQ(Real(Real::Direct(threads)).Run(4), expected);
    for (uint32_t slots = 1; slots <= 5; ++slots)
      EXPECT_EQ(Real(Real::Slots(slots, threads)).Run(4), expected) << slots << " " << threads;
  }
}

TEST(GaTest, AStopLeavesTheStateAndTheNextStepGoesOn) {
  Real undisturbed(Real::Direct(1));
  const std::string expected = undisturbed.Run(3);
  for (int stop_after = 1; stop_after < 4000; stop_after += 397) {
    Real real(stop_after % 2 == 0 ? Real::Direct(2) : Real::Slots(3, 2));
    real.Run(2);
    const std::string before = real.ga.state().Encode();
    std::atomic<int> asked{0};
    const auto stopped = real.ga.Step([&] { return ++asked > stop_after; });
    if (!stopped.ok()) {
      EXPECT_EQ(stopped.status().code(), Code::kTryAgain);
      EXPECT_EQ(real.ga.state().Encode(), before);
      EXPECT_TRUE(real.ga.Step(nullptr).ok());
    }
    EXPECT_EQ(real.ga.state().Encode(), expected);
  }
}

// The same bits for every number of threads and episodes in flight, and for every order in which
// results come: what is validated ahead of time and dropped again leaves no trace.
TEST(GaTest, TheStateIsTheSameForAnyOrderOfPlay) {
  const NetworkDescription network = Network("linear", 3, 2);
  size_t dropped = 0;
  for (const GaLoop loop : {GaLoop::kUberGpu, GaLoop::kUberDist}) {
    for (const int64_t candidates : {0, 1, 2, 5}) {
      GaConfig c = SmallConfig();
      c.loop = loop, c.validation_candidates = candidates, c.episodes = 1 + candidates % 2;
      if (candidates == 5) c.elite_mode = EliteMode::kMember;
      Experiment serial(c);
      for (int g = 0; g < 6; ++g) serial.Step();
      for (uint32_t trial = 0; trial < 12; ++trial) {
        DisorderlyEvaluator evaluator(network.parameter_count, Invent,
                                      {trial, 1 + trial % 4, 1 + trial % 5, trial % 3 * 100.0});
        DeepGa ga(c, kSeed, network, evaluator, kRule);
        for (int g = 0; g < 6; ++g) {
          const GenerationReport report = ga.Step(nullptr).ValueOrThrow();
          EXPECT_EQ(ga->progress().frames, ga.state().frames);
          EXPECT_EQ(report.test_returns.size(), 3U);
        }
        ASSERT_EQ(ga.state().Encode(), serial.ga.state().Encode())
            << static_cast<int>(loop) << candidates << trial;
        dropped += evaluator.dropped();
      }
    }
  }
  EXPECT_GT(dropped, 0U);
}

// The last member to play is slow; the other slots validate meanwhile.
TEST(GaTest, TheTailOfThePopulationIsUsedForValidation) {
  GaConfig c = SmallConfig();
  c.budget.test_every = 0;
  std::mutex mu;
  std::vector<Task> before_the_slow;  // of validation
  bool slow_done = false;
  int generation = 1;
  const NetworkDescription network = Network("linear", 3, 2);
  DisorderlyEvaluator evaluator(
      network.parameter_count,
      [&](const Task& task, std::span<const float> theta) {
        if (task.role == Role::kTrain && task.policy.id == 11) {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          const std::lock_guard lock(mu);
          slow_done = true;
        }
        const std::lock_guard lock(mu);
        if (task.role == Role::kEvaluate && !slow_done) before_the_slow.push_back(task);
        EpisodeResult result = Invent(task, theta);
        // the last member is no candidate
        if (task.role == Role::kTrain)
          result.fitness = task.policy.id == 11 ? kNan : static_cast<double>(task.policy.id);
        return result;
      },
      {.seed = 1, .threads = 3, .batch = 1, .delay_us_max = 10});
  DeepGa ga(c, kSeed, network, evaluator, kRule);
  for (; generation <= 2; ++generation) {
    before_the_slow.clear(), slow_done = false;
    ASSERT_TRUE(ga.Step(nullptr).ok());
    std::set<uint64_t> who;
    for (const Task& task : before_the_slow) who.insert(task.policy.id);
    // in generation 2 the last candidate is the old elite
    for (const uint64_t candidate : {10, 9, generation == 1 ? 8 : 12})
      EXPECT_TRUE(who.contains(candidate)) << generation << ": " << candidate;
    EXPECT_GE(before_the_slow.size(), 6U);
  }
}

// Killed anywhere, mostly in the tail, with what was validated speculatively on disk.
TEST(GaTest, WhatWasValidatedAheadIsReusedAndDecidesNothing) {
  GaConfig c = SmallConfig();
  c.validation_candidates = 4;
  Experiment undisturbed(c);
  for (int g = 0; g < 4; ++g) undisturbed.Step();
  const NetworkDescription network = Network("linear", 3, 2);
  size_t reused = 0;
  for (uint64_t trial = 0; trial < 10; ++trial) {
    std::vector<std::string> disk;
    std::string state = GaState().Encode();
    for (uint64_t life = 0; GaState::Decode(state)->generation < 4; ++life) {
      ASSERT_LT(life, 200U);
      DisorderlyEvaluator evaluator(network.parameter_count, Invent, {trial + life, 3, 2, 50});
      evaluator.FailAfter(3 + (7 * trial + life) % 11);
      DeepGa ga(c, kSeed, network, evaluator, kRule);
      ga.Restore(GaState::Decode(state).ValueOrThrow());
      for (const auto& record : disk) {
        const FinishedEpisodes finished = FinishedEpisodes::Decode(record).ValueOrThrow();
        if (finished.phase == Phase::kValidation) reused += finished.results.size();
        ga->Reuse(finished);
      }
      ga->KeepFinished(life % 2 == 0 ? 0 : 1e9, [&](const FinishedEpisodes& finished) {
        disk.push_back(finished.Encode());
        return true;
      });
      while (ga.state().generation < 4 && ga.Step(nullptr).ok()) state = ga.state().Encode();
    }
    ASSERT_EQ(state, undisturbed.ga.state().Encode());
  }
  EXPECT_GT(reused, 0U);
}

TEST(GaTest, ProgressGoesFromPhaseToPhaseAndNeverBack) {
  GaConfig c = SmallConfig();
  c.validation_candidates = 4;
  const NetworkDescription network = Network("linear", 3, 2);
  DisorderlyEvaluator evaluator(network.parameter_count, Invent, {5, 2, 2, 2000});
  DeepGa ga(c, kSeed, network, evaluator, kRule);
  std::atomic<bool> over{false};
  std::set<std::string> phases;
  std::thread watcher([&] {
    const std::map<std::string, int> order = {{"population", 0}, {"validation", 1}, {"test", 2}};
    std::tuple<uint64_t, int, size_t> before;
    uint64_t frames = 0, whole_of = 0;
    size_t whole_done = 0;
    while (!over) {
      const EvolutionProgress p = ga->progress();
      EXPECT_GE(p.frames, frames);
      frames = p.frames;
      if (p.total == 0) continue;
      phases.insert(p.phase);
      const std::tuple now(p.generation, order.at(p.phase), p.done);
      EXPECT_GE(now, before);
      EXPECT_LE(p.done, p.total);
      before = now;
      // over the whole generation; a member that has finished has a fitness
      EXPECT_GT(p.episodes_total, 0U);
      EXPECT_LE(p.episodes_done, p.episodes_total);
      if (p.episodes_done < whole_done && p.generation == whole_of)
        ADD_FAILURE() << p.phase << ": " << p.episodes_done << " after " << whole_done;
      whole_done = p.episodes_done, whole_of = p.generation;
      if (p.phase == "validation") {
        EXPECT_FALSE(std::isnan(p.best));
      }
    }
  });
  for (int g = 0; g < 4; ++g) EXPECT_TRUE(ga.Step(nullptr).ok());
  over = true;
  watcher.join();
  EXPECT_EQ(phases.size(), 3U);
  EXPECT_EQ(ga->progress().phase, "");
}

TEST(GaTest, MoreEpisodesOrParametersThanThereAreNumbersForAreRefused) {
  GaConfig c;
  const auto small = Network("linear", 4, 2), large = Network("mlp-16384-16384-tanh", 4, 2);
  c.noise = NoiseKind::kTable;
  EXPECT_TRUE(c.Check(small).ok());
  EXPECT_EQ(c.Check(large).code(), Code::kConfig);
  c.noise = NoiseKind::kNormal;
  EXPECT_TRUE(c.Check(large).ok());
  EXPECT_TRUE(c.Check(small).ok());
  c.population = 1'000'000, c.validation_episodes = 3'000;
  EXPECT_TRUE(c.Check(small).ok());
  c.validation_episodes = 5'000;
  EXPECT_EQ(c.Check(small).code(), Code::kConfig);
  c.validation_episodes = 0, c.episodes = 1000, c.population = 4'000'000;
  EXPECT_EQ(c.Check(small).code(), Code::kConfig);
}

// A run that is killed again and again plays no episode twice that it was able to keep.
TEST(GaTest, KeptEpisodesAreNotPlayedAgain) {
  Experiment undisturbed(SmallConfig());
  for (int g = 0; g < 4; ++g) undisturbed.Step();
  std::vector<std::string> disk;
  std::string state = GaState().Encode();
  size_t played = 0, lives = 0;
  while (GaState::Decode(state)->generation < 4) {
    ++lives;
    Experiment e(SmallConfig());
    e.ga.Restore(GaState::Decode(state).ValueOrThrow());
    for (const auto& record : disk) e.ga->Reuse(FinishedEpisodes::Decode(record).ValueOrThrow());
    e.ga->KeepFinished(lives % 2 == 0 ? 0 : 1e9, [&](const FinishedEpisodes& finished) {
      disk.push_back(finished.Encode());
      return true;
    });
    e.evaluator.FailAfter(5);
    while (e.ga.state().generation < 4 && e.ga.Step(nullptr).ok()) state = e.ga.state().Encode();
    played += e.evaluator.played();
  }
  EXPECT_EQ(state, undisturbed.ga.state().Encode());
  EXPECT_EQ(played, undisturbed.evaluator.played());
  EXPECT_GT(lives, 10U);
}

TEST(GaTest, WhatCouldNotBeKeptIsGivenAgain) {
  Experiment e(SmallConfig());
  std::map<Phase, std::vector<size_t>> calls;
  bool works = false;
  e.ga->KeepFinished(1e9, [&](const FinishedEpisodes& finished) {
    EXPECT_EQ(finished.generation, 1U);
    calls[finished.phase].push_back(finished.results.size());
    return works;
  });
  for (const size_t episodes : {5, 8}) {  // in the population, then in validation
    e.evaluator.FailAfter(e.evaluator.played() + episodes);
    EXPECT_FALSE(e.ga.Step(nullptr).ok());
  }
  works = true;
  e.evaluator.FailAfter(e.evaluator.played() + 1);
  EXPECT_FALSE(e.ga.Step(nullptr).ok());
  EXPECT_EQ(calls[Phase::kPopulation], (std::vector<size_t>{5, 12, 12}));
  EXPECT_EQ(calls[Phase::kValidation], (std::vector<size_t>{1, 2}));
  const GenerationReport resumed = e.Step();
  EXPECT_EQ(calls[Phase::kPopulation].size(), 3U);
  // a rate is that of what was played since
  const GenerationReport next = e.Step();
  EXPECT_GT(resumed.frames_reused, 0U);
  EXPECT_EQ(next.frames_reused, 0U);
}

TEST(GaTest, EpisodesOfAnotherGenerationAreIgnored) {
  Experiment undisturbed(SmallConfig()), e(SmallConfig());
  for (const uint64_t generation : {0U, 2U, 3U}) {
    e.ga->Reuse({generation, Phase::kPopulation, {{0, {.fitness = 1e9, .done = true}}}});
  }
  undisturbed.Step(), e.Step();
  EXPECT_EQ(e.ga.state().Encode(), undisturbed.ga.state().Encode());
  // nor do those of one generation live on into the next
  e.ga->Reuse({2, Phase::kTest, {{0, {.fitness = 7, .done = true}}}});
  EXPECT_EQ(e.Step().test_returns[0], 7);
  EXPECT_NE(e.Step().test_returns[0], 7);
}

TEST(GaTest, AFailedFleetIsReportedAndLeavesTheState) {
  Experiment e(SmallConfig());
  e.Step();
  const std::string before = e.ga.state().Encode();
  e.evaluator.FailAfter(e.evaluator.played() + 14);  // in validation
  const auto failed = e.ga.Step(nullptr);
  EXPECT_EQ(failed.status().message(), "the fake fleet failed");
  EXPECT_EQ(e.ga.state().Encode(), before);
}

// Nothing of the size of population times parameters or mutations.
TEST(GaTest, MemoryIsFlatInThePopulation) {
  GaConfig c = SmallConfig();
  c.population = 4000, c.budget.test_every = 0, c.cache_megabytes = 1;
  Experiment e(c, [](const Task& task, std::span<const float>) {
    return EpisodeResult{.fitness = -static_cast<double>(task.policy.id)};
  });
  GaState state;
  state.generation = 1;
  Genome parent{.initial = 5, .mutations = std::vector<Mutation>(1000, {7, 0.001F})};
  state.parents = {{parent, 1}, {parent, 1}};
  state.elite = {parent, 0};
  e.ga.Restore(state);
  const int64_t before = AllocationsSoFar().bytes;
  ResetAllocationPeak();
  e.Step();
  // 4000 genomes of 1000 mutations would be 64 MB
  EXPECT_LT(AllocationsSoFar().bytes_peak - before, 4 << 20);
}

TEST(GaTest, ParametersAreHeldForRunningEpisodesOnly) {
  GaConfig c = SmallConfig();
  c.population = 1000, c.validation_candidates = 1, c.budget.test_every = 0, c.cache_megabytes = 1;
  const auto factory = Native("CartPole-v1");
  const NetworkDescription network = Network("mlp-64-64-tanh", 4, 2);
  const auto evaluator =
      MakeDirectEvaluator(factory, ModelFor(factory, "mlp-64-64-tanh"), 2).ValueOrThrow();
  DeepGa ga(c, kSeed, network, *evaluator, {});
  const int64_t before = AllocationsSoFar().bytes;
  ResetAllocationPeak();
  ASSERT_TRUE(ga.Step(nullptr).ok());
  ASSERT_TRUE(ga.Step(nullptr).ok());
  // 1000 times 4610 parameters would be 18 MB; the cache of ancestors may take 1
  EXPECT_LT(AllocationsSoFar().bytes_peak - before, 4 << 20);
}

}  // namespace
}  // namespace samara::ga_test
