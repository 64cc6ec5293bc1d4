// Genomes decoded on a device: the bits that the CPU decodes and packs, on this CPU always, and on
// each GPU that there is.
#include "evo/device/decode.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/rng.h"
#include "evo/device/decode_impl.h"
#include "evo/genome/decode.h"
#include "evo/genome/noise.h"
#include "nn/kernel.h"

namespace samara::decode_test {
namespace {

Genome Child(NoiseKind noise, InitKind init, size_t mutations) {
  Genome genome{.noise = noise, .init = init, .initial = 0x1234567890abcdef, .mutations = {}};
  for (size_t i = 0; i < mutations; ++i)
    genome.mutations.push_back({.key = 0x9e3779b97f4a7c15 * (i + 1), .power = 0.002f});
  return genome;
}

template <typename Block>
void ExpectTheElementsOf(NoiseKind kind) {
  constexpr size_t kGroups = 5;
  constexpr uint64_t kKey = 0xfedcba9876543210;
  std::vector<float> filled(kGroups * Block::kGroup), drawn(filled.size());
  GetNoise(kind).Fill(kKey, 0, filled);
  for (unsigned unit = 0; unit < kGroups * device::kNoiseBlocks; ++unit) {
    float e[Block::kElements];
    Block::Draw(kKey, unit, e);
    for (unsigned i = 0; i < Block::kElements; ++i)
      drawn[unit / device::kNoiseBlocks * Block::kGroup +
            Block::Number(unit % device::kNoiseBlocks, i)] = e[i];
  }
  EXPECT_EQ(std::memcmp(filled.data(), drawn.data(), filled.size() * sizeof(float)), 0);
}

TEST(DeviceNoiseTest, HasTheBitsOfTheCpusNoise) {
  ExpectTheElementsOf<device::NormalBlock>(NoiseKind::kNormal);
  ExpectTheElementsOf<device::Quantile8Block>(NoiseKind::kQuantile8);
}

// All bytes of a network, compared with those of canonical parameters that were copied there.
void ExpectTheNetworkOf(const Genome& genome, Storage storage, Accelerator& device) {
  NetworkDescription network =
      MakeNetwork("conv 4 3x3/2 relu, dense 37 relu", 9, 11, 4, 5).ValueOrThrow();
  ASSERT_TRUE(SetStorage(storage, network).ok());
  const auto population =
      DevicePopulation::Make(device, network, {FrameStackRule{}, 2, 2}).ValueOrThrow();
  const auto lane = population->MakeLane(2).ValueOrThrow();
  DeviceDecoder decoder(*population, 3);
  std::vector<float> canonical(network.parameter_count);
  DecodeParameters(genome, network, canonical);
  ASSERT_TRUE(lane->Load(0, canonical).ok());
  ASSERT_TRUE(decoder.Load(*lane, 1, genome).ok());
  std::vector<std::byte> bytes(2 * population->network_bytes());
  lane->stream().Download(bytes.data(), population->parameters(0), bytes.size());
  ASSERT_TRUE(lane->stream().Synchronize().ok());
  EXPECT_EQ(std::memcmp(bytes.data(), bytes.data() + bytes.size() / 2, bytes.size() / 2), 0)
      << device.name() << ", " << Name(storage) << ", " << genome.mutations.size() << " mutations";
}

TEST(DeviceDecoderTest, WritesWhatTheCpuDecodes) {
  std::vector<std::unique_ptr<Accelerator>> devices;
  devices.push_back(Accelerator::Cpu().ValueOrThrow());
  if (auto gpu = Accelerator::Gpu(0); gpu.ok()) devices.push_back(std::move(*gpu));
  for (const auto& device : devices) {
    for (const Storage storage : {Storage::kFloat32, Storage::kBf16, Storage::kInt8}) {
      for (const size_t mutations : {0, 1, 7}) {
        ExpectTheNetworkOf(Child(NoiseKind::kNormal, InitKind::kFanIn, mutations), storage,
                           *device);
        ExpectTheNetworkOf(Child(NoiseKind::kQuantile8, InitKind::kXavier, mutations), storage,
                           *device);
      }
    }
  }
}

TEST(DeviceDecoderTest, KeepsParentsAndAppliesOneMutationToAChild) {
  const NetworkDescription network = MakeNetwork("dense 8 relu", 1, 1, 4, 2).ValueOrThrow();
  const auto device = Accelerator::Cpu().ValueOrThrow();
  const auto population =
      DevicePopulation::Make(*device, network, {std::nullopt, 2, 2}).ValueOrThrow();
  const auto lane = population->MakeLane(2).ValueOrThrow();
  DeviceDecoder decoder(*population, 2);
  Genome genome = Child(NoiseKind::kNormal, InitKind::kHe, 10);
  ASSERT_TRUE(decoder.Load(*lane, 0, genome).ok());  // nine for the parent, one
  genome.mutations.back().key = 5;
  ASSERT_TRUE(decoder.Load(*lane, 0, genome).ok());  // one
  genome.mutations.push_back({.key = 6, .power = 1});
  ASSERT_TRUE(decoder.Load(*lane, 0, genome).ok());  // one for the new parent, one
  EXPECT_EQ(decoder.counters().mutations, 13u);
  EXPECT_EQ(decoder.counters().ancestors, 2u);
}

TEST(DeviceDecoderTest, LeavesTheRestToTheCpu) {
  EXPECT_FALSE(DecodesOnDevice(Child(NoiseKind::kTable, InitKind::kFanIn, 1)));
  EXPECT_FALSE(DecodesOnDevice(Child(NoiseKind::kNormal, InitKind::kUnitNorm, 1)));
  Genome safe = Child(NoiseKind::kNormal, InitKind::kFanIn, 1);
  safe.mutations[0].kind = MutationKind::kSmGSum;
  EXPECT_FALSE(DecodesOnDevice(safe));
}

}  // namespace
}  // namespace samara::decode_test
