#include "play/acting_policy.h"

#include "core/rng.h"
#include "play/environment_setup.h"
#include "play/run_episodes.h"
#include "rl/algorithms/registry.h"

namespace samara {
namespace {

Status CheckSize(const EnvironmentSpec& environment, std::span<const std::byte> observation) {
  const size_t expected = environment.observation.bytes();
  if (observation.size() == expected) return Status::Ok();
  return {Code::kConfig, environment.id + ": an observation of " +
                             std::to_string(observation.size()) + " bytes, expected " +
                             std::to_string(expected)};
}

// Key of the draws of an episode that this program does not see the seed of.
uint64_t DrawKey(uint32_t memory, uint64_t episode) {
  return DeriveKey(0, Purpose::kPolicyAction, memory, episode);
}

class EvolvedPolicy : public ActingPolicy {
 public:
  EvolvedPolicy(EnvironmentSetup setup, std::vector<float> parameters, uint32_t memories)
      : setup_(std::move(setup)),
        parameters_(std::move(parameters)),
        workspace_(*setup_.model),
        states_(memories),
        episodes_(memories) {}

  const EnvironmentSpec& environment() const override { return setup_.environment; }
  bool greedy() const override { return true; }

  Result<Action> Decide(const DecisionRequest& request) override {
    RETURN_IF_ERROR(CheckSize(setup_.environment, request.observation));
    auto& state = states_.at(request.memory);
    const bool first = request.first || state == nullptr;
    if (state == nullptr) {
      state = std::make_unique<PolicyState>(*setup_.model);
      state->Load(workspace_, {0, 0}, FixedParameters(parameters_));
    }
    if (first) state->StartEpisode({.seed = DrawKey(request.memory, episodes_[request.memory]++)});
    return state->Decide(workspace_, request.observation);
  }

 private:
  const EnvironmentSetup setup_;
  const std::vector<float> parameters_;
  PolicyWorkspace workspace_;
  std::vector<std::unique_ptr<PolicyState>> states_;  // made by their first observation
  std::vector<uint64_t> episodes_;
};

class LearnedPolicy : public ActingPolicy {
 public:
  LearnedPolicy(EnvironmentSpec environment, std::unique_ptr<Agent> agent, const LearnConfig& learn,
                uint32_t memories)
      : environment_(std::move(environment)),
        agent_(std::move(agent)),
        rewards_(learn.rewards),
        greedy_(learn.test_greedy || agent_->explores()),
        batch_(agent_->shape(), 1),
        memories_(memories) {}

  const EnvironmentSpec& environment() const override { return environment_; }
  bool greedy() const override { return greedy_; }

  Result<Action> Decide(const DecisionRequest& request) override {
    RETURN_IF_ERROR(CheckSize(environment_, request.observation));
    Memory& memory = memories_.at(request.memory);
    const bool first = request.first || memory.episodes == 0;
    if (first) memory = {.episodes = memory.episodes + 1};
    batch_.version = InferenceBatch::kNewest;
    batch_.rows.assign(1, {.slot = request.memory,
                           .first = first,
                           .greedy = request.greedy || agent_->explores(),
                           .reward = LearnersReward(rewards_, request.reward),
                           .previous_action = memory.action,
                           .step = memory.steps++,
                           .key = DrawKey(request.memory, memory.episodes),
                           .observation = request.observation});
    RETURN_IF_ERROR(agent_->Infer(batch_));
    if (batch_.status[0] != InferenceBatch::RowStatus::kOk)
      return Status(Code::kUnavailable, "the network's output is not a finite number");
    memory.action = batch_.index.empty() ? 0 : batch_.index[0];
    return Action{memory.action, std::span(batch_.actions).first(agent_->shape().actions)};
  }

 private:
  struct Memory {
    uint64_t episodes = 0;
    uint32_t steps = 0;
    int32_t action = 0;
  };
  const EnvironmentSpec environment_;
  const std::unique_ptr<Agent> agent_;
  const RewardMode rewards_;  // that the agent sees
  const bool greedy_;
  InferenceBatch batch_;
  std::vector<Memory> memories_;
};

}  // namespace

Result<std::unique_ptr<ActingPolicy>> MakeActingPolicy(const Policy& policy, uint32_t memories) {
  ExperimentConfig config = policy.config;
  config.fleet.actors = config.fleet.slots = 1;
  if (config.Learns()) {
    ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpLearning(config, 1));
    ASSIGN_OR_RETURN(auto agent, MakePolicyAgent(policy, setup, memories));
    return std::unique_ptr<ActingPolicy>(std::make_unique<LearnedPolicy>(
        setup.environment, std::move(agent), config.learning.learn, memories));
  }
  ASSIGN_OR_RETURN(EnvironmentSetup setup, SetUpEvolution(config));
  RETURN_IF_ERROR(CheckFits(policy, setup));
  setup.fleet.reset();
  return std::unique_ptr<ActingPolicy>(
      std::make_unique<EvolvedPolicy>(std::move(setup), policy.parameters, memories));
}

}  // namespace samara
