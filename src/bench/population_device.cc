// A population on a device, on recorded frames (device_population.h), in the formats of weights.
#include <fmt/format.h>

#include <cmath>

#include "bench/bench.h"
#include "bench/device_population.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr size_t kRecorded = 64;
constexpr int64_t kAtariActions = 18;

// The newest frames of recorded stacks, as the bytes that they were.
Result<std::vector<std::vector<uint8_t>>> RecordFrames(const std::string& game) {
  ASSIGN_OR_RETURN(const auto inputs, RecordInputs(game, kRecorded));
  std::vector<std::vector<uint8_t>> frames;
  for (const std::vector<float>& stack : inputs) {
    std::vector<uint8_t>& frame = frames.emplace_back(stack.size() / 4);
    for (size_t i = 0; i < frame.size(); ++i)
      frame[i] = static_cast<uint8_t>(std::lround(255 * stack[4 * i + 3]));
  }
  return frames;
}

}  // namespace

Result<json> PopulationOnDevice(const Options& options) {
  ASSIGN_OR_RETURN(const auto accelerator, AcceleratorNamed(options.device));
  ASSIGN_OR_RETURN(const auto frames, RecordFrames(options.game));
  // the CPU runs the GPU's source for comparison: it is made for being right, not for speed
  const std::vector<DeviceLoad> loads =
      accelerator->gpu()
          ? std::vector<DeviceLoad>{{.population = 1000, .seconds = options.seconds},
                                    {.population = 256, .seconds = options.seconds},
                                    {.population = 64, .seconds = options.seconds},
                                    {.population = 32, .many = 32, .seconds = options.seconds}}
          : std::vector<DeviceLoad>{{.population = 2, .seconds = options.seconds}};
  json rows = json::array();
  for (const Storage storage : {Storage::kBf16, Storage::kInt8, Storage::kFloat32}) {
    ASSIGN_OR_RETURN(NetworkDescription network,
                     MakeNetwork("LargeModel", 84, 84, 4, kAtariActions));
    RETURN_IF_ERROR(SetStorage(storage, network));
    for (const DeviceLoad& load : loads) {
      ASSIGN_OR_RETURN(json row, MeasureDevicePopulation(*accelerator, network, frames, load));
      options.say(fmt::format("{} x {} {}, {} observations each: {:.0f}/s, {:.0f}/s without copies",
                              network.name, load.population, Name(storage), load.many,
                              row["evaluations_per_second"].get<double>(),
                              row["evaluations_per_second_resident"].get<double>()));
      rows.push_back(std::move(row));
    }
  }
  return Report(rows);
}

}  // namespace samara::bench
