#include "rl/algorithms/r2d2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "nn/safetensors.h"
#include "nn/torch/torch.h"
#include "rl/algorithms/registry.h"
#include "rl/learner/algorithm.h"

namespace samara::r2d2_test {
namespace {

using torch::Tensor;

// The rescaling of Kapturowski et al. 2019, and that the float32 form of its inverse does not
// cancel.
TEST(R2d2Test, RescalingHasAnInverse) {
  for (const double x : {0.0, 1e-3, -1e-3, 0.5, -2.0, 3.0, 1e3, -1e6})
    for (const double epsilon : {1e-3, 1e-2, 0.0}) {
      EXPECT_NEAR(RescaleInverse(Rescale(x, epsilon), epsilon), x, 1e-9 * (1 + std::abs(x)));
      if (epsilon == 0) {
        EXPECT_EQ(Rescale(x, 0), x);
        continue;
      }
      // the textbook's inverse
      const double y = Rescale(x, epsilon);
      const double root =
          (std::sqrt(1 + 4 * epsilon * (std::abs(y) + 1 + epsilon)) - 1) / (2 * epsilon);
      EXPECT_NEAR(RescaleInverse(y, epsilon), std::copysign(root * root - 1, y),
                  1e-6 * (1 + std::abs(x)));
    }
  EXPECT_NEAR(Rescale(3, 1e-3), 1.003, 1e-12);
}

// Mnih et al. 2016's recursion over n steps, from the last step backwards: an independent form.
std::vector<double> ByRecursion(const ValueSteps& of, int64_t steps, double gamma, double epsilon) {
  const size_t length = of.reward.size();
  // values[i][t]: of what follows step t when i steps more are counted
  std::vector<double> value(length);
  for (size_t t = 0; t < length; ++t) value[t] = RescaleInverse(of.next_value[t], epsilon);
  std::vector<double> returns(length);
  for (size_t t = 0; t < length; ++t)
    returns[t] = of.reward[t] + (of.terminated[t] ? 0 : gamma * value[t]);
  for (int64_t n = 1; n < steps; ++n) {
    std::vector<double> more = returns;
    for (size_t t = 0; t + 1 < length; ++t)
      if (!of.terminated[t] && !of.truncated[t]) more[t] = of.reward[t] + gamma * returns[t + 1];
    returns = more;
  }
  for (double& x : returns) x = Rescale(x, epsilon);
  return returns;
}

TEST(R2d2Test, TargetsOverSeveralStepsEndAtEpisodesAndAtTheSequence) {
  const CounterRng rng(7);
  for (uint64_t trial = 0; trial < 50; ++trial) {
    ValueSteps of;
    const size_t length = 1 + rng.UniformInt(trial, 12);
    for (size_t t = 0; t < length; ++t) {
      const uint64_t at = 100 * trial + t;
      of.reward.push_back(static_cast<float>(rng.Normal(at)));
      of.next_value.push_back(static_cast<float>(rng.Normal(10'000 + at)));
      const uint64_t end = rng.UniformInt(20'000 + at, 6);
      of.terminated.push_back(end == 0), of.truncated.push_back(end == 1);
    }
    for (const int64_t steps : {1, 2, 3, 5, 20}) {
      const auto targets = MultiStepTargets(of, steps, 0.9, 1e-3);
      const auto expected = ByRecursion(of, steps, 0.9, 1e-3);
      ASSERT_EQ(targets.size(), length);
      for (size_t t = 0; t < length; ++t) EXPECT_NEAR(targets[t], expected[t], 1e-5) << t;
    }
  }
  // by hand, without rescaling: 1 + 0.5 * 2 + 0.25 * 8
  EXPECT_EQ(MultiStepTargets({{1, 2}, {0, 0}, {0, 0}, {100, 8}}, 2, 0.5, 0),
            (std::vector<float>{4, 6}));
  EXPECT_EQ(MultiStepTargets({{1, 2}, {1, 0}, {0, 0}, {100, 8}}, 2, 0.5, 0),
            (std::vector<float>{1, 6}));
  EXPECT_EQ(MultiStepTargets({{1, 2}, {0, 0}, {1, 0}, {100, 8}}, 2, 0.5, 0),
            (std::vector<float>{51, 6}));
}

TEST(R2d2Test, ASequencesPriorityIsAMixOfItsLargestAndMeanError) {
  EXPECT_NEAR(SequencePriority(std::vector<float>{1, -4, 1}, 0.9), 0.9 * 4 + 0.1 * 2, 1e-6);
}

constexpr int64_t kInputs = 3, kActions = 4;
constexpr uint32_t kSlots = 2;

AgentSetup R2d2Setup(std::initializer_list<std::pair<const char*, const char*>> settings = {}) {
  AgentSetup setup;
  ChooseAlgorithm(setup.config, "r2d2");
  setup.environment.observation = {DType::kFloat32, {kInputs}};
  setup.environment.action = {.discrete = true, .n = kActions, .low = {}, .high = {}};
  setup.slots = setup.rows_max = kSlots;
  ConfigTable table;
  Bind(table, setup.config);
  std::vector<std::pair<const char*, const char*>> all = {{"network.layers", "\"dense 9 tanh\""},
                                                          {"network.lstm", "5"},
                                                          {"network.head", "6"},
                                                          {"network.reward_input", "true"},
                                                          {"network.action_input", "true"},
                                                          {"learn.environments", "2"},
                                                          {"learn.unroll", "4"},
                                                          {"learn.batch", "2"},
                                                          {"replay.batch", "8"},
                                                          {"replay.start", "8"},
                                                          {"replay.capacity", "64"},
                                                          {"replay.ratio", "1"},
                                                          {"r2d2.burn_in", "2"},
                                                          {"r2d2.steps", "3"},
                                                          {"r2d2.target_every", "1000"},
                                                          {"optimizer.learning_rate", "0.01"}};
  all.insert(all.end(), settings);
  for (const auto& [key, value] : all) EXPECT_TRUE(table.Set(key, value).ok()) << key;
  return setup;
}

// Plays an agent: episodes of seven steps, every other one cut short by its clock, whose
// observations are draws and whose rewards depend on the action.
class Player {
 public:
  Player(Agent& agent, const AgentSetup& setup)
      : agent_(agent),
        store_({.observation_bytes = agent.shape().observation_bytes,
                .values = agent.shape().values,
                .state = agent.shape().state},
               {.slots = kSlots,
                .length = static_cast<uint32_t>(setup.config.learn.unroll),
                .overlap = static_cast<uint32_t>(setup.config.own->overlap()),
                .buffers = 16}),
        batch_(agent.shape(), kSlots) {}

  std::vector<UnrollStore::Loan> Play() {
    for (;;) {
      Step();
      auto unrolls = store_.Take(kSlots);
      if (!unrolls.empty()) return unrolls;
    }
  }

 private:
  std::vector<float> Draw() {
    std::vector<float> x(kInputs);
    for (float& value : x) value = static_cast<float>(CounterRng(11).Normal(drawn_++));
    return x;
  }
  void Step() {
    batch_.rows.clear();
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      Slot& s = slots_[slot];
      EXPECT_TRUE(store_.Reserve(slot));
      s.observation = Draw();
      batch_.rows.push_back({.slot = slot,
                             .first = s.step == 0,
                             .keeps = store_.NeedsState(slot),
                             .reward = s.reward,
                             .previous_action = s.step == 0 ? 0 : s.action,
                             .step = s.step,
                             .key = 1 + slot + 10 * s.episode,
                             .observation = std::as_bytes(std::span(s.observation))});
    }
    batch_.version = InferenceBatch::kNewest;
    ASSERT_TRUE(agent_.Infer(batch_).ok());
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      Slot& s = slots_[slot];
      EntryHeader header;
      header.reward = s.reward, header.action = batch_.index[slot];
      header.previous_action = s.step == 0 ? 0 : s.action;
      header.episode_step = s.step, header.incarnation = 1;
      header.terminated = s.ended == 1, header.truncated = s.ended == 2;
      const std::vector<float> final = Draw();
      const auto part = [&](const std::vector<float>& all, size_t size) {
        return std::span(all).subspan(slot * size, size);
      };
      store_.Append(slot, {.header = header,
                           .observation = std::as_bytes(std::span(s.observation)),
                           .final_observation = header.truncated ? std::as_bytes(std::span(final))
                                                                 : std::span<const std::byte>(),
                           .action_values = {},
                           .behaviour = {},
                           .values = part(batch_.values, agent_.shape().values),
                           .state = part(batch_.state, agent_.shape().state),
                           .history = {}});
      s.action = batch_.index[slot];
      s.reward = static_cast<float>(s.action) - 1.5F;
      s.ended = ++s.step == 7 ? 1 + static_cast<int>(s.episode % 2) : 0;
      if (s.ended != 0) s.step = 0, ++s.episode;
    }
  }
  struct Slot {
    std::vector<float> observation;
    float reward = 0;
    int32_t action = 0;
    uint32_t step = 0;
    uint64_t episode = 0;
    int ended = 0;
  };
  Agent& agent_;
  UnrollStore store_;
  InferenceBatch batch_;
  Slot slots_[kSlots];
  uint64_t drawn_ = 0;
};

AgentNetworkConfig NetworkConfig(bool dueling, const AgentCore& core = {5}) {
  return {.torso = "dense 9 tanh",
          .height = 1,
          .width = 1,
          .channels = kInputs,
          .outputs = kActions,
          .core = core,
          .reward_input = true,
          .action_input = kActions,
          .head = 6,
          .policy_bias = !dueling,
          .reward_clip = false};
}

// The reference stored the state of another entry with a sequence: replaying one from its state has
// to give the values of acting, for every burn-in.
TEST(R2d2Test, ReplayingASequenceGivesTheValuesOfActing) {
  const AgentCore lstm = {5}, gru = {7, AgentCore::Kind::kGru};
  for (const auto& [burn_in, core] :
       {std::pair(0, lstm), {1, lstm}, {2, lstm}, {40, lstm}, {1, gru}, {2, gru}}) {
    const std::string text = std::to_string(burn_in);
    AgentSetup setup = R2d2Setup({{"r2d2.burn_in", text.c_str()}, {"replay.capacity", "4000"}});
    if (core.gru()) setup.config.network.lstm = 0, setup.config.network.gru = core.units;
    const auto agent = MakeAgent(setup).ValueOrThrow();
    EXPECT_EQ(agent->shape().state, static_cast<size_t>(core.gru() ? 7 : 10));
    AgentNetworkImpl network(NetworkConfig(true, core));
    const auto weights = agent->Save(Agent::Part::kWeights).at("weights.safetensors");
    const auto parsed = ParseSafetensors(weights).ValueOrThrow();
    for (auto& item : network.named_parameters()) {
      const torch::NoGradGuard none;
      item.value().copy_(
          torch::tensor(parsed.tensors.at(item.key()).Floats()).reshape(item.value().sizes()));
    }
    Player player(*agent, setup);
    InputLayout layout = InputLayout::Make(setup.environment.observation, std::nullopt);
    Tensor inputs;
    int64_t compared = 0;
    for (int i = 0; i < 30; ++i)
      for (const UnrollStore::Loan& unroll : player.Play()) {
        const Unroll* one = unroll.get();
        const LearnerBatch batch =
            MakeLearnerBatch({&one, 1}, layout, agent->shape(), false, inputs);
        const torch::NoGradGuard none;
        const auto out = network.forward(
            {batch.observation, batch.reward, batch.previous_action, batch.first}, batch.state);
        const Tensor values = ActionValues(out, true);
        for (uint32_t t = 0; t < unroll->entries; ++t) {
          if (unroll->headers[t].absent) continue;
          ++compared;
          for (int64_t a = 0; a < kActions; ++a)
            ASSERT_NEAR(values[t][0][a].item<float>(),
                        unroll->values[static_cast<size_t>(t * kActions + a)], 1e-5)
                << "burn-in " << burn_in << " entry " << t;
        }
      }
    EXPECT_GT(compared, 200);
  }
}

std::unique_ptr<Algorithm> MakeR2d2(const AgentSetup& setup) {
  return FindLearningAlgorithm("r2d2")->make(setup.config);
}

// Each switch against the paper's loss, written with torch step by step; of whole unrolls and of
// parts of them that are of one episode.
TEST(R2d2Test, TheLossIsThePapers) {
  int64_t terminations = 0, truncations = 0;  // at steps that are learned from
  int64_t parts = 0;
  std::map<std::string, std::vector<float>> losses;
  for (const char* twice : {"true", "false"})
    for (const char* dueling : {"true", "false"})
      for (const char* state : {"stored", "zeros", "late"}) {
        const AgentSetup setup = R2d2Setup({{"r2d2.double", twice},
                                            {"r2d2.dueling", dueling},
                                            {"r2d2.state", state},
                                            {"r2d2.gamma", "0.9"}});
        const bool apart = std::string(dueling) == "true";
        const auto agent = MakeAgent(setup).ValueOrThrow();
        const auto algorithm = MakeR2d2(setup);
        Player player(*agent, setup);
        for (int round = 0; round < 9; ++round) {
          const auto unrolls = player.Play();
          std::vector<const Unroll*> views;
          std::vector<StepRange> steps;
          for (const auto& unroll : unrolls) {
            views.push_back(unroll.get());
            const auto episodes = LearnedByEpisode(*unroll);
            parts += round % 3 != 0 && episodes.size() > 1;
            steps.push_back(round % 3 == 0   ? LearnedSteps(*unroll)
                            : round % 3 == 1 ? episodes.front()
                                             : episodes.back());
          }
          const InputLayout layout = InputLayout::Make(setup.environment.observation, std::nullopt);
          Tensor inputs;
          const LearnerBatch batch = MakeLearnerBatch(views, layout, agent->shape(), false, inputs);
          torch::manual_seed(3);
          AgentNetworkImpl network(NetworkConfig(apart)), target(NetworkConfig(apart));
          const Tensor weight = torch::tensor({0.5F, 1.0F});
          const auto distribution = ActionDistribution::Categorical(kActions);
          const ShardLoss loss = algorithm->Loss({.batch = batch,
                                                  .distribution = distribution,
                                                  .network = network,
                                                  .rng = CounterRng(1),
                                                  .target = &target,
                                                  .weight = weight,
                                                  .steps = steps});

          // values of both networks, entry by entry, and of final observations
          const int64_t entries = batch.reward.size(0), burn_in = 2, length = entries - burn_in - 1;
          ASSERT_EQ(length, 4);
          const auto values = [&](AgentNetworkImpl& net, Tensor s, std::vector<Tensor>& finals) {
            std::vector<Tensor> all;
            for (int64_t t = 0; t < entries; ++t) {
              if (t == burn_in) s = s.detach();
              const auto out = net.forward(
                  {batch.observation.slice(0, t, t + 1), batch.reward.slice(0, t, t + 1),
                   batch.previous_action.slice(0, t, t + 1), batch.first.slice(0, t, t + 1)},
                  s);
              s = out.state;
              all.push_back(ActionValues(out, apart)[0]);
              Tensor final = torch::zeros_like(all.back());
              for (int64_t k = 0; k < batch.final_entry.numel(); ++k) {
                if (batch.final_entry[k].item<int64_t>() != t + 1) continue;
                const int64_t b = batch.final_unroll[k].item<int64_t>();
                const auto one =
                    net.forward({batch.final_observation.slice(1, k, k + 1),
                                 batch.reward.slice(0, t + 1, t + 2).slice(1, b, b + 1),
                                 batch.action.slice(0, t, t + 1).slice(1, b, b + 1).squeeze(-1),
                                 torch::zeros({1, 1}, torch::kBool)},
                                s.slice(0, b, b + 1));
                const torch::NoGradGuard none;
                final[b] = ActionValues(one, apart)[0][0];
              }
              finals.push_back(final);
            }
            return torch::stack(all);
          };
          Tensor start =
              std::string(state) == "zeros" ? torch::zeros_like(batch.state) : batch.state;
          std::vector<Tensor> online_finals, target_finals;
          if (std::string(state) == "late") {
            const torch::NoGradGuard none;
            for (int64_t t = 0; t < burn_in; ++t)
              start = network
                          .forward({batch.observation.slice(0, t, t + 1),
                                    batch.reward.slice(0, t, t + 1),
                                    batch.previous_action.slice(0, t, t + 1),
                                    batch.first.slice(0, t, t + 1)},
                                   start)
                          .state;
          }
          const Tensor online = values(network, start, online_finals);
          const Tensor followed = values(target, start, target_finals).detach();
          Tensor total = torch::zeros({});
          std::vector<double> priorities, values_of_own, errors_of_own;
          for (int64_t b = 0; b < 2; ++b) {
            ValueSteps of;
            for (int64_t t = burn_in; t < burn_in + length; ++t) {
              const bool cut = batch.truncated[t + 1][b].item<bool>();
              const auto at = static_cast<size_t>(t);
              const Tensor chooses =
                  (std::string(twice) == "true" ? (cut ? online_finals[at] : online[t + 1])
                                                : (cut ? target_finals[at] : followed[t + 1]))[b];
              const Tensor gives = (cut ? target_finals[at] : followed[t + 1])[b];
              of.reward.push_back(batch.reward[t + 1][b].item<float>());
              of.terminated.push_back(batch.terminated[t + 1][b].item<bool>());
              terminations += of.terminated.back(), truncations += cut;
              of.truncated.push_back(cut);
              of.next_value.push_back(gives[chooses.argmax().item<int64_t>()].item<float>());
            }
            const auto y = ByRecursion(of, 3, 0.9, 1e-3);
            std::vector<float> errors;
            const StepRange own = steps[static_cast<size_t>(b)];
            for (int64_t k = own.begin - burn_in; k < own.end - burn_in; ++k) {
              const Tensor taken =
                  online[burn_in + k][b][batch.action[burn_in + k][b][0].item<int64_t>()];
              const Tensor error = y[static_cast<size_t>(k)] - taken;
              values_of_own.push_back(taken.item<double>());
              errors_of_own.push_back(std::abs(error.item<double>()));
              total = total + weight[b] * 0.5 * error.square() / 2;
              errors.push_back(error.item<float>());
            }
            priorities.push_back(SequencePriority(errors, 0.9));
          }
          losses[state].push_back(loss.total.item<float>());
          const auto mean = [](const std::vector<double>& x) {
            return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
          };
          ASSERT_EQ(loss.numbers[0].name, "q_mean");
          EXPECT_NEAR(loss.numbers[0].value, mean(values_of_own), 1e-5);
          EXPECT_NEAR(loss.numbers[1].value, mean(errors_of_own), 1e-5);
          EXPECT_NEAR(loss.total.item<float>(), total.item<float>(), 1e-5);
          ASSERT_EQ(loss.priorities.size(), 2u);
          for (size_t b = 0; b < 2; ++b) EXPECT_NEAR(loss.priorities[b], priorities[b], 1e-4);
          const auto parameters = network.parameters();
          const auto mine = torch::autograd::grad({loss.total}, parameters, {}, true, false, true);
          const auto theirs = torch::autograd::grad({total}, parameters, {}, true, false, true);
          for (size_t p = 0; p < parameters.size(); ++p) {
            ASSERT_EQ(mine[p].defined(), theirs[p].defined());
            if (mine[p].defined()) {
              EXPECT_TRUE(torch::allclose(mine[p], theirs[p], 1e-4, 1e-6)) << p;
            }
          }
        }
      }
  EXPECT_GT(terminations, 10);
  EXPECT_GT(truncations, 10);
  EXPECT_GT(parts, 10);
  EXPECT_NE(losses.at("stored"), losses.at("zeros"));
  EXPECT_NE(losses.at("stored"), losses.at("late"));
}

// The priority comes from the values of acting alone, the same network in both roles.
TEST(R2d2Test, ANewSequencesPriorityComesFromTheValuesOfActing) {
  Unroll unroll;
  unroll.overlap = 1, unroll.entries = 4, unroll.headers.resize(4);
  unroll.values = {9, 9, 9, 9, 1, 2, 0, 0, 3, 1, 0, 0, 5, 4, 0, 0};
  unroll.headers[1].action = 0, unroll.headers[2].action = 1;
  unroll.headers[2].reward = 1, unroll.headers[3].reward = 2;
  const AgentSetup setup =
      R2d2Setup({{"r2d2.rescale", "0"}, {"r2d2.gamma", "0.5"}, {"r2d2.steps", "2"}});
  // targets 1 + 0.5 * 2 + 0.25 * 5 and 2 + 0.5 * 5; values 1 and 1
  const auto r2d2 = MakeR2d2(setup);
  EXPECT_NEAR(r2d2->Priority(unroll, {1, 3}), 0.9 * 3.5 + 0.1 * (2.25 + 3.5) / 2, 1e-6);
  EXPECT_NEAR(r2d2->Priority(unroll, {1, 2}), 2.25, 1e-6);
  EXPECT_NEAR(r2d2->Priority(unroll, {2, 3}), 3.5, 1e-6);
}

TEST(R2d2Test, LearnsInWholeStepsAndTheTargetFollowsInTurns) {
  const AgentSetup setup = R2d2Setup({{"r2d2.target_every", "3"}});
  const auto agent = MakeAgent(setup).ValueOrThrow();
  Player player(*agent, setup);
  int64_t steps = 0;
  std::string target;
  int changes = 0;
  for (int i = 0; i < 12; ++i) {
    const auto unrolls = player.Play();
    const UpdateReport report = agent->Update(unrolls, 0).ValueOrThrow();
    EXPECT_TRUE(report.applied);
    steps += report.steps;
    // 8 steps an update, 8 a minibatch, ratio 1, after the first 8
    EXPECT_EQ(steps, i);
    const std::string now = agent->Save(Agent::Part::kRun).at("targets.safetensors");
    const auto tensors = ParseSafetensors(now).ValueOrThrow().tensors;
    const std::string all(tensors.at("lstm_input").bytes.begin(),
                          tensors.at("lstm_input").bytes.end());
    if (i > 0 && all != target) {
      ++changes;
      const auto weights =
          ParseSafetensors(agent->Save(Agent::Part::kWeights).at("weights.safetensors"));
      EXPECT_EQ(weights->tensors.at("lstm_input").bytes, tensors.at("lstm_input").bytes);
    }
    target = all;
  }
  EXPECT_EQ(changes, 11 / 3);
}

// A restored agent has the replay, the priorities and the target network of the saved one.
TEST(R2d2Test, ARestoredAgentLearnsTheSame) {
  std::set<std::string> hashes;
  for (const char* cross : {"true", "false"}) {
    const AgentSetup setup = R2d2Setup(
        {{"r2d2.target_every", "3"}, {"learn.shards", "2"}, {"r2d2.cross_episodes", cross}});
    const auto whole = MakeAgent(setup).ValueOrThrow();
    Player player(*whole, setup);
    std::vector<std::vector<UnrollStore::Loan>> batches;
    for (int i = 0; i < 14; ++i) {
      batches.push_back(player.Play());
      ASSERT_TRUE(whole->Update(batches.back(), 0).ok());
      batches.back().clear();
    }
    const auto files = whole->Save(Agent::Part::kRun);
    const auto other = MakeAgent(setup).ValueOrThrow();
    ASSERT_TRUE(other->Restore(files, Agent::Part::kRun).ok());
    EXPECT_EQ(other->Save(Agent::Part::kRun), files);
    for (int i = 0; i < 5; ++i) {
      const auto unrolls = player.Play();
      ASSERT_TRUE(whole->Update(unrolls, 0).ok());
      ASSERT_TRUE(other->Update(unrolls, 0).ok());
      EXPECT_EQ(whole->parameter_hash(), other->parameter_hash());
    }
    EXPECT_EQ(other->Save(Agent::Part::kRun), whole->Save(Agent::Part::kRun));
    auto damaged = files;
    damaged.at("replay.bin").pop_back();
    EXPECT_EQ(other->Restore(damaged, Agent::Part::kRun).code(), Code::kBadData);
    damaged = files, damaged.erase("targets.safetensors");
    EXPECT_EQ(other->Restore(damaged, Agent::Part::kRun).code(), Code::kBadData);
    hashes.insert(whole->parameter_hash());
  }
  EXPECT_EQ(hashes.size(), 2u);
}

// With alpha = beta = 1 a minibatch's gradient is, in the mean, that of all sequences alike,
// divided by the largest weight. The reference took the largest of each device's part: shards would
// count unequally.
TEST(R2d2Test, TheStepIsThatOfTheWholeMinibatchForAnyNumberOfShards) {
  std::vector<std::vector<double>> moves;
  std::vector<double> lengths;
  for (const auto& [shards, power] : {std::pair{"1", "0"}, {"1", "1"}, {"2", "1"}}) {
    const AgentSetup setup = R2d2Setup({{"learn.shards", shards},
                                        {"replay.alpha", power},
                                        {"replay.beta", power},
                                        {"replay.capacity", "32"},
                                        {"replay.start", "32"},
                                        {"replay.batch", "16000"},
                                        {"replay.ratio", "2000"},
                                        {"optimizer.kind", "rmsprop_torch"},
                                        {"optimizer.epsilon", "1"}});
    const auto agent = MakeAgent(setup).ValueOrThrow();
    Player player(*agent, setup);
    const auto parameters = [&] {
      std::vector<double> all;
      const Safetensors file =
          ParseSafetensors(agent->Save(Agent::Part::kWeights).at("weights.safetensors"))
              .ValueOrThrow();
      for (const auto& [name, tensor] : file.tensors)
        for (const float value : tensor.Floats()) all.push_back(value);
      return all;
    };
    std::vector<double> move = parameters();
    for (int i = 0; i < 5; ++i) {
      const auto unrolls = player.Play();
      EXPECT_EQ(agent->Update(unrolls, 0).ValueOrThrow().steps, i == 4);
    }
    const std::vector<double> after = parameters();
    double squares = 0;
    for (size_t i = 0; i < move.size(); ++i) {
      move[i] = after[i] - move[i];
      squares += move[i] * move[i];
    }
    for (double& x : move) x /= std::sqrt(squares);
    moves.push_back(move), lengths.push_back(std::sqrt(squares));
  }
  for (const size_t other : {1, 2}) {
    double cosine = 0;
    for (size_t i = 0; i < moves[0].size(); ++i) cosine += moves[0][i] * moves[other][i];
    EXPECT_GT(cosine, 0.995);
    EXPECT_LT(lengths[other], 0.9 * lengths[0]) << "not divided by the largest weight";
  }
}

TEST(R2d2Test, ThePapersNetworkHasItsParameters) {
  AgentSetup setup = R2d2Setup({{"network.layers", "\"\""},
                                {"network.name", "nature"},
                                {"network.lstm", "512"},
                                {"network.head", "512"}});
  setup.environment.observation = {DType::kUint8, {84, 84}};
  setup.environment.action.n = 18;
  EXPECT_EQ(MakeAgent(setup).ValueOrThrow()->parameter_count(), 4'357'281);
}

TEST(R2d2Test, RefusesWhatItHasNoUseFor) {
  const auto refused = [](AgentSetup setup) {
    return std::string(MakeAgent(setup).status().message());
  };
  EXPECT_NE(refused(R2d2Setup({{"replay.batch", "9"}})).find("multiple of learn.unroll=4"),
            std::string::npos);
  EXPECT_NE(
      refused(R2d2Setup({{"learn.shards", "2"}, {"replay.batch", "4"}})).find("learn.shards=2"),
      std::string::npos);
  EXPECT_NE(refused(R2d2Setup({{"network.normalize_value", "true"}})).find("rescales values"),
            std::string::npos);
  EXPECT_NE(refused(R2d2Setup({{"replay.alpha", "0"}})).find("replay.beta=0.6"), std::string::npos);
  EXPECT_NE(refused(R2d2Setup({{"r2d2.epsilon", "0.0001"}})).find("at most r2d2.epsilon"),
            std::string::npos);
  AgentSetup continuous = R2d2Setup();
  continuous.environment.action = {.discrete = false, .n = 2, .low = {-1, -1}, .high = {1, 1}};
  continuous.config.network.action_input = false;
  EXPECT_NE(refused(continuous).find("one discrete action"), std::string::npos);
}

}  // namespace
}  // namespace samara::r2d2_test
