// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/evaluate/policy.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/rng.h"

namespace samara {

PolicyModel::PolicyModel(NetworkDescription network, InputRule input, ActionSpec action,
                         IsaLevel isa)
    : kernel_(std::move(network), isa), input_(input), action_(std::move(action)), isa_(isa) {
  CHECK_EQ(kernel_.network().output_size(), static_cast<size_t>(action_.outputs()));
}

std::string PolicyModel::Describe() const {
  const NetworkDescription& n = kernel_.network();
  return nlohmann::json{{"network", n.name},
                        {"storage", Name(n.storage)},
                        {"height", n.height},
                        {"width", n.width},
                        {"channels", n.channels},
                        {"isa", static_cast<int>(isa_)},
                        {"stacked", input_.stacked},
                        {"depth", input_.stack.depth},
                        {"order", static_cast<int>(input_.stack.order)},
                        {"at_reset", static_cast<int>(input_.stack.at_reset)},
                        {"dtype", static_cast<int>(input_.dtype)},
                        {"discrete", action_.discrete},
                        {"actions", action_.n},
                        {"sizes", action_.sizes},
                        {"bins", action_.bins}}
      .dump();
}

Result<std::unique_ptr<PolicyModel>> PolicyModel::FromDescription(std::string_view description) {
  const auto json = nlohmann::json::parse(description, nullptr, /*allow_exceptions=*/false);
  try {
    ActionSpec action;
    action.discrete = json.at("discrete");
    action.n = json.at("actions");
    action.sizes = json.at("sizes").get<std::vector<int64_t>>();
    action.bins = json.at("bins");
    ASSIGN_OR_RETURN(NetworkDescription network,
                     MakeNetwork(json.at("network").get<std::string>(), json.at("height"),
                                 json.at("width"), json.at("channels"), action.outputs()));
    ASSIGN_OR_RETURN(const Storage storage, ParseStorage(json.at("storage").get<std::string>()));
    RETURN_IF_ERROR(SetStorage(storage, network));
    const auto number = [&json](const char* key, int first, int last) {
      const int value = json.at(key).get<int>();
      if (value < first || value > last) throw std::out_of_range(std::string(key));
      return value;
    };
    InputRule input;
    input.stacked = json.at("stacked");
    input.stack = {
        number("depth", 1, 1024),
        static_cast<StackOrder>(number("order", 0, static_cast<int>(StackOrder::kNewestFirst))),
        static_cast<StackReset>(number("at_reset", 0, static_cast<int>(StackReset::kFront)))};
    input.dtype = static_cast<DType>(number("dtype", 0, static_cast<int>(DType::kFloat32)));
    const auto isa = static_cast<IsaLevel>(number("isa", 0, static_cast<int>(IsaLevel::kAvx512)));
    const auto there = AvailableIsaLevels();
    if (std::find(there.begin(), there.end(), isa) == there.end())
      return Status(Code::kConfig, "description of a policy: packed for a CPU with " +
                                       std::string(Name(isa)) + ", which this one lacks");
    return std::make_unique<PolicyModel>(std::move(network), input, std::move(action), isa);
  } catch (const std::out_of_range& error) {
    return Status(Code::kConfig,
                  std::string("description of a policy: out of range: ") + error.what());
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kConfig, std::string("description of a policy: ") + error.what());
  }
}

void PolicyModel::SetReference(std::vector<float> inputs) {
  const size_t size = kernel_.network().input_size();
  CHECK(!inputs.empty() && inputs.size() % size == 0);
  reference_inputs_ = std::move(inputs);
  reference_.clear();
  for (size_t i = 0; i < reference_inputs_.size(); i += size)
    reference_.push_back(reference_inputs_.data() + i);
}

void PolicyModel::ComputeStatistics(PolicyWorkspace& workspace, std::span<float> canonical) const {
  if (!reference_.empty()) kernel_.ComputeStatistics(reference_, *workspace.kernel, canonical);
}

void PolicyModel::Pack(PolicyHandle policy, const ParameterSource& source,
                       PolicyWorkspace& workspace, std::span<float> packed) const {
  source.Write(policy, workspace.Canonical());
  ComputeStatistics(workspace, workspace.Canonical());
  kernel_.Pack(workspace.Canonical(), packed);
}

PolicyState::PolicyState(const PolicyModel& model)
    : model_(model),
      recurrent_(model.kernel().state_size()),
      outputs_(model.kernel().network().output_size()),
      values_(model.action().discrete ? 0 : static_cast<size_t>(model.action().n)) {
  if (model.input().stacked)
    stack_ = std::make_unique<FrameStack>(model.input().stack, model.pixels());
  else
    input_ = AlignedFloats(model.kernel().network().input_size());
}

void PolicyState::Load(PolicyWorkspace& workspace, PolicyHandle policy,
                       const ParameterSource& source) {
  if (policy == kRandomHandle) {
    loaded_ = policy;
    return;
  }
  if (policy == loaded_) return;
  if (packed_.size() == 0) packed_ = AlignedFloats(model_.kernel().packed_size());
  model_.Pack(policy, source, workspace, packed_.span());
  loaded_ = policy;
}

void PolicyState::LoadPacked(std::span<const float> packed) {
  if (packed_.size() == 0) packed_ = AlignedFloats(model_.kernel().packed_size());
  CHECK_EQ(packed.size(), packed_.size());
  std::memcpy(packed_.data(), packed.data(), packed.size_bytes());
  loaded_ = PolicyHandle{0, 0};
}

