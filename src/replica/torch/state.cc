#include "replica/torch/state.h"

#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/log.h"
#include "core/rng.h"
#include "replica/collectives/agreement.h"

namespace samara {
namespace {

// Between two looks for a message: more and more, and little while other replicas wait to run.
constexpr std::chrono::milliseconds kPauseMax{16}, kPauseInTurns{2};

AutogradThrow autograd_throw = nullptr;  // set before there are replicators

// Of the messages between two replicas in the store: each by its number, and how many were "sent".
std::string MailBox(int from, int to) {
  return "mail/" + std::to_string(from) + "/" + std::to_string(to) + "/";
}

Collective Named(const ReplicatorState::Call& call) {
  return {call.operation, call.operand, call.site};
}

// The node that a collective leaves in the graph.
class CollectiveBackward : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = torch::zeros(shapes[i], options[i]);
    const torch::NoGradGuard none;
    Leaves in;
    InAutograd([&] { in = backward(gradients); });
    torch::autograd::variable_list out(needed.size());
    for (size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) out[i] = std::move(in[i]);
    return out;
  }
  std::string name() const override { return "samara::CollectiveBackward"; }

  Backward backward;
  std::vector<std::vector<int64_t>> shapes;  // of the results
  std::vector<torch::TensorOptions> options;
  std::vector<bool> needed;  // of the inputs
};

}  // namespace

void ThrowReplication(const Status& status) {
  if (!status.ok()) throw ReplicationError(static_cast<int>(status.code()), status.message());
}

void SetAutogradThrow(AutogradThrow rethrow) { autograd_throw = rethrow; }

void InAutograd(const std::function<void()>& body) {
  try {
    body();
  } catch (const ReplicationError& error) {
    if (autograd_throw != nullptr) autograd_throw(error);
    throw;
  }
}

Leaves Differentiable(const Leaves& in, const std::function<Leaves(const Leaves&)>& forward,
                      Backward backward) {
  Leaves detached;
  for (const torch::Tensor& leaf : in) detached.push_back(leaf.detach());
  Leaves out;
  {
    const torch::NoGradGuard none;
    out = forward(detached);
  }
  const bool wanted =
      torch::GradMode::is_enabled() &&
      std::any_of(in.begin(), in.end(), [](const auto& t) { return t.requires_grad(); });
  if (!wanted) return out;
  auto node = c10::make_intrusive<CollectiveBackward>();
  node->backward = std::move(backward);
  for (const torch::Tensor& leaf : in) node->needed.push_back(leaf.requires_grad());
  for (const torch::Tensor& leaf : out) {
    node->shapes.push_back(leaf.sizes().vec());
    node->options.push_back(leaf.options());
  }
  node->set_next_edges(torch::autograd::collect_next_edges(at::TensorList(in)));
  for (torch::Tensor& leaf : out)
    if (leaf.is_floating_point()) torch::autograd::set_history(leaf, node);
  return out;
}

ReplicatorState::ReplicatorState(Setup setup)
    : setup_(std::move(setup)), store_(setup_.links.store) {
  group_ = ValueOrReplication(
      RankGroup::Make(setup_.world, std::move(setup_.links), setup_.communicator));
  const int locals = setup_.replicas / setup_.world.size;
  const int first_replica = setup_.world.rank * locals;
  try {
    turns_ = std::make_unique<Turns>(locals, first_replica,
                                     [this](int from, int to) { Change(from, to); });
  } catch (const Error& error) {
    group_->Fail(error.status());  // the others wait for this rank
    throw;
  }
  samples.assign(static_cast<size_t>(locals), 1);
  generators_.resize(static_cast<size_t>(locals));
}

ReplicatorState::~ReplicatorState() {
  group_->Leave();
  // whoever still waits in the background ends now
  group_->communicator().Leave();
}

void ReplicatorState::Span(int local, std::string name, SteadyTime begin) {
  // not communicator(), which waits for the background
  group_->communicator().flight().Span("replica " + std::to_string(first() + local),
                                       std::move(name), begin);
}

void ReplicatorState::Change(int from, int to) {
  auto generator = at::detail::getDefaultCPUGenerator();
  generators_[static_cast<size_t>(from)] = generator.get_state();
  torch::Tensor& state = generators_[static_cast<size_t>(to)];
  if (state.defined()) generator.set_state(state);
  std::erase_if(per_turn_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : per_turn_)
    if (const auto it = weak.lock()) it->Change(from, to);
}

