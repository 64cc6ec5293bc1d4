#include "replica/torch/state.h"

#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/log.h"
#include "core/rng.h"
#include "nn/torch/autograd_node.h"
#include "replica/torch/generators.h"

namespace samara {
namespace {

// Between two polls for a message: backs off, less while other replicas wait to run.
constexpr std::chrono::milliseconds kPauseMax{16}, kPauseMaxShared{2};

AutogradThrow autograd_throw = nullptr;  // set before there are replicators

// Prefix of the messages between two replicas in the store: each by its number, and their count
// under "sent".
std::string MailBox(int from, int to) {
  return "mail/" + std::to_string(from) + "/" + std::to_string(to) + "/";
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
  const bool followed =
      torch::GradMode::is_enabled() &&
      std::any_of(in.begin(), in.end(), [](const auto& t) { return t.requires_grad(); });
  const auto on_gpu = std::find_if(in.begin(), in.end(), [](const auto& t) { return t.is_cuda(); });
  if (followed && on_gpu != in.end()) {
    // a GPU's part of a graph is walked by one thread for all replicas, where one would wait for
    // the others; the CPU's part by the replica's own
    Leaves host;
    for (const torch::Tensor& leaf : in) host.push_back(leaf.to(torch::kCPU));
    Leaves out = Differentiable(host, forward, std::move(backward));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = out[i].to(out.size() == in.size() ? in[i].device() : on_gpu->device());
    return out;
  }
  Leaves detached;
  for (const torch::Tensor& leaf : in) detached.push_back(leaf.detach());
  Leaves out;
  {
    const torch::NoGradGuard none;
    out = forward(detached);
  }
  if (!followed) return out;
  auto node = MakeAutogradNode<CollectiveBackward>();
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
  group_ = ValueOrReplication(RankGroup::Make(setup_.world, setup_.links, setup_.communicator));
  const int locals = setup_.replicas / setup_.world.size;
  const int first_replica = setup_.world.rank * locals;
  try {
    scheduler_ = std::make_unique<CooperativeScheduler>(
        locals, first_replica, [this](int from, int to) { SwitchReplica(from, to); });
  } catch (const Error& error) {
    group_->Fail(error.status());  // the others wait for this rank
    throw;
  }
  samples.assign(static_cast<size_t>(locals), 1);
  generators_.resize(static_cast<size_t>(locals));
}

ReplicatorState::~ReplicatorState() {
  group_->Leave();
  // ends waits in the background
  group_->communicator().Leave();
}

void ReplicatorState::Span(int local, std::string name, SteadyTime begin) {
  // not communicator(), which waits for the background
  group_->communicator().flight().Span("replica " + std::to_string(first() + local),
                                       std::move(name), begin);
}

void ReplicatorState::SwitchReplica(int from, int to) {
  generators_[static_cast<size_t>(from)] = GeneratorStates();
  SetGeneratorStates(generators_[static_cast<size_t>(to)]);  // none before its first turn
  std::erase_if(per_replica_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : per_replica_)
    if (const auto it = weak.lock()) it->SwitchReplica(from, to);
}

void ReplicatorState::SetSamples(int local, int64_t count) {
  for (const auto& weak : per_replica_) {
    const auto it = weak.lock();
    if (it && it->gradients_sent())
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
  pending_ = nullptr;
  // random numbers of steps are a function of (seed, step, replica); the caller's state is restored
  const std::vector<torch::Tensor> before = GeneratorStates();
  const at::ThreadLocalState mine;
  const auto run = [&](int local) {
    const at::ThreadLocalStateGuard theirs(mine);
    const uint64_t seed =
        DeriveKey(setup_.options.seed, Purpose::kReplicaStep, static_cast<uint64_t>(step),
                  static_cast<uint64_t>(first() + local));
    for (at::Generator& draws : Generators()) draws.set_current_seed(seed);
    const SteadyTime begin = Now();
    body(local);
    Span(local, "step " + std::to_string(step), begin);
  };
  const CommunicatorOptions& gate = setup_.communicator;
  const bool leave = mode() == ReplicationMode::kFast && gate.release;
  if (leave) gate.release();
  try {
    scheduler_->Run(run);
    if (leave) gate.reacquire({});
  } catch (const ReplicationError& error) {
    Abort(Status(static_cast<Code>(error.exit_code()), error.what()));
    throw;
  } catch (const std::exception& error) {
    Abort(Status(Code::kInternal, std::string("its step threw: ") + error.what()));
    throw;
  }
  SetGeneratorStates(before);
  ++step;
}

void ReplicatorState::Abort(const Status& why) { group_->Fail(why); }

void ReplicatorState::Leave() { group_->Leave(); }

int ReplicatorState::current() const {
  if (!scheduler_->running())
    throw ReplicationError(static_cast<int>(Code::kConfig),
                           "an optimizer's step outside Replicator::Run");
  return scheduler_->active();
}

Communicator& ReplicatorState::communicator() {
  background_.Drain();
  return group_->communicator();
}

C10dCollectives* ReplicatorState::SumFor(torch::Device device, Site site) {
  // ranks that are threads run one at a time, and waits inside c10d do not release the process
  if (mode() != ReplicationMode::kFast || world_size() == 1 || setup_.communicator.release)
    return nullptr;
  const auto [it, first] = sums_.try_emplace(device.type());
  if (!first) return it->second.get();
  // all ranks or none; NCCL refuses a GPU that two ranks share
  std::string mine = device.is_cpu() && communicator().transport().name() == std::string("gloo")
                         ? "rank " + std::to_string(rank())
                         : GpuId(device);
  std::vector<std::vector<std::byte>> all;
  ThrowReplication(communicator().AllGatherRagged({"what sums gradients", "", site},
                                                  std::as_bytes(std::span(mine)), all));
  if (!AllDiffer(all)) return nullptr;
  const auto store = WithPrefix(store_, std::string("sum/") + (device.is_cpu() ? "cpu/" : "gpu/"));
  const auto deadline = setup_.communicator.deadline;
  it->second = std::make_unique<C10dCollectives>(
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

Leaves ReplicatorState::Barrier(int local, const Call& call, const Leaves& in,
                                const Action& action) {
  if (!scheduler_->running()) {
    throw ReplicationError(static_cast<int>(Code::kConfig),
                           call.operation + ": collectives of a replica are called inside a step");
  }
  if (locals() == 1) return action({in})[0];
  // shared between the local replicas, made by the first one
  if (!pending_) pending_ = std::make_shared<PendingBarrier>(static_cast<size_t>(locals()));
  const std::shared_ptr<PendingBarrier> pending = pending_;
  // the module's buffers have other memory while others run
  for (const torch::Tensor& leaf : in)
    pending->in[static_cast<size_t>(local)].push_back(leaf.detach());
  scheduler_->Barrier(local, call.collective().text(), [&] {
    pending_ = nullptr;
    pending->out = action(pending->in);
  });
  return pending->out[static_cast<size_t>(local)];
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
      // counted, not waited for: c10d's store logs each wait that times out
      if (arrived <= number) {
        const auto sent = group_->store().Add(box + "sent", 0);
        if (sent.ok()) arrived = *sent;  // else the group's failure says why
      }
      if (arrived > number) {
        const std::string key = box + std::to_string(number);
        const auto message =
            ValueOrReplication(group_->store().Get(key, setup_.communicator.deadline));
        ThrowReplication(group_->store().Delete(key));
        return ValueOrReplication(Unpack(message));
      }
      if (setup_.communicator.release) setup_.communicator.release();
      std::this_thread::sleep_for(pause);
      if (setup_.communicator.reacquire)
        setup_.communicator.reacquire(group_->communicator().failure());
      pause = std::min(2 * pause, locals() == 1 ? kPauseMax : kPauseMaxShared);
    }
    ThrowReplication(group_->communicator().failure());
    if (Now() > deadline) {
      const Status late(Code::kUnavailable, "replica " + std::to_string(to) +
                                                " had no message from replica " +
                                                std::to_string(from) + " before the deadline");
      Abort(late);
      ThrowReplication(late);
    }
    scheduler_->Yield(local);
  }
}

}  // namespace samara
