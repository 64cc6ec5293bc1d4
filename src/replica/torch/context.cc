// ReplicaContext: each collective as its meaning on leaves, with its gradient.
#include <algorithm>

#include "replica/torch/state.h"

namespace samara {
namespace {

using Call = ReplicatorState::Call;

Call MakeCall(const std::string& operation, const Leaves& leaves, const std::string& structure,
              Site site) {
  return {operation, DescribeLeaves(leaves, structure), site};
}
Call BackwardOf(const Call& call, const Leaves& gradients) {
  return {"the gradient of " + call.operation, DescribeLeaves(gradients, ""), call.site};
}

// The same values for each local replica, in memory of its own.
std::vector<Leaves> ForEach(int locals, Leaves out) {
  std::vector<Leaves> all;
  for (int i = 0; i + 1 < locals; ++i) {
    Leaves copy;
    for (const torch::Tensor& leaf : out) copy.push_back(leaf.clone());
    all.push_back(std::move(copy));
  }
  all.push_back(std::move(out));
  return all;
}

Leaves SumOver(ReplicatorState& state, int local, const Leaves& in, ReduceOp op, const Call& call) {
  return state.Barrier(local, call, in, [&](const std::vector<Leaves>& locals) {
    return ForEach(state.locals(), state.Reduce(locals, op, call));
  });
}

[[noreturn]] void Refuse(const std::string& message) { throw ReplicationError(78, message); }

// Refuses operations without a gradient, which would cut it silently.
void RefuseGradients(const Leaves& in, const std::string& operation, const std::string& instead) {
  if (!torch::GradMode::is_enabled()) return;
  for (const torch::Tensor& leaf : in)
    if (leaf.requires_grad())
      Refuse(operation + " of " + DescribeTensor(leaf) + ", which requires a gradient: " + instead);
}

torch::Tensor Fold(const torch::Tensor& a, const torch::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return a + b;
    case ReduceOp::kMin:
      return torch::minimum(a, b);
    case ReduceOp::kMax:
      return torch::maximum(a, b);
    case ReduceOp::kProduct:
      return a * b;
  }
  return a;
}

std::vector<Leaves> EveryReplicas(ReplicatorState& state, int local, const Leaves& in,
                                  const Call& call) {
  // each local replica gets the list as one flat list of leaves
  size_t each = 0;
  const Leaves flat = state.Barrier(local, call, in, [&](const std::vector<Leaves>& locals) {
    Leaves all;
    for (Leaves& one : state.Gather(locals, call)) {
      all.push_back(torch::tensor(static_cast<int64_t>(one.size())));
      all.insert(all.end(), one.begin(), one.end());
    }
    return std::vector<Leaves>(static_cast<size_t>(state.locals()), all);
  });
  std::vector<Leaves> all;
  for (size_t i = 0; i < flat.size(); i += each + 1) {
    each = static_cast<size_t>(flat[i].item<int64_t>());
    all.emplace_back(flat.begin() + static_cast<int64_t>(i) + 1,
                     flat.begin() + static_cast<int64_t>(i + 1 + each));
  }
  return all;
}

}  // namespace

int ReplicaContext::replica_id() const { return state_.first() + local_; }
int ReplicaContext::num_replicas() const { return state_.replicas(); }
int ReplicaContext::rank() const { return state_.rank(); }
int ReplicaContext::world_size() const { return state_.world_size(); }
int64_t ReplicaContext::step() const { return state_.step; }
int64_t ReplicaContext::samples() const { return state_.samples[static_cast<size_t>(local_)]; }
void ReplicaContext::SetSamples(int64_t samples) {
  if (samples < 0) Refuse(std::to_string(samples) + " samples: expected 0 or more");
  state_.SetSamples(local_, samples);
}

