// Many different networks, one observation each, on frames of a game being played.
//
// "individual" order: a thread stays with one network for kVisit frames, as in an episode, then
// takes the next; "cycle" order: each evaluation takes another network; "many": one network takes
// kMany frames at once, as in its validation. The weights of all networks are private and in
// memory. Rivals: torch called per individual (in both orders; the better counts), as grouped
// convolutions and batched products, and by torch.func.vmap (population_rivals.py), on the same
// frames, population and cores.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "bench/bench.h"
#include "bench/individuals.h"
#include "core/cpu.h"
#include "core/rng.h"
#include "evo/genome/decode.h"
#include "nn/kernel.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr size_t kInputs = 64;
constexpr size_t kVisit = 256;  // an episode of 1,024 game frames
constexpr size_t kMany = 16;
constexpr int64_t kOutputs = 18;

struct Population {
  Population(const NetworkDescription& network, size_t size) : kernel(network) {
    std::vector<float> canonical(network.parameter_count);
    for (size_t i = 0; i < size; ++i) {
      DecodeParameters(Individual(i), network, canonical);
      packed.emplace_back(kernel.packed_size());
      kernel.Pack(canonical, packed.back().span());
    }
  }
  PopulationKernel kernel;
  std::vector<AlignedFloats> packed;
};

// Evaluations per second; `visit` frames of an individual before the next one, `many` at once.
double Measure(const Population& population, const std::vector<std::vector<float>>& inputs,
               uint32_t threads, size_t visit, size_t many, double seconds) {
  struct alignas(64) State {
    std::unique_ptr<PopulationKernel::Workspace> workspace;
    std::vector<float> out;
    size_t next;
    std::vector<const float*> observations;
  };
  const size_t members = population.packed.size();
  std::vector<State> states;
  for (uint32_t t = 0; t < threads; ++t)
    states.push_back({population.kernel.MakeWorkspace(),
                      std::vector<float>(many * population.kernel.network().output_size()),
                      t * members / threads, std::vector<const float*>(many)});
  return RatePerSecond(threads, seconds, [&](uint32_t t) {
    State& s = states[t];
    const float* weights = population.packed[s.next].data();
    s.next = (s.next + 1) % members;
    for (size_t i = 0; i < visit; i += many) {
      for (size_t k = 0; k < many; ++k)
        s.observations[k] = inputs[(s.next + i + k) % inputs.size()].data();
      population.kernel.ForwardMany(weights, s.observations, *s.workspace, s.out.data());
    }
    return static_cast<double>(visit);
  });
}

// [{"layer", "microseconds", "weight_bytes"}] of one evaluation, averaged: one thread, cycling.
json Layers(const Population& population, const std::vector<std::vector<float>>& inputs) {
  const auto workspace = population.kernel.MakeWorkspace();
  std::vector<float> out(population.kernel.network().output_size());
  const size_t count = 2 * inputs.size();
  for (size_t i = 0; i < count; ++i) {
    if (i == inputs.size()) workspace->MeasureLayers();  // the first half warms
    population.kernel.Forward(population.packed[i % population.packed.size()].data(),
                              inputs[i % inputs.size()].data(), *workspace, out.data());
  }
  json layers = json::array();
  const auto n = static_cast<double>(inputs.size());
  const auto costs = workspace->layer_costs();
  for (size_t i = 0; i < costs.size(); ++i)
    layers.push_back({{"layer", population.kernel.network().layers[i].name},
                      {"microseconds", 1e6 * costs[i].seconds / n},
                      {"weight_bytes", static_cast<double>(costs[i].weight_bytes) / n}});
  return layers;
}

Result<json> Rivals(const std::string& network, size_t population, uint32_t threads,
                    const std::string& frames, const Options& options) {
  return RunRival("population_rivals.py",
                  {network, std::to_string(population), std::to_string(threads), frames,
                   fmt::format("{}", options.seconds)});
}

// Multiply-adds of one evaluation, zeros included, as floating point operations.
double Flop(const NetworkDescription& network) {
  double flop = 0;
  for (const Layer& layer : network.layers) {
    flop += 2.0 * static_cast<double>(layer.weight_count) *
            static_cast<double>(layer.out_height * layer.out_width);
  }
  return flop;
}

// LargeModel also as large as the papers' populations, as far as memory allows.
std::vector<size_t> Sizes(const std::string& network) {
  if (network != "LargeModel") return {64};
  return {64, 256, 1000};
}

