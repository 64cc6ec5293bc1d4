// Write a step for one device; run it on any number of threads, processes and hosts.
//
//   auto replicator = samara::Replicator::FromEnvironment();
//   auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
//   for (...) replicator.Run(step, input);
//
// A *replica* is one copy of the computation, with an id in [0, N); a *rank* is a process, or a
// thread of one, and has N / ranks replicas. Code outside Run sees all replicas of its rank; a step
// sees one, and may call collectives through its ReplicaContext: every replica calls them, in the
// same order, or every rank gets an error that names who called what.
//
// Exact mode fixes N (8 unless told otherwise) and every reduction's tree, so that parameters have
// the same bits on 1, 2, 4 and 8 ranks, threads or processes. The replicas of a rank share the
// model and take turns at the collectives; gradients, buffers of wrapped modules and the random
// generator's state are each replica's own. Fast mode has one replica a rank and overlaps the
// reduction of gradients with the backward pass.
//
// Errors are ReplicationError (error.h).
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "samara/error.h"
#include "samara/input.h"
#include "samara/nest.h"
#include "samara/reduce_op.h"
#include "samara/site.h"

namespace samara {

class ReplicatorState;  // src/replica/torch
class GradientReducer;

enum class ReplicationMode : uint8_t { kExact, kFast };

// Members that are not set come from the environment variable in brackets, else from here.
struct ReplicatorOptions {
  std::optional<ReplicationMode> mode;  // [SAMARA_MODE=exact|fast] exact
  std::optional<int> replicas;  // [SAMARA_REPLICAS] of exact mode: 8; a multiple of the ranks
  std::optional<std::string>
      transport;  // [SAMARA_TRANSPORT=auto|shared|gloo] auto: shared on one host
  std::optional<double>
      deadline_s;  // [SAMARA_DEADLINE_SECONDS] of a collective: 30; the first: 600
  std::optional<std::string>
      trace;          // [SAMARA_TRACE] folder: Chrome trace and, on failure, the last collectives
  uint64_t seed = 1;  // of the random numbers that steps draw
  int threads = 0;  // of torch within a rank; 0: 1 in exact mode, where more change bits, else its
                    // share of the cores
  int check_every = 100;  // optimizer steps between comparisons of the parameters' hash; 0: never
};

// Values of this rank's replicas, in the order of their ids.
template <typename T>
struct PerReplica {
  int first = 0;  // id of values[0]
  std::vector<T> values;
};

// The view of one replica inside a step. Nests: nest.h. Every call is a collective but for Send and
// Receive. Differentiable: AllReduce and its names, AllGather, Broadcast, ReduceScatter, AllToAll,
// under the convention that the loss is the sum of the replicas' losses.
class ReplicaContext {
 public:
  ReplicaContext(ReplicatorState& state, int local) : state_(state), local_(local) {}

  int replica_id() const;
  int num_replicas() const;
  int rank() const;
  int world_size() const;
  int64_t step() const;  // counts calls of Run
  // Rows of this replica's batch; 0 when its input has run out. Gradients are weighted by it.
  int64_t samples() const;
  // Where the batch's first tensor does not tell. Before backward, which may send gradients.
  void SetSamples(int64_t samples);

  // Element by element over the replicas, in the fixed tree; the same bits on every replica.
  template <typename T>
  T AllReduce(const T& nest, ReduceOp op, Site site = std::source_location::current()) const {
    return Unflatten(nest, Reduce(Flatten(nest), op, Structure(nest), site));
  }
  template <typename T>
  T AllSum(const T& nest, Site site = std::source_location::current()) const {
    return AllReduce(nest, ReduceOp::kSum, site);
  }
  template <typename T>
  T AllMean(const T& nest, Site site = std::source_location::current()) const {
    return AllReduce(nest, ReduceOp::kMean, site);
  }
  template <typename T>
  T AllMin(const T& nest, Site site = std::source_location::current()) const {
    return AllReduce(nest, ReduceOp::kMin, site);
  }
  template <typename T>
  T AllMax(const T& nest, Site site = std::source_location::current()) const {
    return AllReduce(nest, ReduceOp::kMax, site);
  }
  template <typename T>
  T AllProduct(const T& nest, Site site = std::source_location::current()) const {
    return AllReduce(nest, ReduceOp::kProduct, site);
  }

