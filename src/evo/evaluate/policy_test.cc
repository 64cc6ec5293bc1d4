#include "evo/evaluate/policy.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "evo/evaluate/evaluate_test_util.h"

namespace samara::policy_test {
namespace {

// Writes a constant per handle and counts how often it is asked.
class ConstantSource : public ParameterSource {
 public:
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    std::fill(canonical.begin(), canonical.end(), static_cast<float>(policy.id + policy.version));
    ++writes;
  }
  mutable int writes = 0;
};

// Writes given values.
class GivenSource : public ParameterSource {
 public:
  explicit GivenSource(std::vector<float> values) : values_(std::move(values)) {}
  void Write(PolicyHandle, std::span<float> canonical) const override {
    std::copy(values_.begin(), values_.end(), canonical.begin());
  }

 private:
  std::vector<float> values_;
};

ActionSpec Discrete(int64_t n) { return {.discrete = true, .n = n, .low = {}, .high = {}}; }
ActionSpec Box(int64_t n) { return {.discrete = false, .n = n, .low = {}, .high = {}}; }

std::span<const std::byte> Bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TEST(PolicyTest, FirstMaximumWins) {
  const PolicyModel model(Network("linear", 1, 4), {}, Discrete(4));
  PolicyWorkspace workspace(model);
  PolicyState state(model);
  // weights [in][out], then biases: outputs 1, 3, 3, 2 for input 1
  state.Load(workspace, {0, 0}, GivenSource({1, 3, 3, 2, 0, 0, 0, 0}));
  state.StartEpisode({.seed = 1});
  EXPECT_EQ(state.Decide(workspace, Bytes({1.0F})).index, 1);
  EXPECT_EQ(state.outputs()[1], 3.0F);
}

TEST(PolicyTest, EachPartOfAnActionHasItsMaximum) {
  ActionSpec parts = Discrete(24);
  parts.sizes = {3, 2, 4};
  const auto described =
      PolicyModel::FromDescription(PolicyModel(Network("linear", 1, 9), {}, parts).Describe());
  const PolicyModel& model = **described;
  PolicyWorkspace workspace(model);
  PolicyState state(model);
  std::vector<float> weights = {0, 0, 1, 5, 5, 0, 0, 0, 2};
  weights.resize(18);  // no biases
  state.Load(workspace, {0, 0}, GivenSource(weights));
  state.StartEpisode({.seed = 1});
  // parts 2, 0 (the first maximum) and 3: (2 * 2 + 0) * 4 + 3
  EXPECT_EQ(state.Decide(workspace, Bytes({1.0F})).index, 19);
  state.Load(workspace, kRandomHandle, GivenSource({}));
  for (int i = 0; i < 100; ++i) EXPECT_LT(state.Decide(workspace, Bytes({1.0F})).index, 24);
}

TEST(PolicyTest, BoxOutputsAreClippedAndNanIsTheLowerBound) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const PolicyModel model(Network("linear", 1, 5), {}, Box(5));
  PolicyWorkspace workspace(model);
  PolicyState state(model);
  state.Load(workspace, {0, 0}, GivenSource({0, 0, 0, 0, 0, -7, 7, 0.25F, nan, HUGE_VALF}));
  state.StartEpisode({.seed = 1});
  const Action action = state.Decide(workspace, Bytes({1.0F}));
  EXPECT_EQ(std::vector<float>(action.values.begin(), action.values.end()),
            (std::vector<float>{-1, 1, 0.25F, -1, 1}));
}

// The head `uniform:<bins>` of Salimans et al.'s program: low + best / (bins - 1) * (high - low).
TEST(PolicyTest, EachDimensionWithBinsChoosesAmongEvenlySpacedValues) {
  ActionSpec box = Box(3);
  box.bins = 5;
  const auto described =
      PolicyModel::FromDescription(PolicyModel(Network("linear", 1, 15), {}, box).Describe());
  const PolicyModel& model = **described;
  PolicyWorkspace workspace(model);
  PolicyState state(model);
  std::vector<float> weights = {9, 0, 0, 0, 0, 0, 1, 1, 0, 0, -3, -2, -1, -4, 0};
  weights.resize(30);  // no biases
  state.Load(workspace, {0, 0}, GivenSource(weights));
  state.StartEpisode({.seed = 1});
  Action action = state.Decide(workspace, Bytes({1.0F}));
  EXPECT_EQ(std::vector<float>(action.values.begin(), action.values.end()),
            (std::vector<float>{-1, -0.5F, 1}));
  state.StartEpisode({.seed = 1, .action_noise = 0.1F});
  action = state.Decide(workspace, Bytes({1.0F}));
  EXPECT_NE(action.values[1], -0.5F) << "noise is added to the chosen values";
  EXPECT_NEAR(action.values[1], -0.5F, 0.6F);
  EXPECT_LE(action.values[2], 1) << "and clipped";
}

