// Evolution with networks on a device: the results of the CPU, bit for bit, on this CPU always, and
// on each GPU that there is.
#include "evo/device/device_policies.h"

#include <gtest/gtest.h>

#include "evo/algorithms/ga_test_util.h"
#include "evo/evaluate/evaluate_test_util.h"

namespace samara::device_policies_test {
namespace {

constexpr uint64_t kSeed = 7;

std::unique_ptr<Accelerator> MakeDevice(bool gpu) {
  return (gpu ? Accelerator::Gpu(0) : Accelerator::Cpu()).ValueOrThrow();
}

std::vector<bool> CpuAndGpu() {
  if (Accelerator::Gpus().empty()) return {false};
  return {false, true};
}

std::unique_ptr<Evaluator> OnDevice(const std::string& id, const std::string& network, bool gpu,
                                    uint32_t slots, uint32_t threads) {
  const auto factory = Native(id);
  auto policies =
      MakeDevicePolicies(MakeDevice(gpu), ModelFor(factory, network), slots, (slots + 1) / 2)
          .ValueOrThrow();
  return MakeSlotEvaluator(MakeThreadFleet(factory, slots, 2).ValueOrThrow(), std::move(policies),
                           threads)
      .ValueOrThrow();
}

// The state after some generations: elites, parents, fitness, all genomes.
std::string Evolve(Evaluator& evaluator, const NetworkDescription& network) {
  GaConfig config;
  config.population = 12, config.parents = 3;
  config.validation_episodes = 3, config.validation_candidates = 4;
  DeepGa ga(config, kSeed, network, evaluator, {});
  for (int generation = 0; generation < 3; ++generation) EXPECT_TRUE(ga.Step(nullptr).ok());
  return ga.state().Encode();
}

TEST(DevicePoliciesTest, AGaEndsInTheSameState) {
  const auto factory = Native("CartPole-v1");
  const NetworkDescription network = Network("dense 8 tanh", 4, 2);
  const auto cpu =
      MakeDirectEvaluator(factory, ModelFor(factory, "dense 8 tanh"), 2).ValueOrThrow();
  const std::string expected = Evolve(*cpu, network);
  for (const bool gpu : CpuAndGpu()) {
    for (const uint32_t slots : {1, 5}) {
      const auto device = OnDevice("CartPole-v1", "dense 8 tanh", gpu, slots, slots / 4 + 1);
      EXPECT_EQ(Evolve(*device, network), expected) << "gpu " << gpu << ", slots " << slots;
    }
  }
}

// Counts what is loaded, and writes a policy of its handle's own.
class Written : public ParameterSource {
 public:
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    ++writes;
    std::fill(canonical.begin(), canonical.end(), 0.01f * static_cast<float>(policy.id + 1));
  }
  mutable std::atomic<int> writes{0};
};

TEST(DevicePoliciesTest, SlotsOfOnePolicyShareItsParameters) {
  const auto policies =
      MakeDevicePolicies(MakeDevice(false), ModelFor(Native("CartPole-v1"), "linear"), 4, 4)
          .ValueOrThrow();
  const auto worker = policies->MakeWorker().ValueOrThrow();
  const Written source;
  policies->Reset();
  for (uint32_t slot = 0; slot < 4; ++slot)
    EXPECT_TRUE(policies->Load(*worker, slot, {slot / 2, 0}, source).ok());
  EXPECT_EQ(source.writes, 2);
  // a policy that no slot plays any more is found again
  EXPECT_TRUE(policies->Load(*worker, 0, {2, 0}, source).ok());
  EXPECT_TRUE(policies->Load(*worker, 1, {2, 0}, source).ok());
  EXPECT_TRUE(policies->Load(*worker, 1, {0, 0}, source).ok());
  EXPECT_EQ(source.writes, 3);
  policies->Reset();
  EXPECT_TRUE(policies->Load(*worker, 1, {0, 0}, source).ok());
  EXPECT_EQ(source.writes, 4);
}

TEST(DevicePoliciesTest, ADeviceThatCannotRefusesBeforeAnyEpisode) {
  const auto factory = Native("CartPole-v1");
  const auto policies = MakeDevicePolicies(MakeDevice(false), ModelFor(factory, "lstm 8"), 2, 1);
  EXPECT_EQ(policies.status().code(), Code::kConfig);
}

}  // namespace
}  // namespace samara::device_policies_test