double MemoryBytes() {
  return static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<json> Population(const Options& options) {
  if (!options.device.empty()) return PopulationOnDevice(options);
  ASSIGN_OR_RETURN(const auto inputs, RecordInputs(options.game, kInputs));
  ASSIGN_OR_RETURN(const ExperimentConfig desktop, DesktopConfig(options.game));
  ASSIGN_OR_RETURN(const auto scratch, Scratch::Make());
  const Path frames = scratch->path() / "frames";
  RETURN_IF_ERROR(WriteFloats(frames, inputs));  // [frame][84][84][4]
  const uint32_t cores = Cores();
  json all = json::array();
  for (const std::string name : {"LargeModel", "Nature", "Model"}) {
    for (const size_t size : Sizes(name)) {
      ASSIGN_OR_RETURN(NetworkDescription network, MakeNetwork(name, 84, 84, 4, kOutputs));
      const double bytes = static_cast<double>(size * network.parameter_count * sizeof(float));
      json rival = json::object();
      // torch holds the population once for all three, and moves it when it groups
      if (options.rivals && 2.5 * bytes < MemoryBytes()) {
        ASSIGN_OR_RETURN(rival, Rivals(name, size, cores, frames.string(), options));
        options.say(fmt::format("{} x {}: torch on {} cores: {}", name, size, cores, rival.dump()));
      }
      double best = 0;
      for (const auto& item : rival.items()) {
        if (item.value().is_number()) best = std::max(best, item.value().get<double>());
      }
      for (const Storage storage : {Storage::kFloat32, Storage::kBf16, Storage::kInt8}) {
        network.storage = storage;
        if (1.1 * bytes > MemoryBytes() && storage == Storage::kFloat32) {
          options.say(fmt::format("{} x {}: no memory for float32 weights", name, size));
          continue;
        }
        const struct Population population(network, size);
        const json layers = Layers(population, inputs);
        double moved = 0;
        for (const json& layer : layers) moved += layer["weight_bytes"].get<double>();
        for (const uint32_t threads : std::set<uint32_t>{cores, 1}) {
          const auto rate = [&](size_t visit, size_t many) {
            return Measure(population, inputs, threads, visit, many, options.seconds);
          };
          const double stay = rate(kVisit, 1), cycle = rate(1, 1), many = rate(kVisit, kMany);
          const double gflop = 1e-9 * Flop(network);
          const double share = static_cast<double>(threads) / cores;
          const double roof = Machine()["fma_gflop_per_second"].get<double>() * share;
          const bool compare = best > 0 && threads == cores;
          const auto rate_of = [&](const char* which) {
            return compare ? rival.value(which, json()) : json();
          };
          all.push_back({{"network", name},
                         {"storage", samara::Name(storage)},
                         {"cpu", CpuName()},
                         {"threads", threads},
                         {"population", size},
                         {"evaluations_per_second", stay},
                         {"evaluations_per_second_cycle", cycle},
                         {"evaluations_per_second_many", many},
                         {"weight_bytes_per_evaluation", moved},
                         {"weight_gb_per_second", stay * moved * 1e-9},
                         {"weight_gb_per_second_cycle", cycle * moved * 1e-9},
                         {"fma_share", stay * gflop / roof},
                         {"fma_share_many", many * gflop / roof},
                         {"layers", layers},
                         {"torch_per_individual", rate_of("per_individual")},
                         {"torch_grouped", rate_of("grouped")},
                         {"torch_vmap", rate_of("vmap")},
                         {"ratio", compare ? json(stay / best) : json()}});
          options.say(fmt::format(
              "{} x {} {} on {} threads: {:.0f}/s staying, {:.0f}/s cycling, {:.0f}/s {} at once "
              "({:.2f} of the FMA rate){}",
              name, size, samara::Name(storage), threads, stay, cycle, many, kMany,
              many * gflop / roof, compare ? fmt::format(", {:.2f} x torch", stay / best) : ""));
        }
      }
    }
  }
  // first what the desktop preset runs
  const auto headline = std::find_if(all.begin(), all.end(), [&](const json& row) {
    return row["storage"] == desktop.network.storage && row["threads"] == cores;
  });
  std::iter_swap(all.begin(), headline);
  return Report(std::move(all));
}

}  // namespace samara::bench
