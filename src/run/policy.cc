#include "run/policy.h"

#include <nlohmann/json.hpp>

#include "evo/materialise.h"
#include "nn/safetensors.h"
#include "nn/torch_layout.h"
#include "run/agent_state.h"
#include "run/evolution_journal.h"
#include "run/run_folder.h"

namespace samara {
namespace {

constexpr char kFormat[] = "samara-policy-1", kAgentFormat[] = "samara-agent-1";
constexpr char kWeights[] = "weights.safetensors";
constexpr char kDigits[] = "0123456789abcdef";

std::string ToHex(std::string_view bytes) {
  std::string text;
  for (char c : bytes)
    text += {kDigits[static_cast<uint8_t>(c) >> 4], kDigits[static_cast<uint8_t>(c) & 15]};
  return text;
}

Result<std::string> FromHex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const auto digit = [](char c) { return static_cast<int>(std::string_view(kDigits).find(c)); };
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return Status(Code::kBadData, "a genome is not hexadecimal");
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

Result<NetworkDescription> NetworkFromJson(const nlohmann::json& j) {
  try {
    ASSIGN_OR_RETURN(NetworkDescription network,
                     MakeNetwork(j.at("name").get<std::string>(), j.at("height"), j.at("width"),
                                 j.at("channels"), j.at("outputs")));
    ASSIGN_OR_RETURN(network.storage, ParseStorage(j.value("storage", "float32")));
    return network;
  } catch (const nlohmann::json::exception& e) {
    return Status(Code::kBadData, std::string("network record: ") + e.what());
  }
}

Result<Policy> FromRun(const Path& run) {
  ASSIGN_OR_RETURN(const auto folder, RunFolder::Open(run, RunFolder::Mode::kRead));
  Policy policy;
  policy.config.ChooseAlgorithm(folder->config_toml());
  ConfigTable table = policy.config.Table();
  RETURN_IF_ERROR(table.ParseToml(folder->config_toml(), "config.toml").Annotate(run.string()));
  if (policy.config.Learns()) {
    ASSIGN_OR_RETURN(Checkpoint checkpoint, LatestAgent(*folder, OnBadCheckpoint::kSkip));
    if (!checkpoint.files.contains(kWeights))
      return Status(Code::kBadData, checkpoint.path.string() + ": holds no " + kWeights);
    policy.agent_files[kWeights] = std::move(checkpoint.files[kWeights]);
    policy.source = run.string() + ", agent of update " + std::to_string(checkpoint.info.step);
    return policy;
  }
  ASSIGN_OR_RETURN(const GenerationRecord record, FindGeneration(run));
  ASSIGN_OR_RETURN(policy.network,
                   NetworkFromJson(folder->identity().value("network", nlohmann::json::object())));
  policy.genome = record.state.elite;
  policy.parameters.resize(policy.network.parameter_count);
  Materialise(*policy.genome, policy.network, policy.parameters);
  policy.source = run.string() + ", elite of generation " + std::to_string(record.state.generation);
  return policy;
}

Result<Policy> FromFile(const Path& file) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  ASSIGN_OR_RETURN(const Safetensors tensors, ParseSafetensors(bytes));
  const auto get = [&](const char* key) {
    const auto it = tensors.metadata.find(key);
    return it == tensors.metadata.end() ? std::string() : it->second;
  };
  if (get("format") == kAgentFormat) {
    Policy policy;
    policy.source = file.string();
    policy.config.ChooseAlgorithm(get("config"));
    RETURN_IF_ERROR(policy.config.Table().ParseToml(get("config"), "metadata"));
    if (!policy.config.Learns()) return Status(Code::kBadData, "the metadata name no agent");
    policy.agent_files[kWeights] = bytes;
    return policy;
  }
  if (get("format") != kFormat) {
    return Status(Code::kBadData, "not a policy file (metadata format '" + get("format") +
                                      "', expected '" + kFormat +
                                      "'): make one with 'samara export' or 'samara import'");
  }
  Policy policy;
  policy.source = file.string();
  policy.config.ChooseAlgorithm(get("config"));
  ConfigTable table = policy.config.Table();
  RETURN_IF_ERROR(table.ParseToml(get("config"), "metadata"));
  const auto network = nlohmann::json::parse(get("network"), nullptr, /*allow_exceptions=*/false);
  if (!network.is_object()) return Status(Code::kBadData, "the metadata lack the network");
  ASSIGN_OR_RETURN(policy.network, NetworkFromJson(network));
  std::vector<TorchTensor> list;
  for (const auto& [name, tensor] : tensors.tensors) {
    if (tensor.type != Tensor::Type::kFloat32)
      return Status(Code::kBadData, name + ": expected float32");
    list.push_back({name, tensor.shape, tensor.Floats()});
  }
  ASSIGN_OR_RETURN(policy.parameters, FromTorchLayout(policy.network, list));
  if (!get("genome").empty()) {
    ASSIGN_OR_RETURN(const std::string genome, FromHex(get("genome")));
    ASSIGN_OR_RETURN(policy.genome, Genome::Decode(genome));
  }
  return policy;
}

}  // namespace

