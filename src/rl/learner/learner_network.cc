#include "rl/learner/learner_network.h"

#include <string>

namespace samara {
namespace {

constexpr uint64_t kSequenceBytesMax = 1 << 30;
constexpr int64_t kActionInputMax = 4096;  // inputs that say which action was the last

Status Refusal(std::string why) { return {Code::kConfig, std::move(why)}; }

// The network as the keys describe it.
Result<AgentNetworkConfig> Described(const AgentSetup& setup, const InputLayout& layout,
                                     const ReplayUse* replay) {
  const ActionDistribution distribution = MakeDistribution(setup.environment.action);
  const AgentNetworkKeys& keys = setup.config.network;
  AgentNetworkConfig network;
  network.torso = keys.text();
  network.height = layout.height, network.width = layout.width, network.channels = layout.channels;
  network.outputs = distribution.parameters();
  network.core = keys.core();
  network.reward_input = keys.reward_input;
  network.initializer = keys.initializer;
  network.bfloat16 = keys.precision == Precision::kBfloat16;
  network.separate_value = keys.value == ValueTorso::kSeparate;
  network.normalize_value = keys.normalize_value;
  network.device = ToTorch(setup.learns_on);
  network.native = !setup.as_on_gpu && !setup.learns_on.cuda;
  network.head = keys.head;
  if (replay != nullptr)
    network.policy_bias = replay->policy_bias, network.reward_clip = replay->reward_clip;
  if (keys.deviation == Deviation::kFree) {
    if (!distribution.continuous())
      return Refusal(
          "network.deviation=free: the environment's actions are discrete; expected network");
    network.free_half = DeviationParameter(keys.initial_deviation);
  }
  if (keys.action_input && distribution.continuous())
    return Refusal(
        "network.action_input=true: the environment's actions are continuous; expected false");
  if (keys.action_input && setup.environment.action.n > kActionInputMax)
    return Refusal("network.action_input=true: the environment has " +
                   std::to_string(setup.environment.action.n) + " actions; expected at most " +
                   std::to_string(kActionInputMax));
  if (keys.action_input) network.action_input = setup.environment.action.n;
  if (keys.module.empty()) return network;
  if (keys.module_bytes == nullptr)
    return Refusal("network.module=" + keys.module +
                   ": the module itself is not here; expected network.module=FILE, module.pt of "
                   "the policy's run");
  ASSIGN_OR_RETURN(network.module, TorsoFile::Make(keys.module_bytes, network.module_input()));
  return network;
}

Status CheckReplay(const AgentSetup& setup, const InputLayout& layout) {
  const LearningConfig& config = setup.config;
  const ActionSpec& action = setup.environment.action;
  if (!action.discrete || !action.sizes.empty())
    return Refusal("run.algorithm=" + config.algorithm +
                   ": expected an environment with one discrete action");
  RETURN_IF_ERROR(CheckNoTargetEntropy(config));
  const auto entries = static_cast<uint64_t>(config.learn.unroll + config.own->overlap() + 1);
  if (entries * layout.plane_bytes > kSequenceBytesMax)
    return Refusal("learn.unroll=" + std::to_string(config.learn.unroll) +
                   ": a sequence's observations are beyond a gigabyte; expected fewer steps");
  return Status::Ok();
}

}  // namespace

Result<AgentNetworkConfig> LearningNetwork(const AgentSetup& setup, const InputLayout& layout,
                                           const ReplayUse* replay) {
  ASSIGN_OR_RETURN(const AgentNetworkConfig network, Described(setup, layout, replay));
  RETURN_IF_ERROR(AgentNetworkImpl::Make(network).status());
  if (replay != nullptr) RETURN_IF_ERROR(CheckReplay(setup, layout));
  return network;
}

AgentNetworkConfig InferringNetwork(AgentNetworkConfig learning, const AgentSetup& setup) {
  learning.device = ToTorch(setup.infers_on);
  learning.native = !setup.as_on_gpu && !setup.infers_on.cuda;
  return learning;
}

}  // namespace samara
