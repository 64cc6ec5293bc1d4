// The signature: what must not change from machine to machine, nor unnoticed from commit to commit.
#include "bench/bench.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "env/registry.h"
#include "evo/algorithms/ga.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"
#include "nn/kernel.h"

namespace samara::bench {

namespace {

class Hash {
 public:
  template <typename T>
  void Add(std::span<const T> values) {
    sha_.Update(std::as_bytes(values));
  }
  std::string Text() { return Hex(sha_.Finish()); }

 private:
  Sha256 sha_;
};

std::string NoiseHash() {
  Hash hash;
  std::vector<float> values(100'003);
  for (const NoiseKind kind : {NoiseKind::kNormal, NoiseKind::kQuantile8}) {
    GetNoise(kind).Fill(DeriveKey(1, Purpose::kMutation), 5, values);
    hash.Add<float>(values);
  }
  return hash.Text();
}

std::string KernelHash() {
  Hash hash;
  const CounterRng rng(DeriveKey(1, Purpose::kBootstrap));
  for (const char* name : {"LargeModel", "Nature", "mlp-64-64-tanh"}) {
    for (const Storage storage : {Storage::kFloat32, Storage::kBf16, Storage::kInt8}) {
      const int64_t side = std::string_view(name).starts_with("mlp") ? 1 : 84;
      NetworkDescription network =
          MakeNetwork(name, side, side, side == 1 ? 30 : 4, 18).ValueOrThrow();
      network.storage = storage;
      std::vector<float> theta(network.parameter_count), input(network.input_size());
      DecodeParameters({NoiseKind::kQuantile8, InitKind::kFanIn, 7, {}}, network, theta);
      for (size_t i = 0; i < input.size(); ++i)  // a third of the inputs are zero
        input[i] = i % 3 == 0 ? 0.0F : static_cast<float>(rng.Uniform(i));
      const PopulationKernel kernel(network);
      AlignedFloats packed(kernel.packed_size());
      kernel.Pack(theta, packed.span());
      std::vector<float> out(network.output_size());
      kernel.Forward(packed.data(), input.data(), *kernel.MakeWorkspace(), out.data());
      hash.Add<float>(out);
    }
  }
  return hash.Text();
}

// The population hash of a small Deep GA on CartPole: rollouts, selection, genomes.
std::string EvolutionHash() {
  const EnvironmentFactory factory = NativeEnvironment("CartPole-v1").ValueOrThrow();
  const EnvironmentSpec spec = factory().ValueOrThrow()->spec();
  const NetworkDescription network =
      MakeNetwork("mlp-16-16-relu", 1, 1, 4, spec.action.n).ValueOrThrow();
  const auto evaluator =
      MakeDirectEvaluator(factory, std::make_unique<PolicyModel>(network, InputRule{}, spec.action),
                          1)
          .ValueOrThrow();
  GaConfig config;
  config.population = 40, config.parents = 5, config.validation_candidates = 3;
  config.validation_episodes = 4, config.budget.test_every = 0, config.mutation_power = 0.1;
  const auto ga = config.Make({1, network, *evaluator, {}});
  for (int g = 0; g < 4; ++g) (void)ga->Step(nullptr).ValueOrThrow();
  return Hex(ga->summary().population_hash);
}

}  // namespace

nlohmann::json Signature() {
  nlohmann::json parts = {
      {"noise", NoiseHash()}, {"kernels", KernelHash()}, {"evolution", EvolutionHash()}};
  parts["signature"] = Sha256Hex(parts.dump());
  return parts;
}

}  // namespace samara::bench
