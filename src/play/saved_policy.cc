#include "play/saved_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/parse_number.h"
#include "evo/evaluate/reference.h"
#include "fleet/named_environment.h"
#include "nn/agent_layout.h"
#include "nn/safetensors.h"
#include "nn/torch_layout.h"
#include "play/environment_setup.h"
#include "play/initial_policy.h"
#include "play/network_module.h"
#include "play/rebuilt_run.h"
#include "rl/learner/agent.h"
#include "storage/agent_state.h"
#include "storage/evolution_journal.h"
#include "storage/run_folder.h"
#include "storage/sealed_json.h"

namespace samara {
namespace {

constexpr char kFormat[] = "samara-policy-1", kAgentFormat[] = "samara-agent-2",
               kFirstAgentFormat[] = "samara-agent-1";  // the learner's own names and layout
constexpr char kEntropyCost[] = "entropy_cost";
constexpr char kDigits[] = "0123456789abcdef";

std::string ToHex(std::string_view bytes) {
  std::string text;
  for (char c : bytes)
    text += {kDigits[static_cast<uint8_t>(c) >> 4], kDigits[static_cast<uint8_t>(c) & 15]};
  return text;
}

Result<std::string> FromHex(std::string_view text) {
  std::string bytes;
  if (text.size() % 2 != 0) return Status(Code::kBadData, "a genome is not hexadecimal");
  for (size_t i = 0; i < text.size(); i += 2) {
    const auto digit = [](char c) { return static_cast<int>(std::string_view(kDigits).find(c)); };
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return Status(Code::kBadData, "a genome is not hexadecimal");
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

Result<NetworkDescription> NetworkFromJson(const nlohmann::json& json) {
  constexpr char kSource[] = "network record";
  const auto size = [&](const char* key) -> Result<int64_t> {
    ASSIGN_OR_RETURN(const uint64_t count, CountMember(json, key, kSource));
    return static_cast<int64_t>(std::min<uint64_t>(count, INT32_MAX));  // far beyond any
  };
  ASSIGN_OR_RETURN(const std::string name, TextMember(json, "name", kSource));
  ASSIGN_OR_RETURN(const int64_t height, size("height"));
  ASSIGN_OR_RETURN(const int64_t width, size("width"));
  ASSIGN_OR_RETURN(const int64_t channels, size("channels"));
  ASSIGN_OR_RETURN(const int64_t outputs, size("outputs"));
  ASSIGN_OR_RETURN(NetworkDescription network, MakeNetwork(name, height, width, channels, outputs));
  if (!json.contains("storage")) return network;
  ASSIGN_OR_RETURN(const std::string storage, TextMember(json, "storage", kSource));
  ASSIGN_OR_RETURN(const Storage parsed, ParseStorage(storage));
  RETURN_IF_ERROR(SetStorage(parsed, network));
  return network;
}

Status NotFinite(const std::string& what, bool advise) {
  return {Code::kBadData, what +
                              " is not a finite number, so what is played would mean nothing; "
                              "expected another file" +
                              (advise ? ", or --allow-nonfinite" : "")};
}

Status CheckFinite(const Policy& policy, bool advise) {
  for (size_t i = 0; i < policy.parameters.size(); ++i)
    if (!std::isfinite(policy.parameters[i]))
      return NotFinite(fmt::format("parameter {}", i), advise);
  for (const auto& [file, bytes] : policy.agent_files) {
    ASSIGN_OR_RETURN(const Safetensors weights, ParseSafetensors(bytes));
    for (const auto& [name, tensor] : weights.tensors) {
      if (tensor.type != Tensor::Type::kFloat32) continue;
      const std::vector<float> values = tensor.Floats();
      for (size_t i = 0; i < values.size(); ++i)
        if (!std::isfinite(values[i]))
          return NotFinite(fmt::format("weight {} of {}", i, Shown(name)), advise);
    }
  }
  return Status::Ok();
}

// "FOLDER: belongs to another user", or nothing: of a run and of what in it chooses code, or of a
// file.
Result<std::string> WhoElse(const Path& path) {
  std::error_code ignored;
  for (const Path& place : {path, path / "config.toml"}) {
    if (place != path && !std::filesystem::exists(place, ignored)) continue;
    ASSIGN_OR_RETURN(const FolderTrust trust, InspectTrust(place));
    if (trust.foreign || trust.writable) return trust.why;
  }
  return std::string();
}

// A learner's weights as PyTorch's modules have them. The cost of the entropy, which is learned
// too, is no part of the network: it becomes metadata.
Result<Safetensors> ExportedAgent(const std::string& weights) {
  ASSIGN_OR_RETURN(Safetensors agent, ParseSafetensors(weights));
  if (const auto cost = agent.tensors.extract(kEntropyCost); !cost.empty()) {
    const Tensor& tensor = cost.mapped();
    if (tensor.type != Tensor::Type::kFloat32 || tensor.bytes.size() != sizeof(float))
      return Status(Code::kBadData, fmt::format("{}: expected one float32", kEntropyCost));
    agent.metadata[kEntropyCost] = fmt::format("{}", tensor.Floats()[0]);
  }
  ASSIGN_OR_RETURN(agent.tensors, AgentToTorch(agent.tensors));
  return agent;
}

// And back, as an agent restores itself from them.
Result<std::string> ImportedAgent(Safetensors agent) {
  ASSIGN_OR_RETURN(agent.tensors, AgentFromTorch(agent.tensors));
  if (const auto cost = agent.metadata.extract(kEntropyCost); !cost.empty()) {
    const auto value = ParseNumber<float>(cost.mapped());
    if (!value)
      return Status(Code::kBadData, fmt::format("{} is {} in the metadata, expected a number",
                                                kEntropyCost, Shown(cost.mapped())));
    agent.tensors[kEntropyCost] = Tensor::OfFloats({}, {&*value, 1});
  }
  agent.metadata.emplace("version", "0");
  return FormatSafetensors(agent);
}

}  // namespace

Status TakeReference(std::string_view reference, Policy& policy) {
  const NetworkDescription& network = policy.network;
  if (!network.needs_reference()) return Status::Ok();
  if (reference.empty())
    return {Code::kBadData, "the journal lacks the reference batch of " + network.name +
                                ": 'samara train --resume' makes it again"};
  // the dtype of the batch is in its tensor
  PolicyModel model(
      network, {},
      {.discrete = true, .n = static_cast<int64_t>(network.output_size()), .low = {}, .high = {}});
  ASSIGN_OR_RETURN(auto inputs, DecodeReference(model, reference));
  model.SetReference(std::move(inputs));
  PolicyWorkspace workspace(model);
  model.ComputeStatistics(workspace, policy.parameters);
  return Status::Ok();
}

namespace {

bool IsPlain(const LoadOptions& options) {
  return options.individual == "elite" && options.generation < 0;
}

// A learning run's newest agent, or the best of its evaluations.
Status TakeAgent(const RunFolder& folder, const LoadOptions& options, Policy& policy) {
  const std::string run = folder.path().string();
  const bool best = options.individual == "best" && options.generation < 0;
  if (!best && !IsPlain(options))
    return {Code::kUsage, run +
                              ": a learning run holds its newest agent and, with --individual "
                              "best, the best of its evaluations; other names and --generation "
                              "are for the run of an evolution"};
  ASSIGN_OR_RETURN(StoredCheckpoint checkpoint, LatestAgent(folder, OnBadCheckpoint::kSkip));
  const char* name = best ? AgentState::kBestWeights : Agent::kWeightsFile;
  const auto weights = checkpoint.files.find(name);
  if (weights == checkpoint.files.end() && best)
    return {Code::kNoInput, run +
                                ": holds no evaluated agent; learn.evaluate_every=FRAMES or "
                                "run.stop_at=SCORE has agents evaluated"};
  if (weights == checkpoint.files.end())
    return {Code::kBadData, checkpoint.path.string() + ": holds no " + name};
  policy.agent_files[Agent::kWeightsFile] = std::move(weights->second);
  policy.source = run + ", agent of update " + std::to_string(checkpoint.info.step);
  if (!best) return Status::Ok();
  ASSIGN_OR_RETURN(const AgentState state, AgentState::Decode(checkpoint.files["state.bin"]));
  if (state.best)
    policy.source =
        fmt::format("{}, the agent evaluated best, after {} frames", run, state.best->frames);
  return Status::Ok();
}

Result<Policy> FromRun(const Path& run, const LoadOptions& options) {
  ASSIGN_OR_RETURN(const auto folder, RunFolder::Open(run, RunFolder::Mode::kRead));
  Policy policy;
  ASSIGN_OR_RETURN(policy.config.env.untrusted, WhoElse(run));
  policy.config.ChooseAlgorithm(folder->config_toml());
  ConfigTable table = policy.config.Table();
  RETURN_IF_ERROR(
      table.ParseToml(folder->config_toml(), "config.toml", ConfigTable::Origin::kRecorded)
          .Annotate(run.string()));
  if (policy.config.Learns()) {
    RETURN_IF_ERROR(TakeModule(*folder, policy.config.learning.network));
    RETURN_IF_ERROR(TakeAgent(*folder, options, policy));
    return policy;
  }
  ASSIGN_OR_RETURN(const FoundIndividual found,
                   FindIndividual(run, options.individual, options.generation));
  ASSIGN_OR_RETURN(policy.network, NetworkOf(*folder));
  ASSIGN_OR_RETURN(const auto initial, InitialPolicyOf(*folder, policy.network));
  RETURN_IF_ERROR(
      TakeCandidate(found.candidate, policy, initial ? &*initial : nullptr).Annotate(run.string()));
  if (!policy.config.evolution->KeepsStatistics(policy.network))
    RETURN_IF_ERROR(TakeReference(found.reference, policy).Annotate(run.string()));
  policy.source = run.string() + ", " + found.about;
  return policy;
}

// Reads the configuration of a policy file, which is not trusted.
Status TakeConfig(const std::string& toml, const Path& file, ExperimentConfig& config) {
  config.ChooseAlgorithm(toml);
  RETURN_IF_ERROR(config.Table().ParseToml(toml, "metadata", ConfigTable::Origin::kRecorded));
  if (ChoosesCode(config.env))
    config.env.untrusted = file.string() + ": its env.id=" + Shown(config.env.id) +
                           (GymOptionsOf(config.env).empty() ? "" : ", its kwargs or wrappers") +
                           " runs code of its own, such as a Python module";
  return Status::Ok();
}

}  // namespace

Result<Policy> ParsePolicy(const std::string& bytes, const std::string& source) {
  const Path file(source);
  if (bytes.empty())
    return Status(Code::kBadData, "an empty file, expected a run folder or a policy file");
  ASSIGN_OR_RETURN(const Safetensors tensors, ParseSafetensors(bytes));
  const auto get = [&](const char* key) {
    const auto it = tensors.metadata.find(key);
    return it == tensors.metadata.end() ? std::string() : it->second;
  };
  Policy policy;
  policy.source = source;
  if (get("format") == kAgentFormat || get("format") == kFirstAgentFormat) {
    RETURN_IF_ERROR(TakeConfig(get("config"), file, policy.config));
    if (!policy.config.Learns()) return Status(Code::kBadData, "the metadata name no agent");
    policy.agent_files[Agent::kWeightsFile] = bytes;
    if (get("format") == kAgentFormat) {
      ASSIGN_OR_RETURN(policy.agent_files[Agent::kWeightsFile], ImportedAgent(tensors));
    }
    return policy;
  }
  if (get("format") != kFormat) {
    return Status(Code::kBadData, "not a policy file (metadata format '" + Shown(get("format")) +
                                      "', expected '" + kFormat + "' or '" + kAgentFormat +
                                      "'): make one with 'samara export' or 'samara import'");
  }
  RETURN_IF_ERROR(TakeConfig(get("config"), file, policy.config));
  const auto network = nlohmann::json::parse(get("network"), nullptr, /*allow_exceptions=*/false);
  if (!network.is_object()) return Status(Code::kBadData, "the metadata lack the network");
  ASSIGN_OR_RETURN(policy.network, NetworkFromJson(network));
  std::vector<TorchTensor> list;
  for (const auto& [name, tensor] : tensors.tensors) {
    if (tensor.type != Tensor::Type::kFloat32)
      return Status(Code::kBadData, Shown(name) + ": expected float32");
    list.push_back({name, tensor.shape, tensor.Floats()});
  }
  ASSIGN_OR_RETURN(policy.parameters, FromTorchLayout(policy.network, list));
  if (!get("genome").empty()) {
    ASSIGN_OR_RETURN(const std::string genome, FromHex(get("genome")));
    ASSIGN_OR_RETURN(policy.genome, Genome::Decode(genome));
  }
  return policy;
}

Result<NetworkDescription> NetworkOf(const RunFolder& run) {
  return NetworkFromJson(run.identity().value("network", nlohmann::json::object()));
}

nlohmann::json ToJson(const NetworkDescription& n) {
  return {{"name", n.name},
          {"height", n.height},
          {"width", n.width},
          {"channels", n.channels},
          {"outputs", n.output_size()},
          {"parameters", n.parameter_count},
          {"storage", Name(n.storage)}};
}

Status CheckFits(const Policy& policy, const EnvironmentSetup& setup) {
  const NetworkDescription& network = setup.network();
  if (policy.parameters.size() == network.parameter_count) return Status::Ok();
  return {Code::kConfig,
          fmt::format("{}: {} parameters, expected {} for {} on {}; leave network.* and env.* as "
                      "the policy has them",
                      policy.source, policy.parameters.size(), network.parameter_count,
                      Shown(network.name), Shown(setup.environment.id))};
}

Status CheckOwn(const Path& path) {
  ASSIGN_OR_RETURN(const std::string why, WhoElse(path));
  if (why.empty()) return Status::Ok();
  return {Code::kNotPermitted, why + ": expected --trust if you trust who can change it"};
}

bool ChoosesAllCode(const ExperimentConfig& config, const std::vector<std::string>& overrides) {
  return !ChoosesCode("", GymOptionsOf(config.env)) && config.learning.network.module.empty() &&
         std::any_of(overrides.begin(), overrides.end(),
                     [](const std::string& word) { return word.starts_with("env.id="); });
}

Status TakeCandidate(const Candidate& best, Policy& policy, const InitialPolicy* initial) {
  ASSIGN_OR_RETURN(policy.parameters, ParametersOf(best, policy.network, initial));
  if (const auto* genome = std::get_if<Genome>(&best)) policy.genome = *genome;
  return Status::Ok();
}

Result<Policy> LoadPolicy(const Path& target, const LoadOptions& options) {
  std::error_code ignored, failed;
  if (!std::filesystem::exists(target, failed)) {
    if (failed == std::errc::permission_denied)
      return Status(Code::kNotPermitted,
                    target.string() + ": " + failed.message() + ": its owner can let you read it");
    return Status(Code::kNoInput, target.string() +
                                      ": no such run folder or policy file: give the path that "
                                      "samara train or samara export printed");
  }
  const bool folder = std::filesystem::is_directory(target, ignored);
  const auto from_file = [&]() -> Result<Policy> {
    if (!IsPlain(options))
      return Status(Code::kUsage, target.string() +
                                      ": holds one policy; --individual and "
                                      "--generation are for run folders");
    if (target.extension() == ".toml")
      return Status(Code::kNoInput,
                    target.string() + ": a TOML file; expected a run folder or a policy file");
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(target));
    return ParsePolicy(bytes, target.string());
  };
  auto policy = folder ? FromRun(target, options) : from_file();
  if (policy.ok() && !options.allow_nonfinite)
    if (Status status = CheckFinite(*policy, options.advise_nonfinite); !status.ok())
      policy = status.Annotate(target.string());
  if (!policy.ok()) {
    const bool named = folder || policy.status().message().starts_with(target.string());
    return named ? policy.status() : policy.status().Annotate(target.string());
  }
  const bool chosen = ChoosesAllCode(policy->config, options.overrides);
  ConfigTable table = policy->config.Table();
  AgentNetworkKeys& network = policy->config.learning.network;
  const std::string module = network.module;
  for (const std::string& word : options.overrides) RETURN_IF_ERROR(table.Override(word));
  policy->overridden = std::ranges::any_of(options.overrides, [](const std::string& word) {
    return word.starts_with("env.") || word.starts_with("network.");
  });
  if (network.module != module) RETURN_IF_ERROR(TakeModule(network));
  if (network.module != module)
    return Status(Code::kConfig, "network.module=" + Shown(network.module) + ": the policy has " +
                                     (module.empty() ? "none" : Shown(module)) +
                                     "; expected that module, or it left out");
  if (options.trust || chosen) policy->config.env.untrusted.clear();
  return policy;
}

size_t ParameterCount(const Policy& policy) {
  const auto weights = policy.agent_files.find(Agent::kWeightsFile);
  if (weights == policy.agent_files.end()) return policy.parameters.size();
  size_t count = 0;
  if (const auto parsed = ParseSafetensors(weights->second); parsed.ok())
    for (const auto& [name, tensor] : parsed->tensors)
      if (tensor.type == Tensor::Type::kFloat32) count += tensor.bytes.size() / sizeof(float);
  return count;
}

Status SavePolicy(const Policy& policy, const Path& file) {
  if (policy.config.Learns()) {
    Policy copy = policy;
    ASSIGN_OR_RETURN(Safetensors tensors, ExportedAgent(copy.agent_files[Agent::kWeightsFile]));
    tensors.metadata["format"] = kAgentFormat;
    tensors.metadata["config"] = copy.config.Table().ToToml();
    tensors.metadata["source"] = policy.source;
    ASSIGN_OR_RETURN(const std::string bytes, FormatSafetensors(tensors));
    return WriteFileAtomic(file, bytes);
  }
  ASSIGN_OR_RETURN(const std::string bytes, FormatPolicy(policy, policy.network.storage));
  return WriteFileAtomic(file, bytes);
}

Result<std::string> FormatPolicy(const Policy& policy, Storage storage) {
  Safetensors tensors;
  NetworkDescription stored = policy.network;
  stored.storage = storage;
  std::vector<float> used = policy.parameters;
  RoundToStorage(stored, used);
  for (const TorchTensor& t : ToTorchLayout(policy.network, used)) {
    tensors.tensors[t.name] = Tensor::OfFloats(t.shape, t.values);
  }
  Policy copy = policy;
  tensors.metadata = {{"format", kFormat},
                      {"config", copy.config.Table().ToToml()},
                      {"network", ToJson(policy.network).dump()},
                      {"source", policy.source}};
  if (policy.genome) tensors.metadata["genome"] = ToHex(policy.genome->Encode());
  return FormatSafetensors(tensors);
}

Result<NetworkDescription> PolicyNetwork(const ExperimentConfig& config) {
  ExperimentConfig one = config;
  one.fleet.actors = one.fleet.slots = 1;
  ASSIGN_OR_RETURN(const EnvironmentSetup setup, SetUpEvolution(one));
  return setup.network();
}

}  // namespace samara
