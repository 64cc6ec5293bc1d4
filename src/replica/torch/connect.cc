// Ranks of a launcher, connected: the launch's store, then shared memory on one host or Gloo.
#include "nn/torch/torch_device.h"
// after the door to torch
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "core/log.h"
#include "replica/collectives/arena.h"
#include "replica/group/group.h"
#include "replica/rendezvous/secret.h"
#include "replica/torch/c10d.h"
#include "replica/torch/gpu_sum.h"

namespace samara {
namespace {

constexpr std::chrono::milliseconds kMeetTime{60'000};  // once all ranks have come

// A name that ranks of one machine, and of no other, share.
std::string HostName() {
  utsname info{};
  uname(&info);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(info.nodename) + "/" + boot + "/" + std::to_string(geteuid());
}

// Rank 0 compares all names and publishes the result.
Result<bool> OneHost(const World& world, Store& store) {
  const std::string mine = HostName();
  RETURN_IF_ERROR(store.Set("host/" + std::to_string(world.rank), mine));
  if (world.rank == 0) {
    bool same = true;
    for (int r = 1; r < world.size; ++r) {
      const auto name = store.Get("host/" + std::to_string(r), kMeetTime);
      if (!name.ok())
        return Status(Code::kUnavailable, "rank " + std::to_string(r) + " has not come");
      same = same && *name == mine;
    }
    RETURN_IF_ERROR(store.Set("one_host", same ? "yes" : "no"));
  }
  ASSIGN_OR_RETURN(const std::string verdict, store.Get("one_host", kMeetTime));
  return verdict == "yes";
}

Result<RankRoute> Route(const World& world, const LinkOptions& options,
                        const std::shared_ptr<Store>& store) {
  RankRoute route;
  ASSIGN_OR_RETURN(const bool one_host, OneHost(world, *store));
  route.address = options.address.empty() && one_host ? "127.0.0.1" : options.address;
  if (options.transport == "shared" && !one_host)
    return Status(Code::kConfig, "SAMARA_TRANSPORT=shared: the ranks are on several hosts");
  if (options.transport != "gloo" && one_host) {
    auto shared = MakeArenaTransport(world.rank, world.size, *WithPrefix(store, "arena/"),
                                     {.start = kMeetTime});
    if (!shared.ok() && options.transport == "shared") return shared.status();
    if (shared.ok()) {
      route.transport = std::move(*shared);
      return route;
    }
    LogWarning("ranks use Gloo: " + shared.status().message());
  }
  ASSIGN_OR_RETURN(route.transport,
                   MakeGlooTransport(world.rank, world.size, WithPrefix(store, "gloo/"),
                                     route.address, options.deadline));
  return route;
}

// Gloo writes to its sockets without regard to dead peers: without this, a killed rank ends a
// rank that is just sending to it (SIGPIPE) and had better name it.
void LetWritesFail() {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  if (now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

Result<RankLinks> Connect(const World& world, const LinkOptions& options) {
  if (options.transport != "auto" && options.transport != "shared" && options.transport != "gloo")
    return Status(Code::kConfig,
                  "SAMARA_TRANSPORT=" + options.transport + ": expected auto, shared or gloo");
  LetWritesFail();
  // an agent that is killed cannot stop its ranks: they are asked to stop as it would have asked
  if (world.launcher == "torchrun") ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // a restart is another group: what the last one left in the store is not ours
  ASSIGN_OR_RETURN(const std::shared_ptr<Store> store, ConnectStore(world, options.start));
  // and so is another job that an agent's store is shared with
  const std::string job = Hex(Proof(world.secret, "name of the job", ""));
  RankLinks links;
  links.store = WithPrefix(store, "samara/" + job + "/" + std::to_string(world.restarts) + "/");
  const Monitor::Options monitor{.heartbeat_timeout = options.heartbeat_timeout,
                                 .start = options.start,
                                 .address = world.address,
                                 .secret = world.secret};
  links.monitor = [world, monitor, store = links.store](Monitor::OnFailure on_failure) {
    return MakeSocketMonitor(world.rank, world.size, WithPrefix(store, "monitor/"), monitor,
                             std::move(on_failure));
  };
  links.route = [world, options](const std::shared_ptr<Store>& watched) {
    return Route(world, options, watched);
  };
  if (options.transport == "auto" && TorchUsesGpus()) {
    links.gpus = [](RankGroup& group, const std::shared_ptr<Store>& own, const Device& device) {
      return MakeGpuSum(group, own, device);
    };
  }
  return links;
}

}  // namespace samara
