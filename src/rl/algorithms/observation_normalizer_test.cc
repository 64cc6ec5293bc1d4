// Networks that begin with `normalize` against the same networks without it, on observations that
// are normalized here: by moments of two passes in long double.
#include "rl/learner/observation_normalizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "rl/algorithms/replay_test_util.h"
#include "rl/learner/replay_learner.h"

namespace samara::observation_normalizer_test {
namespace {

using namespace replay_test;

using Row = std::array<float, kInputs>;

constexpr char kPlain[] = "\"dense 12 tanh, dense 7 relu\"",
               kNormalized[] = "\"normalize, dense 12 tanh, dense 7 relu\"",
               kPlainImage[] = "\"conv 3 1x1 tanh, dense 7 relu\"",
               kNormalizedImage[] = "\"normalize, conv 3 1x1 tanh, dense 7 relu\"";

// Numbers are of unlike sizes: the fourth hardly changes, so that its deviation counts as 0.1. Some
// final observations are far out, where numbers are clipped.
Row Observation(uint64_t step, uint32_t slot, bool final = false) {
  const CounterRng rng(DeriveKey(7, Purpose::kEnvironmentReset, step, slot + (final ? 100 : 0)));
  const std::array<double, kInputs> mean = {100, -3, 0, 2, 0.5}, deviation = {20, 0.5, 1, 0.01, 4};
  Row row;
  for (size_t i = 0; i < kInputs; ++i)
    row[i] = static_cast<float>(mean[i] + deviation[i] * rng.Normal(i) * (final ? 9 : 1));
  return row;
}

struct Moments {
  std::array<long double, kInputs> mean = {}, deviation = {};
};
Moments Of(const std::vector<Row>& rows) {
  Moments m;
  for (size_t i = 0; i < kInputs; ++i) {
    for (const Row& row : rows) m.mean[i] += row[i] / static_cast<long double>(rows.size());
    for (const Row& row : rows) {
      const long double off = row[i] - m.mean[i];
      m.deviation[i] += off * off / static_cast<long double>(rows.size());
    }
    m.deviation[i] = std::sqrt(m.deviation[i]);
  }
  return m;
}
// doc/networks.md
Row Normalized(const Row& row, const Moments& m) {
  Row z;
  for (size_t i = 0; i < kInputs; ++i)
    z[i] = static_cast<float>(std::min<long double>(
        5, std::max<long double>(
               -5, (row[i] - m.mean[i]) / std::max<long double>(0.1L, m.deviation[i]))));
  return z;
}

struct Algorithm {
  const char* label;
  const char* name;
  bool discrete;
  Settings settings;
  bool image = false;  // the numbers of an observation are an image of 5 x 1
  const char* plain() const { return image ? kPlainImage : kPlain; }
  const char* normalized() const { return image ? kNormalizedImage : kNormalized; }
  friend void PrintTo(const Algorithm& algorithm, std::ostream* out) { *out << algorithm.label; }
};
const Algorithm kAlgorithms[] = {
    {"sac", "sac", false, {{"learn.entropy_target", "-2"}, {"learn.entropy_cost", "0.3"}}},
    {"discrete_sac", "sac", true, {{"learn.entropy_target", "0.5"}, {"learn.entropy_cost", "0.3"}}},
    {"td3", "td3", false, {{"td3.steps", "2"}}},
    {"d4pg", "d4pg", false, {{"d4pg.steps", "2"}}},
    {"dqn", "dqn", true, {{"dqn.steps", "2"}}},
    {"images_sac", "sac", false, {{"learn.entropy_target", "-2"}}, /*image=*/true},
    {"images_dqn", "dqn", true, {{"dqn.steps", "2"}}, /*image=*/true}};

AgentSetup SetupOf(const Algorithm& algorithm, const char* layers, Settings settings = {}) {
  AgentSetup setup = ContinuousSetup(algorithm.name, {{"learn.environments", "4"},
                                                      {"learn.unroll", "5"},
                                                      {"learn.batch", "4"},
                                                      {"replay.start", "4"},
                                                      {"replay.batch", "16"},
                                                      {"replay.ratio", "8"},
                                                      {"replay.capacity", "200"}});
  if (algorithm.discrete)
    setup.environment.action = {.discrete = true, .n = kDimensions, .low = {}, .high = {}};
  if (algorithm.image) {
    setup.environment.observation = {DType::kFloat32, {kInputs, 1}};
    setup.stack = FrameStackRule{.depth = 1};
  }
  Set(setup.config, algorithm.settings);
  Set(setup.config, {{"network.layers", layers}});
  Set(setup.config, settings);
  setup.slots = setup.rows_max = kSlots;
  setup.versions_kept = 3;
  return setup;
}

// Unrolls of a random environment, whose observations an agent gets as `see` makes them.
class Feed {
 public:
  using See = std::function<Row(const Row&)>;
  explicit Feed(bool discrete, bool keeps_last = false)
      : discrete_(discrete),
        keeps_last_(keeps_last),
        store_({.observation_bytes = sizeof(Row),
                .action_values = discrete ? 0 : kDimensions,
                .values = 0},
               {.slots = kSlots, .length = kUnroll, .buffers = 3 * kSlots}) {}

