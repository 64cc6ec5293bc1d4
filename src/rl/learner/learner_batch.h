// Unrolls as tensors, time-major, for a learner.
#pragma once

#include <span>

#include "nn/torch/agent_network.h"
#include "nn/torch/torch_device.h"
#include "rl/inference/model.h"
#include "rl/learner/input_tensors.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// B unrolls of F entries each; with final observations of truncated episodes apart.
struct LearnerBatch {
  torch::Tensor observation;            // [F][B][h][w][c]
  torch::Tensor reward, raw_reward;     // [F][B] float32: of the step that led to the entry
  torch::Tensor previous_action;        // [F][B] int64
  torch::Tensor first;                  // [F][B] bool: stack and state begin here
  torch::Tensor terminated, truncated;  // [F][B] bool: how the step that led here ended
  torch::Tensor action;     // [F][B][1] int64 index, or [F][B][components] float32 samples
  torch::Tensor behaviour;  // [F][B][parameters]
  torch::Tensor state;      // [B][state]: entering entry 0
  // the final observations, K in all
  torch::Tensor final_observation;          // [1][K][h][w][c]
  torch::Tensor final_entry, final_unroll;  // [K] int64: of the first entry after it
};

// `unrolls` are whole: F entries. Observations are written into `inputs`, which is kept for the
// next call.
LearnerBatch MakeLearnerBatch(std::span<const Unroll* const> unrolls, const InputLayout& layout,
                              const ModelShape& shape, bool continuous, torch::Tensor& inputs);
// The same on the device of `upload`, in one copy, until its next use: frames cross once and are
// stacked there.
LearnerBatch MakeLearnerBatch(std::span<const Unroll* const> unrolls, const InputLayout& layout,
                              const ModelShape& shape, bool continuous, Upload& upload);

// The network's outputs for the final observations, [1][K], in the state that followed the last
// observation before each. `states` [F - 1 or more][B][state]: after each entry; undefined without
// a core. Without a gradient. REQUIRES: there are some.
AgentNetworkImpl::Output EvaluateFinals(const LearnerBatch& batch, AgentNetworkImpl& network,
                                        const torch::Tensor& states);

}  // namespace samara
