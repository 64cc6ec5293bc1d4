#include "replica/torch/replicator_options.h"

#include <algorithm>
#include <exception>

#include "core/cpu.h"
#include "samara/error.h"

namespace samara {
namespace {

constexpr int kReplicas = 8;  // of exact mode

template <typename T>
T Number(const char* name, const std::string& text, T low, T high) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const auto number = static_cast<T>(value);
  if (used != text.size() || text.empty() || value < static_cast<double>(low) ||
      value > static_cast<double>(high) || static_cast<double>(number) != value) {
    throw ReplicationError(78, std::string(name) + "=" + text + ": expected a number from " +
                                   std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

}  // namespace

std::optional<std::string> FromEnv(const char* name) { return ProcessEnvironment()(name); }

std::optional<int> ThreadsFromEnv() {
  const auto threads = FromEnv("SAMARA_THREADS");
  if (!threads) return std::nullopt;
  return Number<int>("SAMARA_THREADS", *threads, 1, 1024);
}

ReplicatorOptions Resolve(ReplicatorOptions options, const World& world) {
  if (!options.mode) {
    const std::string mode = FromEnv("SAMARA_MODE").value_or("exact");
    if (mode != "exact" && mode != "fast")
      throw ReplicationError(78, "SAMARA_MODE=" + mode + ": expected exact or fast");
    options.mode = mode == "fast" ? ReplicationMode::kFast : ReplicationMode::kExact;
  }
  if (*options.mode == ReplicationMode::kFast) {
    if (options.replicas && *options.replicas != world.size)
      throw ReplicationError(78, std::to_string(*options.replicas) +
                                     " replicas in fast mode: expected as many as ranks, " +
                                     std::to_string(world.size));
    options.replicas = world.size;
  } else if (!options.replicas) {
    const auto given = FromEnv("SAMARA_REPLICAS");
    options.replicas = given ? Number<int>("SAMARA_REPLICAS", *given, 1, 4096) : kReplicas;
  }
  if (*options.replicas < 1 || *options.replicas % world.size != 0) {
    throw ReplicationError(
        78, std::to_string(*options.replicas) + " replicas on " + std::to_string(world.size) +
                " ranks: expected a multiple of the ranks; set SAMARA_REPLICAS=" +
                std::to_string((*options.replicas + world.size - 1) / world.size * world.size));
  }
  if (!options.transport) options.transport = FromEnv("SAMARA_TRANSPORT").value_or("auto");
  if (*options.transport != "auto" && *options.transport != "shared" &&
      *options.transport != "gloo")
    throw ReplicationError(
        78, "SAMARA_TRANSPORT=" + *options.transport + ": expected auto, shared or gloo");
  if (!options.deadline_s) {
    const auto given = FromEnv("SAMARA_DEADLINE_SECONDS");
    options.deadline_s = given ? Number<double>("SAMARA_DEADLINE_SECONDS", *given, 0.1, 86400) : 30;
  }
  if (!options.trace) options.trace = FromEnv("SAMARA_TRACE").value_or("");
  if (options.threads == 0) {
    const int cores = static_cast<int>(Cores());
    options.threads =
        *options.mode == ReplicationMode::kExact ? 1 : std::max(1, cores / world.local_size);
  }
  return options;
}

}  // namespace samara