void ReplicatorState::SetSamples(int local, int64_t count) {
  for (const auto& weak : per_turn_) {
    const auto it = weak.lock();
    if (it && it->sends())
      throw ReplicationError(static_cast<int>(Code::kConfig),
                             "the samples of a step are set after gradients weighted by them were "
                             "sent: set them before the backward pass");
  }
  samples[static_cast<size_t>(local)] = count;
}

void ReplicatorState::Run(const std::vector<int64_t>& rows, const std::function<void(int)>& body) {
  CHECK(rows.size() == samples.size());
  ThrowReplication(group_->communicator().failure());
  samples = rows;
  meeting_ = nullptr;
  // what steps draw is a function of (seed, step, replica), and the caller's numbers are his own
  auto generator = at::detail::getDefaultCPUGenerator();
  const torch::Tensor before = generator.get_state();
  const at::ThreadLocalState mine;
  const auto run = [&](int local) {
    const at::ThreadLocalStateGuard theirs(mine);
    at::Generator draws = at::detail::getDefaultCPUGenerator();
    draws.set_current_seed(DeriveKey(setup_.options.seed, Purpose::kReplicaStep,
                                     static_cast<uint64_t>(step),
                                     static_cast<uint64_t>(first() + local)));
    const SteadyTime begin = Now();
    body(local);
    Span(local, "step " + std::to_string(step), begin);
  };
  const CommunicatorOptions& gate = setup_.communicator;
  const bool leave = mode() == ReplicationMode::kFast && gate.away;
  if (leave) gate.away();
  try {
    turns_->Run(run);
    if (leave) gate.back({});
  } catch (const ReplicationError& error) {
    Abort(Status(static_cast<Code>(error.exit_code()), error.what()));
    throw;
  } catch (const std::exception& error) {
    Abort(Status(Code::kInternal, std::string("its step threw: ") + error.what()));
    throw;
  }
  generator.set_state(before);
  ++step;
}

void ReplicatorState::Abort(const Status& why) { group_->Fail(why); }

void ReplicatorState::Leave() { group_->Leave(); }

int ReplicatorState::current() const {
  if (!turns_->running())
    throw ReplicationError(static_cast<int>(Code::kConfig),
                           "an optimizer's step outside Replicator::Run");
  return turns_->active();
}

Communicator& ReplicatorState::communicator() {
  background_.Drain();
  return group_->communicator();
}

C10dSum* ReplicatorState::SumFor(torch::Device device, Site site) {
  // ranks that are threads take turns, which c10d's own waiting knows nothing of
  if (mode() != ReplicationMode::kFast || world_size() == 1 || setup_.communicator.away)
    return nullptr;
  const auto [it, first] = sums_.try_emplace(device.type());
  if (!first) return it->second.get();
  // all ranks or none; a GPU that two ranks share is nothing for NCCL
  std::string mine = device.is_cpu() && communicator().transport().name() == std::string("gloo")
                         ? "rank " + std::to_string(rank())
                         : GpuId(device);
  std::vector<std::vector<std::byte>> all;
  ThrowReplication(communicator().AllGatherRagged({"what sums gradients", "", site},
                                                  std::as_bytes(std::span(mine)), all));
  std::sort(all.begin(), all.end());
  if (all[0].empty() || std::adjacent_find(all.begin(), all.end()) != all.end()) return nullptr;
  const auto store = WithPrefix(store_, std::string("sum/") + (device.is_cpu() ? "cpu/" : "gpu/"));
  const auto deadline = setup_.communicator.deadline;
  it->second = std::make_unique<C10dSum>(
      ValueOrReplication(
          device.is_cpu() ? MakeGlooGroup(rank(), world_size(), store, group_->address(), deadline)
                          : MakeNcclGroup(rank(), world_size(), store, deadline)),
      device.type());
  if (rank() == 0)
    LogInfo(std::string("gradients are summed by ") + (device.is_cpu() ? "gloo" : "nccl"));
  return it->second.get();
}

DeviceShare ShareOfDevices(int devices, const World& world, int locals, int local) {
  const int each = std::max(1, devices / std::max(1, world.local_size * locals));
  return {(world.local_rank * locals + local) * each % std::max(1, devices), each};
}

