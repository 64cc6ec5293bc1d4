// The ranks of `samara bench collectives` and `samara bench replicate`: started by them through
// `samara launch`, measured together, told by rank 0 in one JSON object.
//
//   samara-ranks collectives SECONDS
//   samara-ranks replicate MODE STEPS ROWS THREADS DEVICE   (ROWS: of one rank's batch; THREADS: of
//                                                            torch in a rank, one in exact mode)
#include "nn/torch/torch.h"
// after the door to torch
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/collective_sizes.h"
#include "core/log.h"
#include "replica/collectives/arena.h"
#include "replica/collectives/communicator.h"
#include "replica/rendezvous/world.h"
#include "replica/torch/c10d.h"
#include "replica/torch/c10d_collectives.h"
#include "replica/torch/reducer.h"
#include "samara/replicator.h"

namespace samara {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// --- collectives

// Bytes of nccl-tests' bus bandwidth: those that cross each rank's link, whatever the algorithm.
double BusBytes(const std::string& operation, double bytes, double ranks) {
  if (operation == "all_reduce") return 2 * (ranks - 1) / ranks * bytes;
  if (operation == "all_gather") return (ranks - 1) * bytes;  // `bytes` is one rank's part
  return bytes;
}

struct Timer {
  Communicator& agree;  // gives all ranks the same number of repetitions
  double seconds;
  // Seconds of one call.
  double operator()(const std::function<void()>& call) const {
    for (int i = 0; i < 3; ++i) call();
    const SteadyTime warm = Now();
    for (int i = 0; i < 3; ++i) call();
    std::vector<uint64_t> repeats{bench::Repetitions(seconds, SecondsSince(warm) / 3)};
    ThrowReplication(
        agree.Broadcast({"repetitions", ""}, 0, std::as_writable_bytes(std::span(repeats))));
    const SteadyTime start = Now();
    for (uint64_t i = 0; i < repeats[0]; ++i) call();
    return SecondsSince(start) / static_cast<double>(repeats[0]);
  }
};

json Collectives(const World& world, double seconds) {
  const auto store = ValueOrReplication(ConnectStore(world, 60s));
  const auto group = [&](std::unique_ptr<Transport> transport) {
    return std::make_unique<Communicator>(std::move(transport), CommunicatorOptions{});
  };
  const auto arena = WithPrefix(store, "arena/");
  std::map<std::string, std::unique_ptr<Communicator>> groups;
  groups["shared"] = group(ValueOrReplication(MakeArenaTransport(world.rank, world.size, *arena)));
  groups["gloo"] = group(ValueOrReplication(
      MakeGlooTransport(world.rank, world.size, WithPrefix(store, "gloo/"), "127.0.0.1", 60s)));
  const auto bare = ValueOrReplication(
      MakeBareGloo(world.rank, world.size, WithPrefix(store, "bare/"), "127.0.0.1", 60s));
  // what fast mode does with large buckets between hosts
  C10dCollectives sum(ValueOrReplication(MakeGlooGroup(
                          world.rank, world.size, WithPrefix(store, "sum/"), "127.0.0.1", 60s)),
                      torch::kCPU);
  const Timer time{*groups["shared"], seconds};
  json rows = json::array();
  const auto ranks = static_cast<size_t>(world.size);
  for (const char* operation : bench::kCollectives) {
    for (const size_t bytes : bench::kCollectiveBytes) {
      torch::Tensor data = torch::ones({static_cast<int64_t>(bytes / 4)});
      torch::Tensor all = torch::zeros({static_cast<int64_t>(bytes / 4 * ranks)});
      const std::string_view what = operation;
      const double bare_s = time([&] {
        if (what == "all_reduce")
          bare->AllReduce(data);
        else if (what == "all_gather")
          bare->AllGather(data, all);
        else
          bare->Broadcast(data);
      });
      const auto add = [&](const char* transport, double s) {
        rows.push_back({{"transport", transport},
                        {"operation", operation},
                        {"bytes", bytes},
                        {"ranks", world.size},
                        {"latency_us", s * 1e6},
                        {"bus_gb_per_second",
                         BusBytes(operation, static_cast<double>(bytes), world.size) / s / 1e9},
                        {"bare_c10d_latency_us", bare_s * 1e6}});
      };
      if (what == "all_reduce" && sum.Takes(data)) {
        data.fill_(0);
        Communicator& agree = *groups["gloo"];
        const auto run = [&](SteadyTime deadline) {
          return sum.Sum(data, deadline, [&] { return agree.failure(); });
        };
        add("gloo_fast", time([&] {
              ThrowReplication(agree.Delegate({operation, ""}, data.nbytes(), run));
            }));
      }
      for (const auto& [name, comm] : groups) {
        data.fill_(1);
        const double s = time([&, &comm = comm] {
          const Collective call{operation, ""};
          const auto r = static_cast<uint32_t>(world.rank);
          const Partial mine{{r, r + 1}, BytesOf(data)};
          ThrowReplication(
              what == "all_reduce"
                  ? comm->AllReduce(call, ReduceOp::kMax, ElementType::kF32,
                                    static_cast<uint32_t>(world.size), {&mine, 1}, BytesOf(data))
              : what == "all_gather" ? comm->AllGather(call, BytesOf(data), BytesOf(all))
                                     : comm->Broadcast(call, 0, BytesOf(data)));
        });
        add(name.c_str(), s);
      }
    }
  }
  ThrowReplication(groups["shared"]->Barrier({"end", ""}));
  return {{"rows", rows}};
}

// --- replicate

torch::nn::Sequential Mlp(const torch::Device& device) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(784, 1024), torch::nn::ReLU(),
                            torch::nn::Linear(1024, 1024), torch::nn::ReLU(),
                            torch::nn::Linear(1024, 10));
  net->to(device);
  return net;
}

