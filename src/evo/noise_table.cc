// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/noise_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "core/check.h"
#include "core/math.h"
#include "evo/noise.h"

namespace samara {
namespace {

constexpr size_t kPairs = 1024;  // buffered, so that the slow function runs over arrays

}  // namespace

void LegacyNormals::Draw(std::span<float> out) {
  CHECK(out.size() % 2 == 0) << out.size();
  const auto uniform = [this] {
    const uint32_t a = static_cast<uint32_t>(words_()) >> 5;
    const uint32_t b = static_cast<uint32_t>(words_()) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
  };
  std::array<double, kPairs> x1, x2, s;
  for (size_t done = 0; done < out.size();) {
    const size_t pairs = std::min(kPairs, (out.size() - done) / 2);
    for (size_t i = 0; i < pairs;) {
      x1[i] = 2.0 * uniform() - 1.0;
      x2[i] = 2.0 * uniform() - 1.0;
      s[i] = x1[i] * x1[i] + x2[i] * x2[i];
      i += s[i] < 1.0 && s[i] != 0.0;
    }
    // the bits must not depend on the C library: core/math.h
    for (size_t i = 0; i < pairs; ++i) s[i] = std::sqrt(-2.0 * Log(s[i]) / s[i]);
    for (size_t i = 0; i < pairs; ++i) {
      out[done + 2 * i] = static_cast<float>(s[i] * x2[i]);
      out[done + 2 * i + 1] = static_cast<float>(s[i] * x1[i]);
    }
    done += 2 * pairs;
  }
}

std::span<const float> NoiseTable() {
  // never freed: whoever runs at exit may still read it
  static const float* const table = [] {
    auto values = std::make_unique_for_overwrite<float[]>(kNoiseTableSize);
    LegacyNormals(123).Draw({values.get(), kNoiseTableSize});
    return values.release();
  }();
  return {table, kNoiseTableSize};
}

}  // namespace samara