void PolicyState::StartEpisode(const EpisodeSpec& episode, bool record) {
  seed_ = episode.seed;
  action_noise_ = episode.action_noise;
  step_ = 0;
  recording_ = record;
  if (record && !recorder_)
    recorder_ = std::make_unique<ExperienceRecorder>(model_.kernel().network().input_size(),
                                                     model_.kernel().network().recurrent());
  if (record) recorder_->Start();
  StartSequence();
}

void PolicyState::StartSequence() {
  std::fill_n(recurrent_.data(), recurrent_.size(), 0.0F);
  new_sequence_ = true;
}

const float* PolicyState::TakeObservation(std::span<const std::byte> observation) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(observation.data());
  const auto* floats = reinterpret_cast<const float*>(observation.data());
  const bool is_float = model_.input().dtype == DType::kFloat32;
  if (stack_ != nullptr) {
    const auto take = [&](auto frame) { step_ == 0 ? stack_->Reset(frame) : stack_->Push(frame); };
    if (is_float)
      take(std::span(floats, model_.pixels()));
    else
      take(std::span(bytes, model_.pixels()));
    return stack_->input().data();
  }
  for (size_t i = 0; i < input_.size(); ++i) {
    input_.data()[i] = is_float ? floats[i] : static_cast<float>(bytes[i]) / 255.0F;
  }
  return input_.data();
}

namespace {
// Without a branch: which action it is cannot be foretold.
size_t FirstMaximum(std::span<const float> x) {
  size_t best = 0;
  float top = x[0];
  for (size_t i = 1; i < x.size(); ++i) {
    const bool more = top < x[i];
    top = more ? x[i] : top;
    best += (i - best) * static_cast<size_t>(more);
  }
  return best;
}
}  // namespace

void PolicyState::DrawOutputs() {
  const CounterRng rng(DeriveKey(seed_, Purpose::kRandomPolicy));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs_[i] = static_cast<float>(2 * rng.Uniform(uint64_t{step_} * outputs_.size() + i) - 1);
  }
}

const float* PolicyState::Begin(std::span<const std::byte> observation) {
  if (loaded_ == kRandomHandle) {
    DrawOutputs();
    return nullptr;
  }
  const float* input = TakeObservation(observation);
  if (recording_) recorder_->See(input, new_sequence_);
  return input;
}

void PolicyState::Evaluate(PolicyWorkspace& workspace, std::span<const std::byte> observation) {
  if (const float* input = Begin(observation))
    model_.kernel().Forward(packed_.data(), input, *workspace.kernel, outputs_.data(),
                            recurrent_.data());
}

void PolicyState::EvaluateAll(PolicyWorkspace& workspace, std::span<PolicyState* const> states,
                              std::span<const std::span<const std::byte>> observations) {
  const PopulationKernel& kernel = states.front()->model_.kernel();
  if (states.size() == 1 || !kernel.small()) {
    for (size_t i = 0; i < states.size(); ++i) states[i]->Evaluate(workspace, observations[i]);
    return;
  }
  const float* packed[PopulationKernel::kSideBySide];
  const float* inputs[PopulationKernel::kSideBySide];
  float* outputs[PopulationKernel::kSideBySide];
  size_t n = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    if (const float* input = states[i]->Begin(observations[i])) {
      packed[n] = states[i]->packed_.data();
      inputs[n] = input;
      outputs[n++] = states[i]->outputs_.data();
    }
  }
  kernel.ForwardSmall({packed, n}, {inputs, n}, *workspace.kernel, {outputs, n});
}

Action PolicyState::Decide(PolicyWorkspace& workspace, std::span<const std::byte> observation) {
  Evaluate(workspace, observation);
  return Act();
}

Action PolicyState::Act() {
  new_sequence_ = false;
  ++step_;
  const ActionSpec& action = model_.action();
  if (action.discrete && action.sizes.empty()) {
    return {.index = static_cast<int32_t>(FirstMaximum(outputs_)), .values = {}};
  }
  if (action.discrete) {
    int64_t index = 0;
    size_t part = 0;
    for (const int64_t size : action.sizes) {
      const auto n = static_cast<size_t>(size);
      index = index * size + static_cast<int64_t>(FirstMaximum({&outputs_[part], n}));
      part += n;
    }
    return {.index = static_cast<int32_t>(index), .values = {}};
  }
  std::span<float> chosen = outputs_;  // one number per dimension
  if (action.bins > 0) {
    const auto bins = static_cast<size_t>(action.bins);
    size_t part = 0;
    for (float& value : values_) {
      const size_t best = FirstMaximum({&outputs_[part], bins});
      value = static_cast<float>(2 * best) / static_cast<float>(action.bins - 1) - 1.0F;
      part += bins;
    }
    chosen = values_;
  }
  if (action_noise_ > 0 && loaded_ != kRandomHandle) {
    const CounterRng noise(DeriveKey(seed_, Purpose::kActionNoise));
    for (size_t i = 0; i < chosen.size(); ++i)
      chosen[i] +=
          action_noise_ * static_cast<float>(noise.Normal(uint64_t{step_} * chosen.size() + i));
  }
  if (action.raw) return {.index = 0, .values = outputs_};
  // a NaN output clips to -1: max returns its first argument when the comparison fails
  for (size_t i = 0; i < values_.size(); ++i) {
    values_[i] = std::min(std::max(-1.0F, chosen[i]), 1.0F);
  }
  return {.index = 0, .values = values_};
}

}  // namespace samara
