// State that the replicas of one rank share: their scheduler, the group of ranks, and every
// collective of ReplicaContext on leaves. The layer between nests and bytes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/torch/torch.h"
#include "replica/collectives/communicator.h"
#include "replica/group/group.h"
#include "replica/torch/c10d_collectives.h"
#include "replica/torch/cooperative_scheduler.h"
#include "replica/torch/leaves.h"
#include "replica/torch/task_thread.h"
#include "samara/replicator.h"

namespace samara {

// Throws ReplicationError with the status's code and message.
void ThrowReplication(const Status& status);
template <typename T>
T ValueOrReplication(Result<T> result) {
  ThrowReplication(result.status());
  return std::move(*result);
}

// Runs a callback of autograd. Python's autograd makes a RuntimeError of any exception that it does
// not know: a binding sets a function that throws one that it does.
using AutogradThrow = void (*)(const ReplicationError& error);
void SetAutogradThrow(AutogradThrow rethrow);
void InAutograd(const std::function<void()>& body);

// State that a replica leaves in a shared model: saved and restored when another one runs.
class PerReplicaState {
 public:
  virtual ~PerReplicaState() = default;
  virtual void SwitchReplica(int /*from*/, int /*to*/) {}
  // Whether gradients weighted by this step's samples were sent.
  virtual bool gradients_sent() const { return false; }
};

class ReplicatorState : public std::enable_shared_from_this<ReplicatorState> {
 public:
  struct Setup {
    World world;
    RankLinks links;
    ReplicationMode mode = ReplicationMode::kExact;
    int replicas = 1;
    ReplicatorOptions options;
    CommunicatorOptions communicator;
  };
  explicit ReplicatorState(Setup setup);
  ~ReplicatorState();

  const World& world() const { return setup_.world; }
  int rank() const { return setup_.world.rank; }
  int world_size() const { return setup_.world.size; }
  int replicas() const { return setup_.replicas; }
  int locals() const { return scheduler_->replicas(); }
  int first() const { return rank() * locals(); }
  ReplicationMode mode() const { return setup_.mode; }
  const ReplicatorOptions& options() const { return setup_.options; }
  // Whether ranks compare what all should hold. Exact mode promises equal bits; fast mode without
  // `check_every` does not.
  bool compares() const {
    return world_size() > 1 && (mode() == ReplicationMode::kExact || options().check_every > 0);
  }
  int64_t step = 0;
  std::vector<int64_t> samples;  // of the local replicas, in this step
  // Rows of the whole batch that every rank passed to this step; none: each replica has its own.
  std::optional<int64_t> whole_batch;

  // Samples of local replica `local` in this step. REQUIRES: before gradients are sent.
  void SetSamples(int local, int64_t count);
  void Run(const std::vector<int64_t>& rows, const std::function<void(int)>& body);
  void Add(std::weak_ptr<PerReplicaState> state) { per_replica_.push_back(std::move(state)); }

  // --- collectives of local replica `local`, inside Run; outside it with all locals at once
  struct Call {
    std::string operation, operand;
    Site site;
    Collective collective() const { return {operation, operand, site}; }
  };
  // Waits for the local replicas; `action` maps their leaves, in order, to a result for each.
  using Action = std::function<std::vector<Leaves>(const std::vector<Leaves>& locals)>;
  Leaves Barrier(int local, const Call& call, const Leaves& in, const Action& action);

  // Collectives on values of all local replicas, called by one thread a rank. Values on the CPU.
  Leaves Reduce(const std::vector<Leaves>& locals, ReduceOp op, const Call& call);
  std::vector<Leaves> Gather(const std::vector<Leaves>& locals,
                             const Call& call);  // of all replicas
  Leaves Broadcast(const std::vector<Leaves>& locals, int source, const Call& call);
  std::vector<Leaves> Exchange(const std::vector<Leaves>& locals, const Call& call);

  // The group of ranks, after background work has ended.
  Communicator& communicator();
  TaskThread& background() { return background_; }
  Communicator& background_communicator() { return group_->communicator(); }  // on background()
  // Collective, outside the background. ReplicationError 70 on every rank unless `mine` is the same
  // on all; `subject` names it: "the hash of the parameters after update 4".
  void RequireAgreement(const std::string& subject, const std::string& mine, const Call& call);
  // Fast mode: a faster sum over the ranks than the tree, for tensors on such a device; null: none.
  // The first call for a type of device is a collective.
  C10dCollectives* SumFor(torch::Device device, Site site);

  // --- messages between two replicas
  void Send(int local, int to, const Leaves& leaves);
  Leaves Receive(int local, int from);
  Store& TEST_store() { return group_->store(); }

  void Abort(const Status& why);
  void Leave();
  // The local replica that runs; throws outside a step.
  int current() const;
  int active() const { return scheduler_->active(); }  // the same; outside a step 0
  // Records in the trace an activity of local replica `local` since `begin`.
  void Span(int local, std::string name, SteadyTime begin);

 private:
  void SwitchReplica(int from, int to);

  struct PendingBarrier {
    explicit PendingBarrier(size_t locals) : in(locals) {}
    std::vector<Leaves> in, out;
  };

  Setup setup_;
  std::shared_ptr<PendingBarrier> pending_;  // reached by some of the local replicas
  const std::shared_ptr<Store> store_;       // null when alone
  std::unique_ptr<RankGroup> group_;
  std::map<torch::DeviceType, std::unique_ptr<C10dCollectives>> sums_;
  std::unique_ptr<CooperativeScheduler> scheduler_;
  std::vector<std::weak_ptr<PerReplicaState>> per_replica_;
  std::vector<std::vector<torch::Tensor>> generators_;  // states, of the replicas that do not run
  std::map<std::pair<int, int>, std::deque<std::string>> mail_;       // between local replicas
  std::map<std::pair<int, int>, int64_t> sent_, received_, arrived_;  // messages by (from, to)
  TaskThread background_;                                             // last: it uses members above
};

// The `count` devices from `first` on that are local replica `local`'s, of those a rank sees; ranks
// of one host that see the same ones share them out.
struct DeviceShare {
  int first = 0, count = 1;
};
DeviceShare ShareOfDevices(int devices, const World& world, int locals, int local);

// A result that autograd can follow: `backward` gives the gradients of `in` from those of the
// result, itself a collective. Plain when no gradient is asked for.
using Backward = std::function<Leaves(const Leaves& gradients)>;
Leaves Differentiable(const Leaves& in,
                      const std::function<Leaves(const Leaves& detached)>& forward,
                      Backward backward);

}  // namespace samara
