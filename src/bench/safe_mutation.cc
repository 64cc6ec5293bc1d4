// Cost of safe mutations: the per-weight sensitivity sm_g_abs of one network at 100 states,
// compared with what needs no Jacobian of a single state (sm_g_sum, sm_g_so) and with torch, which
// computes sm_g_abs by a loop of one backward pass per state and output, and by torch.func
// (safe_mutation_rivals.py), with the same numbers and its own choice of threads. One thread here.
#include "evo/algorithms/safe_mutation.h"

#include <fmt/format.h>

#include "bench/bench.h"
#include "bench/individuals.h"
#include "core/cpu.h"
#include "core/rng.h"
#include "evo/genome/decode.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr size_t kStates = 100;
constexpr int64_t kMazeInputs = 11, kMazeOutputs = 2;

// The networks of the breadcrumb maze.
struct Net {
  const char* name;
  size_t layers;  // hidden
  int64_t units;
  const char* activation;
};
constexpr Net kNets[] = {{"11-[15 x 7]-2", 7, 15, "relu"}, {"11-[125 x 65]-2", 65, 125, "tanh"}};

std::string Line(const Net& net) {
  std::string line;
  for (size_t i = 0; i < net.layers; ++i)
    line += fmt::format("{}dense {} {}", i == 0 ? "" : ", ", net.units, net.activation);
  return line;
}

}  // namespace

Result<json> SafeMutations(const Options& options) {
  ASSIGN_OR_RETURN(const auto scratch, Scratch::Make());
  json all = json::array();
  for (const Net& net : kNets) {
    ASSIGN_OR_RETURN(const NetworkDescription network,
                     MakeNetwork(Line(net), 1, 1, kMazeInputs, kMazeOutputs));
    std::vector<float> parameters(network.parameter_count), delta(network.parameter_count, 0.1F);
    DecodeParameters(Individual(1), network, parameters);
    Experience experience;
    const CounterRng rng(1);
    for (size_t i = 0; i < kStates * kMazeInputs; ++i)
      experience.inputs.push_back(static_cast<float>(rng.Uniform(i)));
    const auto rate = [&](MutationKind kind) {
      return RatePerSecond(1, options.seconds, [&](uint32_t) {
        (void)Sensitivity(kind, network, parameters, experience, delta);
        return 1.0;
      });
    };
    const double ours = rate(MutationKind::kSmGAbs);
    json row = {{"network", net.name},
                {"parameters", network.parameter_count},
                {"states", kStates},
                {"outputs", kMazeOutputs},
                {"isa", samara::Name(ActiveIsa())},
                {"sm_g_abs_per_second", ours},
                {"sm_g_sum_per_second", rate(MutationKind::kSmGSum)},
                {"sm_g_so_per_second", rate(MutationKind::kSmGSo)}};
    if (options.rivals) {
      const Path file = scratch->path() / "numbers";
      RETURN_IF_ERROR(WriteFloats(
          file, {parameters, experience.inputs,
                 Sensitivity(MutationKind::kSmGAbs, network, parameters, experience, delta)}));
      ASSIGN_OR_RETURN(
          const json torch,
          RunRival("safe_mutation_rivals.py",
                   {std::to_string(net.layers), std::to_string(net.units), net.activation,
                    file.string(), fmt::format("{}", options.seconds)}));
      row.update(torch);
      row["ratio"] = ours / torch.value("torch_loop_per_second", 0.0);
      row["ratio_func"] = ours / torch.value("torch_func_per_second", 0.0);
      options.say(
          fmt::format("{}: sm_g_abs {:.1f}/s, {:.0f} x torch's loop, {:.1f} x torch.func; "
                      "largest relative difference {:.1e}",
                      net.name, ours, row["ratio"].get<double>(), row["ratio_func"].get<double>(),
                      row["relative_difference"].get<double>()));
    } else {
      options.say(fmt::format("{}: sm_g_abs {:.1f}/s", net.name, ours));
    }
    all.push_back(std::move(row));
  }
  return Report(std::move(all));
}

}  // namespace samara::bench
