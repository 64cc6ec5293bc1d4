// Limits of this machine: the denominators of every ratio.
#include <cstring>

#include "bench/bench.h"
#include "core/cpu.h"
#include "nn/kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace samara::bench {
namespace {

constexpr size_t kBlock = size_t{32} << 20;  // floats a thread: 128 MB twice, out of its caches
constexpr int kChains = 12;                  // hides the latency of a fused multiply-add
constexpr int kMultiplications = 100'000;

// Reads n floats; the value only keeps the compiler from leaving the loads out.
double ReadAll(const float* data, size_t n) {
  uint64_t x[8] = {};
  for (size_t i = 0; i < n; i += 16) {
    uint64_t line[8];
    std::memcpy(line, data + i, 64);
    for (int j = 0; j < 8; ++j) x[j] ^= line[j];
  }
  uint64_t all = 0;
  for (const uint64_t v : x) all ^= v;
  return all == 42 ? 1 : 0;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float Fma512() {
  __m512 x[kChains], a = _mm512_set1_ps(0.999F), b = _mm512_set1_ps(0.001F);
  for (auto& v : x) v = _mm512_set1_ps(1.0F);
  for (int i = 0; i < kMultiplications; ++i) {
    for (auto& v : x) v = _mm512_fmadd_ps(v, a, b);
  }
  float sum = 0;
  for (auto& v : x) sum += _mm512_cvtss_f32(v);
  return sum;
}
__attribute__((target("avx2,fma"))) float Fma256() {
  __m256 x[kChains], a = _mm256_set1_ps(0.999F), b = _mm256_set1_ps(0.001F);
  for (auto& v : x) v = _mm256_set1_ps(1.0F);
  for (int i = 0; i < kMultiplications; ++i) {
    for (auto& v : x) v = _mm256_fmadd_ps(v, a, b);
  }
  float sum = 0;
  for (auto& v : x) sum += _mm256_cvtss_f32(v);
  return sum;
}
#endif

// A value that the compiler must treat as used; one a thread, so that no thread writes another's.
struct alignas(64) Sink {
  volatile double value = 0;
};

// Multiply-adds per second count as two operations.
double FmaGflops(uint32_t threads) {
#if defined(__x86_64__)
  const IsaLevel isa = ActiveIsa();
  if (isa == IsaLevel::kPortable) return 0;
  const bool wide = isa == IsaLevel::kAvx512;
  const double operations = 2.0 * (wide ? 16 : 8) * kChains * kMultiplications;
  std::vector<Sink> sinks(threads);
  return 1e-9 * RatePerSecond(threads, 0.5, [&](uint32_t t) {
           sinks[t].value = wide ? Fma512() : Fma256();
           return operations;
         });
#else
  return 0 * threads;
#endif
}

nlohmann::json Measure() {
  const uint32_t cores = Cores();
  std::vector<AlignedFloats> from, to;
  for (uint32_t t = 0; t < cores; ++t) from.emplace_back(kBlock), to.emplace_back(kBlock);
  std::vector<Sink> sinks(cores);
  constexpr double kBytes = kBlock * sizeof(float);
  const double read = RatePerSecond(cores, 1, [&](uint32_t t) {
    sinks[t].value = ReadAll(from[t].data(), kBlock);
    return kBytes;
  });
  const double copy = RatePerSecond(cores, 1, [&](uint32_t t) {
    std::memcpy(to[t].data(), from[t].data(), static_cast<size_t>(kBytes));
    return kBytes;
  });
  return {{"cpu", CpuName()},
          {"cores", cores},
          {"isa", Name(ActiveIsa())},
          {"read_gb_per_second", read * 1e-9},
          {"copy_gb_per_second", copy * 1e-9},
          {"fma_gflop_per_second", FmaGflops(cores)}};
}

}  // namespace

const nlohmann::json& Machine() {
  static const nlohmann::json measured = Measure();
  return measured;
}

}  // namespace samara::bench