  UpdateReport Update(
      Agent& agent, const See& see = [](const Row& row) { return row; }) {
    const uint32_t steps = drawn_ == 0 ? kUnroll + 1 : kUnroll;
    for (uint32_t t = 0; t < steps; ++t, ++drawn_)
      for (uint32_t slot = 0; slot < kSlots; ++slot) Step(slot, see);
    return agent.Update(store_.Take(kSlots), 0).ValueOrThrow();
  }
  // Those that were acted on until now: the last ones only bootstrap.
  std::vector<Row> acted() const {
    std::vector<Row> rows;
    for (uint64_t step = 0; step + 1 < drawn_; ++step)
      for (uint32_t slot = 0; slot < kSlots; ++slot) rows.push_back(Observation(step, slot));
    return rows;
  }

 private:
  void Step(uint32_t slot, const See& see) {
    ASSERT_TRUE(store_.Reserve(slot));
    const CounterRng rng(DeriveKey(8, Purpose::kEnvironmentReset, drawn_, slot));
    const Row observation = see(Observation(drawn_, slot)),
              final = see(Observation(drawn_, slot, true));
    std::array<float, kDimensions> action;
    for (size_t i = 0; i < kDimensions; ++i)
      action[i] = std::tanh(static_cast<float>(rng.Normal(20 + i)));
    EntryHeader header;
    header.reward = static_cast<float>(rng.Normal(99));
    header.action = static_cast<int32_t>(rng.UniformInt(98, kDimensions));
    header.episode_step = static_cast<uint32_t>(drawn_ % 4);
    header.terminated = drawn_ > 0 && drawn_ % 8 == 4;
    header.truncated = drawn_ > 0 && drawn_ % 8 == 0;
    const bool has_final = header.truncated || (header.terminated && keeps_last_);
    store_.Append(slot, {.header = header,
                         .observation = std::as_bytes(std::span(observation)),
                         .final_observation = has_final ? std::as_bytes(std::span(final))
                                                        : std::span<const std::byte>(),
                         .action_values = discrete_ ? std::span<const float>() : action,
                         .behaviour = {},
                         .values = {},
                         .state = {},
                         .history = {}});
  }

