// Ascent of a centre on the mean fitness of its perturbations: the gradient's estimate and the
// optimizers that evolution strategies share. Functions over plain values: an algorithm may have
// several centres, each with an optimizer's state of its own.
//
// Members come in antithetic pairs: member 2 j plays centre + sigma e(j), member 2 j + 1 plays
// centre - sigma e(j), where e(j) is noise under the j-th key. With one weight a member (shaped
// fitness, novelty, or a mixture of both) the estimate is
//
//   g = 1 / divisor * sum over pairs j of (w[2 j] - w[2 j + 1]) e(j)
//
// and the optimizer moves the centre against d = weight_decay * centre - g.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/enum_names.h"
#include "evo/evaluate/policy.h"
#include "evo/genome/noise.h"

namespace samara {

// kSgd: step = rate * d; kSgdDamped: v = mu v + (1 - mu) d; kSgdClassic: v = mu v + d; both step by
// rate * v. kAdam: beta 0.9 and 0.999, epsilon 1e-8 added to the root of the uncorrected average,
// as the program of Salimans et al. does.
enum class AscentKind : uint8_t { kAdam, kSgd, kSgdDamped, kSgdClassic };
constexpr EnumName<AscentKind> kAscentNames[] = {{AscentKind::kAdam, "adam"},
                                                 {AscentKind::kSgd, "sgd"},
                                                 {AscentKind::kSgdDamped, "sgd_damped"},
                                                 {AscentKind::kSgdClassic, "sgd_classic"}};

struct AscentRule {
  AscentKind kind = AscentKind::kAdam;
  double momentum = 0.9;  // of sgd_damped and sgd_classic
  double weight_decay = 0;
  size_t evolved = SIZE_MAX;  // parameters that move: the first ones of a canonical vector
};

// Parameters that an optimizer moves, with its state.
struct Centre {
  std::vector<float> theta;
  std::vector<float> m, v;  // moving averages of d (the velocity of sgd) and of its square
  uint64_t steps = 0;       // taken so far

  Centre() = default;
  Centre(std::vector<float> parameters, AscentKind kind);
  // Whether the sizes are those of such a centre.
  bool Fits(size_t parameters, AscentKind kind) const;
  void Put(ByteWriter& out) const;
  bool Get(ByteReader& in);  // false: damaged. Check Fits too
};

// Euclidean norms of one update.
struct AscentReport {
  double gradient = 0, step = 0, centre = 0;
  double ratio() const { return step / centre; }  // of the update
};

// One step of `centre` at learning rate `rate`, over one key a pair and one weight a member. One
// pass over the parameters in blocks that stay in cache: pairs in index order within a block,
// blocks in any order on `threads` threads. The bits depend on no number of threads.
AscentReport Ascend(const Noise& noise, std::span<const uint64_t> keys,
                    std::span<const double> weights, double divisor, const AscentRule& rule,
                    double rate, Centre& centre, uint32_t threads);

// Calls body(first, size) once for each block of the parameters, on up to `threads` threads; fewer
// where `work` (elements to compute in all) is small. A thread that cannot be started is done
// without.
void ForBlocks(size_t parameters, double work, uint32_t threads,
               const std::function<void(size_t first, size_t size)>& body);
constexpr size_t kAscentBlock = 4096;  // parameters; whole groups of every kind of noise

// Parameters of members: pair by pair the centre plus and minus sigma times the noise. What the
// arguments refer to outlives this object.
class MirroredMembers : public ParameterSource {
 public:
  // `evolved`: parameters that noise is added to, the first ones.
  MirroredMembers(const Noise& noise, std::span<const float> centre, double sigma,
                  std::span<const uint64_t> keys, size_t evolved = SIZE_MAX)
      : noise_(noise),
        centre_(centre),
        sigma_(static_cast<float>(sigma)),
        keys_(keys),
        evolved_(std::min(evolved, centre.size())) {}
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    noise_.Add(keys_[policy.id / 2], policy.id % 2 == 0 ? sigma_ : -sigma_, 0,
               centre_.first(evolved_), canonical.first(evolved_));
    std::ranges::copy(centre_.subspan(evolved_), canonical.subspan(evolved_).begin());
  }

 private:
  const Noise& noise_;
  const std::span<const float> centre_;
  const float sigma_;
  const std::span<const uint64_t> keys_;
  const size_t evolved_;
};

}  // namespace samara