  // Stacks: leaf shape [N] + dims, index = replica id. Shapes are equal on all replicas.
  template <typename T>
  T AllGather(const T& nest, Site site = std::source_location::current()) const {
    return Unflatten(nest, Stack(Flatten(nest), Structure(nest), site));
  }
  // Concatenates along `dim`; sizes may differ along it.
  torch::Tensor AllGatherAlong(const torch::Tensor& tensor, int64_t dim,
                               Site site = std::source_location::current()) const;
  template <typename T>
  T AllGatherAlong(const T& nest, int64_t dim, Site site = std::source_location::current()) const {
    return ForEachLeaf(nest, [&](const torch::Tensor& x) { return AllGatherAlong(x, dim, site); });
  }
  // All get the nest of replica `source`.
  template <typename T>
  T Broadcast(const T& nest, int source, Site site = std::source_location::current()) const {
    return Unflatten(nest, BroadcastLeaves(Flatten(nest), source, Structure(nest), site));
  }
  // Reduces, and gives this replica its part of dimension 0, which N divides.
  torch::Tensor ReduceScatter(const torch::Tensor& tensor, ReduceOp op,
                              Site site = std::source_location::current()) const;
  template <typename T>
  T ReduceScatter(const T& nest, ReduceOp op, Site site = std::source_location::current()) const {
    return ForEachLeaf(nest, [&](const torch::Tensor& x) { return ReduceScatter(x, op, site); });
  }
  // Part j of dimension 0 goes to replica j; theirs come back in the order of their ids.
  torch::Tensor AllToAll(const torch::Tensor& tensor,
                         Site site = std::source_location::current()) const;
  template <typename T>
  T AllToAll(const T& nest, Site site = std::source_location::current()) const {
    return ForEachLeaf(nest, [&](const torch::Tensor& x) { return AllToAll(x, site); });
  }

  // To one replica, without waiting for it; small tensors (it goes through the store between
  // ranks), and without a gradient: 78 for those that require one.
  template <typename T>
  void Send(const T& nest, int to) const {
    SendLeaves(Flatten(nest), to);
  }
  // Returns the next nest that `from` sent; `like` has the structure, shapes and types: 78 for
  // others.
  template <typename T>
  T Receive(const T& like, int from) const {
    return Unflatten(like, ReceiveLeaves(from, Flatten(like)));
  }

  // fn(item) runs on one replica an item (item i on replica i mod N); all get all results, in the
  // order of the items. Not differentiable. fn calls no collective.
  template <typename Item, typename Fn>
  auto MapGather(const std::vector<Item>& items, Fn&& fn,
                 Site site = std::source_location::current()) const {
    using R = std::decay_t<std::invoke_result_t<Fn&, const Item&>>;
    std::vector<Leaves> mine;
    for (size_t i = static_cast<size_t>(replica_id()); i < items.size();
         i += static_cast<size_t>(num_replicas()))
      mine.push_back(Packed<R>(fn(items[i])));
    std::vector<R> results;
    for (const Leaves& leaves : ExchangeItems(std::move(mine), items.size(), site))
      results.push_back(Unpacked<R>(leaves));
    return results;
  }
  // The same, folded: results[0] op results[1] op ..., from left to right.
  template <typename Item, typename Fn>
  auto MapReduce(const std::vector<Item>& items, Fn&& fn, ReduceOp op,
                 Site site = std::source_location::current()) const {
    auto results = MapGather(items, std::forward<Fn>(fn), site);
    using R = typename decltype(results)::value_type;
    Leaves total = Flatten<R>(results.at(0));
    for (size_t i = 1; i < results.size(); ++i)
      total = FoldLeaves(total, Flatten<R>(results[i]), op);
    return Unflatten<R>(results[0],
                        op == ReduceOp::kMean ? DivideLeaves(total, results.size()) : total);
  }
  // Leaves the replicas for a moment: fn(values of all replicas) runs once, and each replica gets
  // its own of a PerReplica that it returns, or the one value. Not differentiable.
  template <typename T, typename Fn>
  auto MergeCall(Fn&& fn, const T& nest, Site site = std::source_location::current()) const {
    using R = std::decay_t<std::invoke_result_t<Fn&, const std::vector<T>&>>;
    const auto merge = [&](const std::vector<Leaves>& all) {
      std::vector<T> values;
      for (const Leaves& leaves : all) values.push_back(Unflatten(nest, leaves));
      const R result = fn(values);
      if constexpr (IsPerReplica<R>::value) {
        CheckOnePerReplica(result.values.size());
        return Packed(result.values);
      } else {
        return Packed(result);
      }
    };
    const Leaves leaves = Merge(Flatten(nest), merge, Structure(nest), site);
    if constexpr (IsPerReplica<R>::value) {
      return Unpacked<decltype(R::values)>(leaves).at(static_cast<size_t>(replica_id()));
    } else {
      return Unpacked<R>(leaves);
    }
  }