  const bool discrete_, keeps_last_;
  UnrollStore store_;
  uint64_t drawn_ = 0;
};

std::map<std::string, Tensor> WeightsOf(const Agent& agent) {
  return ParseSafetensors(agent.Save(Agent::Part::kWeights).at("weights.safetensors"))
      .ValueOrThrow()
      .tensors;
}

// Greedy actions, or numbers of actions, of `version`.
std::vector<float> Acts(Agent& agent, const std::vector<Row>& rows, uint64_t version) {
  InferenceBatch batch(agent.shape(), rows.size());
  batch.version = version;
  for (size_t i = 0; i < rows.size(); ++i)
    batch.rows.push_back({.slot = static_cast<uint32_t>(i),
                          .greedy = true,
                          .key = i,
                          .observation = std::as_bytes(std::span(rows[i]))});
  batch.status.resize(rows.size());
  EXPECT_TRUE(agent.Infer(batch).ok());
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(batch.rows[i].observation.data(), std::as_bytes(std::span(rows[i])).data());
  if (agent.shape().actions == 0) return {batch.index.begin(), batch.index.end()};
  return {batch.actions.begin(), batch.actions.end()};
}

class NormalizeTest : public testing::TestWithParam<Algorithm> {};

// The first update has eight steps of the optimizer, all with the moments of what it stored: of
// observations that were acted on, but in every minibatch on both sides of a step.
TEST_P(NormalizeTest, MinibatchesAreThoseOfNormalizedObservations) {
  const auto agent = MakeAgent(SetupOf(GetParam(), GetParam().normalized())).ValueOrThrow();
  const auto plain = MakeAgent(SetupOf(GetParam(), GetParam().plain())).ValueOrThrow();
  const auto raw = MakeAgent(SetupOf(GetParam(), GetParam().plain())).ValueOrThrow();
  const auto before = WeightsOf(*plain);
  Feed feed(GetParam().discrete), same(GetParam().discrete), without(GetParam().discrete);
  const UpdateReport report = feed.Update(*agent);
  const Moments moments = Of(feed.acted());
  const UpdateReport expected =
      same.Update(*plain, [&](const Row& row) { return Normalized(row, moments); });
  without.Update(*raw);
  EXPECT_EQ(report.steps, 8);
  EXPECT_NEAR(report.numbers.at("loss"), expected.numbers.at("loss"),
              1e-4 * std::abs(expected.numbers.at("loss")));
  const auto weights = WeightsOf(*agent), unlike = WeightsOf(*raw);
  double learned = 0, apart = 0;
  for (const auto& [name, tensor] : WeightsOf(*plain)) {
    const std::vector<float> values = weights.at(name).Floats(), e = tensor.Floats(),
                             first = before.at(name).Floats(), other = unlike.at(name).Floats();
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], e[i], 2e-5) << name << " " << i;
      learned = std::max(learned, std::abs(double{e[i]} - first[i]));
      apart = std::max(apart, std::abs(double{e[i]} - other[i]));
    }
  }
  EXPECT_GT(learned, 1e-3);
  EXPECT_GT(apart, 1e-3);  // observations as they are give other gradients
}

TEST_P(NormalizeTest, ActsOnNormalizedObservations) {
  const auto agent = MakeAgent(SetupOf(GetParam(), GetParam().normalized())).ValueOrThrow();
  const auto plain = MakeAgent(SetupOf(GetParam(), GetParam().plain())).ValueOrThrow();
  EXPECT_EQ(agent->parameter_count(), plain->parameter_count());
  Feed feed(GetParam().discrete);
  std::vector<Row> rows;
  for (uint32_t i = 0; i < kSlots; ++i) rows.push_back(Observation(1000, i, i % 2 == 1));
  std::vector<std::vector<float>> expected;
  for (uint64_t version = 1; version <= 3; ++version) {
    feed.Update(*agent);
    auto tensors = WeightsOf(*agent);
    for (const char* name : {"normalize_mean", "normalize_deviation"})
      ASSERT_EQ(tensors.erase(name), 1u);
    const std::string file = FormatSafetensors({tensors, {{"version", "0"}}}).ValueOrThrow();
    ASSERT_TRUE(plain->Restore({{"weights.safetensors", file}}, Agent::Part::kWeights).ok());
    std::vector<Row> normalized;
    for (const Row& row : rows) normalized.push_back(Normalized(row, Of(feed.acted())));
    expected.push_back(Acts(*plain, normalized, InferenceBatch::kNewest));
  }
  for (uint64_t version = 1; version <= 3; ++version) {  // each with its own statistics
    const std::vector<float> acts = Acts(*agent, rows, version), &e = expected[version - 1];
    ASSERT_EQ(acts.size(), e.size());
    for (size_t i = 0; i < acts.size(); ++i) EXPECT_NEAR(acts[i], e[i], 2e-5) << version;
  }
}

