// Batch normalisation over the batches of all replicas as if they were one.
#pragma once

#include <torch/torch.h>

#include "samara/replicator.h"

namespace samara {

// Normalises channel 1 of [batch, channels, ...] with the statistics of all replicas' batches,
// which may differ in size or have no rows: (count, mean, sum of squared deviations) of each are
// merged in a fixed order, in one message forward and one backward. Outside a step, and in eval(),
// it is an ordinary batch norm. The running statistics are kept once a rank, by its first replica:
// evaluate outside steps, or do not give the module to Wrap. Equal to one on the concatenated batch
// to rounding, forward and backward. The merge is that of Chan, Golub and
// LeVeque (1979).
struct CrossReplicaBatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // of the running statistics, which hold the unbiased variance
};

// The operation of the module below, on tensors that are kept elsewhere: weight, bias and the
// running statistics, float32 [channels], the last two updated in training. `replica`: null outside
// steps.
struct BatchNormTensors {
  torch::Tensor weight, bias, running_mean, running_var;
};
torch::Tensor CrossReplicaNormalise(const torch::Tensor& x, const BatchNormTensors& tensors,
                                    bool training, const CrossReplicaBatchNormOptions& options,
                                    const ReplicaContext* replica,
                                    Site site = std::source_location::current());

class CrossReplicaBatchNormImpl : public torch::nn::Module {
 public:
  using Options = CrossReplicaBatchNormOptions;
  explicit CrossReplicaBatchNormImpl(int64_t channels, const Options& options = {});
  // Within the step of `replica`.
  torch::Tensor forward(const torch::Tensor& x, ReplicaContext& replica,
                        Site site = std::source_location::current());
  torch::Tensor forward(const torch::Tensor& x);  // without replicas

  torch::Tensor weight, bias, running_mean, running_var;
  const Options options;
};
TORCH_MODULE(CrossReplicaBatchNorm);

}  // namespace samara