// "cuda" is the rank's own GPU, as far as they suffice.
torch::Device DeviceOf(const std::string& name, const World& world) {
  const torch::Device device(name);
  if (device.is_cpu()) return device;
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (gpus == 0 || device.index() >= gpus)
    throw ReplicationError(69,
                           "no GPU for device " + name + ": torch sees " + std::to_string(gpus));
  if (device.has_index()) return device;
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(world.local_rank % gpus)};
}
const auto kRate = torch::optim::SGDOptions(0.01).momentum(0.9);

// Median milliseconds of a step that all ranks begin together, until the device has done it.
double StepMs(int steps, const torch::Device& device, const std::function<void()>& step) {
  std::vector<double> times;
  for (int i = 0; i < steps + 5; ++i) {
    const SteadyTime start = Now();
    step();
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
    if (i >= 5) times.push_back(SecondsSince(start) * 1e3);
  }
  return Median(times);
}

json Replicate(ReplicationMode mode, int steps, int64_t rows, int threads,
               const torch::Device& device, int ranks) {
  ReplicatorOptions options;
  options.mode = mode;
  if (mode == ReplicationMode::kFast)
    options.threads = threads;
  else
    options.replicas = (8 + ranks - 1) / ranks * ranks;  // eight, or a few more
  options.check_every = 0;
  Replicator replicator = Replicator::FromEnvironment(options);
  const int64_t per_replica = rows * replicator.world_size() / replicator.num_replicas();
  const torch::Tensor x = torch::randn({per_replica, 784}).to(device);
  const torch::Tensor y = torch::randint(10, {per_replica}).to(device);
  const auto loss = [&](torch::nn::Sequential& net) {
    return torch::nn::functional::cross_entropy(net->forward(x), y);
  };
  // the same arithmetic without communication: a rank's replicas one after the other
  auto alone = Mlp(device);
  torch::optim::SGD plain(alone->parameters(), kRate);
  const auto compute = [&] {
    for (int i = 0; i < replicator.local_replicas(); ++i) {
      plain.zero_grad();
      loss(alone).backward();
    }
    plain.step();
  };
  const auto replicated = [&](const WrapOptions& wrap, double* exposed) {
    auto net = Mlp(device);
    auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), kRate), wrap);
    const double ms = StepMs(steps, device, [&] {
      replicator.Run([&] {
        optimizer.zero_grad();
        loss(net).backward();
        optimizer.step();
      });
    });
    if (exposed != nullptr) *exposed = optimizer.reducer().exposed_seconds() / (steps + 5) * 1e3;
    replicator.Barrier();
    return ms;
  };
  json out{{"ranks", replicator.world_size()}, {"transport", replicator.transport()}};
  out["device"] = device.str();
  out["compute_ms"] = StepMs(steps, device, compute);
  replicator.Barrier();
  double exposed = 0;
  out["step_ms"] = replicated({}, &exposed);
  out["exposed_communication_ms"] = exposed;
  if (mode == ReplicationMode::kFast) {
    out["late_step_ms"] = replicated({.overlap = false}, nullptr);
    out["by_parameter_step_ms"] = replicated({.bucket_bytes = 0, .overlap = false}, nullptr);
    out["by_bucket_step_ms"] = replicated({.step_by_bucket = true}, nullptr);
    out["bf16_step_ms"] = replicated({.bf16 = true}, nullptr);
  }
  replicator.Shutdown();
  return out;
}

int Main(int argc, char** argv) {
  SetLogLevel(LogLevel::kWarning);
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    json out;
    int rank = 0;
    if (what == "collectives" && argc == 3) {
      const World world = ValueOrReplication(DiscoverWorld(ProcessEnvironment()));
      rank = world.rank;
      torch::set_num_threads(1);
      out = Collectives(world, std::atof(argv[2]));
    } else if (what == "replicate" && argc == 7) {
      const World world = ValueOrReplication(DiscoverWorld(ProcessEnvironment()));
      rank = world.rank;
      out = Replicate(
          std::string_view(argv[2]) == "fast" ? ReplicationMode::kFast : ReplicationMode::kExact,
          std::atoi(argv[3]), std::atol(argv[4]), std::atoi(argv[5]), DeviceOf(argv[6], world),
          world.size);
    } else {
      std::fprintf(stderr, "samara-ranks: started by 'samara bench collectives' and 'replicate'\n");
      return 64;
    }
    if (rank == 0) std::printf("%s\n", out.dump().c_str());
    return 0;
  } catch (const ReplicationError& error) {
    std::fprintf(stderr, "samara: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "samara: %s\n", error.what());
    return 70;
  }
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) { return samara::Main(argc, argv); }
