// Evolution with networks on a device: the results of the CPU, bit for bit, on this CPU always, and
// on each GPU that there is.
#include "evo/device/device_policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "evo/algorithms/ga_test_util.h"
#include "evo/evaluate/evaluate_test_util.h"

namespace samara::device_policies_test {
namespace {

constexpr uint64_t kSeed = 7;

std::unique_ptr<Accelerator> MakeDevice(bool gpu) {
  return (gpu ? Accelerator::Gpu(0) : Accelerator::Cpu()).ValueOrThrow();
}

std::vector<bool> CpuAndGpu() {
  if (!Accelerator::Gpu(0).ok()) return {false};
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

// A device with room for some allocations.
class ScarceDevice : public Accelerator {
 public:
  explicit ScarceDevice(int allocations) : left_(allocations) {}
  std::string name() const override { return "scarce"; }
  bool gpu() const override { return false; }
  Result<DeviceBytes> Allocate(size_t bytes) override {
    if (left_ == 0) return Status(Code::kNoResources, "scarce: no room");
    --left_;
    return cpu_->Allocate(bytes);
  }
  Result<DeviceBytes> AllocateHost(size_t bytes) override { return cpu_->AllocateHost(bytes); }
  Result<std::unique_ptr<DeviceStream>> MakeStream() override { return cpu_->MakeStream(); }

 private:
  void Free(std::byte*, bool) override {}  // the CPU owns it
  const std::unique_ptr<Accelerator> cpu_ = Accelerator::Cpu().ValueOrThrow();
  std::atomic<int> left_;
};

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

// Too little memory shows before the first generation; what holds the networks is enough, and more
// than that holds some ancestors.
TEST(DevicePoliciesTest, WithoutRoomForAncestorsAGaEndsInTheSameState) {
  const auto factory = Native("CartPole-v1");
  const NetworkDescription network = Network("dense 8 tanh", 4, 2);
  const auto with_room = [&](int allocations) -> Result<std::unique_ptr<Evaluator>> {
    ASSIGN_OR_RETURN(auto policies, MakeDevicePolicies(std::make_unique<ScarceDevice>(allocations),
                                                       ModelFor(factory, "dense 8 tanh"), 3, 2));
    return MakeSlotEvaluator(MakeThreadFleet(factory, 3, 2).ValueOrThrow(), std::move(policies), 1);
  };
  int least = 0;
  for (; !with_room(least).ok(); ++least)
    ASSERT_EQ(with_room(least).status().code(), Code::kNoResources);
  ASSERT_GT(least, 3);
  const auto cpu =
      MakeDirectEvaluator(factory, ModelFor(factory, "dense 8 tanh"), 2).ValueOrThrow();
  const std::string expected = Evolve(*cpu, network);
  for (const int more : {0, 1, 2, 4})
    EXPECT_EQ(Evolve(*with_room(least + more).ValueOrThrow(), network), expected) << more;
}

// Frames of bytes and of floats, gray ones that are stacked and coloured ones that are not: the
// same outputs, bit for bit.
void ExpectTheOutputsOfTheCpu(DType dtype, bool stacked) {
  const size_t size = stacked ? 30 : 90;
  ActionSpec action;
  action.discrete = false, action.n = 3, action.raw = true;
  const auto model = [&] {
    return std::make_unique<PolicyModel>(
        MakeNetwork("conv 4 2x2 tanh, dense 8 tanh", 5, 6, stacked ? 4 : 3, 3).ValueOrThrow(),
        InputRule{.stacked = stacked, .stack = {.depth = 4}, .dtype = dtype}, action);
  };
  const auto cpu = MakeCpuPolicies(model(), 1);
  for (const bool gpu : CpuAndGpu()) {
    const auto device = MakeDevicePolicies(MakeDevice(gpu), model(), 1, 1).ValueOrThrow();
    std::vector<float> parameters(model()->kernel().network().parameter_count);
    const CounterRng rng(3);
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i] = static_cast<float>(rng.Normal(i));
    const FixedParameters source(parameters);
    for (SlotPolicies* policies : {cpu.get(), device.get()}) policies->Reset();
    const auto a = cpu->MakeWorker().ValueOrThrow(), b = device->MakeWorker().ValueOrThrow();
    ASSERT_TRUE(cpu->Load(*a, 0, {0, 0}, source).ok());
    ASSERT_TRUE(device->Load(*b, 0, {0, 0}, source).ok());
    cpu->StartEpisode(0, {}, false), device->StartEpisode(0, {}, false);
    std::vector<std::byte> frame(size * SizeOf(dtype));
    for (uint64_t step = 0; step < 7; ++step) {
      for (size_t i = 0; i < size; ++i) {
        const auto x = static_cast<float>(rng.Uniform(step * size + i));
        if (dtype == DType::kFloat32)
          std::memcpy(&frame[4 * i], &x, sizeof x);
        else
          frame[i] = static_cast<std::byte>(static_cast<int>(255 * x));
      }
      const std::span<const std::byte> observation = frame;
      const uint32_t slot = 0;
      Action chosen[2];
      ASSERT_TRUE(cpu->Decide(*a, {&slot, 1}, {&observation, 1}, {&chosen[0], 1}).ok());
      ASSERT_TRUE(device->Decide(*b, {&slot, 1}, {&observation, 1}, {&chosen[1], 1}).ok());
      EXPECT_TRUE(std::ranges::equal(chosen[0].values, chosen[1].values))
          << "gpu " << gpu << ", step " << step;
    }
  }
}

TEST(DevicePoliciesTest, SeesTheFramesThatTheCpuSees) {
  for (const DType dtype : {DType::kUint8, DType::kFloat32})
    for (const bool stacked : {true, false}) {
      SCOPED_TRACE(std::string(stacked ? "stacked " : "coloured ") +
                   (dtype == DType::kUint8 ? "bytes" : "floats"));
      ExpectTheOutputsOfTheCpu(dtype, stacked);
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
