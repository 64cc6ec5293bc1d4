#include "bench/device_population.h"

#include "bench/individuals.h"
#include "core/clock.h"
#include "core/device.h"
#include "core/rng.h"
#include "core/thread.h"
#include "evo/device/decode.h"

namespace samara::bench {

using nlohmann::json;
using Lane = DevicePopulation::Lane;

namespace {

constexpr size_t kParents = 20;
constexpr size_t kChildren = 200;  // whose decoding is timed

Genome ChildOf(uint64_t parent, uint64_t i) {
  Genome genome = Individual(parent);
  genome.mutations.push_back({.key = DeriveKey(11, Purpose::kMutation, 2, i), .power = 0.002f});
  genome.mutations.push_back({.key = DeriveKey(11, Purpose::kMutation, 3, i), .power = 0.002f});
  return genome;
}

// A lane's part of the population, and its frames.
class Part {
 public:
  Part(const std::vector<std::vector<uint8_t>>& frames, uint32_t first, uint32_t networks,
       uint32_t many)
      : frames_(frames) {
    for (uint32_t n = first; n < first + networks; ++n) {
      for (uint32_t k = 0; k < many; ++k) rows_.push_back({n, n * many + k, 0, nullptr});
    }
    Next();
  }
  void Next() {
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].input = frames_[(rows_[i].stack * 7 + step_) % frames_.size()].data();
      rows_[i].seen = step_;
    }
    ++step_;
  }
  std::span<const DeviceRow> rows() const { return rows_; }

 private:
  const std::vector<std::vector<uint8_t>>& frames_;
  std::vector<DeviceRow> rows_;
  uint32_t step_ = 0;
};

// Evaluations per second of all lanes together, copies included.
Result<double> Whole(std::vector<std::unique_ptr<Lane>>& lanes, std::vector<Part>& parts,
                     double seconds) {
  std::vector<Status> results(lanes.size());
  std::vector<double> rates(lanes.size());
  ThreadGroup threads(/*stop=*/nullptr);  // they return when the time is over
  RETURN_IF_ERROR(threads.Start("lane-", lanes.size(), [&](size_t l) {
    const SteadyTime start = Now();
    double evaluations = 0;
    while (SecondsSince(start) < seconds && results[l].ok()) {
      results[l] = lanes[l]->Forward(parts[l].rows());
      evaluations += static_cast<double>(parts[l].rows().size());
      parts[l].Next();
    }
    rates[l] = evaluations / SecondsSince(start);
  }));
  threads.Join();
  double sum = 0;
  for (size_t l = 0; l < lanes.size(); ++l) {
    RETURN_IF_ERROR(results[l]);
    sum += rates[l];
  }
  return sum;
}

// Microseconds of one batch on the device.
Result<double> Resident(Lane& lane, double seconds) {
  lane.Compute();
  RETURN_IF_ERROR(lane.stream().Synchronize());
  const SteadyTime start = Now();
  double milliseconds = 0, batches = 0;
  while (SecondsSince(start) < seconds) {
    constexpr int kTogether = 8;
    lane.stream().Start();
    for (int i = 0; i < kTogether; ++i) lane.Compute();
    milliseconds += lane.stream().Stop();
    batches += kTogether;
  }
  RETURN_IF_ERROR(lane.stream().Synchronize());
  return 1e3 * milliseconds / batches;
}

json Layers(Lane& lane, const NetworkDescription& network) {
  lane.MeasureLayers();
  const std::vector<float> milliseconds = lane.MeasureLayers();
  json layers = {{"stack", 1e3 * milliseconds[0]}};
  for (size_t i = 0; i < network.layers.size(); ++i)
    layers[network.layers[i].name] = 1e3 * milliseconds[i + 1];
  return layers;
}

Result<double> ChildrenPerSecond(DevicePopulation& population, Lane& lane, DeviceDecoder& decoder) {
  const size_t children = population.accelerator().gpu() ? kChildren : 2;
  const size_t parents = std::min(kParents, children);
  for (size_t i = 0; i < parents; ++i) RETURN_IF_ERROR(decoder.Load(lane, 0, ChildOf(i, i)));
  const SteadyTime start = Now();
  for (size_t i = 0; i < children; ++i) {
    Genome child = ChildOf(i % parents, i % parents);
    child.mutations.back().key = DeriveKey(12, Purpose::kMutation, 4, i);
    RETURN_IF_ERROR(decoder.Load(lane, static_cast<uint32_t>(i % population.networks()), child));
  }
  return static_cast<double>(children) / SecondsSince(start);
}

}  // namespace

Result<std::unique_ptr<Accelerator>> AcceleratorNamed(const std::string& name) {
  ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(name));
  ASSIGN_OR_RETURN(const auto devices, Accelerator::Choose(choice));
  return devices[0].cuda ? Accelerator::Gpu(devices[0].ordinal) : Accelerator::Cpu();
}

Result<json> MeasureDevicePopulation(Accelerator& accelerator, const NetworkDescription& network,
                                     const std::vector<std::vector<uint8_t>>& frames,
                                     const DeviceLoad& load) {
  const auto networks = static_cast<uint32_t>(load.population);
  ASSIGN_OR_RETURN(const auto population,
                   DevicePopulation::Make(accelerator, network,
                                          {FrameStackRule{.depth = network.channels}, networks,
                                           networks * load.many}));
  DeviceDecoder decoder(*population, 2 * kParents);
  ASSIGN_OR_RETURN(const auto all, population->MakeLane(networks * load.many));
  ASSIGN_OR_RETURN(const double children, ChildrenPerSecond(*population, *all, decoder));
  for (uint32_t n = 0; n < networks; ++n) RETURN_IF_ERROR(decoder.Load(*all, n, Individual(n)));
  const Part whole(frames, 0, networks, load.many);
  RETURN_IF_ERROR(all->Forward(whole.rows()));
  ASSIGN_OR_RETURN(const double batch, Resident(*all, load.seconds));
  const json layers = Layers(*all, network);
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<Part> parts;
  for (uint32_t l = 0; l < load.lanes; ++l) {
    const uint32_t first = networks * l / load.lanes, end = networks * (l + 1) / load.lanes;
    if (first == end) continue;
    ASSIGN_OR_RETURN(auto lane, population->MakeLane((end - first) * load.many));
    lanes.push_back(std::move(lane));
    parts.emplace_back(frames, first, end - first, load.many);
  }
  ASSIGN_OR_RETURN(const double rate, Whole(lanes, parts, load.seconds));
  const double rows = static_cast<double>(networks) * load.many;
  const double resident = 1e6 * rows / batch;
  return json{{"device", accelerator.name()},
              {"network", network.name},
              {"storage", Name(network.storage)},
              {"population", networks},
              {"observations_each", load.many},
              {"lanes", lanes.size()},
              {"evaluations_per_second", rate},
              {"evaluations_per_second_resident", resident},
              {"batch_microseconds", batch},
              {"layers", layers},
              {"network_bytes", population->network_bytes()},
              // had every weight been read: those that meet a zero are not
              {"weight_gb_per_second_at_most",
               resident / load.many * static_cast<double>(population->network_bytes()) * 1e-9},
              {"children_per_second", children}};
}

}  // namespace samara::bench
