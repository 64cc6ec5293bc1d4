// SPDX-License-Identifier: Apache-2.0 OR MIT
// Networks on a device: the bits of the population kernel, on this CPU always, and on each GPU that
// there is.
#include "nn/device/population.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>

#include "core/rng.h"
#include "nn/device/kernels_impl.h"
#include "nn/kernel.h"

namespace samara::population_test {
namespace {

struct Case {
  const char* layers;
  int64_t height, width, channels, outputs;
  Storage storage = Storage::kFloat32;
  bool float_frames = false;
};

// The CPU, and GPU 0 where there is one.
std::vector<std::unique_ptr<Accelerator>> Devices() {
  std::vector<std::unique_ptr<Accelerator>> devices;
  devices.push_back(Accelerator::Cpu().ValueOrThrow());
  if (auto gpu = Accelerator::Gpu(0); gpu.ok()) devices.push_back(std::move(*gpu));
  return devices;
}

std::vector<float> Parameters(const NetworkDescription& network, uint64_t key) {
  std::vector<float> parameters(network.parameter_count);
  const CounterRng rng(key);
  for (size_t i = 0; i < parameters.size(); ++i)
    parameters[i] = static_cast<float>(0.2 * rng.Normal(i));
  return parameters;
}

NetworkDescription Describe(const Case& c) {
  NetworkDescription network =
      MakeNetwork(c.layers, c.height, c.width, c.channels, c.outputs).ValueOrThrow();
  EXPECT_TRUE(SetStorage(c.storage, network).ok());
  return network;
}

// Outputs of the population kernel for `input`.
std::vector<float> OnCpu(const NetworkDescription& network, std::span<const float> parameters,
                         const float* input) {
  const PopulationKernel kernel(network);
  AlignedFloats packed(kernel.packed_size());
  kernel.Pack(parameters, packed.span());
  const auto workspace = kernel.MakeWorkspace();
  std::vector<float> output(network.output_size());
  kernel.Forward(packed.data(), input, *workspace, output.data());
  return output;
}

void ExpectSameBits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0)
      << what << ": " << a[0] << " and " << b[0];
}

// Plays episodes of three networks on every device next to the population kernel.
void ExpectTheBitsOfThePopulationKernel(const Case& c, FrameStackRule rule) {
  const NetworkDescription network = Describe(c);
  const bool stacked = c.height > 1;
  constexpr uint32_t kNetworks = 3, kSteps = 5;
  // rows of one step: nine of network 1, more than a group's, and one of the others
  constexpr uint32_t kNetworkOf[] = {1, 0, 1, 2, 1, 1, 1, 1, 1, 1, 1};
  constexpr auto kRows = static_cast<uint32_t>(std::size(kNetworkOf));
  const size_t pixels = static_cast<size_t>(c.height * c.width);
  for (const auto& device : Devices()) {
    const auto population = DevicePopulation::Make(*device, network,
                                                   {stacked ? std::optional(rule) : std::nullopt,
                                                    kNetworks, kRows, c.float_frames})
                                .ValueOrThrow();
    const auto lane = population->MakeLane(kRows).ValueOrThrow();
    std::vector<std::vector<float>> parameters;
    for (uint32_t n = 0; n < kNetworks; ++n) {
      parameters.push_back(Parameters(network, n));
      ASSERT_TRUE(lane->Load(n, parameters.back()).ok());
    }
    std::vector<FrameStack> stacks(kRows, FrameStack(rule, pixels));
    const CounterRng rng(99);
    for (uint32_t step = 0; step < kSteps; ++step) {
      std::vector<DeviceRow> rows;
      std::vector<std::vector<uint8_t>> frames;
      std::vector<std::vector<float>> vectors;
      for (uint32_t i = 0; i < kRows; ++i) {
        const uint64_t at = uint64_t{step * kRows + i} << 20;
        frames.emplace_back(pixels);
        for (size_t p = 0; p < pixels; ++p)
          frames.back()[p] = static_cast<uint8_t>(rng.UniformInt(at + p, 256));
        vectors.emplace_back(network.input_size());
        for (size_t k = 0; k < vectors.back().size(); ++k)
          vectors.back()[k] = k % 3 == 0 ? 0.0f : static_cast<float>(rng.Normal(at + k));
        rows.push_back({kNetworkOf[i], i, step,
                        stacked && !c.float_frames
                            ? static_cast<const void*>(frames.back().data())
                            : static_cast<const void*>(vectors.back().data())});
      }
      ASSERT_TRUE(lane->Forward(rows).ok());
      for (uint32_t i = 0; i < kRows; ++i) {
        const float* input = vectors[i].data();
        if (stacked) {
          const auto take = [&](auto frame) {
            step == 0 ? stacks[i].Reset(frame) : stacks[i].Push(frame);
          };
          if (c.float_frames)
            take(std::span<const float>(vectors[i]).first(pixels));
          else
            take(std::span<const uint8_t>(frames[i]));
          input = stacks[i].input().data();
        }
        ExpectSameBits(
            lane->outputs().subspan(i * network.output_size(), network.output_size()),
            OnCpu(network, parameters[kNetworkOf[i]], input),
            device->name() + ", step " + std::to_string(step) + ", row " + std::to_string(i));
      }
    }
  }
}

