// Several ranks, each a thread with a GA of its own, against one that plays alone.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "evo/algorithms/ga_test_util.h"
#include "evo/algorithms/registry.h"
#include "evo/evaluate/peers.h"
#include "evo/genome/population_hash.h"

namespace samara::shared_evaluator_test {
namespace {

constexpr uint64_t kSeed = 3;
const EpisodeRule kRule{.noops = nullptr, .frames_max = 1, .frames_max_test = 2};

// The group of ranks that are threads: a counter and a place to meet.
class Group {
 public:
  explicit Group(int ranks) : given_(static_cast<size_t>(ranks)) {}

  int64_t Add(const std::string& counter, int64_t amount) {
    const std::lock_guard lock(mu_);
    ++asked_;
    return std::exchange(counters_[counter], counters_[counter] + amount);
  }
  Result<std::vector<std::string>> Exchange(int rank, std::string mine) {
    std::unique_lock lock(mu_);
    given_[static_cast<size_t>(rank)] = std::move(mine);
    const uint64_t meeting = meetings_;
    if (++come_ == given_.size()) {
      shown_ = given_;
      come_ = 0, ++meetings_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meetings_ > meeting || broken_; });
    if (meetings_ == meeting) return Status(Code::kUnavailable, "a rank died");
    return shown_;
  }
  void Break() {
    const std::lock_guard lock(mu_);
    broken_ = true;
    changed_.notify_all();
  }
  bool broken() const { return broken_; }
  int64_t asked() const { return asked_; }

 private:
  std::atomic<bool> broken_{false};
  std::mutex mu_;
  std::condition_variable changed_;
  // guarded by mu_
  std::map<std::string, int64_t> counters_;
  std::vector<std::string> given_, shown_;
  size_t come_ = 0;
  uint64_t meetings_ = 0;
  int64_t asked_ = 0;
};

class RankOf : public Peers {
 public:
  RankOf(Group& group, int rank, int ranks) : group_(group), rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  Result<int64_t> Add(const std::string& counter, int64_t amount) override {
    return group_.Add(counter, amount);
  }
  Result<std::vector<std::string>> Exchange(const std::string&, std::string mine) override {
    return group_.Exchange(rank_, std::move(mine));
  }
  bool failed() const override { return group_.broken(); }

