// c10d's groups of ranks, over a store of ours. Internal to this folder.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/torch/torch.h"
// after the door to torch
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "core/clock.h"
#include "core/first_line.h"
#include "replica/collectives/transport.h"
#include "replica/rendezvous/store.h"

namespace samara {

using C10dGroup = c10::intrusive_ptr<c10d::Backend>;

// `address`: of this host, as the others reach it; empty: by its name. kConfig in a build without
// Gloo's headers.
Result<C10dGroup> MakeGlooGroup(int rank, int size, const std::shared_ptr<Store>& store,
                                const std::string& address, std::chrono::milliseconds deadline);

// The GPU's own identity, for no two ranks of NCCL may share one; empty without NCCL or a GPU.
std::string GpuId(torch::Device device);
// Whether there are ids, one of each rank, of which no two are alike.
template <typename Id>
bool AllDiffer(std::vector<Id> ids) {
  std::ranges::sort(ids);
  return !ids[0].empty() && std::ranges::adjacent_find(ids) == ids.end();
}
// Each rank with a GPU of its own. kConfig where there is no NCCL.
Result<C10dGroup> MakeNcclGroup(int rank, int size, const std::shared_ptr<Store>& store,
                                std::chrono::milliseconds deadline);

// Starts a collective and waits for it in short steps, because c10d wakes no thread for another
// reason than its own: `stopped` is one. kDeadlinePassed; kUnavailable when a connection broke and
// no reason arrived for two seconds. After a failure the group is of no use, and is not destroyed:
// that would join threads that wait for a rank that is gone.
Status WaitFor(const std::function<c10::intrusive_ptr<c10d::Work>()>& start, SteadyTime deadline,
               const std::function<Status()>& stopped);

}  // namespace samara
