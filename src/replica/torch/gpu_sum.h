// How GpuSum is made. Internal to this folder.
#pragma once

#include <memory>

#include "core/device.h"
#include "replica/group/group.h"
#include "replica/torch/c10d_group.h"

namespace samara {

// Over NCCL; null where ranks share a GPU or one has none. `store`: of this sum alone. A collective
// of `group`, which outlives the sum.
Result<std::unique_ptr<GpuSum>> MakeGpuSum(RankGroup& group, const std::shared_ptr<Store>& store,
                                           const Device& device);
// Over these links, which gather tensors of `device`; the first sum connects them.
Result<std::unique_ptr<GpuSum>> MakeGpuSum(RankGroup& group, C10dGroup links,
                                           const torch::Device& device);

}  // namespace samara
