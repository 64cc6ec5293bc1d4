// Workloads without an Atari game: native rollouts, noise, materialisation.
#include <fmt/format.h>

#include "bench/bench.h"
#include "core/rng.h"
#include "env/registry.h"
#include "evo/evaluate/evaluator.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr size_t kRecorded = 3;  // episodes
constexpr int kRounds = 3;

constexpr int kEvaluations = 1000;  // of a small network between two looks at the clock

Genome Parent(NoiseKind kind) {
  return {kind, InitKind::kFanIn, DeriveKey(3, Purpose::kInitialGenome, 1, 0), {}};
}

// Steps per second of one environment with a network that chooses, and of the simulator alone: the
// same episodes with the actions as they were recorded. All cores.
Result<json> Rollout(const std::string& id, const std::string& network_name,
                     const Options& options) {
  ASSIGN_OR_RETURN(const EnvironmentFactory factory, NativeEnvironment(id));
  const uint32_t cores = Cores();
  struct alignas(64) State {
    std::unique_ptr<Environment> environment;
    std::unique_ptr<PolicyState> policy;
    std::unique_ptr<PolicyWorkspace> workspace;
    std::vector<std::byte> observation;
    struct Recorded {
      std::vector<int32_t> index;
      std::vector<float> values;  // of all steps
    };
    std::vector<Recorded> recorded;  // by episode
    size_t next = 0;                 // of them
  };
  std::vector<State> states(cores);
  std::unique_ptr<PolicyModel> model;
  for (uint32_t t = 0; t < cores; ++t) {
    State& s = states[t];
    ASSIGN_OR_RETURN(s.environment, factory());
    const EnvironmentSpec& spec = s.environment->spec();
    if (model == nullptr) {
      const auto inputs = static_cast<int64_t>(spec.observation.elements());
      ASSIGN_OR_RETURN(NetworkDescription network,
                       MakeNetwork(network_name, 1, 1, inputs, spec.action.n));
      model = std::make_unique<PolicyModel>(std::move(network), InputRule{}, spec.action);
    }
    s.policy = std::make_unique<PolicyState>(*model);
    s.workspace = std::make_unique<PolicyWorkspace>(*model);
    s.observation.resize(spec.observation.bytes());
    std::vector<float> theta(model->kernel().network().parameter_count);
    DecodeParameters(Parent(NoiseKind::kNormal), model->kernel().network(), theta);
    AlignedFloats packed(model->kernel().packed_size());
    model->kernel().Pack(theta, packed.span());
    s.policy->LoadPacked(packed.span());
  }
  const auto episode = [&](uint32_t t, const auto& choose, const auto& note) {
    State& s = states[t];
    const uint64_t seed = DeriveKey(5, Purpose::kEpisodePopulation, 1, t, s.next);
    s.environment->Reset({.seed = seed}, s.observation);
    s.policy->StartEpisode({.seed = seed});
    size_t steps = 0;
    for (bool over = false; !over; ++steps) {
      const Action action = choose(s, steps);
      note(s, action);
      const StepResult r = s.environment->Step(action, s.observation);
      over = r.terminated || r.truncated;
    }
    s.next = (s.next + 1) % kRecorded;
    return static_cast<double>(steps);
  };
  const auto decide = [](State& s, size_t) {
    return s.policy->Decide(*s.workspace, s.observation);
  };
  const auto repeat = [](State& s, size_t step) {
    const typename State::Recorded& r = s.recorded[s.next];
    const size_t n = r.values.size() / r.index.size();
    return Action{.index = r.index[step], .values = std::span(r.values).subspan(step * n, n)};
  };
  const auto ignore = [](State&, const Action&) {};
  for (uint32_t t = 0; t < cores; ++t) {
    for (size_t i = 0; i < kRecorded; ++i) {
      states[t].recorded.emplace_back();
      (void)episode(t, decide, [](State& s, const Action& action) {
        s.recorded.back().index.push_back(action.index);
        s.recorded.back().values.insert(s.recorded.back().values.end(), action.values.begin(),
                                        action.values.end());
      });
    }
  }
  // in turns: the machine's mood is the same for both
  double alone = 0, played = 0;
  for (int round = 0; round < kRounds; ++round) {
    alone = std::max(alone, RatePerSecond(cores, options.seconds / kRounds,
                                          [&](uint32_t t) { return episode(t, repeat, ignore); }));
    played = std::max(played, RatePerSecond(cores, options.seconds / kRounds, [&](uint32_t t) {
                        return episode(t, decide, ignore);
                      }));
  }
  options.say(fmt::format("{} with {}: {:.0f} steps/s on {} cores, {:.0f} without the network", id,
                          network_name, played, cores, alone));
  return json{{"environment", id},
              {"network", network_name},
              {"steps_per_second_per_core", played / cores},
              {"simulator_steps_per_second_per_core", alone / cores},
              {"ratio", played / alone}};
}

