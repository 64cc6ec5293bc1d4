#include "evo/algorithms/ssga.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/bytes.h"
#include "evo/algorithms/ranking.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "evo/genome/genome_set.h"

namespace samara::ssga_test {
namespace {

SsgaConfig Small(MutationKind kind = MutationKind::kPlain) {
  SsgaConfig config;
  config.population = 12;
  config.births = 20;
  config.window = 4;
  config.mutation.kind = kind;
  config.mutation_power = 0.1;
  return config;
}

class TestedSsga {
 public:
  TestedSsga(const SsgaConfig& config, const NetworkDescription& network, Evaluator& evaluator)
      : ssga_(config.Make({7, network, evaluator, {}})) {}
  EvolutionAlgorithm* operator->() { return ssga_.get(); }
  SsgaState state() const { return SsgaState::Decode(ssga_->EncodeState()).ValueOrThrow(); }
  SsgaState Step(StopToken stop = nullptr) {
    const auto report = ssga_->Step(stop);
    EXPECT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->evaluations, report->fitness.size());
    return state();
  }
  void Restore(const SsgaState& state) { ASSERT_TRUE(ssga_->RestoreState(state.Encode()).ok()); }

 private:
  std::unique_ptr<EvolutionAlgorithm> ssga_;
};

// A fitness that says nothing about the genome, different each time.
EpisodeResult Arbitrary(const Task& task, std::span<const float>) {
  return {.fitness = CounterRng(task.episode.seed).Uniform(0), .frames = 2, .steps = 1};
}

// The probability that the best of `draws` of n members, drawn with replacement, is the r-th best.
double Chance(double n, double draws, double r) {
  return std::pow((n - r) / n, draws) - std::pow((n - r - 1) / n, draws);
}

// The 2018 program took the victim from the tournament that chose the parent.
TEST(Ssga, ParentAndVictimWinTournamentsOfTheirOwn) {
  constexpr size_t kMembers = 8;
  constexpr int kBirths = 6000;
  SsgaConfig config = Small();
  config.population = kMembers, config.births = 1, config.window = 1, config.tournament = 3;
  config.budget.evaluations = 0;
  const NetworkDescription network = Network("linear", 1, 1);
  FakeEvaluator evaluator(network.parameter_count, Arbitrary);
  TestedSsga ssga(config, network, evaluator);
  SsgaState before = ssga.Step();
  std::vector<double> parents(kMembers), victims(kMembers);
  double both = 0, replaced = 0;
  for (int birth = 0; birth < kBirths; ++birth) {
    // lines are cut: only who is whose parent matters
    for (size_t i = 0; i < kMembers; ++i) {
      before.population[i].genome.mutations.clear();
      before.population[i].genome.initial = i;
    }
    before.best = before.population[0];
    for (const SsgaMember& m : before.population)
      if (m.fitness > before.best->fitness) before.best = m;
    ssga.Restore(before);
    SsgaState after = ssga.Step();
    std::vector<double> fitness;
    for (const SsgaMember& m : before.population) fitness.push_back(m.fitness);
    const auto order = RankDescending(fitness);
    std::vector<size_t> rank(kMembers);
    for (size_t r = 0; r < kMembers; ++r) rank[order[r]] = r;
    for (size_t i = 0; i < kMembers; ++i) {
      const SsgaMember& m = after.population[i];
      if (m.genome.mutations.empty()) continue;
      ++replaced;
      ++victims[rank[i]];
      ++parents[rank[m.genome.initial]];
      both += m.genome.initial == i;
    }
    before = std::move(after);
  }
  // once in 512 the best is the victim, and stays unless the child is better
  EXPECT_GT(replaced, kBirths * 0.99);
  double expected_both = 0;
  for (size_t r = 0; r < kMembers; ++r) {
    const double best = Chance(kMembers, 3, static_cast<double>(r));
    const double worst = Chance(kMembers, 3, static_cast<double>(kMembers - 1 - r));
    EXPECT_NEAR(parents[r] / replaced, best, 4 * std::sqrt(best / kBirths) + 0.002) << r;
    EXPECT_NEAR(victims[r] / replaced, worst, 4 * std::sqrt(worst / kBirths) + 0.002) << r;
    expected_both += best * worst;
  }
  EXPECT_NEAR(both / replaced, expected_both, 4 * std::sqrt(expected_both / kBirths) + 0.002);
}

TEST(Ssga, TheHillClimberNeverGetsWorse) {
  SsgaConfig config = Small();
  config.population = 1, config.window = 1, config.births = 1, config.budget.evaluations = 0;
  const NetworkDescription network = Network("linear", 1, 1);
  FakeEvaluator evaluator(network.parameter_count, Arbitrary);
  TestedSsga ssga(config, network, evaluator);
  double fitness = ssga.Step().population[0].fitness;
  for (int i = 0; i < 100; ++i) {
    const SsgaState state = ssga.Step();
    EXPECT_GE(state.population[0].fitness, fitness);
    EXPECT_EQ(state.population[0], *state.best);
    fitness = state.population[0].fitness;
  }
  EXPECT_GT(fitness, 0.9);
}

TEST(Ssga, ExtendedItIsTheRunOfTheLargerBudget) {
  const NetworkDescription network = Network("linear", 1, 1);
  FakeEvaluator evaluator(network.parameter_count, Arbitrary);
  SsgaConfig small = Small(), large = Small();
  small.budget.evaluations = small.population + small.births + 1;
  large.budget.evaluations = small.population + 4 * small.births;
  TestedSsga whole(large, network, evaluator), part(small, network, evaluator);
  while (!large.budget.Spent(whole.state())) whole.Step();
  while (!small.budget.Spent(part.state())) part.Step();
  EXPECT_EQ(part.state().episodes, static_cast<uint64_t>(small.population + 2 * small.births));
  TestedSsga extended(large, network, evaluator);
  extended.Restore(part.state());
  while (!large.budget.Spent(extended.state())) extended.Step();
  EXPECT_EQ(extended->EncodeState(), whole->EncodeState());
}

std::string Played(MutationKind kind, std::unique_ptr<Evaluator> evaluator, bool resumes) {
  const NetworkDescription network = Network("mlp-4-tanh", 4, 2);
  const SsgaConfig config = Small(kind);
  auto ssga = std::make_unique<TestedSsga>(config, network, *evaluator);
  for (int i = 0; i < 4; ++i) {
    const SsgaState state = ssga->Step();
    if (!resumes) continue;
    ssga = std::make_unique<TestedSsga>(config, network, *evaluator);
    ssga->Restore(state);
  }
  return (*ssga)->EncodeState();
}

TEST(Ssga, ThreadsSlotsOrderAndKillsDecideNothing) {
  const auto factory = Native("CartPole-v1");
  const auto model = [&] { return ModelFor(factory, "mlp-4-tanh"); };
  const auto direct = [&](uint32_t threads) {
    return MakeDirectEvaluator(factory, model(), threads).ValueOrThrow();
  };
  for (const MutationKind kind :
       {MutationKind::kPlain, MutationKind::kSmR, MutationKind::kSmGAbs, MutationKind::kSmGSo}) {
    const std::string expected = Played(kind, direct(1), false);
    EXPECT_TRUE(Played(kind, direct(3), false) == expected);
    EXPECT_TRUE(Played(kind,
                       MakeSlotEvaluator(MakeThreadFleet(factory, 5, 2).ValueOrThrow(), model(), 2),
                       false) == expected);
    EXPECT_TRUE(Played(kind, direct(2), true) == expected) << static_cast<int>(kind);
    const SsgaState state = SsgaState::Decode(expected).ValueOrThrow();
    size_t safe = 0;
    for (const SsgaMember& m : state.population) safe += !m.genome.plain();
    EXPECT_EQ(safe > 0, kind != MutationKind::kPlain);
  }
}

TEST(Ssga, AStepThatIsStoppedLeavesTheStateAndIsPlayedAgain) {
  const NetworkDescription network = Network("linear", 4, 2);
  const auto factory = Native("CartPole-v1");
  for (const MutationKind kind : {MutationKind::kPlain, MutationKind::kSmGSum}) {
    std::string undisturbed;
    for (const int stop_after : {1'000'000, 0, 1, 30, 200}) {
      const auto evaluator = MakeDirectEvaluator(factory, ModelFor(factory, "linear"), 1);
      TestedSsga ssga(Small(kind), network, **evaluator);
      ssga.Step();
      const std::string before = ssga->EncodeState();
      int asked = 0;
      const auto report = ssga->Step([&] { return asked++ >= stop_after; });
      if (undisturbed.empty()) {
        undisturbed = ssga->EncodeState();
        continue;
      }
      EXPECT_EQ(report.status().code(), Code::kTryAgain);
      EXPECT_EQ(ssga->EncodeState(), before);
      ssga.Step();
      EXPECT_EQ(ssga->EncodeState(), undisturbed) << stop_after;
    }
  }
}

TEST(Ssga, RefusesAnotherWorldAfterAResume) {
  const NetworkDescription network = Network("linear", 4, 2);
  const auto factory = Native("CartPole-v1");
  const auto evaluator = MakeDirectEvaluator(factory, ModelFor(factory, "linear"), 1);
  TestedSsga ssga(Small(MutationKind::kSmGAbs), network, **evaluator);
  ssga.Step();
  SsgaState state = ssga.Step();
  size_t changed = 0;
  for (SsgaMember& m : state.population)
    for (Mutation& mutation : m.genome.mutations) ++changed, mutation.experience ^= 1;
  ASSERT_GT(changed, 0u);
  ssga.Restore(state);
  const auto report = ssga->Step(nullptr);
  EXPECT_EQ(report.status().code(), Code::kBadData);
  EXPECT_NE(report.status().message().find("ancestor's episode"), std::string::npos);
}

// A slot evaluator that cannot send states back.
class Blind : public FakeEvaluator {
 public:
  using FakeEvaluator::FakeEvaluator;
  bool records() const override { return false; }
};

TEST(Ssga, RefusesSafeMutationsOfWhatItCannotSee) {
  const NetworkDescription network = Network("linear", 1, 1);
  Blind evaluator(network.parameter_count, Arbitrary);
  TestedSsga safe(Small(MutationKind::kSmR), network, evaluator),
      plain(Small(), network, evaluator);
  const auto report = safe->Step(nullptr);
  EXPECT_EQ(report.status().code(), Code::kConfig);
  EXPECT_NE(report.status().message().find("fleet.inference=engine"), std::string::npos);
  EXPECT_TRUE(plain->Step(nullptr).ok());
}

TEST(Ssga, StatesDecodeToWhatTheyWere) {
  const NetworkDescription network = Network("linear", 4, 2);
  const auto factory = Native("CartPole-v1");
  const auto evaluator = MakeDirectEvaluator(factory, ModelFor(factory, "linear"), 1);
  for (const MutationKind kind : {MutationKind::kPlain, MutationKind::kSmGAbs}) {
    TestedSsga ssga(Small(kind), network, **evaluator);
    for (const int steps : {0, 1, 2}) {
      if (steps > 0) ssga.Step();
      const std::string bytes = ssga->EncodeState();
      EXPECT_EQ(SsgaState::Decode(bytes).ValueOrThrow().Encode(), bytes);
      for (size_t n = 0; n < bytes.size(); ++n)
        ASSERT_EQ(SsgaState::Decode(std::string_view(bytes).substr(0, n)).status().code(),
                  Code::kBadData);
      EXPECT_FALSE(SsgaState::Decode(bytes + "x").ok());
    }
  }
}

TEST(Ssga, PartsThatDoNotFitAreRefused) {
  // version, five counters, then the genomes with their size, whether the last of them is the best
  const SsgaMember member{.genome = {.initial = 7, .mutations = {}}, .fitness = 1, .episode = 2};
  SsgaState whole;
  whole.population = {member}, whole.best = member;
  const std::string bytes = whole.Encode();
  EXPECT_TRUE(SsgaState::Decode(bytes).ok());
  const auto message = [](const std::string& read) {
    return SsgaState::Decode(read).status().message();
  };
  const std::string damaged = "the recorded state of the evolution is damaged";
  constexpr size_t kGenomes = 4 + 5 * 8;
  const size_t has_best = kGenomes + 8 + EncodeGenomes(std::vector(2, member.genome)).size();
  std::string other = bytes;
  other[has_best] = 2;
  EXPECT_EQ(message(other), damaged);
  other[has_best] = 0;  // the best one is a member then, and none is the best
  EXPECT_EQ(message(other), damaged);
  const std::string none = EncodeGenomes({});
  EXPECT_EQ(message(bytes.substr(0, kGenomes) + ByteWriter().PutBytes(none).Take() +
                    bytes.substr(has_best)),
            damaged);
  // parameters belong to a best one of safe mutations, and only to one
  whole.best_parameters = {1};
  EXPECT_EQ(message(whole.Encode()), damaged);
  whole.best->genome.mutations = {{.key = 1, .power = 1, .kind = MutationKind::kSmR}};
  EXPECT_TRUE(SsgaState::Decode(whole.Encode()).ok());
  whole.best_parameters.clear();
  EXPECT_EQ(message(whole.Encode()), damaged);
}

TEST(Ssga, SaysHowMuchMemoryItsPopulationTakes) {
  SsgaConfig config;
  EXPECT_TRUE(config.Check(Network("linear", 4, 2)).ok());
  config.cache_megabytes = 1;
  const Status refused = config.Check(Network("mlp-64-64-tanh", 4, 2));
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_NE(refused.message().find("ga.cache_megabytes"), std::string::npos);
}

}  // namespace
}  // namespace samara::ssga_test
