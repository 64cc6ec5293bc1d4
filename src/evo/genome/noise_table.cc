// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "evo/genome/noise_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "core/check.h"
#include "core/math.h"
#include "core/mutex.h"
#include "evo/genome/noise.h"

namespace samara {
namespace {

constexpr size_t kPairs = 1024;  // buffered, so that the slow function runs over arrays
constexpr uint64_t kStride = uint64_t{1} << 18;  // values between two remembered states

// States of the generator on the way through the table, found as far as they were needed.
class RememberedStates {
 public:
  // A generator whose next value is number `value` / kStride * kStride.
  LegacyNormals Before(uint64_t value) {
    const MutexLock lock(mu_);
    while (states_.size() <= value / kStride) {
      LegacyNormals next = states_.back();
      next.Skip(kStride);
      states_.push_back(next);
    }
    return states_[value / kStride];
  }

 private:
  Mutex mu_;
  std::vector<LegacyNormals> states_ GUARDED_BY(mu_) = {LegacyNormals(123)};
};

// The table once it is held, else null; never freed: threads that run at exit may still read it.
std::atomic<const float*> held{nullptr};

}  // namespace

double LegacyNormals::Uniform() {
  const uint32_t a = words_() >> 5, b = words_() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

void LegacyNormals::Draw(std::span<float> out) {
  CHECK(out.size() % 2 == 0) << out.size();
  std::array<double, kPairs> x1, x2, s;
  for (size_t done = 0; done < out.size();) {
    const size_t pairs = std::min(kPairs, (out.size() - done) / 2);
    for (size_t i = 0; i < pairs;) {
      x1[i] = 2.0 * Uniform() - 1.0;
      x2[i] = 2.0 * Uniform() - 1.0;
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

void LegacyNormals::Skip(uint64_t values) {
  CHECK(values % 2 == 0) << values;
  for (; values > 0; values -= 2) {
    double s;
    do {
      const double x1 = 2.0 * Uniform() - 1.0, x2 = 2.0 * Uniform() - 1.0;
      s = x1 * x1 + x2 * x2;
    } while (!(s < 1.0 && s != 0.0));
  }
}

void HoldNoiseTable() {
  static const bool drawn = [] {
    auto values = std::make_unique_for_overwrite<float[]>(kNoiseTableSize);
    LegacyNormals(123).Draw({values.get(), kNoiseTableSize});
    held = values.release();
    return true;
  }();
  (void)drawn;
}

bool NoiseTableIsHeld() { return held != nullptr; }

std::span<const float> HeldNoiseTable() {
  CHECK(NoiseTableIsHeld());
  return {held.load(), kNoiseTableSize};
}

void ReadNoiseTable(uint64_t first, std::span<float> out) {
  CHECK(first <= kNoiseTableSize && out.size() <= kNoiseTableSize - first);
  if (out.empty()) return;
  if (NoiseTableIsHeld()) {
    const auto slice = HeldNoiseTable().subspan(first, out.size());
    std::copy(slice.begin(), slice.end(), out.begin());
    return;
  }
  static RememberedStates states;
  LegacyNormals normals = states.Before(first);
  uint64_t at = first / 2 * 2;  // of the pair that has the first value
  normals.Skip(at % kStride);
  std::array<float, 2 * kPairs> buffer;
  for (size_t done = 0; done < out.size();) {
    normals.Draw(buffer);
    const size_t skip = first + done - at;
    const size_t n = std::min(buffer.size() - skip, out.size() - done);
    std::copy_n(buffer.begin() + static_cast<ptrdiff_t>(skip), n,
                out.begin() + static_cast<ptrdiff_t>(done));
    done += n, at += buffer.size();
  }
}

}  // namespace samara