TEST(PolicyTest, ByteVectorsAreScaledTo255) {
  const PolicyModel model(Network("linear", 2, 1),
                          {.stacked = false, .stack = {}, .dtype = DType::kUint8}, Box(1));
  PolicyWorkspace workspace(model);
  PolicyState state(model);
  state.Load(workspace, {0, 0}, GivenSource({1, 0, 0}));
  state.StartEpisode({.seed = 1});
  const std::vector<std::byte> observation = {std::byte{51}, std::byte{255}};
  EXPECT_EQ(state.Decide(workspace, observation).values[0], 51.0F / 255.0F);
}

TEST(PolicyTest, LoadsAHandleOnceUntilItIsUnloaded) {
  const PolicyModel model(Network("linear", 2, 2), {}, Discrete(2));
  PolicyWorkspace workspace(model);
  PolicyState state(model);
  const ConstantSource source;
  state.Load(workspace, {3, 0}, source);
  state.Load(workspace, {3, 0}, source);
  EXPECT_EQ(source.writes, 1);
  state.Load(workspace, {3, 1}, source);  // another version
  EXPECT_EQ(source.writes, 2);
  state.LoadRandom();
  state.Load(workspace, {3, 1}, source);
  EXPECT_EQ(source.writes, 3);
  // the random policy needs no parameters, and forgets those there are
  state.Load(workspace, kRandomHandle, source);
  EXPECT_EQ(source.writes, 3);
  state.Load(workspace, {3, 1}, source);
  EXPECT_EQ(source.writes, 4);
}

TEST(PolicyTest, RandomPolicyIsUniformAndKeyedByTheEpisode) {
  const PolicyModel model(Network("linear", 1, 3), {}, Discrete(3));
  PolicyWorkspace workspace(model);
  PolicyState a(model), b(model);
  std::vector<int> counts(3);
  int same_as_other_episode = 0;
  for (const uint64_t episode : {1, 2, 3}) {
    a.StartEpisode({.seed = episode});
    b.StartEpisode({.seed = episode + 10});
    PolicyState again(model);
    again.StartEpisode({.seed = episode});
    for (int step = 0; step < 1000; ++step) {
      const int32_t action = a.Decide(workspace, Bytes({0.0F})).index;
      ASSERT_EQ(again.Decide(workspace, Bytes({0.0F})).index, action);
      same_as_other_episode += b.Decide(workspace, Bytes({0.0F})).index == action;
      ++counts[static_cast<size_t>(action)];
    }
  }
  // 1000 of 3000 expected, standard deviation 26
  for (int count : counts) EXPECT_NEAR(count, 1000, 130);
  EXPECT_NEAR(same_as_other_episode, 1000, 130);
}

// Another execution of the same network: plain loops over the canonical layout.
TEST(PolicyTest, DecidesAsPlainLoopsDo) {
  const NetworkDescription network = Network("mlp-8-tanh", 4, 2);
  const PolicyModel model(network, {}, Discrete(2));
  std::vector<float> theta(network.parameter_count);
  const CounterRng rng(5);
  for (size_t i = 0; i < theta.size(); ++i) theta[i] = static_cast<float>(rng.Uniform(i) - 0.5);
  PolicyWorkspace workspace(model);
  PolicyState state(model);
  state.Load(workspace, {0, 0}, GivenSource(theta));
  state.StartEpisode({.seed = 1});
  const std::vector<float> x = {0.1F, -0.4F, 0.7F, 0.2F};
  state.Decide(workspace, Bytes(x));
  double hidden[8];
  for (size_t h = 0; h < 8; ++h) {
    double sum = theta[32 + h];
    for (size_t i = 0; i < 4; ++i) sum += double{x[i]} * theta[i * 8 + h];
    hidden[h] = std::tanh(sum);
  }
  for (size_t o = 0; o < 2; ++o) {
    double sum = theta[56 + o];
    for (size_t h = 0; h < 8; ++h) sum += hidden[h] * theta[40 + h * 2 + o];
    EXPECT_NEAR(state.outputs()[o], sum, 1e-5);
  }
}

