// Ranks of a launcher, connected: torch's store, then shared memory on one host or Gloo.
#include "nn/torch/torch.h"
// after the door to torch
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "core/log.h"
#include "replica/arena.h"
#include "replica/group.h"
#include "replica/torch/c10d.h"

namespace samara {
namespace {

// A name that ranks of one machine, and of no other, share.
std::string HostName() {
  utsname info{};
  uname(&info);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::string(info.nodename) + "/" + boot + "/" + std::to_string(geteuid());
}

// Rank 0 looks at all names and says what holds.
Result<bool> OneHost(const World& world, Store& store, std::chrono::milliseconds timeout) {
  const std::string mine = HostName();
  RETURN_IF_ERROR(store.Set("host/" + std::to_string(world.rank), mine));
  if (world.rank == 0) {
    bool same = true;
    for (int r = 1; r < world.size; ++r) {
      const auto name = store.Get("host/" + std::to_string(r), timeout);
      if (!name.ok())
        return Status(Code::kUnavailable, "rank " + std::to_string(r) + " has not come");
      same = same && *name == mine;
    }
    RETURN_IF_ERROR(store.Set("one_host", same ? "yes" : "no"));
  }
  ASSIGN_OR_RETURN(const std::string verdict, store.Get("one_host", timeout));
  return verdict == "yes";
}

}  // namespace

Result<RankLinks> Connect(const World& world, const LinkOptions& options) {
  if (options.transport != "auto" && options.transport != "shared" && options.transport != "gloo")
    return Status(Code::kConfig,
                  "SAMARA_TRANSPORT=" + options.transport + ": expected auto, shared or gloo");
  // an agent that is killed cannot stop its ranks: they are asked to stop as it would have asked
  if (world.launcher == "torchrun") ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  RankLinks links;
  // a restart is another group: what the last one left in the store is not ours
  ASSIGN_OR_RETURN(const std::shared_ptr<Store> store, ConnectTcpStore(world, options.start));
  // and so is another job that was told the same port
  const char* const run = std::getenv("TORCHELASTIC_RUN_ID");
  links.store = WithPrefix(store, std::string("samara/") + (run != nullptr ? run : "") + "/" +
                                      std::to_string(world.restarts) + "/");
  ASSIGN_OR_RETURN(const bool one_host, OneHost(world, *links.store, options.start));
  if (options.transport == "shared" && !one_host)
    return Status(Code::kConfig, "SAMARA_TRANSPORT=shared: the ranks are on several hosts");
  if (options.transport != "gloo" && one_host) {
    auto shared = MakeArenaTransport(world.rank, world.size, *WithPrefix(links.store, "arena/"),
                                     {.start = options.start});
    if (!shared.ok() && options.transport == "shared") return shared.status();
    if (shared.ok())
      links.transport = std::move(*shared);
    else
      LogWarning("ranks use Gloo: " + shared.status().message());
  }
  links.address = options.address.empty() && one_host ? "127.0.0.1" : options.address;
  if (!links.transport) {
    ASSIGN_OR_RETURN(links.transport,
                     MakeGlooTransport(world.rank, world.size, WithPrefix(links.store, "gloo/"),
                                       links.address, options.deadline));
  }
  Monitor::Options monitor;
  monitor.start = options.start;
  monitor.silence = options.silence;
  monitor.address = one_host ? "" : world.address;
  links.monitor = [world, monitor, store = links.store](Monitor::OnFailure on_failure) {
    return MakeSocketMonitor(world.rank, world.size, WithPrefix(store, "monitor/"), monitor,
                             std::move(on_failure));
  };
  return links;
}

}  // namespace samara
