// A network and batches for the tests of losses.
#pragma once

#include "nn/torch/agent_network.h"
#include "rl/learner/learner_batch.h"

namespace samara::batch_test {

constexpr int64_t kActions = 3, kInputs = 2;

inline AgentNetwork SmallNetwork(bool normalize_value = false) {
  torch::manual_seed(5);
  return AgentNetworkImpl::Make({.torso = "mlp-4-tanh",
                                 .height = 1,
                                 .width = 1,
                                 .channels = kInputs,
                                 .outputs = kActions,
                                 .normalize_value = normalize_value})
      .ValueOrThrow();
}

// T steps of B streams, and what follows the last of them; final observations where truncated.
inline LearnerBatch RandomBatch(const torch::Tensor& reward, const torch::Tensor& terminated,
                                const torch::Tensor& truncated) {
  const int64_t t = reward.size(0), b = reward.size(1);
  const auto behind = [](const torch::Tensor& x) {
    return torch::cat({torch::zeros_like(x.slice(0, 0, 1)), x});
  };
  LearnerBatch batch;
  batch.observation = torch::randn({t + 1, b, 1, 1, kInputs});
  batch.reward = behind(reward);
  batch.terminated = behind(terminated), batch.truncated = behind(truncated);
  batch.first = batch.terminated | batch.truncated;
  batch.previous_action = torch::zeros({t + 1, b}, torch::kInt64);
  batch.action = torch::randint(kActions, {t + 1, b, 1}, torch::kInt64);
  batch.behaviour = torch::zeros({t + 1, b, kActions});
  batch.state = torch::zeros({b, 0});
  const torch::Tensor ends = batch.truncated.nonzero();
  batch.final_entry = ends.select(1, 0).contiguous();
  batch.final_unroll = ends.select(1, 1).contiguous();
  batch.final_observation = torch::randn({1, ends.size(0), 1, 1, kInputs});
  return batch;
}

}  // namespace samara::batch_test