Leaves ReplicatorState::Meet(int local, const Call& call, const Leaves& in, const Action& action) {
  if (!turns_->running()) {
    throw ReplicationError(static_cast<int>(Code::kConfig),
                           call.operation + ": collectives of a replica are called inside a step");
  }
  if (locals() == 1) return action({in})[0];
  // shared between the local replicas, kept by whoever comes first
  if (!meeting_) meeting_ = std::make_shared<Meeting>(static_cast<size_t>(locals()));
  const std::shared_ptr<Meeting> meeting = meeting_;
  // the module's buffers have other memory in the others' turns
  for (const torch::Tensor& leaf : in)
    meeting->in[static_cast<size_t>(local)].push_back(leaf.detach());
  turns_->Meet(local, Named(call).text(), [&] {
    meeting_ = nullptr;
    meeting->out = action(meeting->in);
  });
  return meeting->out[static_cast<size_t>(local)];
}

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
      ThrowReplication(group.AllReduce(Named(call), op, type, leaves, {&mine, 1}, BytesOf(result)));
    } else {
      const auto begin = static_cast<uint32_t>(first());
      TreeFolder folder(op, type, leaves, begin, begin + static_cast<uint32_t>(locals.size()));
      for (const torch::Tensor& flat : flats) folder.Add(BytesOf(flat));
      ThrowReplication(
          group.AllReduce(Named(call), op, type, leaves, folder.partials(), BytesOf(result)));
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
      communicator().AllGatherRagged(Named(call), std::as_bytes(std::span(message)), theirs));
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
      communicator().Broadcast(Named(call), root, std::as_writable_bytes(std::span(bytes))));
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
      communicator().AllGatherRagged(Named(call), std::as_bytes(std::span(mine)), parts));
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
    ThrowReplication(communicator().AllToAll(Named(call), BytesOf(send), BytesOf(got)));
    for (int64_t d = 0; d < per_rank; ++d) {
      out[static_cast<size_t>(d)].push_back(
          got.select(2, d).reshape(shape.sizes()).to(shape.device()));
    }
  }
  return out;
}

void ReplicatorState::Send(int local, int to, const Leaves& leaves) {
  const int from = first() + local;
  if (to < 0 || to >= replicas()) {
    throw ReplicationError(
        static_cast<int>(Code::kConfig),
        "replica " + std::to_string(to) + ": there are " + std::to_string(replicas()));
  }
  if (to / locals() == rank()) {
    mail_[{from, to}].push_back(Pack(leaves));
    return;
  }
  const std::string box = MailBox(from, to);
  const std::string number = std::to_string(sent_[{from, to}]++);
  ThrowReplication(group_->store().Set(box + number, Pack(leaves)));
  ThrowReplication(group_->store().Add(box + "sent", 1).status());
}

Leaves ReplicatorState::Receive(int local, int from) {
  const int to = first() + local;
  if (from < 0 || from >= replicas()) {
    throw ReplicationError(
        static_cast<int>(Code::kConfig),
        "replica " + std::to_string(from) + ": there are " + std::to_string(replicas()));
  }
  const int64_t number = received_[{from, to}]++;
  const SteadyTime deadline = Now() + setup_.communicator.deadline;
  const std::string box = MailBox(from, to);
  int64_t& arrived = arrived_[{from, to}];
  std::chrono::milliseconds pause{1};
  for (;;) {
    if (from / locals() == rank()) {
      auto& mail = mail_[{from, to}];
      if (!mail.empty()) {
        const std::string message = std::move(mail.front());
        mail.pop_front();
        return ValueOrReplication(Unpack(message));
      }
    } else {
      // counted, not waited for: c10d's store complains of each wait that ends in vain
      if (arrived <= number) {
        const auto sent = group_->store().Add(box + "sent", 0);
        if (sent.ok()) arrived = *sent;  // else the group's failure tells more
      }
      if (arrived > number) {
        const std::string key = box + std::to_string(number);
        const auto message =
            ValueOrReplication(group_->store().Get(key, setup_.communicator.deadline));
        ThrowReplication(group_->store().Delete(key));
        return ValueOrReplication(Unpack(message));
      }
      if (setup_.communicator.away) setup_.communicator.away();
      std::this_thread::sleep_for(pause);
      if (setup_.communicator.back) setup_.communicator.back(group_->communicator().failure());
      pause = std::min(2 * pause, locals() == 1 ? kPauseMax : kPauseInTurns);
    }
    ThrowReplication(group_->communicator().failure());
    if (Now() > deadline) {
      const Status late(Code::kUnavailable, "replica " + std::to_string(to) +
                                                " had no message from replica " +
                                                std::to_string(from) + " before the deadline");
      Abort(late);
      ThrowReplication(late);
    }
    turns_->Yield(local);
  }
}

}  // namespace samara