INSTANTIATE_TEST_SUITE_P(All, NormalizeTest, testing::ValuesIn(kAlgorithms),
                         [](const auto& test) { return std::string(test.param.label); });

const Algorithm& kSac = kAlgorithms[0];

TEST(ObservationNormalizerTest, StatisticsAreThoseOfWhatWasPlayed) {
  for (const char* shards : {"1", "2"}) {
    const auto agent =
        MakeAgent(SetupOf(kSac, kNormalized, {{"learn.shards", shards}})).ValueOrThrow();
    Feed feed(false);
    for (int update = 0; update < 6; ++update) feed.Update(*agent);
    const Moments expected = Of(feed.acted());
    const auto weights = WeightsOf(*agent);
    const auto mean = weights.at("normalize_mean").Floats(),
               deviation = weights.at("normalize_deviation").Floats();
    for (size_t i = 0; i < kInputs; ++i) {
      const auto d = static_cast<double>(expected.deviation[i]);
      EXPECT_NEAR(mean[i], static_cast<double>(expected.mean[i]), 1e-5 * d + 1e-5) << i;
      // the first sums, of float32, are of numbers that nothing has centred yet
      EXPECT_NEAR(deviation[i], d,
                  1e-4 * d + 1e-5 * std::abs(static_cast<double>(expected.mean[i])))
          << i;
    }
  }
}

// Keeps what a minibatch has instead of learning from it.
class Recorder : public StillAlgorithm {
 public:
  struct Seen {
    Row now, next;
  };
  explicit Recorder(std::vector<Seen>& seen) : seen_(seen) { learned_.AddNumber("number"); }
  size_t acting() const override { return 1; }
  ReturnRule returns() const override { return {.steps = 2, .gamma = 0.9}; }
  std::map<std::string, double> Gradient(const ReplayMinibatch& minibatch, ReplayScratch&,
                                         std::span<float> gradient) const override {
    for (const Transition& step : minibatch.steps) {
      Seen& seen = seen_.emplace_back();
      std::memcpy(seen.now.data(), step.observation.data(), sizeof(Row));
      std::memcpy(seen.next.data(), step.next_observation.data(), sizeof(Row));
    }
    gradient[0] = 0;
    return {{"loss", 1}};
  }

 private:
  std::vector<Seen>& seen_;
};

std::vector<Recorder::Seen>* g_seen = nullptr;
Result<std::unique_ptr<ReplayAlgorithm>> MakeRecorder(const AgentSetup& setup) {
  EXPECT_EQ(setup.config.network.text().find("normalize"), std::string::npos);
  return std::unique_ptr<ReplayAlgorithm>(std::make_unique<Recorder>(*g_seen));
}