class DevicePopulationTest : public testing::TestWithParam<Case> {};

TEST_P(DevicePopulationTest, HasTheBitsOfThePopulationKernel) {
  ExpectTheBitsOfThePopulationKernel(GetParam(), {.depth = GetParam().channels});
}

INSTANTIATE_TEST_SUITE_P(
    All, DevicePopulationTest,
    testing::Values(
        Case{"dense 16 tanh, dense 16 tanh", 1, 1, 11, 2}, Case{"dense 300 relu", 1, 1, 376, 17},
        Case{"dense 70 elu, dense 33 sigmoid, dense 9 silu, dense 8 gelu", 1, 1, 5, 3},
        Case{"dense 300 relu", 1, 1, 376, 17, Storage::kBf16},
        // more columns than one block has
        Case{"dense 600 relu", 1, 1, 40, 3}, Case{"dense 600 relu", 1, 1, 40, 3, Storage::kBf16},
        Case{"dense 600 relu", 1, 1, 40, 3, Storage::kInt8},
        Case{"dense 300 relu", 1, 1, 2500, 17, Storage::kInt8},
        Case{"conv 16 8x8/4 same relu, conv 32 4x4/2 same relu, dense 64 relu", 24, 20, 4, 6},
        Case{"conv 5 3x3 relu, dense 20 relu", 9, 12, 3, 4, Storage::kBf16},
        Case{"conv 8 3x3/2 relu, dense 20 relu", 9, 12, 4, 4, Storage::kFloat32, true},
        Case{"conv 12 3x3/2 same relu, dense 40 relu", 13, 13, 1, 4, Storage::kInt8}));

TEST(DeviceStackTest, FillsAsItsRuleSays) {
  for (const StackOrder order : {StackOrder::kOldestFirst, StackOrder::kNewestFirst}) {
    for (const StackReset at_reset :
         {StackReset::kRepeat, StackReset::kZeros, StackReset::kFront}) {
      SCOPED_TRACE(std::string(Name(order)) + ", " + std::string(Name(at_reset)));
      ExpectTheBitsOfThePopulationKernel({"conv 2 2x2 relu, dense 8 relu", 4, 3, 4, 2},
                                         {.depth = 4, .order = order, .at_reset = at_reset});
    }
  }
}

TEST(DeviceNetworkTest, SaysWhichLayerItLacks) {
  EXPECT_EQ(DevicePopulation::Supports(Describe({"dense 8 relu", 5, 4, 4, 2})).code(),
            Code::kConfig);  // of an image
  const Status status = DevicePopulation::Supports(Describe({"lstm 8", 1, 1, 4, 2}));
  EXPECT_EQ(status.code(), Code::kConfig);
  EXPECT_NE(status.message().find("recurrent"), std::string::npos) << status.message();
}

TEST(DeviceStackTest, TurnsBytesIntoWhatADivisionSays) {
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(device::ByteToUnit(static_cast<unsigned char>(byte)),
              static_cast<float>(byte) / 255.0f);
}

TEST(AcceleratorTest, SaysThatThereIsNoGpu) {
  const auto gpu = Accelerator::Gpu(99);
  EXPECT_EQ(gpu.status().code(), Accelerator::BuiltForGpus() ? Code::kUnavailable : Code::kConfig);
}

}  // namespace
}  // namespace samara::population_test
