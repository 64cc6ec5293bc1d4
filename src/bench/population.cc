// Many different networks, one observation each, on frames of a game being played.
//
// "individual" order: a thread stays with one network for kVisit frames, as in an episode, then
// takes the next; "cycle" order: each evaluation takes another network. The weights of all networks
// are private and in memory. Rivals: torch called per individual, as grouped convolutions and
// batched products, and by torch.func.vmap (population_rivals.py), on the same frames, population
// and cores.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "bench/bench.h"
#include "core/cpu.h"
#include "core/rng.h"
#include "evo/materialise.h"
#include "nn/kernel.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr size_t kFrames = 64;
constexpr size_t kVisit = 32;
constexpr int64_t kOutputs = 18;

Genome Individual(uint64_t i) {
  return {
      NoiseKind::kQuantile8, InitKind::kFanIn, DeriveKey(11, Purpose::kInitialGenome, 1, i), {}};
}

struct Population {
  Population(const NetworkDescription& network, size_t size) : kernel(network) {
    std::vector<float> canonical(network.parameter_count);
    for (size_t i = 0; i < size; ++i) {
      Materialise(Individual(i), network, canonical);
      packed.emplace_back(kernel.packed_size());
      kernel.Pack(canonical, packed.back().span());
    }
  }
  PopulationKernel kernel;
  std::vector<AlignedFloats> packed;
};

// Evaluations per second; `visit` frames of an individual before the next one.
double Measure(const Population& population, const std::vector<std::vector<float>>& inputs,
               uint32_t threads, size_t visit, double seconds) {
  struct alignas(64) State {
    std::unique_ptr<PopulationKernel::Workspace> workspace;
    std::vector<float> out;
    size_t next;
  };
  const size_t members = population.packed.size();
  std::vector<State> states;
  for (uint32_t t = 0; t < threads; ++t)
    states.push_back({population.kernel.MakeWorkspace(),
                      std::vector<float>(population.kernel.network().output_size()),
                      t * members / threads});
  return RatePerSecond(threads, seconds, [&](uint32_t t) {
    State& s = states[t];
    const float* weights = population.packed[s.next].data();
    s.next = (s.next + 1) % members;
    for (size_t i = 0; i < visit; ++i) {
      population.kernel.Forward(weights, inputs[(s.next + i) % inputs.size()].data(), *s.workspace,
                                s.out.data());
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

// The frames as the rivals read them: float32, [frame][84][84][4].
Result<std::string> WriteFrames(const std::vector<std::vector<float>>& inputs) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("samara-frames-{}", getpid())).string();
  std::ofstream file(path, std::ios::binary);
  for (const auto& input : inputs)
    file.write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size() * sizeof(float)));
  if (!file.flush()) return Status(Code::kIoError, path + ": cannot be written");
  return path;
}

}  // namespace

Result<json> Population(const Options& options) {
  ASSIGN_OR_RETURN(const auto inputs, RecordInputs(options.game, kFrames));
  ASSIGN_OR_RETURN(const std::string frames, WriteFrames(inputs));
  const uint32_t cores = Cores();
  json all = json::array(), headline;
  for (const char* name : {"LargeModel", "Nature", "Model"}) {
    for (const size_t size : {size_t{64}, size_t{256}}) {
      if (size > 64 && std::string(name) != "LargeModel") continue;
      json rival = json::object();
      if (options.rivals) {
        ASSIGN_OR_RETURN(rival, Rivals(name, size, cores, frames, options));
        options.say(fmt::format("{} x {}: torch on {} cores: {}", name, size, cores, rival.dump()));
      }
      double best = 0;
      for (const auto& item : rival.items()) {
        if (item.value().is_number()) best = std::max(best, item.value().get<double>());
      }
      for (const Storage storage : {Storage::kFloat32, Storage::kBf16}) {
        ASSIGN_OR_RETURN(NetworkDescription network, MakeNetwork(name, 84, 84, 4, kOutputs));
        network.storage = storage;
        const struct Population population(network, size);
        const json layers = Layers(population, inputs);
        double bytes = 0;
        for (const json& layer : layers) bytes += layer["weight_bytes"].get<double>();
        for (const uint32_t threads : std::set<uint32_t>{1, cores}) {
          const double stay = Measure(population, inputs, threads, kVisit, options.seconds);
          const double cycle = Measure(population, inputs, threads, 1, options.seconds);
          const bool rivals = options.rivals && threads == cores;
          json row = {{"network", name},
                      {"storage", samara::Name(storage)},
                      {"cpu", CpuName()},
                      {"threads", threads},
                      {"population", size},
                      {"evaluations_per_second", stay},
                      {"evaluations_per_second_cycle", cycle},
                      {"weight_bytes_per_evaluation", bytes},
                      {"weight_gb_per_second", stay * bytes * 1e-9},
                      {"layers", layers},
                      {"torch_per_individual", rivals ? rival["per_individual"] : json()},
                      {"torch_grouped", rivals ? rival["grouped"] : json()},
                      {"torch_vmap", rivals ? rival["vmap"] : json()},
                      {"ratio", rivals && best > 0 ? json(stay / best) : json()}};
          options.say(fmt::format("{} x {} {} on {} threads: {:.0f}/s staying, {:.0f}/s cycling{}",
                                  name, size, samara::Name(storage), threads, stay, cycle,
                                  rivals ? fmt::format(", {:.2f} x torch", stay / best) : ""));
          if (headline.is_null() && threads == cores) headline = row;
          all.push_back(std::move(row));
        }
      }
    }
  }
  std::filesystem::remove(frames);
  headline["machine"] = Machine();
  headline["all"] = std::move(all);
  return headline;
}

}  // namespace samara::bench