Leaves ReplicaContext::Reduce(const Leaves& in, ReduceOp op, const std::string& structure,
                              Site site) const {
  const Call call = MakeCall(std::string("all_reduce ") + Name(op), in, structure, site);
  ReplicatorState& state = state_;
  const int local = local_;
  if (op == ReduceOp::kProduct &&
      std::any_of(in.begin(), in.end(), [](const auto& t) { return t.requires_grad(); })) {
    // the gradient needs the others' values: gathered, then multiplied by torch
    Leaves out;
    for (const torch::Tensor& leaf : Stack(in, structure, site)) {
      torch::Tensor product = leaf[0];
      for (int64_t i = 1; i < leaf.size(0); ++i) product = product * leaf[i];
      out.push_back(product);
    }
    return out;
  }
  const auto forward = [&](const Leaves& x) { return SumOver(state, local, x, op, call); };
  if (op == ReduceOp::kSum || op == ReduceOp::kMean || op == ReduceOp::kProduct) {
    return Differentiable(in, forward, [&state, local, op, call](const Leaves& g) {
      return SumOver(state, local, g, op, BackwardOf(call, g));
    });
  }
  // to those that hold the extremum, in equal parts
  Leaves x, y;
  const auto keep = [&](const Leaves& detached) {
    x = detached;
    return y = forward(detached);
  };
  auto held = std::make_shared<std::pair<Leaves, Leaves>>();
  Leaves out = Differentiable(in, keep, [&state, local, call, held](const Leaves& g) {
    Leaves parts;
    for (size_t i = 0; i < g.size(); ++i) {
      parts.push_back(held->first[i].eq(held->second[i]).to(g[i].scalar_type()));
      parts.push_back(g[i]);
    }
    const Leaves total = SumOver(state, local, parts, ReduceOp::kSum, BackwardOf(call, parts));
    Leaves mine;
    for (size_t i = 0; i < g.size(); ++i)
      mine.push_back(parts[2 * i] * total[2 * i + 1] / total[2 * i].clamp_min(1));
    return mine;
  });
  Leaves values;
  for (const torch::Tensor& leaf : y) values.push_back(leaf.detach());
  *held = {x, values};
  return out;
}

Leaves ReplicaContext::Stack(const Leaves& in, const std::string& structure, Site site) const {
  const Call call = MakeCall("all_gather", in, structure, site);
  ReplicatorState& state = state_;
  const int local = local_;
  const auto forward = [&](const Leaves& x) {
    const auto all = EveryReplicas(state, local, x, call);
    Leaves out;
    for (size_t i = 0; i < x.size(); ++i) {
      std::vector<torch::Tensor> column;
      for (const Leaves& one : all) column.push_back(one[i]);
      out.push_back(torch::stack(column).to(x[i].device()));
    }
    return out;
  };
  return Differentiable(in, forward, [&state, local, call](const Leaves& g) {
    Leaves mine;
    for (const torch::Tensor& total : SumOver(state, local, g, ReduceOp::kSum, BackwardOf(call, g)))
      mine.push_back(total[state.first() + local].clone());
    return mine;
  });
}

torch::Tensor ReplicaContext::AllGatherAlong(const torch::Tensor& tensor, int64_t dim,
                                             Site site) const {
  if (tensor.dim() == 0 || dim < -tensor.dim() || dim >= tensor.dim()) {
    Refuse("all_gather of " + DescribeTensor(tensor) + " along dimension " + std::to_string(dim) +
           ": there is none");
  }
  const int64_t d = dim < 0 ? dim + tensor.dim() : dim;
  // sizes along `dim` may differ: they are no part of the fingerprint
  std::string operand = DescribeTensor(tensor.narrow(d, 0, 0));
  const Call call{"all_gather along " + std::to_string(d), operand, site};
  ReplicatorState& state = state_;
  const int local = local_, id = replica_id();
  auto begin = std::make_shared<int64_t>(0);
  const int64_t length = tensor.size(d);
  const auto forward = [&](const Leaves& x) {
    std::vector<torch::Tensor> parts;
    for (const Leaves& one : EveryReplicas(state, local, x, call)) {
      if (static_cast<int>(parts.size()) < id) *begin += one[0].size(d);
      parts.push_back(one[0]);
    }
    return Leaves{torch::cat(parts, d).to(x[0].device())};
  };
  return Differentiable(
      {tensor}, forward, [&state, local, call, begin, length, d](const Leaves& g) {
        const Leaves total = SumOver(state, local, g, ReduceOp::kSum, BackwardOf(call, g));
        return Leaves{total[0].narrow(d, *begin, length).clone()};
      })[0];
}

Leaves ReplicaContext::BroadcastLeaves(const Leaves& in, int source, const std::string& structure,
                                       Site site) const {
  if (source < 0 || source >= num_replicas())
    Refuse("broadcast from replica " + std::to_string(source) + ": there are " +
           std::to_string(num_replicas()));
  const Call call = MakeCall("broadcast from " + std::to_string(source), in, structure, site);
  ReplicatorState& state = state_;
  const int local = local_;
  const auto forward = [&](const Leaves& x) {
    return state.Barrier(local, call, x, [&](const std::vector<Leaves>& locals) {
      return ForEach(state.locals(), state.Broadcast(locals, source, call));
    });
  };
  const bool mine = source == replica_id();
  return Differentiable(in, forward, [&state, local, call, mine](const Leaves& g) {
    Leaves total = SumOver(state, local, g, ReduceOp::kSum, BackwardOf(call, g));
    if (!mine)
      for (torch::Tensor& leaf : total) leaf.zero_();
    return total;
  });
}

