#include "play/initial_policy.h"

#include <fmt/format.h>

#include <cstring>

#include "core/log.h"
#include "core/rng.h"
#include "evo/genome/decode.h"
#include "nn/fit_parameters.h"
#include "play/saved_policy.h"

namespace samara {
namespace {

// Whether the evolved parameters are the same; statistics are recomputed.
bool SameBits(const NetworkDescription& network, const std::vector<float>& a,
              const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), network.evolved_count * sizeof(float)) == 0;
}

// The parameters of the policy's genome, if it decodes to what the policy plays; a file may say
// anything.
std::optional<std::vector<float>> DecodedGenome(const Policy& policy) {
  if (!policy.genome || policy.genome->begins_from_policy() || !policy.genome->plain())
    return std::nullopt;
  if (!CheckKeys(*policy.genome, policy.network.parameter_count).ok()) return std::nullopt;
  std::vector<float> decoded(policy.network.parameter_count);
  DecodeParameters(*policy.genome, policy.network, decoded);
  if (SameBits(policy.network, decoded, policy.parameters)) return decoded;
  std::vector<float> stored = decoded;
  RoundToStorage(policy.network, stored);
  return SameBits(policy.network, stored, policy.parameters) ? std::optional(decoded)
                                                             : std::nullopt;
}

bool SameShapes(const NetworkDescription& a, const NetworkDescription& b) {
  const std::vector<TensorSlice> x = Tensors(a), y = Tensors(b);
  return std::ranges::equal(x, y, [](const TensorSlice& s, const TensorSlice& t) {
    return s.name == t.name && s.shape == t.shape;
  });
}

}  // namespace

Result<InitialFile> MakeInitialFile(const ExperimentConfig& config,
                                    const NetworkDescription& network) {
  const std::string key = "run.init_from=" + Shown(config.run.init_from);
  auto loaded = LoadPolicy(config.run.init_from);
  if (!loaded.ok()) return loaded.status().Annotate("run.init_from");
  Policy& from = *loaded;
  if (from.config.Learns())
    return Status(Code::kConfig, key + ": a learning agent; expected the policy of an evolution");

  // 1 a policy that was rounded for its file is as its genome has it
  Policy begin;
  if (auto decoded = DecodedGenome(from)) {
    from.parameters = std::move(*decoded);
    if (SameShapes(from.network, network)) begin.genome = from.genome;
  }

  // 2 what the policy does not have is drawn
  Genome rest;
  rest.initial =
      DeriveKey(static_cast<uint64_t>(config.run.seed), Purpose::kInitialGenome, 1, 0, 0);
  begin.parameters.resize(network.parameter_count);
  InitialParameters(rest, network, begin.parameters);
  const auto copied = FitParameters(from.network, from.parameters, network, begin.parameters);
  if (!copied.ok())
    return Status(Code::kConfig, key + ": " + copied.status().message() +
                                     "; expected a policy of this network or of a smaller one");

  // 3 the file, and where its parameters come from
  begin.config = config;
  begin.network = network;
  begin.source = from.source;
  InitialFile file;
  ASSIGN_OR_RETURN(file.bytes, FormatPolicy(begin, Storage::kFloat32));
  const size_t fresh = network.parameter_count - *copied;
  const std::string hash = Sha256Hex({reinterpret_cast<const char*>(from.parameters.data()),
                                      from.parameters.size() * sizeof(float)});
  file.identity = {{"source", from.source},     {"network", from.network.name},
                   {"parameter_hash", hash},    {"parameters_copied", *copied},
                   {"parameters_fresh", fresh}, {"file_sha256", Sha256Hex(file.bytes)}};
  file.about =
      fmt::format("begins from {} ({}, parameter hash {}): {} of {} parameters copied, {} fresh",
                  Shown(from.source), Shown(from.network.name), hash.substr(0, 12), *copied,
                  network.parameter_count, fresh);
  return file;
}

Result<InitialPolicy> ParseInitialPolicy(const std::string& bytes,
                                         const NetworkDescription& network) {
  ASSIGN_OR_RETURN(Policy policy, ParsePolicy(bytes, RunFolder::kInitialPolicy));
  if (policy.parameters.size() != network.parameter_count)
    return Status(Code::kBadData, fmt::format("{}: {} parameters, the run's network has {}",
                                              RunFolder::kInitialPolicy, policy.parameters.size(),
                                              network.parameter_count));
  return MakeInitialPolicy(std::move(policy.parameters), std::move(policy.genome));
}

Result<std::optional<InitialPolicy>> InitialPolicyOf(const RunFolder& run,
                                                     const NetworkDescription& network) {
  ASSIGN_OR_RETURN(const std::optional<std::string> bytes, run.ReadInitialPolicy());
  if (!bytes) return std::optional<InitialPolicy>();
  auto policy = ParseInitialPolicy(*bytes, network);
  if (!policy.ok()) return policy.status().Annotate(run.path().string());
  return std::optional(*std::move(policy));
}

}  // namespace samara