 private:
  Group& group_;
  const int rank_, ranks_;
};

EpisodeResult Invent(const Task& task, std::span<const float> theta) {
  uint64_t x = task.episode.seed;
  for (float w : theta) x = (x ^ std::bit_cast<uint32_t>(w)) * 0x9E3779B97F4A7C15U + 1;
  const uint64_t level = (x >> 40) % 9;
  return {.fitness = static_cast<double>(level), .frames = 4 * (1 + level), .steps = 1};
}

GaConfig Config() {
  GaConfig c;
  c.population = 40, c.parents = 5, c.episodes = 2;
  c.validation_candidates = 4, c.validation_episodes = 3;
  c.budget.test_episodes = 5;
  return c;
}

const NetworkDescription& Net() {
  static const NetworkDescription network = Network("mlp-4-relu", 3, 2);
  return network;
}

struct Rank {
  std::unique_ptr<Evaluator> shared;
  DisorderlyEvaluator* own;
  std::unique_ptr<RankOf> peers;
  std::unique_ptr<DeepGa> ga;
};

std::vector<Rank> Ranks(Group& group, int n, const GaConfig& config) {
  std::vector<Rank> ranks;
  for (int r = 0; r < n; ++r) {
    Rank rank;
    // slow and quick ones, with one slot or several
    auto own = std::make_unique<DisorderlyEvaluator>(
        static_cast<size_t>(Net().parameter_count), Invent,
        DisorderlyEvaluator::Manner{.seed = 7 + static_cast<uint64_t>(r),
                                    .threads = 1 + static_cast<uint32_t>(r % 3),
                                    .batch = 1 + static_cast<uint32_t>(r % 2),
                                    .delay_us_max = 200.0 * r});
    rank.own = own.get();
    rank.peers = std::make_unique<RankOf>(group, r, n);
    rank.shared = MakeSharedEvaluator(std::move(own), *rank.peers);
    rank.ga = std::make_unique<DeepGa>(config, kSeed, Net(), *rank.shared, kRule);
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

// Runs `body` of every rank at once.
void Together(std::vector<Rank>& ranks, const std::function<void(Rank&, size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) threads.emplace_back([&, r] { body(ranks[r], r); });
  for (auto& thread : threads) thread.join();
}

TEST(SharedEvaluatorTest, AnyNumberOfRanksHasOneRanksPopulation) {
  for (const GaLoop loop : {GaLoop::kUberGpu, GaLoop::kUberDist}) {
    GaConfig config = Config();
    config.loop = loop;
    FakeEvaluator alone(static_cast<size_t>(Net().parameter_count), Invent);
    DeepGa one(config, kSeed, Net(), alone, kRule);
    std::vector<std::string> hashes;
    std::vector<double> tested;
    for (int g = 0; g < 4; ++g) {
      tested = one.Step(nullptr).ValueOrThrow().test_returns;
      hashes.push_back(Hex(one.state().population_hash));
    }
    for (const int n : {1, 2, 5}) {
      Group group(n);
      auto ranks = Ranks(group, n, config);
      Together(ranks, [&](Rank& rank, size_t) {
        for (int g = 0; g < 4; ++g) {
          const GenerationReport report = rank.ga->Step(nullptr).ValueOrThrow();
          EXPECT_EQ(Hex(rank.ga->state().population_hash), hashes[static_cast<size_t>(g)]);
          EXPECT_TRUE(g != 3 || report.test_returns == tested);
        }
        EXPECT_EQ(rank.ga->state().Encode(), one.state().Encode());
      });
    }
  }
}

// Position that an episode reports besides.
EpisodeResult InventBehaviour(const Task& task, std::span<const float> theta) {
  EpisodeResult result = Invent(task, theta);
  result.position = {theta[0], static_cast<float>(result.fitness)};
  if (task.episode.record == RecordKind::kMemory)
    result.recording.resize(16 * (1 + task.episode.seed % 4),
                            static_cast<std::byte>(result.frames));
  return result;
}

TEST(SharedEvaluatorTest, EveryAlgorithmComesToOneRanksState) {
  const auto parameters = static_cast<size_t>(Net().parameter_count);
  for (const EvolutionRow& row : EvolutionAlgorithms()) {
    const auto config = row.config();
    ConfigTable table;
    config->Bind(table);
    for (const char* key : {"ga.population", "es.population"})
      if (table.Find(key) != nullptr) {
        ASSERT_TRUE(table.Set(key, "24").ok());
      }
    config->budget.test_episodes = 2;
    if (table.Find("map.low") != nullptr) {
      ASSERT_TRUE(table.Set("map.low", "0,0").ok() && table.Set("map.high", "9,9").ok());
    }
    for (const char* behaviour : {"final_position", "ram"}) {
      if (table.Find("novelty.behaviour") != nullptr) {
        ASSERT_TRUE(table.Set("novelty.behaviour", behaviour).ok());
      }
      FakeEvaluator alone(parameters, InventBehaviour);
      alone.SetPosition(2), alone.SetMemory(16);
      const auto record = config->Records(alone.spec(), Net());
      if (!record.ok()) continue;
      const EpisodeRule rule{
          .noops = nullptr, .frames_max = 1, .frames_max_test = 2, .record = *record};
      const auto one = config->Make({kSeed, Net(), alone, rule});
      for (int g = 0; g < 3; ++g) (void)one->Step(nullptr).ValueOrThrow();
      for (const int n : {2, 3}) {
        Group group(n);
        std::vector<std::thread> threads;
        for (int r = 0; r < n; ++r)
          threads.emplace_back([&, r] {
            auto own = std::make_unique<DisorderlyEvaluator>(
                parameters, InventBehaviour,
                DisorderlyEvaluator::Manner{
                    .seed = static_cast<uint64_t>(r), .threads = 2, .delay_us_max = 10.0 * r});
            own->SetPosition(2), own->SetMemory(16);
            RankOf peers(group, r, n);
            const auto shared = MakeSharedEvaluator(std::move(own), peers);
            const auto algorithm = config->Make({kSeed, Net(), *shared, rule});
            for (int g = 0; g < 3; ++g) (void)algorithm->Step(nullptr).ValueOrThrow();
            EXPECT_EQ(algorithm->EncodeState(), one->EncodeState()) << row.name << ", " << n;
            EXPECT_EQ(algorithm->EncodeArchive(0), one->EncodeArchive(0)) << row.name;
          });
        for (auto& thread : threads) thread.join();
      }
    }
  }
}

TEST(SharedEvaluatorTest, NoEpisodeIsPlayedTwice) {
  std::mutex mu;
  std::map<uint64_t, int> played;
  const auto note = [&](const Task& task, std::span<const float> theta) {
    const std::lock_guard lock(mu);
    ++played[task.episode.seed];
    return Invent(task, theta);
  };
  GaConfig config = Config();
  config.population = 400;
  Group group(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      RankOf peers(group, r, 3);
      const auto shared = MakeSharedEvaluator(
          std::make_unique<FakeEvaluator>(static_cast<size_t>(Net().parameter_count), note), peers);
      DeepGa ga(config, kSeed, Net(), *shared, kRule);
      (void)ga.Step(nullptr).ValueOrThrow();
    });
  }
  for (auto& thread : threads) thread.join();
  // two episodes of 400 members, three of 4 candidates, five of the test
  EXPECT_EQ(played.size(), 800U + 12U + 5U);
  for (const auto& [seed, times] : played) EXPECT_EQ(times, 1);
  // one question is for several tasks while there are many
  EXPECT_LT(group.asked(), 400);
}

TEST(SharedEvaluatorTest, OneRankIsAskedToStopAndAllDo) {
  FakeEvaluator alone(static_cast<size_t>(Net().parameter_count), Invent);
  DeepGa one(Config(), kSeed, Net(), alone, kRule);
  (void)one.Step(nullptr).ValueOrThrow();
  for (int after = 0; after < 100; ++after) {
    Group group(3);
    auto ranks = Ranks(group, 3, Config());
    Together(ranks, [&](Rank& rank, size_t r) {
      std::atomic<int> asked{0};
      const auto stopped = rank.ga->Step([&] { return r == 1 && asked++ >= after; });
      EXPECT_TRUE(stopped.ok() || stopped.status().code() == Code::kTryAgain);
      EXPECT_FALSE(after == 0 && stopped.ok());  // so early that there is something left to drop
      EXPECT_EQ(rank.ga->state().generation, stopped.ok() ? 1U : 0U);
      // all are where this one is
      const auto all = group.Exchange(static_cast<int>(r), stopped.ok() ? "finished" : "stopped");
      EXPECT_EQ(*all, std::vector<std::string>(3, (*all)[r]));
      if (!stopped.ok()) (void)rank.ga->Step(nullptr).ValueOrThrow();
      EXPECT_EQ(rank.ga->state().Encode(), one.state().Encode());
    });
  }
}

TEST(SharedEvaluatorTest, AFleetFailsAndAllHearOfIt) {
  Group group(3);
  auto ranks = Ranks(group, 3, Config());
  // at its first episode: a rank that has none hears of it too
  for (Rank& rank : ranks) rank.own->FailAfter(0);
  std::vector<std::string> heard(3);
  Together(ranks, [&](Rank& rank, size_t r) {
    const auto failed = rank.ga->Step(nullptr);
    EXPECT_EQ(failed.status().code(), Code::kUnavailable);
    EXPECT_EQ(rank.ga->state().generation, 0U);
    heard[r] = failed.status().message();
  });
  EXPECT_NE(heard[0].find(": the fake fleet failed"), std::string::npos) << heard[0];
  EXPECT_EQ(heard, std::vector<std::string>(3, heard[0]));
}

TEST(SharedEvaluatorTest, ADeadRankEndsTheOthersEpisodes) {
  Group group(2);
  auto ranks = Ranks(group, 2, Config());
  Together(ranks, [&](Rank& rank, size_t r) {
    if (r == 1) return group.Break();
    const auto failed = rank.ga->Step(nullptr);
    EXPECT_EQ(failed.status().code(), Code::kUnavailable);
  });
}

}  // namespace
}  // namespace samara::shared_evaluator_test