torch::Tensor ReplicaContext::ReduceScatter(const torch::Tensor& tensor, ReduceOp op,
                                            Site site) const {
  if (tensor.dim() == 0 || tensor.size(0) % num_replicas() != 0) {
    Refuse("reduce_scatter of " + DescribeTensor(tensor) + ": expected a first dimension that " +
           std::to_string(num_replicas()) + " replicas divide");
  }
  const torch::Tensor whole = AllReduce(tensor, op, site);
  const int64_t part = tensor.size(0) / num_replicas();
  return whole.narrow(0, replica_id() * part, part);
}

torch::Tensor ReplicaContext::AllToAll(const torch::Tensor& tensor, Site site) const {
  const Call call = MakeCall("all_to_all", {tensor}, "*", site);
  ReplicatorState& state = state_;
  const int local = local_;
  const auto exchange = [&state, local](const Leaves& x, const Call& c) {
    return state.Barrier(
        local, c, x, [&](const std::vector<Leaves>& locals) { return state.Exchange(locals, c); });
  };
  return Differentiable(
      {tensor}, [&](const Leaves& x) { return exchange(x, call); },
      [exchange, call](const Leaves& g) { return exchange(g, BackwardOf(call, g)); })[0];
}

void ReplicaContext::SendLeaves(const Leaves& in, int to) const {
  RefuseGradients(in, "send", "expected values without one: send(x.detach())");
  state_.Send(local_, to, in);
}

Leaves ReplicaContext::ReceiveLeaves(int from, const Leaves& like) const {
  Leaves leaves = state_.Receive(local_, from);
  const std::string got = DescribeLeaves(leaves, ""), wanted = DescribeLeaves(like, "");
  if (got != wanted)
    Refuse("a message of " + got + " from replica " + std::to_string(from) + ": expected " +
           wanted);
  for (size_t i = 0; i < like.size(); ++i) leaves[i] = leaves[i].to(like[i].device());
  return leaves;
}

std::vector<Leaves> ReplicaContext::GatherLeaves(const Leaves& in, const std::string& operation,
                                                 const std::string& operand, Site site) const {
  return EveryReplicas(state_, local_, in, {operation, operand, site});
}

std::vector<Leaves> ReplicaContext::ExchangeItems(std::vector<Leaves> mine, size_t items,
                                                  Site site) const {
  // a replica's items side by side, each headed by its number of leaves
  Leaves flat;
  for (Leaves& item : mine) {
    flat.push_back(torch::tensor(static_cast<int64_t>(item.size())));
    flat.insert(flat.end(), item.begin(), item.end());
  }
  const auto all = GatherLeaves(flat, "map_gather", std::to_string(items) + " items", site);
  std::vector<size_t> at(all.size());
  std::vector<Leaves> results;
  for (size_t i = 0; i < items; ++i) {
    const Leaves& theirs = all[i % all.size()];
    size_t& next = at[i % all.size()];
    const auto count = static_cast<size_t>(theirs.at(next).item<int64_t>());
    results.emplace_back(theirs.begin() + static_cast<int64_t>(next) + 1,
                         theirs.begin() + static_cast<int64_t>(next + 1 + count));
    next += count + 1;
  }
  return results;
}

Leaves ReplicaContext::Merge(const Leaves& in, const MergeFn& merge, const std::string& structure,
                             Site site) const {
  const Call call = MakeCall("merge_call", in, structure, site);
  const auto all = EveryReplicas(state_, local_, in, call);
  // once: on replica 0, whose result all get
  const Call result{"the result of merge_call", "", site};
  Leaves mine;
  if (replica_id() == 0) mine = merge(all);
  return EveryReplicas(state_, local_, mine, result)[0];
}

torch::Device ReplicaContext::logical_device(int i) const {
  const auto devices = static_cast<int>(torch::cuda::device_count());
  const DeviceShare mine = ShareOfDevices(devices, state_.world(), state_.locals(), local_);
  if (i < 0 || i >= mine.count)
    Refuse("logical device " + std::to_string(i) + ": this replica has " +
           std::to_string(mine.count) + ", from 0 on");
  if (devices == 0) return torch::kCPU;
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(mine.first + i)};
}

Leaves ReplicaContext::FoldLeaves(const Leaves& a, const Leaves& b, ReduceOp op) {
  if (a.size() != b.size()) Refuse("map_reduce of results of different structure");
  Leaves out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(Fold(a[i], b[i], op));
  return out;
}

void ReplicaContext::CheckOnePerReplica(size_t values) const {
  if (values != static_cast<size_t>(num_replicas()))
    Refuse("merge_call gave values for " + std::to_string(values) +
           " replicas: expected one for each of " + std::to_string(num_replicas()));
}

Leaves ReplicaContext::DivideLeaves(const Leaves& a, size_t n) {
  Leaves out;
  for (const torch::Tensor& leaf : a) out.push_back(leaf / static_cast<double>(n));
  return out;
}

// --- sub-groups

