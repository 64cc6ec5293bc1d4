#include "samara/replicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/cpu.h"
#include "core/files.h"
#include "core/log.h"
#include "core/resources.h"
#include "core/thread.h"
#include "nn/torch/first_line.h"
#include "replica/collectives/alone.h"
#include "replica/collectives/arena.h"
#include "replica/group/group.h"
#include "replica/torch/programs.h"
#include "replica/torch/reducer.h"
#include "replica/torch/state.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

constexpr int kReplicas = 8;  // of exact mode

// Torch has one random generator for CPU tensors in a process. Ranks that are threads therefore run
// one at a time, each with a state of its own: a rank has the process to itself but for the time
// that it waits for others, and, in fast mode, for its steps, whose random numbers are then not
// repeatable.
class RankGate {
 public:
  explicit RankGate(int ranks) : ranks_(static_cast<size_t>(ranks)) {}
  void Enter(int rank) {
    std::unique_lock lock(mu_);
    EnterLocked(rank, lock);
  }
  // Lets others in, until the Back that belongs to it, if this rank is in.
  void Away(int rank) {
    std::lock_guard lock(mu_);
    ranks_[static_cast<size_t>(rank)].was_in.push_back(holder_ == rank);
    LeaveLocked(rank);
  }
  // `again`: false after a failure, when whoever is in may never leave.
  void Back(int rank, bool again) {
    std::unique_lock lock(mu_);
    auto& was_in = ranks_[static_cast<size_t>(rank)].was_in;
    const bool enter = was_in.back() && again;
    was_in.pop_back();
    if (enter) EnterLocked(rank, lock);
  }
  void Leave(int rank) {
    std::lock_guard lock(mu_);
    LeaveLocked(rank);
  }

 private:
  struct Rank {
    torch::Tensor generator;
    std::vector<bool> was_in;
  };
  void EnterLocked(int rank, std::unique_lock<std::mutex>& lock) {
    free_.wait(lock, [&] { return holder_ < 0; });
    holder_ = rank;
    auto generator = at::detail::getDefaultCPUGenerator();
    const torch::Tensor& state = ranks_[static_cast<size_t>(rank)].generator;
    if (state.defined()) generator.set_state(state);
  }
  void LeaveLocked(int rank) {
    if (holder_ != rank) return;
    ranks_[static_cast<size_t>(rank)].generator = at::detail::getDefaultCPUGenerator().get_state();
    holder_ = -1;
    free_.notify_one();
  }
  std::mutex mu_;
  std::condition_variable free_;
  // guarded by mu_
  int holder_ = -1;
  std::vector<Rank> ranks_;
};

// Ranks that are threads: which one this is.
struct ThreadRank {
  World world;
  std::shared_ptr<Store> store;
  std::shared_ptr<MonitorHub> hub;
  std::shared_ptr<RankGate> gate;
};
thread_local const ThreadRank* thread_rank = nullptr;
thread_local Replicator* current = nullptr;  // of the program that this thread runs

std::optional<std::string> FromEnv(const char* name) { return ProcessEnvironment()(name); }

