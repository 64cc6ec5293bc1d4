// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/noise.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/check.h"
#include "core/rng.h"
#include "evo/genome/noise_kernel.h"
#include "evo/genome/noise_table.h"

namespace samara {
namespace {

constexpr uint64_t kTableStride = 64;  // slices of the table start at multiples of it

const NoiseKernel& Kernel(NoiseKind kind, IsaLevel isa) {
  CHECK(kind == NoiseKind::kNormal || kind == NoiseKind::kQuantile8) << static_cast<int>(kind);
  const bool normal = kind == NoiseKind::kNormal;
  switch (isa) {
    case IsaLevel::kAvx512:
      return normal ? kNormalAvx512 : kQuantile8Avx512;
    case IsaLevel::kAvx2:
      return normal ? kNormalAvx2 : kQuantile8Avx2;
    case IsaLevel::kPortable:
      break;
  }
  return normal ? kNormalPortable : kQuantile8Portable;
}

void AddScaled(std::span<const float> values, float power, std::span<const float> base,
               std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = base[i] + power * values[i];
}

class CounterNoise : public Noise {
 public:
  explicit CounterNoise(const NoiseKernel& kernel) : kernel_(kernel) {}

  void Fill(uint64_t key, size_t first, std::span<float> out) const override {
    ForGroups(
        first, out,
        [&](uint64_t group, size_t groups, float* to) { kernel_.fill(key, group, groups, to); },
        [&](uint64_t group, size_t skip, std::span<float> to) {
          const Group values = OneGroup(key, group);
          std::copy_n(values.begin() + static_cast<ptrdiff_t>(skip), to.size(), to.begin());
        });
  }

  void Add(uint64_t key, float power, size_t first, std::span<const float> base,
           std::span<float> out) const override {
    const auto base_of = [&](const float* to) { return base.data() + (to - out.data()); };
    ForGroups(
        first, out,
        [&](uint64_t group, size_t groups, float* to) {
          kernel_.add(key, group, groups, power, base_of(to), to);
        },
        [&](uint64_t group, size_t skip, std::span<float> to) {
          const Group values = OneGroup(key, group);
          AddScaled(std::span(values).subspan(skip, to.size()), power,
                    {base_of(to.data()), to.size()}, to);
        });
  }

 private:
  using Group = std::array<float, std::max(kNormalGroup, kQuantile8Group)>;

  Group OneGroup(uint64_t key, uint64_t group) const {
    Group values;
    kernel_.fill(key, group, 1, values.data());
    return values;
  }

  // Splits elements first ... first + to.size() - 1 into whole groups and the parts of a group
  // before and after them.
  template <typename Whole, typename Part>
  void ForGroups(size_t first, std::span<float> to, Whole whole, Part part) const {
    const size_t size = kernel_.group_size;
    if (const size_t skip = first % size; skip != 0 && !to.empty()) {
      const size_t n = std::min(size - skip, to.size());
      part(first / size, skip, to.first(n));
      first += n, to = to.subspan(n);
    }
    if (const size_t groups = to.size() / size; groups > 0) {
      whole(first / size, groups, to.data());
      first += groups * size, to = to.subspan(groups * size);
    }
    if (!to.empty()) part(first / size, 0, to);
  }

  const NoiseKernel& kernel_;
};

class TableNoise : public Noise {
 public:
  void Fill(uint64_t key, size_t first, std::span<float> out) const override {
    ReadNoiseTable(First(key, first, out.size()), out);
  }

  void Add(uint64_t key, float power, size_t first, std::span<const float> base,
           std::span<float> out) const override {
    const uint64_t begin = First(key, first, out.size());
    if (NoiseTableIsHeld())
      return AddScaled(HeldNoiseTable().subspan(begin, out.size()), power, base, out);
    std::vector<float> values(out.size());
    ReadNoiseTable(begin, values);
    AddScaled(values, power, base, out);
  }

  bool prefers_long_slices() const override { return !NoiseTableIsHeld(); }

 private:
  // The index of the slice's first value.
  static uint64_t First(uint64_t key, size_t first, size_t n) {
    CHECK(key <= kNoiseTableSize && first <= kNoiseTableSize - key &&
          n <= kNoiseTableSize - key - first)
        << "slice of " << n << " values at " << key << " + " << first << " leaves the noise table";
    return key + first;
  }
};

}  // namespace

std::string_view Name(NoiseKind kind) {
  return NameOf(std::span<const EnumName<NoiseKind>>(kNoiseNames), kind);
}

uint64_t NoiseKeyFor(NoiseKind kind, size_t parameter_count, uint64_t key) {
  if (kind != NoiseKind::kTable) return key;
  const uint64_t starts = (kNoiseTableSize - parameter_count) / kTableStride + 1;
  return CounterRng(key).UniformInt(0, starts) * kTableStride;
}

Status CheckNoise(NoiseKind kind, size_t parameter_count) {
  if (kind != NoiseKind::kTable || parameter_count <= kNoiseTableSize) return Status::Ok();
  return {Code::kConfig, "ga.noise=table: a table of " + std::to_string(kNoiseTableSize) +
                             " values for " + std::to_string(parameter_count) +
                             " parameters; expected normal or quantile8, which have no such bound"};
}

const Noise& GetNoise(NoiseKind kind) {
  static const CounterNoise normal(Kernel(NoiseKind::kNormal, ActiveIsa()));
  static const CounterNoise quantile8(Kernel(NoiseKind::kQuantile8, ActiveIsa()));
  static const TableNoise table;
  switch (kind) {
    case NoiseKind::kNormal:
      return normal;
    case NoiseKind::kQuantile8:
      return quantile8;
    case NoiseKind::kTable:
      break;
  }
  CHECK(kind == NoiseKind::kTable) << static_cast<int>(kind);
  return table;
}

std::unique_ptr<Noise> TEST_MakeNoise(NoiseKind kind, IsaLevel isa) {
  return std::make_unique<CounterNoise>(Kernel(kind, isa));
}

}  // namespace samara