// Evaluations per second of a network alone, each core its own, on observations of ones.
Result<json> NetworkAlone(const std::string& label, const std::string& network_name, int64_t inputs,
                          int64_t outputs, const Options& options) {
  ASSIGN_OR_RETURN(const NetworkDescription network,
                   MakeNetwork(network_name, 1, 1, inputs, outputs));
  const PopulationKernel kernel(network);
  std::vector<float> theta(network.parameter_count);
  DecodeParameters(Parent(NoiseKind::kNormal), network, theta);
  AlignedFloats packed(kernel.packed_size());
  kernel.Pack(theta, packed.span());
  const std::vector<float> input(network.input_size(), 1.0F);
  const uint32_t cores = Cores();
  std::vector<std::unique_ptr<PopulationKernel::Workspace>> workspaces;
  for (uint32_t t = 0; t < cores; ++t) workspaces.push_back(kernel.MakeWorkspace());
  const double rate = RatePerSecond(cores, options.seconds, [&](uint32_t t) {
    std::vector<float> out(network.output_size());
    for (int i = 0; i < kEvaluations; ++i)
      kernel.Forward(packed.data(), input.data(), *workspaces[t], out.data());
    return static_cast<double>(kEvaluations);
  });
  options.say(fmt::format("{}: {:.0f} evaluations/s on {} cores", label, rate, cores));
  return json{{"environment", nullptr},
              {"label", label},
              {"network", network_name},
              {"parameters", network.parameter_count},
              {"evaluations_per_second_per_core", rate / cores}};
}

}  // namespace

Result<json> NativeRollouts(const Options& options) {
  const std::pair<const char*, const char*> pairs[] = {{"CartPole-v1", "mlp-16-16-relu"},
                                                       {"Pendulum-v1", "mlp-64-64-tanh"},
                                                       {"HalfCheetah-v5", "mlp-64-64-tanh"},
                                                       {"Ant-v5", "mlp-128-128-tanh"},
                                                       {"Humanoid-v5", "mlp-256-256-tanh"}};
  json all = json::array();
  for (const auto& [id, network] : pairs) {
    ASSIGN_OR_RETURN(json row, Rollout(id, network, options));
    all.push_back(std::move(row));
  }
  // the network alone: the hard maze's own step is measured by env_bench
  ASSIGN_OR_RETURN(json maze, NetworkAlone("the hard maze's policy alone, no environment",
                                           "mlp-16-16-relu", 11, 2, options));
  all.push_back(std::move(maze));
  return Report(std::move(all));
}

Result<json> NoiseKinds(const Options& options) {
  constexpr size_t kValues = size_t{1} << 20;
  json all = json::array();
  for (const NoiseKind kind : {NoiseKind::kNormal, NoiseKind::kQuantile8}) {
    std::vector<float> out(kValues);
    uint64_t key = 0;
    const double rate = RatePerSecond(1, options.seconds, [&](uint32_t) {
      GetNoise(kind).Fill(DeriveKey(key++, Purpose::kMutation), 0, out);
      return static_cast<double>(kValues);
    });
    options.say(fmt::format("{}: {:.2f} G values/s on one core", Name(kind), rate * 1e-9));
    all.push_back({{"noise", Name(kind)}, {"values_per_second_per_core", rate}});
  }
  return Report(std::move(all));
}

Result<json> Materialisation(const Options& options) {
  ASSIGN_OR_RETURN(const NetworkDescription network, MakeNetwork("LargeModel", 84, 84, 4, 18));
  const uint32_t cores = Cores();
  const double copy = Machine()["copy_gb_per_second"];
  json all = json::array();
  for (const NoiseKind kind : {NoiseKind::kQuantile8, NoiseKind::kNormal}) {
    AncestorCache cache(network, size_t{1} << 30);
    const Genome parent = Parent(kind);
    cache.Keep(parent);
    std::vector<AlignedFloats> out;
    for (uint32_t t = 0; t < cores; ++t) out.emplace_back(network.parameter_count);
    std::vector<uint64_t> next(cores);
    const double rate = RatePerSecond(cores, options.seconds, [&](uint32_t t) {
      Genome child = parent;
      child.mutations.push_back({DeriveKey(next[t]++, Purpose::kMutation, t), 0.002F});
      cache.DecodeParameters(child, out[t].span());
      return 1.0;
    });
    const double bandwidth =
        rate * static_cast<double>(network.parameter_count) * sizeof(float) * 1e-9;
    options.say(fmt::format("{}: {:.0f} children/s on {} cores, {:.1f} GB/s ({:.2f} of copying)",
                            Name(kind), rate, cores, bandwidth, bandwidth / copy));
    all.push_back({{"noise", Name(kind)},
                   {"network", network.name},
                   {"children_per_second", rate},
                   {"gb_per_second", bandwidth},
                   {"ratio_to_copy", bandwidth / copy}});
  }
  return Report(std::move(all));
}

}  // namespace samara::bench