  // Collectives within the groups of a partition of all replicas; every replica calls them.
  // Differentiable: AllReduce by sum or mean, AllGather, Broadcast.
  class SubGroups {
   public:
    SubGroups(const ReplicaContext& context, std::vector<std::vector<int>> groups);
    int size() const { return static_cast<int>(mine_.size()); }
    int index() const { return index_; }  // of this replica, within its group
    template <typename T>
    T AllReduce(const T& nest, ReduceOp op, Site site = std::source_location::current()) const {
      return Unflatten(nest, ReduceWithin(Flatten(nest), op, Structure(nest), site));
    }
    template <typename T>
    T AllGather(const T& nest, Site site = std::source_location::current()) const {
      return Unflatten(nest, StackWithin(Flatten(nest), Structure(nest), site));
    }
    template <typename T>
    T Broadcast(const T& nest, int source,
                Site site = std::source_location::current()) const {  // index in the group
      return Unflatten(nest, BroadcastWithin(Flatten(nest), source, Structure(nest), site));
    }

    // The same with leaves, for bindings.
    Leaves ReduceWithin(const Leaves& in, ReduceOp op, const std::string& structure,
                        Site site) const;
    Leaves StackWithin(const Leaves& in, const std::string& structure, Site site) const;
    Leaves BroadcastWithin(const Leaves& in, int source, const std::string& structure,
                           Site site) const;

   private:
    std::vector<Leaves> Within(const Leaves& in, const std::string& what,
                               const std::string& structure, Site site) const;
    Leaves Fold(const Leaves& in, ReduceOp op, const std::string& what,
                const std::string& structure, Site site) const;
    // Returns a function that sums the gradients of `what` over the group, for the backward pass.
    std::function<Leaves(const Leaves& gradients)> SumLater(const std::string& what, ReduceOp op,
                                                            Site site) const;
    const ReplicaContext& context_;
    std::vector<std::vector<int>> groups_;
    std::vector<int> mine_;
    int index_ = 0;
  };
  SubGroups Within(std::vector<std::vector<int>> groups) const {
    return {*this, std::move(groups)};
  }

  // Device i of this replica, for models that span several; without a GPU it has one, the CPU.
  torch::Device logical_device(int i) const;

  // The same with leaves, for bindings.
  Leaves Reduce(const Leaves& in, ReduceOp op, const std::string& structure, Site site) const;
  Leaves Stack(const Leaves& in, const std::string& structure, Site site) const;
  Leaves BroadcastLeaves(const Leaves& in, int source, const std::string& structure,
                         Site site) const;
  void SendLeaves(const Leaves& in, int to) const;
  Leaves ReceiveLeaves(int from, const Leaves& like) const;
  std::vector<Leaves> ExchangeItems(std::vector<Leaves> mine, size_t items, Site site) const;
  std::vector<Leaves> GatherLeaves(const Leaves& in, const std::string& operation,
                                   const std::string& operand, Site site) const;
  using MergeFn = std::function<Leaves(const std::vector<Leaves>& all)>;
  Leaves Merge(const Leaves& in, const MergeFn& merge, const std::string& structure,
               Site site) const;
  ReplicatorState& state() const { return state_; }
  int local() const { return local_; }

