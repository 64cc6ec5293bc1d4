// V-trace, off-policy actor-critic targets: Espeholt et al. 2018, arXiv 1802.01561, section 4.1;
// its losses, section 4.2. Entry t is the transition from x_t under a_t, which pays reward t and
// ends the episode or does not.
//
// Tensors are time-major, [T][B] float32 unless said otherwise, on any device. Nothing here keeps
// state.
#pragma once

#include "nn/torch/torch.h"
#include "rl/algorithms/vtrace_config.h"
#include "rl/learner/entropy_cost.h"

namespace samara {

struct VtraceInput {
  torch::Tensor log_rho;                // log pi(a_t | x_t) - log mu(a_t | x_t)
  torch::Tensor reward;                 // paid by the transition
  torch::Tensor terminated, truncated;  // bool: how the transition ended the episode, if it did
  torch::Tensor value;                  // V(x_t)
  torch::Tensor final_value;            // V(final observation) where truncated; not read elsewhere
  torch::Tensor bootstrap;              // [B]: V(x_T)
};

// No gradient flows through any.
struct VtraceTargets {
  torch::Tensor value;       // v_t, what V(x_t) is to become
  torch::Tensor advantage;   // importance weight included: the policy's loss is -log pi times this
  torch::Tensor unweighted;  // without it: for the clipped objective, whose ratio is the weight
};
VtraceTargets Vtrace(const VtraceConfig& config, const VtraceInput& input);

struct VtraceLoss {
  torch::Tensor total;                       // scalar with gradient
  torch::Tensor policy, value, entropy, kl;  // scalars, parts of the total before their costs
  torch::Tensor mean_entropy;
};
// `log_pi`, `log_mu`, `entropy`: of the policy's distribution at (x_t, a_t). `value` has a
// gradient.
VtraceLoss MakeVtraceLoss(const VtraceLossConfig& config, const VtraceTargets& targets,
                          const torch::Tensor& log_pi, const torch::Tensor& log_mu,
                          const torch::Tensor& entropy, const torch::Tensor& value,
                          const EntropyCost& entropy_cost);

}  // namespace samara