TEST(PolicyTest, ADescriptionWhoseMembersAreWrongIsRefused) {
  const nlohmann::json good =
      nlohmann::json::parse(PolicyModel(Network("linear", 1, 9), {}, Box(9)).Describe());
  const auto message = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json other = good;
    other[key] = value;
    const Status status = PolicyModel::FromDescription(other.dump()).status();
    EXPECT_EQ(status.code(), Code::kConfig) << key;
    return status.message();
  };
  const std::tuple<const char*, int, int> bounded[] = {
      {"depth", 0, 1025}, {"order", -1, 2}, {"at_reset", -1, 3}, {"dtype", -1, 2}, {"isa", -1, 99}};
  for (const auto& [key, below, above] : bounded)
    for (const int value : {below, above})
      EXPECT_EQ(message(key, value), std::string("description of a policy: out of range: ") + key);
  for (const auto& [key, value] : good.items()) {
    nlohmann::json other = good;
    other.erase(key);
    EXPECT_EQ(PolicyModel::FromDescription(other.dump()).status().code(), Code::kConfig) << key;
    EXPECT_EQ(message(key.c_str(), nlohmann::json::object()).find("description of a policy: "), 0U);
  }
  for (const char* text : {"", "[]", "{"})
    EXPECT_EQ(PolicyModel::FromDescription(text).status().code(), Code::kConfig) << text;
}

// An episode begins with zeros and knows nothing of the episodes before it, of other slots and of
// who made the model.
TEST(PolicyTest, RecurrentStateBelongsToTheEpisode) {
  for (const char* line : {"lstm 8", "gru 5", "rnn 3 tanh, dense 4 relu"}) {
    const PolicyModel model(Network(line, 2, 2), {}, Box(2));
    const auto described = PolicyModel::FromDescription(model.Describe()).ValueOrThrow();
    std::vector<float> theta(model.kernel().network().parameter_count);
    const CounterRng rng(5);
    for (size_t i = 0; i < theta.size(); ++i) theta[i] = static_cast<float>(rng.Uniform(i) - 0.5);
    const GivenSource source(theta);
    PolicyWorkspace workspace(model), theirs(*described);
    PolicyState a(model), b(model), elsewhere(*described);
    a.Load(workspace, {0, 0}, source);
    b.Load(workspace, {0, 0}, source);
    AlignedFloats packed(model.kernel().packed_size());
    model.kernel().Pack(theta, packed.span());
    elsewhere.LoadPacked(packed.span());
    const auto play = [](PolicyState& state, PolicyWorkspace& with, float sign) {
      std::vector<float> seen;
      state.StartEpisode({.seed = 1});
      for (int t = 0; t < 5; ++t) {
        state.Decide(with, Bytes({sign, 0.1F * static_cast<float>(t)}));
        seen.insert(seen.end(), state.outputs().begin(), state.outputs().end());
      }
      return seen;
    };
    const auto first = play(a, workspace, 1);
    // the same observation, another memory of the past
    const std::vector<float> again(first.begin() + 2, first.begin() + 4);
    a.StartEpisode({.seed = 1});
    a.Decide(workspace, Bytes({1.0F, 0.1F}));
    EXPECT_NE(std::vector<float>(a.outputs().begin(), a.outputs().end()), again) << line;
    EXPECT_NE(play(b, workspace, -1), first) << line;
    EXPECT_EQ(play(a, workspace, 1), first) << line;
    EXPECT_EQ(play(b, workspace, 1), first) << line;
    EXPECT_EQ(play(elsewhere, theirs, 1), first) << line;
  }
}

TEST(PolicyTest, NothingIsAllocatedAfterTheFirstLoad) {
  InputRule image{.stacked = true, .stack = {.depth = 4}, .dtype = DType::kUint8};
  const PolicyModel stacked(MakeNetwork("Nature", 84, 84, 4, 6).ValueOrThrow(), image, Discrete(6));
  const PolicyModel box(Network("mlp-32-32-tanh", 17, 6), {}, Box(6));
  const PolicyModel recurrent(Network("2 x lstm 8, gru 4", 17, 6), {}, Box(6));
  const ConstantSource source;
  for (const PolicyModel* model : {&stacked, &box, &recurrent}) {
    PolicyWorkspace workspace(*model);
    PolicyState state(*model);
    const std::vector<std::byte> observation(model->input().stacked ? 84 * 84 : 17 * 4);
    state.Load(workspace, {0, 0}, source);
    const uint64_t calls = AllocationsSoFar().calls;
    for (uint32_t episode = 0; episode < 3; ++episode) {
      state.Load(workspace, {episode, 1}, source);
      state.StartEpisode({.seed = episode});
      for (int step = 0; step < 5; ++step) state.Decide(workspace, observation);
    }
    EXPECT_EQ(AllocationsSoFar().calls, calls);
  }
}

}  // namespace
}  // namespace samara::policy_test