 private:
  template <typename T, typename Fn>
  static T ForEachLeaf(const T& nest, Fn&& fn) {
    Leaves leaves = Flatten(nest);
    for (torch::Tensor& leaf : leaves) leaf = fn(leaf);
    return Unflatten(nest, leaves);
  }
  static Leaves FoldLeaves(const Leaves& a, const Leaves& b, ReduceOp op);
  static Leaves DivideLeaves(const Leaves& a, size_t n);
  template <typename R>
  struct IsPerReplica : std::false_type {};
  template <typename T>
  struct IsPerReplica<PerReplica<T>> : std::true_type {};
  void CheckOnePerReplica(size_t values) const;

  ReplicatorState& state_;
  const int local_;
};

// How gradients of one optimizer are combined and applied.
struct WrapOptions {
  double clip_norm = 0;  // largest global norm of the averaged gradient; 0: not clipped
  bool shard_state =
      false;  // each rank keeps the optimizer's state of its share of the parameters (ZeRO-1)
  bool bf16 = false;  // fast mode: gradients travel as bfloat16
  size_t bucket_bytes = 4 << 20;
  bool overlap = true;  // fast mode: reduces while the backward pass goes on
  bool step_by_bucket =
      false;  // fast mode: updates each bucket as it comes; a non-finite gradient ends the run then
  int nonfinite_max = 5;  // updates skipped in a row before the run ends with 70
};

// An optimizer whose step is a collective: gradients of all replicas are averaged, weighted by
// their samples, then tested, clipped and applied, once a rank and with the same bits everywhere.
class WrappedOptimizer {
 public:
  WrappedOptimizer(std::shared_ptr<GradientReducer> reducer,
                   std::shared_ptr<torch::optim::Optimizer> optimizer);
  void zero_grad();
  // Inside a step. `site` is part of the fingerprint.
  void step(Site site = std::source_location::current());
  // While the returned object lives, backward passes add to the gradients without sending them.
  [[nodiscard]] std::shared_ptr<void> NoSync();
  torch::optim::Optimizer& base() { return *optimizer_; }
  GradientReducer& reducer() { return *reducer_; }
  double last_norm() const;  // of the averaged gradient, before clipping
  int64_t skipped() const;   // updates that a non-finite gradient cost
  int64_t updates() const;
  std::string parameter_hash() const;  // SHA-256 over the parameters, in their order

 private:
  std::shared_ptr<GradientReducer> reducer_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};

struct Nothing {};  // what a step gives that returns void

class Replicator {
 public:
  // The ranks that the launcher started: torchrun, mpirun, srun, `samara launch`, a Kubernetes job;
  // alone without one. Blocks until all have come. Says once where it found them. From then on an
  // exception that leaves `main` is one line, and ends the process and the others with its code.
  static Replicator FromEnvironment(const ReplicatorOptions& options = {});
  explicit Replicator(std::shared_ptr<ReplicatorState> state) : state_(std::move(state)) {}
  // Returns the replicator of the program that this thread runs for Replicate, outside steps; 78
  // when there is none.
  static Replicator& Current();

  int rank() const;
  int world_size() const;
  int num_replicas() const;
  int local_replicas() const;
  int first_replica() const;
  ReplicationMode mode() const;
  const char* transport() const;               // "alone", "shared", "gloo"
  bool IsMain() const { return rank() == 0; }  // who prints and writes
  int64_t step() const;                        // counts calls of Run
  void SetStep(int64_t step);                  // on all ranks, when a program goes on

  // Pipelines of batches, read ahead. `input_fn`: (const InputContext&) -> Pipeline<Batch>.
  template <typename InputFn>
  auto MakeInput(InputMode mode, InputFn&& input_fn, const InputOptions& options = {}) {
    using Pipeline = std::invoke_result_t<InputFn&, const InputContext&>;
    using Batch = typename std::invoke_result_t<Pipeline&>::value_type;
    return Input<Batch>(Shape(mode), std::forward<InputFn>(input_fn), options);
  }

