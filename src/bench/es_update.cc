// The update of evolution strategies: one pass over the parameters, every pair's noise drawn again
// from its key. Next to it the noise alone, into a block that stays in cache, and copying memory: a
// program that keeps noise in memory reads four bytes a value, so a value counts as four bytes.
#include <fmt/format.h>

#include <algorithm>

#include "bench/bench.h"
#include "core/cpu.h"
#include "core/rng.h"
#include "evo/algorithms/ascent.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr int kUpdateRounds = 3;

// Values per second of the noise alone, on all cores.
double NoiseAlone(const Noise& noise, double seconds) {
  return RatePerSecond(Cores(), seconds, [&](uint32_t t) {
    alignas(64) float block[kAscentBlock];
    for (uint64_t key = 0; key < 64; ++key) noise.Fill(key + 1000 * t, 0, block);
    return 64.0 * kAscentBlock;
  });
}

json Update(NoiseKind kind, const char* network, size_t parameters, size_t pairs,
            const Options& options) {
  const Noise& noise = GetNoise(kind);
  std::vector<uint64_t> keys;
  std::vector<double> weights;
  for (size_t j = 0; j < pairs; ++j) {
    keys.push_back(DeriveKey(1, Purpose::kMutation, 1, j));
    weights.insert(weights.end(), {0.5, static_cast<double>(j) / static_cast<double>(pairs) - 1});
  }
  Centre centre(std::vector<float>(parameters, 0.1F), AscentKind::kAdam);
  const AscentRule rule{.kind = AscentKind::kAdam, .weight_decay = 0.005};
  // in turns: the machine's mood is the same for both
  double values = 0, alone = 0;
  for (int round = 0; round < kUpdateRounds; ++round) {
    alone = std::max(alone, NoiseAlone(noise, options.seconds / (2 * kUpdateRounds)));
    const SteadyTime start = Now();
    double done = 0;
    do {
      Ascend(noise, keys, weights, static_cast<double>(2 * pairs), rule, 0.01, centre, Cores());
      done += static_cast<double>(parameters) * static_cast<double>(pairs);
    } while (SecondsSince(start) < options.seconds / (2 * kUpdateRounds));
    values = std::max(values, done / SecondsSince(start));
  }
  const double copy = Machine()["copy_gb_per_second"], bandwidth = 4e-9 * values;
  options.say(
      fmt::format("{} of {} parameters, {} pairs, {} noise: {:.2f} G values/s on {} cores "
                  "({:.2f} of the noise alone), as {:.1f} GB/s of stored noise ({:.2f} of "
                  "copying)",
                  network, parameters, pairs, Name(kind), 1e-9 * values, Cores(), values / alone,
                  bandwidth, bandwidth / copy));
  return {{"noise", Name(kind)},
          {"network", network},
          {"parameters", parameters},
          {"pairs", pairs},
          {"seconds_per_update", static_cast<double>(parameters * pairs) / values},
          {"values_per_second", values},
          {"noise_values_per_second", alone},
          {"ratio_to_noise", values / alone},
          {"gb_per_second", bandwidth},
          {"copy_gb_per_second", copy},
          {"ratio_to_copy", bandwidth / copy},
          // what is slower than the noise alone by a quarter waits for something else
          {"bottleneck", values > 0.75 * alone ? "noise" : "memory"}};
}

}  // namespace

Result<json> EsUpdate(const Options& options) {
  json all = json::array();
  for (const NoiseKind kind : {NoiseKind::kQuantile8, NoiseKind::kNormal}) {
    all.push_back(Update(kind, "LargeModel", 4'052'658, 100, options));
    all.push_back(Update(kind, "mlp-256-256-tanh", 166'673, 500, options));
  }
  return Report(std::move(all));
}

}  // namespace samara::bench
