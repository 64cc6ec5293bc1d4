// Input of a replicator: which pipelines a rank reads, and how their batches reach the replicas.
#include <algorithm>
#include <string>

#include "replica/torch/state.h"
#include "samara/replicator.h"

namespace samara {

InputShape Replicator::Shape(InputMode mode) const {
  InputShape shape{mode, {}, 1};
  InputContext context{num_replicas(), 0, 1, rank(), world_size()};
  switch (mode) {
    case InputMode::kPerReplica:
      context.num_input_pipelines = num_replicas();
      for (int i = 0; i < local_replicas(); ++i) {
        context.input_pipeline_id = first_replica() + i;
        shape.pipelines.push_back(context);
      }
      break;
    case InputMode::kPerWorker:
      context.num_input_pipelines = world_size();
      context.input_pipeline_id = rank();
      shape.pipelines.push_back(context);
      shape.batches = local_replicas();
      break;
    case InputMode::kSingle:
      if (rank() == 0) shape.pipelines.push_back(context);
      shape.batches = num_replicas();
      break;
  }
  return shape;
}

int64_t Replicator::Rows(const Leaves& leaves) {
  return leaves.empty() || leaves[0].dim() == 0 ? 1 : leaves[0].size(0);
}

Leaves Replicator::ShareOf(const Leaves& whole, int replica) const {
  Leaves share;
  for (const torch::Tensor& leaf : whole) {
    if (leaf.dim() == 0 || leaf.size(0) != whole[0].size(0)) {
      throw ReplicationError(
          78, DescribeTensor(leaf) + ": expected batches whose first dimensions are equal");
    }
    const int64_t n = leaf.size(0), begin = n * replica / num_replicas(),
                  end = n * (replica + 1) / num_replicas();
    share.push_back(leaf.narrow(0, begin, end - begin));
  }
  return share;
}

bool Replicator::ShareBatches(InputMode mode, std::vector<std::optional<Leaves>>& batches,
                              std::optional<Leaves>& last, Site site) {
  const auto locals = static_cast<size_t>(local_replicas());
  if (mode == InputMode::kSingle && world_size() > 1) {
    // rank 0 has the batches of all
    std::vector<Leaves> records(static_cast<size_t>(num_replicas()));
    std::string bytes;
    Leaves flat;
    for (const auto& batch : batches) {
      flat.push_back(torch::tensor(batch ? static_cast<int64_t>(batch->size()) : int64_t{-1}));
      if (batch) flat.insert(flat.end(), batch->begin(), batch->end());
    }
    bytes = Pack(flat);
    std::vector<std::vector<std::byte>> all;
    ThrowReplication(state_->communicator().AllGatherRagged({"input", "", site},
                                                            std::as_bytes(std::span(bytes)), all));
    flat =
        ValueOrReplication(Unpack({reinterpret_cast<const char*>(all[0].data()), all[0].size()}));
    std::vector<std::optional<Leaves>> every;
    for (size_t i = 0; i < flat.size();) {
      const int64_t n = flat[i++].item<int64_t>();
      if (n < 0) {
        every.emplace_back();
      } else {
        every.emplace_back(Leaves(flat.begin() + static_cast<int64_t>(i),
                                  flat.begin() + static_cast<int64_t>(i) + n));
        i += static_cast<size_t>(n);
      }
    }
    batches.assign(every.begin() + first_replica(),
                   every.begin() + first_replica() + local_replicas());
  }
  for (const auto& batch : batches)
    if (batch) last = batch;
  // all stop together, when no replica has a batch left
  constexpr std::byte kNone{0}, kSome{1}, kNever{2};  // not now; now; not now nor before
  const bool some = std::any_of(batches.begin(), batches.end(), [](const auto& b) { return b; });
  const std::vector<std::byte> mine{some ? kSome : last ? kNone : kNever};
  std::vector<std::byte> all(static_cast<size_t>(world_size()));
  ThrowReplication(state_->communicator().AllGather({"is there input", "", site}, mine, all));
  const auto first = std::find(all.begin(), all.end(), kSome);
  if (first == all.end()) return false;
  if (std::find(all.begin(), all.end(), kNever) != all.end()) {
    // batches without rows are made like those of another rank
    const auto source = static_cast<size_t>(first - all.begin());
    const std::string bytes = source == static_cast<size_t>(rank()) ? Pack(*last) : "";
    std::vector<std::vector<std::byte>> theirs;
    ThrowReplication(state_->communicator().AllGatherRagged(
        {"a first batch", "", site}, std::as_bytes(std::span(bytes)), theirs));
    const auto& packed = theirs[source];
    if (!last)
      last =
          ValueOrReplication(Unpack({reinterpret_cast<const char*>(packed.data()), packed.size()}));
  }
  batches.resize(locals);
  for (auto& batch : batches) {
    if (batch) continue;
    batch.emplace();
    for (const torch::Tensor& leaf : *last)
      batch->push_back(leaf.dim() == 0 ? leaf : leaf.narrow(0, 0, 0));
  }
  return true;
}

}  // namespace samara
