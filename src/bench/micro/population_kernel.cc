// The population kernel next to torch called once per individual (batch 1, other weights each call,
// one thread). Rivals take turns within each round; medians over the rounds.
//
//   bench_population_kernel            every workload
//   bench_population_kernel N          the N-th only
//
// Scenes: `bands` is a coloured background with sprites, `black` one with zeros; both scroll over
// the four stacked frames. Weights are drawn as the Deep GA draws them, so that about half of the
// activations are zero. Population 1 is one individual that stays in the cache, as in an episode.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "core/cpu.h"
#include "nn/kernel.h"
#include "nn/torch/network.h"
#include "nn/torch/torch.h"

namespace samara {
namespace {

struct Workload {
  const char* network;
  int64_t population;
  bool bands;
};
constexpr Workload kWorkloads[] = {
    {"LargeModel", 1, true},  {"LargeModel", 8, true},        {"LargeModel", 64, true},
    {"LargeModel", 8, false}, {"LargeModel", 64, false},      {"Nature", 64, true},
    {"Model", 64, true},      {"mlp-256-256-tanh", 64, true}, {"mlp-64-64-tanh", 1024, true},
};

bool IsImage(const NetworkDescription& network) { return network.height > 1; }

NetworkDescription Describe(const Workload& w) {
  const bool vector = std::string_view(w.network).starts_with("mlp");
  return MakeNetwork(w.network, vector ? 1 : 84, vector ? 1 : 84, vector ? 348 : 4, 18)
      .ValueOrThrow();
}

std::vector<float> RandomParameters(const NetworkDescription& network) {
  std::vector<float> theta(network.parameter_count, 0.0f);
  for (const TensorSlice& slice : Tensors(network)) {
    if (slice.bias) continue;
    const auto values = torch::randn({static_cast<int64_t>(slice.count)}) /
                        std::sqrt(static_cast<double>(slice.fan_in));
    std::copy_n(values.const_data_ptr<float>(), slice.count, theta.begin() + slice.offset);
  }
  return theta;
}

// 84 x 84 x 4, values k / 255.
torch::Tensor Scene(int64_t member, bool bands) {
  auto image = torch::zeros({84, 84, 4});
  if (bands) {
    for (int64_t band = 0; band < 6; ++band) {
      image.slice(0, band * 14, band * 14 + 14).fill_((40.0 + 31 * band) / 255);
    }
  }
  for (int64_t frame = 0; frame < 4; ++frame) {
    for (int64_t sprite = 0; sprite < 12; ++sprite) {
      const int64_t y = (sprite * 29 + member * 7) % 76,
                    x = (sprite * 41 + frame * 2 + member) % 74;
      image.slice(0, y, y + 5).slice(1, x, x + 7).select(2, frame).fill_((90.0 + sprite) / 255);
    }
  }
  return image;
}

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// CPU seconds of this thread, so that a busy machine does not count against either rival.
double Seconds(const std::function<void()>& work) {
  const double start = ThreadSeconds();
  work();
  return ThreadSeconds() - start;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void RunWorkload(const Workload& w) {
  const NetworkDescription network = Describe(w);
  const PopulationKernel kernel(network);
  std::vector<AlignedFloats> packed;
  std::vector<TorchNetwork> modules;
  std::vector<torch::Tensor> observations;
  for (int64_t m = 0; m < w.population; ++m) {
    const std::vector<float> theta = RandomParameters(network);
    packed.emplace_back(kernel.packed_size());
    kernel.Pack(theta, packed.back().span());
    modules.emplace_back(network);
    modules.back()->Load(theta);
    observations.push_back(IsImage(network)
                               ? Scene(m, w.bands)
                               : torch::randn({network.height, network.width, network.channels}));
  }
  const auto workspace = kernel.MakeWorkspace();
  std::vector<float> ours(network.output_size());
  double difference = 0;
  const auto run_ours = [&] {
    for (size_t m = 0; m < packed.size(); ++m) {
      kernel.Forward(packed[m].data(), observations[m].const_data_ptr<float>(), *workspace,
                     ours.data());
    }
  };
  torch::Tensor theirs;
  const auto run_torch = [&] {
    for (size_t m = 0; m < modules.size(); ++m) {
      theirs = modules[m]->forward(observations[m].unsqueeze(0));
    }
  };
  std::vector<double> own_times, torch_times;
  const int rounds = static_cast<int>(std::clamp<int64_t>(600 / w.population, 9, 100));
  run_ours();
  run_torch();
  for (size_t i = 0; i < ours.size(); ++i) {
    difference = std::max<double>(difference, std::abs(ours[i] - theirs[0][i].item<float>()));
  }
  for (int round = 0; round < rounds; ++round) {
    own_times.push_back(Seconds(run_ours));
    torch_times.push_back(Seconds(run_torch));
  }
  const double own = static_cast<double>(w.population) / Median(own_times);
  const double rival = static_cast<double>(w.population) / Median(torch_times);
  std::printf("%-18s %10ld %-6s %12.0f %12.0f %8.2f %12.1e\n", w.network, w.population,
              !IsImage(network) ? "-"
              : w.bands         ? "bands"
                                : "black",
              own, rival, own / rival, difference);
  std::fflush(stdout);
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  using namespace samara;
  torch::set_num_threads(1);
  const torch::InferenceMode inference;
  std::printf("%s, %s, one thread; evaluations per CPU second\n", std::string(CpuName()).c_str(),
              std::string(Name(ActiveIsa())).c_str());
  std::printf("%-18s %10s %-6s %12s %12s %8s %12s\n", "network", "population", "scene", "samara",
              "torch", "ratio", "difference");
  const size_t only = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  for (size_t i = 0; i < std::size(kWorkloads); ++i) {
    if (only == 0 || only == i + 1) RunWorkload(kWorkloads[i]);
  }
}