// Minibatches of three updates, each with the statistics of its own: with goals in hindsight too,
// which are put into observations before these are normalized.
TEST(ObservationNormalizerTest, GoalsInHindsightAreNormalizedWithTheRest) {
  std::vector<std::vector<Recorder::Seen>> seen(2);
  std::vector<Moments> moments;
  size_t replaced = 0;
  for (const char* layers : {kPlain, kNormalized}) {
    AgentSetup setup = SetupOf(kSac, layers);
    setup.environment.goal = {.size = 2, .threshold = 0.1, .reached = 0, .missed = -1};
    Set(setup.config, {{"her.fraction", "0.7"}});
    g_seen = &seen[layers == kNormalized ? 1 : 0];
    const auto agent = MakeReplayLearner(setup, MakeRecorder).ValueOrThrow();
    Feed feed(false, /*keeps_last=*/true);
    moments.clear();
    for (int update = 0; update < 3; ++update) {
      const size_t from = g_seen->size();
      feed.Update(*agent);
      moments.insert(moments.end(), g_seen->size() - from, Of(feed.acted()));
    }
  }
  ASSERT_EQ(seen[0].size(), seen[1].size());
  ASSERT_EQ(seen[0].size(), moments.size());
  ASSERT_GT(seen[0].size(), 300u);
  for (size_t i = 0; i < moments.size(); ++i) {
    const Row now = Normalized(seen[0][i].now, moments[i]),
              next = Normalized(seen[0][i].next, moments[i]);
    for (size_t k = 0; k < kInputs; ++k) {
      EXPECT_NEAR(seen[1][i].now[k], now[k], 2e-4) << i << " " << k;
      EXPECT_NEAR(seen[1][i].next[k], next[k], 2e-4) << i << " " << k;
    }
    // a goal of its own differs before and after the step
    if (seen[0][i].now[4] == seen[0][i].next[4]) ++replaced;
  }
  EXPECT_GT(replaced, moments.size() / 2);
}

void ExpectTheSameBitsWhenRestored(const AgentSetup& setup) {
  const auto whole = MakeAgent(setup).ValueOrThrow(), other = MakeAgent(setup).ValueOrThrow();
  Feed feed(false), same(false);
  for (int update = 0; update < 4; ++update) {
    feed.Update(*whole);
    same.Update(*MakeAgent(setup).ValueOrThrow());  // plays on
  }
  const auto files = whole->Save(Agent::Part::kSlots);
  ASSERT_TRUE(other->Restore(files, Agent::Part::kSlots).ok());
  const std::vector<Row> rows = {Observation(1, 1), Observation(1, 2)};
  for (uint64_t version = 2; version <= 4; ++version)
    EXPECT_EQ(Acts(*other, rows, version), Acts(*whole, rows, version));
  for (int update = 0; update < 3; ++update) {
    EXPECT_EQ(feed.Update(*whole).numbers, same.Update(*other).numbers);
    EXPECT_EQ(other->parameter_hash(), whole->parameter_hash());
  }
  EXPECT_EQ(other->Save(Agent::Part::kSlots), whole->Save(Agent::Part::kSlots));
}
TEST(ObservationNormalizerTest, ARestoredAgentGoesOnWithTheSameBits) {
  const Settings shards = {{"learn.shards", "2"}};
  ExpectTheSameBitsWhenRestored(SetupOf(kSac, kNormalized, shards));
  const Algorithm& images = kAlgorithms[5];
  ASSERT_TRUE(images.image);
  ExpectTheSameBitsWhenRestored(SetupOf(images, images.normalized(), shards));
}

