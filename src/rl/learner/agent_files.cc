#include "rl/learner/agent_files.h"

#include <cstdlib>
#include <vector>

#include "rl/learner/checkpoint_files.h"

namespace samara {
namespace {

using torch::Tensor;

Result<NamedTensors> FromSafetensors(const std::map<std::string, std::string>& files,
                                     const char* name) {
  ASSIGN_OR_RETURN(const Safetensors parsed, ParsedFile(files, name));
  NamedTensors tensors;
  for (const auto& [key, tensor] : parsed.tensors) {
    if (tensor.type != samara::Tensor::Type::kFloat32)
      return Status(Code::kBadData, std::string(name) + ": " + key + " is not float32");
    const std::vector<float> values = tensor.Floats();
    tensors[key] =
        torch::tensor(at::ArrayRef<float>(values.data(), values.size())).reshape(tensor.shape);
  }
  return tensors;
}

// kBadData unless `from` has exactly the names and shapes of `to`.
Status SameShapes(const NamedTensors& from, const NamedTensors& to, const char* file) {
  for (const auto& [name, tensor] : to) {
    const auto found = from.find(name);
    if (found == from.end() || found->second.sizes() != tensor.sizes())
      return {Code::kBadData, std::string(file) + ": " + name +
                                  " is missing or has another shape than this run's network"};
  }
  if (from.size() == to.size()) return Status::Ok();
  return {Code::kBadData, std::string(file) + ": " + std::to_string(from.size()) +
                              " tensors, expected " + std::to_string(to.size())};
}

}  // namespace

std::string TensorsToFile(const NamedTensors& tensors,
                          std::map<std::string, std::string> metadata) {
  Safetensors file;
  file.metadata = std::move(metadata);
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor flat = tensor.detach().to(torch::kCPU, torch::kFloat32).contiguous();
    file.tensors[name] = samara::Tensor::OfFloats(
        flat.sizes().vec(), std::span(flat.data_ptr<float>(), static_cast<size_t>(flat.numel())));
  }
  return FormatSafetensors(file).ValueOrThrow();
}

Result<NamedTensors> TensorsFromFile(const std::map<std::string, std::string>& files,
                                     const char* name, const NamedTensors& like) {
  ASSIGN_OR_RETURN(NamedTensors tensors, FromSafetensors(files, name));
  RETURN_IF_ERROR(SameShapes(tensors, like, name));
  return tensors;
}

Result<uint64_t> NumberOfFile(const std::string& file, const char* name, const char* key) {
  return NumberIn(ParseSafetensors(file).ValueOrThrow(), name, key);
}

NamedTensors NamedParameters(const AgentNetworkImpl& network) {
  NamedTensors all;
  for (const auto& item : network.named_parameters()) all[item.key()] = item.value();
  return all;
}

std::map<std::string, std::string> SaveAgent(Agent::Part part, const NamedTensors& parameters,
                                             uint64_t version, const Optimizer& optimizer,
                                             const NetworkStatistics& statistics,
                                             const Acting& acting) {
  std::map<std::string, std::string> files;
  files[Agent::kWeightsFile] = TensorsToFile(parameters, {{"version", std::to_string(version)}});
  if (part == Agent::Part::kWeights) return files;
  files[kOptimizerFile] = TensorsToFile(optimizer.State());
  if (statistics.numbers() > 0) files[kStatisticsFile] = statistics.Save();
  if (part == Agent::Part::kRun) return files;
  files[kSlotsFile] = acting.SaveSlots();
  NamedTensors versions;
  for (const auto& [number, network] : acting.versions().all())
    for (const auto& [name, tensor] : NamedParameters(*network))
      versions[std::to_string(number) + "/" + name] = tensor;
  files[kVersionsFile] = TensorsToFile(versions);
  return files;
}

Status RestoreAgent(const std::map<std::string, std::string>& files, Agent::Part part,
                    const LearnerState& state) {
  const bool slots = part == Agent::Part::kSlots;
  // everything is read and compared before anything is changed
  ASSIGN_OR_RETURN(const auto weights,
                   TensorsFromFile(files, Agent::kWeightsFile, state.parameters));
  ASSIGN_OR_RETURN(const uint64_t version,
                   NumberOfFile(files.at(Agent::kWeightsFile), Agent::kWeightsFile, "version"));
  NetworkStatistics statistics = state.statistics;
  const auto saved_statistics = files.find(kStatisticsFile);
  if (saved_statistics != files.end()) {
    RETURN_IF_ERROR(statistics.Restore(saved_statistics->second).Annotate(kStatisticsFile));
  } else if (part != Agent::Part::kWeights && statistics.numbers() > 0) {
    return {Code::kBadData, std::string("holds no ") + kStatisticsFile};
  }
  NamedTensors optimizer;
  if (part != Agent::Part::kWeights || files.contains(kOptimizerFile)) {
    ASSIGN_OR_RETURN(optimizer, FromSafetensors(files, kOptimizerFile));
    RETURN_IF_ERROR(state.optimizer.Restore(optimizer));
  }
  std::map<uint64_t, NamedTensors> versions;
  if (slots) {
    ASSIGN_OR_RETURN(const auto all, FromSafetensors(files, kVersionsFile));
    for (const auto& [name, tensor] : all) {
      const size_t slash = name.find('/');
      if (slash == std::string::npos)
        return {Code::kBadData, std::string(kVersionsFile) + ": " + name + " names no version"};
      versions[std::strtoull(name.c_str(), nullptr, 10)][name.substr(slash + 1)] = tensor;
    }
    for (const auto& [number, tensors] : versions)
      RETURN_IF_ERROR(SameShapes(tensors, NamedParameters(state.network), kVersionsFile));
    const auto memory = files.find(kSlotsFile);
    if (memory == files.end()) return {Code::kBadData, std::string("holds no ") + kSlotsFile};
    RETURN_IF_ERROR(state.acting.RestoreSlots(memory->second));
  }
  const torch::NoGradGuard no_gradient;
  const auto named = NamedParameters(state.network);
  for (const auto& [number, tensors] : versions) {
    for (const auto& [name, tensor] : named) {
      torch::Tensor to = tensor;
      to.copy_(tensors.at(name));
    }
    state.acting.Publish(number, state.network);
  }
  for (auto& [name, parameter] : state.parameters) parameter.copy_(weights.at(name));
  if (saved_statistics == files.end()) statistics.Assume(state.network);
  state.statistics = std::move(statistics);
  if (part != Agent::Part::kWeights) state.version = version;
  if (!slots) state.acting.Publish(state.version, state.network);
  return Status::Ok();
}

}  // namespace samara
