// samara bench collectives, samara bench replicate: groups of ranks on this machine, started as
// users start them, compared with bare c10d and torch's DistributedDataParallel.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "bench/bench.h"
#include "bench/peer.h"
#include "core/cpu.h"
#include "core/statistics.h"
#include "core/venv.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr int kSteps = 40;
constexpr int64_t kRows = 64;  // of one rank's batch

Result<Path> NextTo(const char* name) {
  ASSIGN_OR_RETURN(const Path program, OwnProgram());
  const Path file = program.parent_path() / name;
  std::error_code failed;
  if (std::filesystem::exists(file, failed)) return file;
  return Status(Code::kUnavailable,
                fmt::format("no {} next to this program: build with torch", name));
}

Result<json> OnRanks(int ranks, std::vector<std::string> arguments) {
  ASSIGN_OR_RETURN(const Path samara, NextTo("samara"));
  ASSIGN_OR_RETURN(const Path program, NextTo("samara-ranks"));
  std::vector<std::string> command{samara.string(), "launch", "-n", std::to_string(ranks),
                                   program.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunForJson(std::move(command));
}

// Threads of torch in each rank, samara's and the rival's, also in runs of one rank: its share of
// the cores.
int ThreadsOfRank(const Options& options) {
  return std::max(1, static_cast<int>(Cores()) / options.ranks);
}

std::string DeviceOf(const Options& options) {
  return options.device.empty() ? "cpu" : options.device;
}

Result<double> RivalStepMs(const Options& options, int64_t rows) {
  ASSIGN_OR_RETURN(const Path venv, FindVenv());
  ASSIGN_OR_RETURN(const Path script, FindScript(venv, "replicate_rivals.py"));
  ASSIGN_OR_RETURN(
      const json result,
      RunForJson({(venv / "bin" / "python").string(), "-P", "-m", "torch.distributed.run",
                  "--standalone", "--nproc-per-node", std::to_string(options.ranks),
                  script.string(), std::to_string(kSteps), std::to_string(rows),
                  std::to_string(ThreadsOfRank(options)), DeviceOf(options)}));
  return result.value("step_ms", 0.0);
}

Result<json> Steps(const Options& options, int ranks, const std::string& mode, int64_t rows) {
  return OnRanks(ranks, {"replicate", mode, std::to_string(kSteps), std::to_string(rows),
                         std::to_string(ThreadsOfRank(options)), DeviceOf(options)});
}

// Microseconds of this machine's MPI by operation and size; empty where it is not installed.
std::map<std::pair<std::string, size_t>, double> MpiLatencies(int ranks, double seconds) {
  std::map<std::pair<std::string, size_t>, double> latencies;
  const auto program = NextTo("samara-mpi-ranks");
  if (!program.ok()) return latencies;
  // both are for root and for machines with fewer cores than ranks
  const auto result =
      RunForJson({"/usr/bin/env", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                  std::to_string(ranks), program->string(), std::to_string(seconds)});
  if (!result.ok()) return latencies;
  for (const json& row : (*result)["rows"])
    latencies[{row["operation"], row["bytes"]}] = row["latency_us"];
  return latencies;
}

}  // namespace

Result<json> Collectives(const Options& options) {
  if (options.ranks < 2) return Status(Code::kUsage, "--ranks 1: expected at least 2");
  const double seconds = options.seconds / 10;
  ASSIGN_OR_RETURN(json result, OnRanks(options.ranks, {"collectives", std::to_string(seconds)}));
  const auto mpi = MpiLatencies(options.ranks, seconds);
  for (json& row : result["rows"]) {
    const auto found = mpi.find({row["operation"], row["bytes"]});
    row["mpi_latency_us"] = found == mpi.end() ? json() : json(found->second);
    options.say(fmt::format(
        "{:<9} {:<10} {:>9} bytes: {:>9.1f} us, {:>6.2f} GB/s; bare c10d {:>9.1f} us{}",
        row["transport"].get<std::string>(), row["operation"].get<std::string>(),
        row["bytes"].get<uint64_t>(), row["latency_us"].get<double>(),
        row["bus_gb_per_second"].get<double>(), row["bare_c10d_latency_us"].get<double>(),
        found == mpi.end() ? "" : fmt::format(", MPI {:>9.1f} us", found->second)));
  }
  return result;
}

Result<json> Replicate(const Options& options) {
  std::vector<double> ours, rivals, ratios;
  std::vector<json> all;
  for (int pair = 0; pair < options.pairs; ++pair) {
    ASSIGN_OR_RETURN(const json mine, Steps(options, options.ranks, options.mode, kRows));
    all.push_back(mine);
    ours.push_back(mine.value("step_ms", 0.0));
    std::string said = fmt::format("pair {}: {:.2f} ms", pair + 1, ours.back());
    if (options.rivals) {
      ASSIGN_OR_RETURN(const double theirs, RivalStepMs(options, kRows));
      rivals.push_back(theirs);
      ratios.push_back(theirs / ours.back());
      said +=
          fmt::format(", DistributedDataParallel {:.2f} ms, ratio {:.2f}", theirs, ratios.back());
    }
    options.say(said);
  }
  const auto median = [&](const char* key) {
    std::vector<double> values;
    values.reserve(all.size());
    for (const json& one : all) values.push_back(one.value(key, 0.0));
    return Median(values);
  };
  json result{{"model", "mlp 784-1024-1024-10"},
              {"mode", options.mode},
              {"device", all[0].value("device", "")},
              {"ranks", options.ranks},
              {"threads_per_rank", ThreadsOfRank(options)},
              {"step_ms", median("step_ms")},
              {"compute_ms", median("compute_ms")},
              {"exposed_communication_ms", median("exposed_communication_ms")},
              {"ddp_step_ms", rivals.empty() ? json() : json(Median(rivals))},
              {"ratio", ratios.empty() ? json() : json(Median(ratios))},
              {"transport", all[0].value("transport", "")}};
  // the same batch on one rank, and one rank's batch on one rank
  const double step = result["step_ms"];
  const auto alone = [&](const char* name, int64_t rows) -> Status {
    ASSIGN_OR_RETURN(const json one, Steps(options, 1, options.mode, rows));
    result[name] = one.value("step_ms", 0.0) / step;
    return {};
  };
  if (options.ranks > 1) {
    RETURN_IF_ERROR(alone("strong_scaling", kRows * options.ranks));
    RETURN_IF_ERROR(alone("weak_scaling", kRows));
  }
  if (options.mode == "exact") return result;
  ASSIGN_OR_RETURN(const json exact, Steps(options, options.ranks, "exact", kRows));
  result["exact_step_ms"] = exact.value("step_ms", 0.0);
  result["reduce_after_backward_step_ms"] = median("late_step_ms");
  result["by_parameter_step_ms"] = median("by_parameter_step_ms");
  result["step_by_bucket_step_ms"] = median("by_bucket_step_ms");
  result["bf16_step_ms"] = median("bf16_step_ms");
  return result;
}

}  // namespace samara::bench