nlohmann::json ToJson(const NetworkDescription& n) {
  return {{"name", n.name},
          {"height", n.height},
          {"width", n.width},
          {"channels", n.channels},
          {"outputs", n.output_size()},
          {"parameters", n.parameter_count},
          {"storage", Name(n.storage)}};
}

Result<Policy> LoadPolicy(const Path& target, const std::string&) {
  std::error_code ignored;
  if (std::filesystem::is_directory(target, ignored)) return FromRun(target);
  if (!std::filesystem::exists(target, ignored)) {
    return Status(Code::kNoInput, target.string() +
                                      ": no such run folder or policy file: give the path that "
                                      "samara train or samara export printed");
  }
  auto policy = FromFile(target);
  if (!policy.ok())
    return policy.status().message().starts_with(target.string())
               ? policy.status()
               : policy.status().Annotate(target.string());
  return policy;
}

size_t ParameterCount(const Policy& policy) {
  const auto weights = policy.agent_files.find(kWeights);
  if (weights == policy.agent_files.end()) return policy.parameters.size();
  size_t count = 0;
  if (const auto parsed = ParseSafetensors(weights->second); parsed.ok())
    for (const auto& [name, tensor] : parsed->tensors) count += tensor.Floats().size();
  return count;
}

Status SavePolicy(const Policy& policy, const Path& file) {
  Safetensors tensors;
  if (policy.config.Learns()) {
    Policy copy = policy;
    ASSIGN_OR_RETURN(tensors, ParseSafetensors(copy.agent_files[kWeights]));
    tensors.metadata["format"] = kAgentFormat;
    tensors.metadata["config"] = copy.config.Table().ToToml();
    tensors.metadata["source"] = policy.source;
    ASSIGN_OR_RETURN(const std::string bytes, FormatSafetensors(tensors));
    return WriteFileAtomic(file, bytes);
  }
  std::vector<float> used = policy.parameters;  // so that whoever reads the file plays the same
  RoundToStorage(policy.network, used);
  for (const TorchTensor& t : ToTorchLayout(policy.network, used)) {
    tensors.tensors[t.name] = Tensor::OfFloats(t.shape, t.values);
  }
  Policy copy = policy;
  tensors.metadata = {{"format", kFormat},
                      {"config", copy.config.Table().ToToml()},
                      {"network", ToJson(policy.network).dump()},
                      {"source", policy.source}};
  if (policy.genome) tensors.metadata["genome"] = ToHex(policy.genome->Encode());
  ASSIGN_OR_RETURN(const std::string bytes, FormatSafetensors(tensors));
  return WriteFileAtomic(file, bytes);
}

Result<NetworkDescription> PolicyNetwork(const ExperimentConfig& config) {
  ExperimentConfig one = config;
  one.fleet.actors = one.fleet.slots = 1;
  ASSIGN_OR_RETURN(const Stage stage, MakeStage(one));
  return stage.network();
}

}  // namespace samara
