// Collectives on leaves, of the local replicas together with those of the other ranks.
#include <algorithm>
#include <cstring>
#include <map>

#include "replica/collectives/agreement.h"
#include "replica/torch/state.h"

namespace samara {

Leaves ReplicatorState::Reduce(const std::vector<Leaves>& locals, ReduceOp op, const Call& call) {
  Communicator& group = communicator();
  const auto leaves = static_cast<uint32_t>(replicas());
  // one reduction for each element type: the leaves of a type side by side
  std::map<ElementType, std::vector<size_t>> by_type;
  for (size_t i = 0; i < locals[0].size(); ++i) {
    const torch::Tensor& leaf = locals[0][i];
    if (op == ReduceOp::kMean && !leaf.is_floating_point()) {
      throw ReplicationError(static_cast<int>(Code::kConfig),
                             "the mean of " + DescribeTensor(leaf) +
                                 ": expected floating-point tensors; sum it, or convert it first");
    }
    by_type[ValueOrReplication(ElementTypeOf(leaf.scalar_type()))].push_back(i);
  }
  Leaves out(locals[0].size());
  for (const auto& [type, indices] : by_type) {
    std::vector<torch::Tensor> flats;
    for (const Leaves& local : locals) {
      std::vector<torch::Tensor> parts;
      for (const size_t i : indices) parts.push_back(OnHost(local[i]).reshape({-1}));
      flats.push_back(parts.size() == 1 ? parts[0] : torch::cat(parts));
    }
    torch::Tensor result = torch::empty_like(flats[0]);
    if (locals.size() == 1) {
      const auto r = static_cast<uint32_t>(rank());
      const Partial mine{{r, r + 1}, BytesOf(flats[0])};
      ThrowReplication(
          group.AllReduce(call.collective(), op, type, leaves, {&mine, 1}, BytesOf(result)));
    } else {
      const auto begin = static_cast<uint32_t>(first());
      TreeFolder folder(op, type, leaves, begin, begin + static_cast<uint32_t>(locals.size()));
      for (const torch::Tensor& flat : flats) folder.Add(BytesOf(flat));
      ThrowReplication(
          group.AllReduce(call.collective(), op, type, leaves, folder.partials(), BytesOf(result)));
    }
    if (op == ReduceOp::kMean) result.div_(replicas());
    int64_t at = 0;
    for (const size_t i : indices) {
      const torch::Tensor& leaf = locals[0][i];
      out[i] = result.narrow(0, at, leaf.numel()).reshape(leaf.sizes()).to(leaf.device());
      at += leaf.numel();
    }
  }
  return out;
}

std::vector<Leaves> ReplicatorState::Gather(const std::vector<Leaves>& locals, const Call& call) {
  std::vector<std::string> mine;
  for (const Leaves& local : locals) mine.push_back(Pack(local));
  std::string message;
  for (const std::string& record : mine) {
    const uint64_t size = record.size();
    message.append(reinterpret_cast<const char*>(&size), sizeof size).append(record);
  }
  std::vector<std::vector<std::byte>> theirs;
  ThrowReplication(
      communicator().AllGatherRagged(call.collective(), std::as_bytes(std::span(message)), theirs));
  std::vector<Leaves> all;
  for (const auto& bytes : theirs) {
    std::string_view left(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (left.size() >= sizeof(uint64_t)) {
      uint64_t size = 0;
      std::memcpy(&size, left.data(), sizeof size);
      left.remove_prefix(sizeof size);
      if (size > left.size()) break;
      all.push_back(ValueOrReplication(Unpack(left.substr(0, size))));
      left.remove_prefix(size);
    }
  }
  if (all.size() != static_cast<size_t>(replicas()))
    throw ReplicationError(static_cast<int>(Code::kInternal),
                           "a gather without every replica's part");
  return all;
}

Leaves ReplicatorState::Broadcast(const std::vector<Leaves>& locals, int source, const Call& call) {
  const int per_rank = static_cast<int>(locals.size());
  const int root = source / per_rank;
  const bool here = root == rank();
  Leaves out;
  for (const torch::Tensor& leaf : locals[here ? static_cast<size_t>(source - root * per_rank) : 0])
    out.push_back(OnHost(leaf).clone());
  std::string bytes;
  for (const torch::Tensor& leaf : out)
    bytes.append(reinterpret_cast<const char*>(leaf.data_ptr()), leaf.nbytes());
  ThrowReplication(
      communicator().Broadcast(call.collective(), root, std::as_writable_bytes(std::span(bytes))));
  size_t at = 0;
  for (torch::Tensor& leaf : out) {
    if (leaf.nbytes() > 0) std::memcpy(leaf.data_ptr(), bytes.data() + at, leaf.nbytes());
    at += leaf.nbytes();
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = out[i].to(locals[0][i].device());
  return out;
}

void ReplicatorState::RequireAgreement(const std::string& subject, const std::string& mine,
                                       const Call& call) {
  std::vector<std::vector<std::byte>> parts;
  ThrowReplication(
      communicator().AllGatherRagged(call.collective(), std::as_bytes(std::span(mine)), parts));
  std::vector<std::string> all;
  for (const auto& part : parts)
    all.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  ThrowReplication(CheckAgreement(subject, all));
}

std::vector<Leaves> ReplicatorState::Exchange(const std::vector<Leaves>& locals, const Call& call) {
  const auto per_rank = static_cast<int64_t>(locals.size());
  std::vector<Leaves> out(locals.size());
  for (size_t i = 0; i < locals[0].size(); ++i) {
    const torch::Tensor& shape = locals[0][i];
    if (shape.dim() < 1 || shape.size(0) % replicas() != 0) {
      throw ReplicationError(static_cast<int>(Code::kConfig),
                             DescribeTensor(shape) + ": expected a first dimension that " +
                                 std::to_string(replicas()) + " replicas divide");
    }
    // (source here, rank there, destination there, part) -> (rank, source, destination, part)
    std::vector<torch::Tensor> sources;
    for (const Leaves& local : locals)
      sources.push_back(OnHost(local[i]).reshape({world_size(), per_rank, -1}));
    const torch::Tensor send = torch::stack(sources, 1).contiguous();
    torch::Tensor got = torch::empty_like(send);  // (rank, source there, destination here, part)
    ThrowReplication(communicator().AllToAll(call.collective(), BytesOf(send), BytesOf(got)));
    for (int64_t d = 0; d < per_rank; ++d) {
      out[static_cast<size_t>(d)].push_back(
          got.select(2, d).reshape(shape.sizes()).to(shape.device()));
    }
  }
  return out;
}

}  // namespace samara