template <typename T>
T Number(const char* name, const std::string& text, T low, T high) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const auto number = static_cast<T>(value);
  if (used != text.size() || text.empty() || value < static_cast<double>(low) ||
      value > static_cast<double>(high) || static_cast<double>(number) != value) {
    throw ReplicationError(78, std::string(name) + "=" + text + ": expected a number from " +
                                   std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

// What was not set comes from the environment, and then from the defaults.
ReplicatorOptions Resolve(ReplicatorOptions options, const World& world) {
  if (!options.mode) {
    const std::string mode = FromEnv("SAMARA_MODE").value_or("exact");
    if (mode != "exact" && mode != "fast")
      throw ReplicationError(78, "SAMARA_MODE=" + mode + ": expected exact or fast");
    options.mode = mode == "fast" ? ReplicationMode::kFast : ReplicationMode::kExact;
  }
  if (*options.mode == ReplicationMode::kFast) {
    if (options.replicas && *options.replicas != world.size)
      throw ReplicationError(78, std::to_string(*options.replicas) +
                                     " replicas in fast mode: expected as many as ranks, " +
                                     std::to_string(world.size));
    options.replicas = world.size;
  } else if (!options.replicas) {
    const auto given = FromEnv("SAMARA_REPLICAS");
    options.replicas = given ? Number<int>("SAMARA_REPLICAS", *given, 1, 4096) : kReplicas;
  }
  if (*options.replicas < 1 || *options.replicas % world.size != 0) {
    throw ReplicationError(
        78, std::to_string(*options.replicas) + " replicas on " + std::to_string(world.size) +
                " ranks: expected a multiple of the ranks; set SAMARA_REPLICAS=" +
                std::to_string((*options.replicas + world.size - 1) / world.size * world.size));
  }
  if (!options.transport) options.transport = FromEnv("SAMARA_TRANSPORT").value_or("auto");
  if (*options.transport != "auto" && *options.transport != "shared" &&
      *options.transport != "gloo")
    throw ReplicationError(
        78, "SAMARA_TRANSPORT=" + *options.transport + ": expected auto, shared or gloo");
  if (!options.deadline_s) {
    const auto given = FromEnv("SAMARA_DEADLINE_SECONDS");
    options.deadline_s = given ? Number<double>("SAMARA_DEADLINE_SECONDS", *given, 0.1, 86400) : 30;
  }
  if (!options.trace) options.trace = FromEnv("SAMARA_TRACE").value_or("");
  if (options.threads == 0) {
    const int cores = static_cast<int>(Cores());
    options.threads =
        *options.mode == ReplicationMode::kExact ? 1 : std::max(1, cores / world.local_size);
  }
  return options;
}

// The replicator of a process whose `main` has one, for its last words; never destroyed.
struct OfProcess {
  std::mutex mu;
  std::weak_ptr<ReplicatorState> state;  // guarded by mu
  std::terminate_handler former = nullptr;
};
OfProcess& Mine() {
  static auto* mine = new OfProcess();
  return *mine;
}

// An exception has left `main`: what Replicate does with one.
[[noreturn]] void EndUncaught() {
  std::shared_ptr<ReplicatorState> state;
  {
    std::lock_guard lock(Mine().mu);
    state = Mine().state.lock();
  }
  std::string line;
  int code = 0;
  try {
    if (std::current_exception()) throw;
  } catch (const ReplicationError& error) {
    line = error.what();
    code = error.exit_code();
  } catch (const std::exception& error) {
    line = FirstLine(error.what());
    code = state ? 70 : 0;
  } catch (...) {
  }
  if (code != 0) {
    std::fprintf(stderr, "samara: %s\n", line.c_str());
    if (state) state->Abort(Status(static_cast<Code>(code), line));
    std::fflush(nullptr);
    std::_Exit(code);
  }
  if (Mine().former != nullptr) Mine().former();
  std::abort();
}

void WatchTheEnd(const std::shared_ptr<ReplicatorState>& state) {
  std::lock_guard lock(Mine().mu);
  if (state) Mine().state = state;
  if (Mine().former == nullptr) Mine().former = std::set_terminate(EndUncaught);
}

std::shared_ptr<ReplicatorState> MakeState(const World& world, const ReplicatorOptions& given) {
  ReplicatorState::Setup setup;
  setup.world = world;
  setup.options = Resolve(given, world);
  setup.mode = *setup.options.mode;
  setup.replicas = *setup.options.replicas;
  const auto deadline =
      std::chrono::milliseconds(static_cast<int64_t>(*setup.options.deadline_s * 1000));
  setup.communicator = {.deadline = deadline,
                        .first_deadline = std::max<std::chrono::milliseconds>(deadline, 600s),
                        .flight_folder = *setup.options.trace};
  const auto first = setup.communicator.first_deadline;
  torch::set_num_threads(setup.options.threads);
  if (world.size == 1) {
    setup.links.route = [](const auto&) -> Result<RankRoute> {
      return RankRoute{.transport = MakeAloneTransport(), .address = ""};
    };
  } else if (thread_rank != nullptr) {
    setup.links.store = thread_rank->store;
    const auto gate = thread_rank->gate;
    setup.links.route = [world, first,
                         gate](const std::shared_ptr<Store>& store) -> Result<RankRoute> {
      RankRoute route;
      ASSIGN_OR_RETURN(route.transport,
                       MakeArenaTransport(world.rank, world.size, *WithPrefix(store, "arena/"),
                                          {.start = first}));
      gate->Enter(world.rank);  // once all have come
      return route;
    };
    setup.communicator.away = [gate, rank = world.rank] { gate->Away(rank); };
    setup.communicator.back = [gate, rank = world.rank](const Status& failure) {
      gate->Back(rank, failure.ok());
    };
    setup.links.monitor = [hub = thread_rank->hub,
                           rank = world.rank](Monitor::OnFailure on_failure) {
      return MakeMemoryMonitor(rank, hub, std::move(on_failure));
    };
  } else {
    setup.links =
        ValueOrReplication(Connect(world, {.transport = *setup.options.transport,
                                           .address = FromEnv("SAMARA_ADDRESS").value_or(""),
                                           .start = first,
                                           .deadline = deadline}));
  }
  auto state = std::make_shared<ReplicatorState>(std::move(setup));
  // before anything else: all ranks want the same thing
  const ReplicatorOptions& o = state->options();
  const std::string text =
      std::string(state->mode() == ReplicationMode::kExact ? "exact" : "fast") + " mode, " +
      std::to_string(state->replicas()) + " replicas, seed " + std::to_string(o.seed) + ", " +
      std::to_string(o.threads) + " threads a rank, torch " + TORCH_VERSION;
  ThrowReplication(state->communicator().Barrier({"start", text}));
  if (world.rank == 0) {
    LogInfo(Describe(world) + ", " + state->communicator().transport().name() + ": " + text);
  }
  return state;
}

}  // namespace

Replicator Replicator::FromEnvironment(const ReplicatorOptions& options) {
  if (thread_rank != nullptr) return Replicator(MakeState(thread_rank->world, options));
  WatchTheEnd(nullptr);
  const auto threads = FromEnv("SAMARA_THREADS");
  if (threads && *threads != "1") {
    throw ReplicationError(78,
                           "SAMARA_THREADS=" + *threads +
                               ": ranks as threads need a program that calls samara::Replicate");
  }
  auto state = MakeState(ValueOrReplication(DiscoverWorld(ProcessEnvironment())), options);
  WatchTheEnd(state);
  return Replicator(std::move(state));
}

Replicator& Replicator::Current() {
  if (current == nullptr)
    throw ReplicationError(78, "no replicator: expected a program that samara::Replicate runs");
  return *current;
}

int Replicator::rank() const { return state_->rank(); }
int Replicator::world_size() const { return state_->world_size(); }
int Replicator::num_replicas() const { return state_->replicas(); }
int Replicator::local_replicas() const { return state_->locals(); }
int Replicator::first_replica() const { return state_->first(); }
ReplicationMode Replicator::mode() const { return state_->mode(); }
const char* Replicator::transport() const { return state_->communicator().transport().name(); }
int64_t Replicator::step() const { return state_->step; }
void Replicator::SetStep(int64_t step) { state_->step = step; }

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

void Replicator::RunBodies(const std::vector<int64_t>& samples,
                           const std::function<void(int)>& body,
                           std::optional<int64_t> whole_batch) {
  state_->whole_batch = whole_batch;
  state_->Run(samples, body);
}

bool Replicator::ShareBatches(InputMode mode, std::vector<std::optional<Leaves>>& batches,
                              std::optional<Leaves>& last, Site site) {
  const auto locals = static_cast<size_t>(local_replicas());
  if (mode == InputMode::kSingle && world_size() > 1) {
    // rank 0 has everybody's
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
  // all stop together, when nobody has a batch left
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

WrappedOptimizer Replicator::WrapBase(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                      std::vector<torch::Tensor> buffers,
                                      const WrapOptions& options, Site site) {
  if (dynamic_cast<torch::optim::LBFGS*>(optimizer.get()) != nullptr)
    throw ReplicationError(
        78, "LBFGS evaluates its loss several times a step: expected an optimizer that does not");
  std::vector<torch::Tensor> parameters;
  std::vector<std::pair<size_t, size_t>> place;  // group, index within it
  for (size_t g = 0; g < optimizer->param_groups().size(); ++g) {
    for (const torch::Tensor& p : optimizer->param_groups()[g].params()) {
      place.emplace_back(g, parameters.size());
      parameters.push_back(p);
    }
  }
  // an update of some parameters: the optimizer sees only these
  auto holder = std::make_shared<std::weak_ptr<GradientReducer>>();
  const auto update = [optimizer, place, parameters, holder](const std::vector<size_t>& used) {
    const auto reducer = holder->lock();
    std::vector<std::vector<torch::Tensor>> chosen(optimizer->param_groups().size());
    for (const size_t i : used)
      if (reducer->owner(i) == reducer->state().rank())
        chosen[place[i].first].push_back(parameters[i]);
    std::vector<std::vector<torch::Tensor>> before;
    for (size_t g = 0; g < chosen.size(); ++g) {
      before.push_back(optimizer->param_groups()[g].params());
      optimizer->param_groups()[g].params() = chosen[g];
    }
    optimizer->step();
    for (size_t g = 0; g < before.size(); ++g)
      optimizer->param_groups()[g].params() = std::move(before[g]);
  };
  auto reducer = std::make_shared<GradientReducer>(*state_, std::move(parameters),
                                                   std::move(buffers), options, update, site);
  *holder = reducer;
  reducer->Start();
  return {std::move(reducer), std::move(optimizer)};
}

Leaves Replicator::ReduceLocals(const std::vector<Leaves>& locals, ReduceOp op,
                                const std::string& structure, Site site) {
  const torch::NoGradGuard none;
  return state_->Reduce(
      locals, op, {std::string("reduce ") + Name(op), DescribeLeaves(locals[0], structure), site});
}

Leaves Replicator::MeanLocals(const std::vector<Leaves>& locals, const std::string& structure,
                              Site site) {
  const torch::NoGradGuard none;
  // the samples travel as one more leaf
  std::vector<Leaves> weighted;
  for (size_t i = 0; i < locals.size(); ++i) {
    const int64_t samples = state_->samples.at(i);
    Leaves leaves;
    for (const torch::Tensor& leaf : locals[i]) {
      if (!leaf.is_floating_point())
        throw ReplicationError(
            78, "the mean of " + DescribeTensor(leaf) + ": expected floating-point tensors");
      // a mean over no rows is not a number
      leaves.push_back(samples == 0 ? torch::zeros_like(leaf)
                                    : leaf.detach() * static_cast<double>(samples));
    }
    leaves.push_back(torch::tensor(static_cast<double>(samples), torch::kDouble));
    weighted.push_back(std::move(leaves));
  }
  Leaves total = state_->Reduce(weighted, ReduceOp::kSum,
                                {"mean by samples", DescribeLeaves(locals[0], structure), site});
  const double samples = total.back().item<double>();
  total.pop_back();
  for (torch::Tensor& leaf : total) leaf.div_(samples);
  return total;
}

Leaves Replicator::BroadcastMain(const Leaves& in, const std::string& structure, Site site) {
  const torch::NoGradGuard none;
  return state_->Broadcast(std::vector<Leaves>(static_cast<size_t>(local_replicas()), in), 0,
                           {"broadcast from rank 0", DescribeLeaves(in, structure), site});
}

void Replicator::Barrier(Site site) {
  ThrowReplication(state_->communicator().Barrier({"barrier", "", site}));
}

void Replicator::Abort(const std::string& why, int exit_code) {
  state_->Abort(Status(static_cast<Code>(exit_code), why));
}

void Replicator::Shutdown(Site site) {
  ThrowReplication(state_->communicator().Barrier({"end of the program", "", site}));
  const std::string& folder = *state_->options().trace;
  if (!folder.empty()) {
    ThrowReplication(CreateFolders(folder));
    ThrowReplication(WriteFileAtomic(Path(folder) / ("trace-" + std::to_string(rank()) + ".json"),
                                     ChromeTrace()));
  }
  state_->Leave();
}

std::string Replicator::ChromeTrace() const {
  return state_->communicator().flight().ChromeTrace(rank());
}

// --- the optimizer

WrappedOptimizer::WrappedOptimizer(std::shared_ptr<GradientReducer> reducer,
                                   std::shared_ptr<torch::optim::Optimizer> optimizer)
    : reducer_(std::move(reducer)), optimizer_(std::move(optimizer)) {}
void WrappedOptimizer::zero_grad() { reducer_->ZeroGrad(); }
void WrappedOptimizer::step(Site site) { reducer_->Step(reducer_->state().current(), site); }
std::shared_ptr<void> WrappedOptimizer::NoSync() { return reducer_->NoSync(); }
double WrappedOptimizer::last_norm() const { return reducer_->last_norm(); }
int64_t WrappedOptimizer::skipped() const { return reducer_->skipped(); }
int64_t WrappedOptimizer::updates() const { return reducer_->updates(); }
std::string WrappedOptimizer::parameter_hash() const { return reducer_->ParameterHash(); }

// --- programs

namespace {

// Prints it, as this process's failure; its code.
int Say(int code, const std::string& what, const Failed& failed) {
  std::fprintf(stderr, "samara: %s\n", what.c_str());
  if (failed) failed(code, what);
  return code;
}

int RunOne(const std::function<void(Replicator&)>& program, const ReplicatorOptions& options,
           const Failed& failed) {
  const auto say = [&](int code, const std::string& what) {
    int rank = 0;
    if (thread_rank != nullptr)
      rank = thread_rank->world.rank;
    else if (const auto world = DiscoverWorld(ProcessEnvironment()); world.ok())
      rank = world->rank;
    return Say(code, what, rank == 0 ? failed : nullptr);
  };
  std::optional<Replicator> replicator;
  try {
    replicator.emplace(Replicator::FromEnvironment(options));
    current = &*replicator;
    const std::shared_ptr<void> reset(nullptr, [](void*) { current = nullptr; });
    std::optional<Stopped> stopped;
    try {
      program(*replicator);
    } catch (const Stopped& why) {
      stopped = why;
    }
    replicator->Shutdown();
    return stopped ? say(stopped->exit_code(), stopped->what()) : 0;
  } catch (const ReplicationError& error) {
    if (replicator) replicator->Abort(error.what(), error.exit_code());
    return say(error.exit_code(), error.what());
  } catch (const std::exception& error) {
    const Status why = StatusOf(error);
    const int code = static_cast<int>(why.code());
    const std::string line =
        FirstLine(why.code() == Code::kInternal ? error.what() : why.message());
    if (replicator) replicator->Abort("its program threw: " + line, code);
    return say(code, line);
  }
}

}  // namespace

int ReplicateThreads(int ranks, const std::function<void(Replicator&)>& program,
                     const ReplicatorOptions& options, const Failed& failed) {
  if (ranks < 1 || ranks > 1024)
    return Say(78, std::to_string(ranks) + " ranks as threads: expected 1 to 1024", failed);
  const auto store = MakeMemoryStore();
  const auto hub = MakeMonitorHub(ranks);
  const auto gate = std::make_shared<RankGate>(ranks);
  std::vector<int> codes(static_cast<size_t>(ranks));
  ThreadGroup threads(nullptr);  // they return with their programs
  const Status started = threads.Start("rank", static_cast<size_t>(ranks), [&](size_t index) {
    const int r = static_cast<int>(index);
    ThreadRank mine{{}, store, hub, gate};
    mine.world.rank = mine.world.local_rank = r;
    mine.world.size = mine.world.local_size = ranks;
    mine.world.launcher = "threads";
    thread_rank = &mine;
    codes[index] = RunOne(program, options, failed);
    gate->Leave(r);
    thread_rank = nullptr;
  });
  if (!started.ok()) return Say(static_cast<int>(started.code()), started.message(), failed);
  threads.Join();
  for (const int code : codes)
    if (code != 0) return code;
  return 0;
}

int ReplicateThreads(int ranks, const std::function<void(Replicator&)>& program,
                     const ReplicatorOptions& options) {
  return ReplicateThreads(ranks, program, options, nullptr);
}

int Replicate(const std::function<void(Replicator&)>& program, const ReplicatorOptions& options,
              const Failed& failed) {
  const auto threads = FromEnv("SAMARA_THREADS");
  if (!threads) return RunOne(program, options, failed);
  int ranks = 0;
  try {
    ranks = Number<int>("SAMARA_THREADS", *threads, 1, 1024);
  } catch (const ReplicationError& error) {
    return Say(error.exit_code(), error.what(), failed);
  }
  return ReplicateThreads(ranks, program, options, failed);
}

int Replicate(const std::function<void(Replicator&)>& program, const ReplicatorOptions& options) {
  return Replicate(program, options, nullptr);
}

}  // namespace samara