ReplicaContext::SubGroups::SubGroups(const ReplicaContext& context,
                                     std::vector<std::vector<int>> groups)
    : context_(context), groups_(std::move(groups)) {
  std::vector<int> seen(static_cast<size_t>(context.num_replicas()));
  for (const auto& group : groups_) {
    for (const int id : group) {
      if (id < 0 || id >= context.num_replicas() || seen[static_cast<size_t>(id)]++ > 0)
        Refuse("sub-groups: replica " + std::to_string(id) + " is not there, or twice");
      if (id == context.replica_id()) mine_ = group;
    }
  }
  if (std::count(seen.begin(), seen.end(), 0) > 0)
    Refuse("sub-groups: expected every replica in one of them");
  index_ =
      static_cast<int>(std::find(mine_.begin(), mine_.end(), context.replica_id()) - mine_.begin());
}

std::vector<Leaves> ReplicaContext::SubGroups::Within(const Leaves& in, const std::string& what,
                                                      const std::string& structure,
                                                      Site site) const {
  std::string operand = DescribeLeaves(in, structure) + " within";
  for (const auto& group : groups_) {
    operand += " {";
    for (const int id : group) operand += std::to_string(id) + " ";
    operand.back() = '}';
  }
  const auto all = context_.GatherLeaves(in, what, operand, site);
  std::vector<Leaves> members;
  for (const int id : mine_) members.push_back(all[static_cast<size_t>(id)]);
  return members;
}

Leaves ReplicaContext::SubGroups::Fold(const Leaves& in, ReduceOp op, const std::string& what,
                                       const std::string& structure, Site site) const {
  const auto members = Within(in, what, structure, site);
  const auto n = static_cast<uint32_t>(members.size());
  Leaves out;
  for (size_t i = 0; i < in.size(); ++i) {
    std::vector<Partial> partials;
    for (uint32_t m = 0; m < n; ++m) partials.push_back({{m, m + 1}, BytesOf(members[m][i])});
    torch::Tensor result = torch::empty_like(members[0][i]);
    FoldTree(op, ValueOrReplication(ElementTypeOf(result.scalar_type())), n, partials,
             BytesOf(result));
    if (op == ReduceOp::kMean) result.div_(static_cast<double>(n));
    out.push_back(result.to(in[i].device()));
  }
  return out;
}

Backward ReplicaContext::SubGroups::SumLater(const std::string& what, ReduceOp op,
                                             Site site) const {
  return [&state = context_.state(), local = context_.local(), groups = groups_, what, op,
          site](const Leaves& g) {
    const ReplicaContext context(state, local);
    return SubGroups(context, groups).Fold(g, op, "the gradient of " + what, "", site);
  };
}

Leaves ReplicaContext::SubGroups::ReduceWithin(const Leaves& in, ReduceOp op,
                                               const std::string& structure, Site site) const {
  const std::string what = std::string("all_reduce ") + Name(op);
  if (op != ReduceOp::kSum && op != ReduceOp::kMean)
    RefuseGradients(in, what + " within sub-groups", "expected sum, mean, or x.detach()");
  const auto forward = [&](const Leaves& x) { return Fold(x, op, what, structure, site); };
  return Differentiable(in, forward, SumLater(what, op, site));
}

Leaves ReplicaContext::SubGroups::StackWithin(const Leaves& in, const std::string& structure,
                                              Site site) const {
  const auto forward = [&](const Leaves& x) {
    const auto members = Within(x, "all_gather", structure, site);
    Leaves out;
    for (size_t i = 0; i < x.size(); ++i) {
      std::vector<torch::Tensor> column;
      for (const Leaves& member : members) column.push_back(member[i]);
      out.push_back(torch::stack(column).to(x[i].device()));
    }
    return out;
  };
  return Differentiable(
      in, forward,
      [sum = SumLater("all_gather", ReduceOp::kSum, site), index = index_](const Leaves& g) {
        Leaves mine;
        for (const torch::Tensor& total : sum(g)) mine.push_back(total[index].clone());
        return mine;
      });
}

Leaves ReplicaContext::SubGroups::BroadcastWithin(const Leaves& in, int source,
                                                  const std::string& structure, Site site) const {
  if (source < 0 || source >= size())
    Refuse("broadcast from member " + std::to_string(source) + ": the sub-group has " +
           std::to_string(size()));
  const std::string what = "broadcast from " + std::to_string(source);
  const auto forward = [&](const Leaves& x) {
    Leaves out = Within(x, what, structure, site)[static_cast<size_t>(source)];
    for (size_t i = 0; i < x.size(); ++i) out[i] = out[i].to(x[i].device());
    return out;
  };
  return Differentiable(
      in, forward,
      [sum = SumLater(what, ReduceOp::kSum, site), mine = index_ == source](const Leaves& g) {
        Leaves total = sum(g);
        if (!mine)
          for (torch::Tensor& leaf : total) leaf.zero_();
        return total;
      });
}

}  // namespace samara