  // Runs step(context, batch), step(batch), step(context) or step() once on every replica of this
  // rank. An input that has run out for some replicas gives them a batch without rows, whose
  // gradient counts nothing; nullopt when it has run out for all.
  template <typename Step, typename Batch>
  auto Run(Step&& step, Input<Batch>& input, Site site = std::source_location::current()) {
    std::optional<PerReplica<StepValue<Step, Batch>>> results;
    auto batches = NextBatches(input, site);
    if (batches) results = RunEach(step, *batches);
    return results;
  }
  // Every rank has the whole batch; each replica gets its contiguous share of dimension 0.
  template <typename Step, typename Batch>
  auto Run(Step&& step, const Batch& whole) {
    const Leaves leaves = Flatten(whole);
    std::vector<Batch> batches;
    for (int i = 0; i < local_replicas(); ++i)
      batches.push_back(Unflatten(whole, ShareOf(leaves, first_replica() + i)));
    return RunEach(step, batches, Rows(leaves));
  }
  template <typename Step>
  auto Run(Step&& step) {
    const std::vector<std::tuple<>> none(static_cast<size_t>(local_replicas()));
    return RunEach(step, none);
  }

  // Wraps an optimizer, moved in, or borrowed when it is an lvalue: its parameters become those of
  // replica 0 everywhere, and its step a collective. With the module its buffers are sent too, and
  // are each replica's own from then on; replica 0's stay in the module.
  template <typename Optimizer>
  WrappedOptimizer Wrap(Optimizer&& optimizer, const WrapOptions& options = {},
                        Site site = std::source_location::current()) {
    return WrapBase(Own(std::forward<Optimizer>(optimizer)), {}, options, site);
  }
  template <typename Optimizer>
  WrappedOptimizer Wrap(Optimizer&& optimizer, torch::nn::Module& module,
                        const WrapOptions& options = {},
                        Site site = std::source_location::current()) {
    return WrapBase(Own(std::forward<Optimizer>(optimizer)), module.buffers(), options, site);
  }

  // Outside steps: over all replicas' values; the same on every rank.
  template <typename T>
  T Reduce(const PerReplica<T>& values, ReduceOp op, Site site = std::source_location::current()) {
    std::vector<Leaves> locals;
    for (const T& value : values.values) locals.push_back(Flatten(value));
    return Unflatten(values.values.at(0),
                     ReduceLocals(locals, op, Structure(values.values.at(0)), site));
  }
  // The mean over all replicas of floating-point values of the last Run, weighted by the samples of
  // their batches: of losses that are means, the one of the whole batch.
  template <typename T>
  T Mean(const PerReplica<T>& values, Site site = std::source_location::current()) {
    std::vector<Leaves> locals;
    for (const T& value : values.values) locals.push_back(Flatten(value));
    return Unflatten(values.values.at(0), MeanLocals(locals, Structure(values.values.at(0)), site));
  }
  // The nest of rank 0.
  template <typename T>
  T Broadcast(const T& nest, Site site = std::source_location::current()) {
    return Unflatten(nest, BroadcastMain(Flatten(nest), Structure(nest), site));
  }
  void Barrier(Site site = std::source_location::current());
  // This rank gives up: the others end with `why`, and that code, instead of waiting for it.
  void Abort(const std::string& why, int exit_code = 69);
  // An orderly end, which waits for the others; the destructor does not wait.
  void Shutdown(Site site = std::source_location::current());
  // The last collectives of this rank in Chrome's trace format.
  std::string ChromeTrace() const;
  ReplicatorState& state() const { return *state_; }

  // The same with leaves, for bindings. Rows: of a batch, by its first tensor. RunBodies: body(i)
  // is the step of local replica i; whole_batch: the rows that they are shares of. ShareBatches:
  // batches of this rank's pipelines in, those of its replicas out; false when no rank has one.
  static int64_t Rows(const Leaves& leaves);
  Leaves ShareOf(const Leaves& whole, int replica) const;
  InputShape Shape(InputMode mode) const;
  void RunBodies(const std::vector<int64_t>& samples, const std::function<void(int)>& body,
                 std::optional<int64_t> whole_batch = std::nullopt);
  bool ShareBatches(InputMode mode, std::vector<std::optional<Leaves>>& batches,
                    std::optional<Leaves>& last, Site site);
  Leaves ReduceLocals(const std::vector<Leaves>& locals, ReduceOp op, const std::string& structure,
                      Site site);
  Leaves MeanLocals(const std::vector<Leaves>& locals, const std::string& structure, Site site);
  Leaves BroadcastMain(const Leaves& in, const std::string& structure, Site site);

