// Inference alone on one device: networks of agents on Atari's frames, without simulators.
//
// Measures the network that --model names, or two. A batch brings its rows' newest frames, as in a
// run; a call ends when actions, values and distributions are on the CPU. A quarter of the first
// seconds warms up and does not count.
#include <fmt/format.h>

#include <algorithm>

#include "bench/bench.h"
#include "bench/payload.h"
#include "bench/peer.h"
#include "core/cpu.h"
#include "core/rng.h"
#include "rl/algorithms/registry.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr uint32_t kDeviceRows[] = {64, 1000};
constexpr uint32_t kUnroll = 20;  // a row keeps its stack so often

// Noise, so that no two rows are alike.
std::vector<std::byte> NoiseFrames(uint32_t rows) {
  std::vector<std::byte> frames(size_t{rows} * kFrameBytes);
  const CounterRng rng(1);
  for (size_t i = 0; i < frames.size(); ++i) frames[i] = static_cast<std::byte>(rng.Bits(i));
  return frames;
}

Result<std::unique_ptr<Agent>> MakeAgentOn(const Device& device, const std::string& network,
                                           Precision precision, uint32_t rows) {
  AgentSetup setup;
  ChooseAlgorithm(setup.config, "vtrace");
  setup.config.network.name = network;
  setup.config.network.precision = precision;
  setup.environment = PayloadSpec(kFrameBytes);
  setup.slots = setup.rows_max = rows;
  setup.learns_on = setup.infers_on = device;
  return MakeAgent(setup);
}

Result<json> MeasureInference(const Device& device, const std::string& network, Precision precision,
                              uint32_t rows, double seconds) {
  ASSIGN_OR_RETURN(const auto agent, MakeAgentOn(device, network, precision, rows));
  const std::vector<std::byte> frames = NoiseFrames(rows);
  InferenceBatch batch(agent->shape(), rows);
  Latencies latencies;
  double calls = 0;
  SteadyTime start = Now();
  bool warm = false;
  for (uint32_t step = 0; !warm || SecondsSince(start) < seconds; ++step) {
    if (!warm && SecondsSince(start) > seconds / 4) warm = true, start = Now();
    batch.rows.clear();
    batch.version = InferenceBatch::kNewest;
    for (uint32_t slot = 0; slot < rows; ++slot) {
      InferenceRow& row = batch.rows.emplace_back();
      row.slot = slot, row.step = step, row.key = slot, row.first = step == 0;
      row.keeps = (slot + step) % kUnroll == 0;
      row.observation = std::span(frames).subspan(size_t{slot} * kFrameBytes, kFrameBytes);
    }
    const SteadyTime call = Now();
    RETURN_IF_ERROR(agent->Infer(batch));
    if (warm) latencies.Add(SecondsSince(call)), ++calls;
  }
  return json{{"device", device.text()},
              {"network", network},
              {"precision", NameOf<Precision>(kPrecisionNames, precision)},
              {"batch", rows},
              {"p50_us", latencies.Microseconds(0.5)},
              {"p99_us", latencies.Microseconds(0.99)},
              {"rows_per_second", calls * rows / SecondsSince(start)}};
}

}  // namespace

Result<Device> DeviceNamed(const std::string& name) {
  ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(name));
  ASSIGN_OR_RETURN(const auto devices, ChooseDevices(choice, FindGpus(), AgentsUseGpus()));
  return devices[0];
}

std::vector<Precision> PrecisionsOf(const Device& device) {
  if (device.cuda ? HasBf16Products(device, FindGpus()) : HasBf16Products())
    return {Precision::kBfloat16, Precision::kFloat32};
  return {Precision::kFloat32};
}

Result<json> DeviceInference(const Options& options) {
  ASSIGN_OR_RETURN(const Device device, DeviceNamed(options.device));
  json rows = json::array();
  const std::vector<std::string> networks = options.model == "null"
                                                ? std::vector<std::string>{"impala_deep", "nature"}
                                                : std::vector{options.model};
  for (const std::string& network : networks)
    for (const Precision precision : PrecisionsOf(device))
      for (const uint32_t batch : kDeviceRows) {
        ASSIGN_OR_RETURN(json row,
                         MeasureInference(device, network, precision, batch, options.seconds));
        options.say(fmt::format("{} {} on {}: {} rows, p50 {:.0f} us, p99 {:.0f} us, {:.0f} rows/s",
                                network, NameOf<Precision>(kPrecisionNames, precision),
                                device.text(), batch, row["p50_us"].get<double>(),
                                row["p99_us"].get<double>(), row["rows_per_second"].get<double>()));
        rows.push_back(std::move(row));
      }
  return json{{"device", NameOf(device, FindGpus())}, {"rows", rows}, {"machine", Machine()}};
}

}  // namespace samara::bench
