// Inputs of a network as tensors, and the distribution of the environment's actions.
#pragma once

#include "env/interface.h"
#include "nn/torch/torch.h"
#include "rl/learner/distribution.h"
#include "rl/learner/input_layout.h"

namespace samara {

// Memory of whole inputs, [rows][h][w][c].
torch::Tensor MakeInputs(const InputLayout& layout, int64_t rows);
// Inputs [N][h][w][c] of their planes, uint8 [N * depth][plane_bytes], on any device.
torch::Tensor StackedPlanes(const InputLayout& layout, const torch::Tensor& planes);

ActionDistribution MakeDistribution(const ActionSpec& action);

}  // namespace samara