 private:
  template <typename Step, typename Batch>
  static auto Call(Step& step, ReplicaContext& context, Batch& batch) {
    const auto call = [&]() -> decltype(auto) {
      if constexpr (std::is_invocable_v<Step&, ReplicaContext&, Batch&>)
        return step(context, batch);
      else if constexpr (std::is_invocable_v<Step&, Batch&>)
        return step(batch);
      else if constexpr (std::is_invocable_v<Step&, ReplicaContext&>)
        return step(context);
      else
        return step();
    };
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return Nothing{};
    } else {
      return std::decay_t<decltype(call())>(call());
    }
  }
  template <typename Step, typename Batch>
  using StepValue = decltype(Call(std::declval<std::remove_reference_t<Step>&>(),
                                  std::declval<ReplicaContext&>(), std::declval<Batch&>()));

  template <typename Step, typename Batch>
  auto RunEach(Step& step, const std::vector<Batch>& batches,
               std::optional<int64_t> whole_batch = std::nullopt) {
    using R = StepValue<Step, Batch>;
    std::vector<std::optional<R>> values(batches.size());
    std::vector<int64_t> samples;
    for (const Batch& batch : batches) samples.push_back(Rows(Flatten(batch)));
    RunBodies(
        samples,
        [&](int local) {
          ReplicaContext context(*state_, local);
          Batch batch = batches[static_cast<size_t>(local)];
          values[static_cast<size_t>(local)].emplace(Call(step, context, batch));
        },
        whole_batch);
    PerReplica<R> results{first_replica(), {}};
    for (auto& value : values) results.values.push_back(std::move(*value));
    return results;
  }
  template <typename Batch>
  std::optional<std::vector<Batch>> NextBatches(Input<Batch>& input, Site site) {
    std::vector<std::optional<Batch>> read = input.Next();
    std::vector<std::optional<Leaves>> leaves;
    for (const auto& batch : read)
      leaves.push_back(batch ? std::optional(Flatten(*batch)) : std::nullopt);
    if (!ShareBatches(input.mode(), leaves, input.last(), site)) return std::nullopt;
    std::vector<Batch> batches;
    for (const auto& l : leaves) {
      if (l->size() != Flatten(input.like()).size())
        throw ReplicationError(
            78, "a batch from another rank needs a fixed structure: a struct, tuple or tensor");
      batches.push_back(Unflatten(input.like(), *l));
    }
    return batches;
  }
  template <typename Optimizer>
  static std::shared_ptr<torch::optim::Optimizer> Own(Optimizer&& optimizer) {
    using O = std::decay_t<Optimizer>;
    if constexpr (std::is_lvalue_reference_v<Optimizer>)
      return {std::shared_ptr<void>(), &optimizer};
    else
      return std::make_shared<O>(std::forward<Optimizer>(optimizer));
  }

  WrappedOptimizer WrapBase(std::shared_ptr<torch::optim::Optimizer> optimizer,
                            std::vector<torch::Tensor> buffers, const WrapOptions& options,
                            Site site);

  std::shared_ptr<ReplicatorState> state_;
};

// Runs `program` once a rank: in this process when a launcher has started it or nothing has, and
// with [SAMARA_THREADS=n] on n threads of this process, each a rank of its own. Prints a failure as
// one line and returns the exit code for main.
int Replicate(const std::function<void(Replicator&)>& program,
              const ReplicatorOptions& options = {});
// The same with `ranks` threads whatever the environment says.
int ReplicateThreads(int ranks, const std::function<void(Replicator&)>& program,
                     const ReplicatorOptions& options = {});

}  // namespace samara