TEST(ObservationNormalizerTest, FilesThatAreDamagedOrOfAnotherNetworkAreRefused) {
  const AgentSetup setup = SetupOf(kSac, kNormalized);
  const auto agent = MakeAgent(setup).ValueOrThrow(), other = MakeAgent(setup).ValueOrThrow(),
             plain = MakeAgent(SetupOf(kSac, kPlain)).ValueOrThrow();
  Feed feed(false);
  feed.Update(*agent);
  const std::string before = other->parameter_hash();
  const auto files = agent->Save(Agent::Part::kSlots);
  for (const char* name : {"statistics.bin", "versions.safetensors", "weights.safetensors"}) {
    auto damaged = files;
    damaged[name] = files.at(name).substr(0, files.at(name).size() / 2);
    EXPECT_EQ(other->Restore(damaged, Agent::Part::kSlots).code(), Code::kBadData) << name;
    damaged.erase(name);
    EXPECT_EQ(other->Restore(damaged, Agent::Part::kSlots).code(), Code::kBadData) << name;
  }
  const auto weights = [](const Agent& of) { return of.Save(Agent::Part::kWeights); };
  EXPECT_NE(plain->Restore(weights(*agent), Agent::Part::kWeights).message().find("normalize"),
            std::string::npos);
  EXPECT_NE(other->Restore(weights(*plain), Agent::Part::kWeights).message().find("normalize_mean"),
            std::string::npos);
  EXPECT_EQ(other->parameter_hash(), before);
  // weights alone act, and statistics go on from theirs
  ASSERT_TRUE(other->Restore(weights(*agent), Agent::Part::kWeights).ok());
  EXPECT_EQ(other->parameter_hash(), agent->parameter_hash());
  const std::vector<Row> rows = {Observation(1, 1), Observation(1, 2)};
  EXPECT_EQ(Acts(*other, rows, InferenceBatch::kNewest),
            Acts(*agent, rows, InferenceBatch::kNewest));
  const float mean = WeightsOf(*other).at("normalize_mean").Floats()[0];
  feed.Update(*other);
  // 20 rows more, to 1,000
  EXPECT_NEAR(WeightsOf(*other).at("normalize_mean").Floats()[0], mean, 1);
}

TEST(ObservationNormalizerTest, TheRestOfTheLineIsTheNetwork) {
  const auto parameters = [](const char* layers) {
    return MakeAgent(SetupOf(kSac, layers)).ValueOrThrow()->parameter_count();
  };
  EXPECT_EQ(parameters("\"normalize\""), parameters("\"linear\""));
  EXPECT_EQ(parameters("\" normalize ,2 x dense 9 elu\""),
            parameters("\"dense 9 elu, dense 9 elu\""));
  EXPECT_EQ(parameters("\"MujocoPolicy\""), parameters("\"2 x dense 256 tanh\""));
  const auto refused = [](const char* layers) {
    return MakeAgent(SetupOf(kSac, layers)).status().message();
  };
  for (const char* layers :
       {"\"normalize, dense 8 silu\"", "\"normalize, dense 8 vbn relu\"", "\"normalize, lstm 8\""})
    EXPECT_NE(refused(layers).find("expected dense layers alone"), std::string::npos) << layers;
  for (const char* layers : {"\"normalize\"", "\"normalize, dense 8 relu\""}) {
    const Status status = MakeAgent(SetupOf(kAlgorithms[5], layers)).status();
    EXPECT_EQ(status.code(), Code::kConfig);
    EXPECT_NE(status.message().find("normalize"), std::string::npos) << status.message();
  }
}

// Bytes count as value / 255, and the last entry of an unroll, which only bootstraps, not at all.
TEST(ObservationNormalizerTest, StatisticsOfBytesAreOfNumbersUpToOne) {
  constexpr uint32_t kSteps = 3;
  UnrollStore store({.observation_bytes = 2, .action_values = 0, .values = 0},
                    {.slots = 1, .length = kSteps, .buffers = 2});
  const std::array<std::array<uint8_t, 2>, kSteps + 1> frames = {
      {{0, 255}, {51, 255}, {102, 255}, {255, 0}}};
  for (uint32_t t = 0; t <= kSteps; ++t) {
    ASSERT_TRUE(store.Reserve(0));
    EntryHeader header;
    header.episode_step = t;
    store.Append(0, {.header = header,
                     .observation = std::as_bytes(std::span(frames[t])),
                     .final_observation = {},
                     .action_values = {},
                     .behaviour = {},
                     .values = {},
                     .state = {},
                     .history = {}});
  }
  ObservationNormalizer normalizer(2, /*bytes=*/true);
  normalizer.Merge(normalizer.Moments(store.Take(1)));
  const std::array<double, 4> expected = {0.2, 1, std::sqrt(0.08 / 3), 1e-4};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(normalizer.floats()[i], expected[i], 1e-6) << i;
}

}  // namespace
}  // namespace samara::observation_normalizer_test
