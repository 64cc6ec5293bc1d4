// A population on a device, on frames that are noise: what `samara bench population --device` does
// on recorded ones. For machines that lack what the whole program needs.
//
//   bench_device_population [cpu|cuda] [seconds] [networks]
#include "bench/device_population.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "core/rng.h"

namespace samara {
namespace {

int Run(int argc, char** argv) {
  const bool gpu = argc < 2 || std::strcmp(argv[1], "cpu") != 0;
  const double seconds = argc > 2 ? std::stod(argv[2]) : 1;
  const size_t networks = argc > 3 ? std::stoul(argv[3]) : 1000;
  const auto accelerator = (gpu ? Accelerator::Gpu(0) : Accelerator::Cpu()).ValueOrThrow();
  std::vector<std::vector<uint8_t>> frames;
  const CounterRng rng(1);
  for (size_t f = 0; f < 64; ++f) {
    frames.emplace_back(84 * 84);
    for (size_t i = 0; i < frames.back().size(); ++i)
      frames.back()[i] = static_cast<uint8_t>(rng.UniformInt(f << 20 | i, 256));
  }
  for (const Storage storage : {Storage::kBf16, Storage::kFloat32, Storage::kInt8}) {
    NetworkDescription network = MakeNetwork("LargeModel", 84, 84, 4, 18).ValueOrThrow();
    ThrowIfError(SetStorage(storage, network));
    for (const auto& [members, many] : {std::pair<size_t, uint32_t>(networks, 1),
                                        std::pair<size_t, uint32_t>((networks + 15) / 16, 1),
                                        std::pair<size_t, uint32_t>((networks + 31) / 32, 32)}) {
      auto measured = bench::MeasureDevicePopulation(
          *accelerator, network, frames, {.population = members, .many = many, .seconds = seconds});
      std::printf("%s\n", std::move(measured).ValueOrThrow().dump().c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  try {
    return samara::Run(argc, argv);
  } catch (const samara::Error& error) {
    std::fprintf(stderr, "bench_device_population: %s\n", error.what());
    return static_cast<int>(error.status().code());
  }
}
