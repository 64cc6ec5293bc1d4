#include "samara/replicator.h"

#include <algorithm>

#include "core/files.h"
#include "core/log.h"
#include "replica/collectives/alone.h"
#include "replica/collectives/arena.h"
#include "replica/group/group.h"
#include "replica/torch/rank_gate.h"
#include "replica/torch/replicator_options.h"
#include "replica/torch/state.h"
#include "replica/torch/terminate_handler.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

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
      gate->Enter(world.rank);  // once all have joined
      return route;
    };
    setup.communicator.release = [gate, rank = world.rank] { gate->Release(rank); };
    setup.communicator.reacquire = [gate, rank = world.rank](const Status& failure) {
      gate->Reacquire(rank, failure.ok());
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
  // before anything else: all ranks have the same options
  const ReplicatorOptions& o = state->options();
  const std::string text =
      std::string(state->mode() == ReplicationMode::kExact ? "exact" : "fast") + " mode, " +
      std::to_string(state->replicas()) + " replicas, seed " + std::to_string(o.seed) + ", " +
      std::to_string(o.threads) + " threads a rank, torch " + TORCH_VERSION;
  ThrowReplication(state->communicator().Barrier({"start", text}));
  if (world.rank == 0)  // a program of one rank is not told what it has no choice of
    Log(world.size > 1 ? LogLevel::kInfo : LogLevel::kDebug,
        Describe(world) + ", " + state->communicator().transport().name() + ": " + text);
  return state;
}

}  // namespace

Replicator Replicator::FromEnvironment(const ReplicatorOptions& options) {
  if (thread_rank != nullptr) return Replicator(MakeState(thread_rank->world, options));
  InstallTerminateHandler(nullptr);
  const auto threads = FromEnv("SAMARA_THREADS");
  if (threads && *threads != "1") {
    throw ReplicationError(78,
                           "SAMARA_THREADS=" + *threads +
                               ": ranks as threads need a program that calls samara::Replicate");
  }
  auto state = MakeState(ValueOrReplication(DiscoverWorld(ProcessEnvironment())), options);
  InstallTerminateHandler(state);
  return Replicator(std::move(state));
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

void Replicator::RunBodies(const std::vector<int64_t>& samples,
                           const std::function<void(int)>& body,
                           std::optional<int64_t> whole_batch) {
  state_->whole_batch = whole_batch;
  state_->Run(samples, body);
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

}  // namespace samara
