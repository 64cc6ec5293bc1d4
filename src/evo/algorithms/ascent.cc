#include "evo/algorithms/ascent.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/check.h"
#include "core/thread.h"

namespace samara {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;  // of Adam
constexpr double kWorkPerThread = 1e6;  // elements; some hundred microseconds

size_t Blocks(size_t parameters) { return (parameters + kAscentBlock - 1) / kAscentBlock; }

bool HasSquares(AscentKind kind) { return kind == AscentKind::kAdam; }
bool HasVelocity(AscentKind kind) { return kind != AscentKind::kSgd; }

// One factor a pair.
std::vector<float> PairWeights(std::span<const double> weights, double divisor) {
  std::vector<float> pairs;
  for (size_t i = 0; i + 1 < weights.size(); i += 2)
    pairs.push_back(static_cast<float>((weights[i] - weights[i + 1]) / divisor));
  return pairs;
}

// gradient = sum over pairs of weight times noise, of the elements from `first` on.
void Accumulate(const Noise& noise, std::span<const uint64_t> keys, std::span<const float> pairs,
                size_t first, std::span<float> gradient) {
  std::ranges::fill(gradient, 0.0F);
  for (size_t j = 0; j < keys.size(); ++j)
    if (pairs[j] != 0) noise.Add(keys[j], pairs[j], first, gradient, gradient);
}

// Squares of norms.
struct Squares {
  double gradient = 0, step = 0, centre = 0;
};

// The optimizer's step on a part of a centre.
class Step {
 public:
  Step(const AscentRule& rule, double rate, uint64_t number) : rule_(rule), rate_(rate) {
    if (rule.kind != AscentKind::kAdam) return;
    double beta1 = 1, beta2 = 1;  // to the power of the step's number
    for (uint64_t t = 0; t < number; ++t) beta1 *= kBeta1, beta2 *= kBeta2;
    rate_ = rate * std::sqrt(1 - beta2) / (1 - beta1);
  }

  Squares Take(std::span<const float> gradient, size_t first, Centre& centre) const {
    Squares sums;
    for (size_t k = 0; k < gradient.size(); ++k) {
      const size_t i = first + k;
      const double theta = centre.theta[i], g = gradient[k];
      const double step = rate_ * Direction(rule_.weight_decay * theta - g, i, centre);
      centre.theta[i] = static_cast<float>(theta - step);
      sums.gradient += g * g, sums.step += step * step, sums.centre += theta * theta;
    }
    return sums;
  }

 private:
  double Direction(double d, size_t i, Centre& centre) const {
    switch (rule_.kind) {
      case AscentKind::kAdam: {
        const double m = kBeta1 * centre.m[i] + (1 - kBeta1) * d;
        const double v = kBeta2 * centre.v[i] + (1 - kBeta2) * d * d;
        centre.m[i] = static_cast<float>(m), centre.v[i] = static_cast<float>(v);
        return m / (std::sqrt(v) + kEpsilon);
      }
      case AscentKind::kSgd:
        return d;
      case AscentKind::kSgdDamped:
      case AscentKind::kSgdClassic:
        break;
    }
    const double share = rule_.kind == AscentKind::kSgdDamped ? 1 - rule_.momentum : 1;
    const double velocity = rule_.momentum * centre.m[i] + share * d;
    centre.m[i] = static_cast<float>(velocity);
    return velocity;
  }

  const AscentRule rule_;
  double rate_;
};

}  // namespace

// ---- state

Centre::Centre(std::vector<float> parameters, AscentKind kind) : theta(std::move(parameters)) {
  if (HasVelocity(kind)) m.resize(theta.size());
  if (HasSquares(kind)) v.resize(theta.size());
}

bool Centre::Fits(size_t parameters, AscentKind kind) const {
  return theta.size() == parameters && m.size() == (HasVelocity(kind) ? parameters : 0) &&
         v.size() == (HasSquares(kind) ? parameters : 0);
}

void Centre::Put(ByteWriter& out) const {
  out.PutVector(theta), out.PutVector(m), out.PutVector(v);
  out.Put(steps);
}

bool Centre::Get(ByteReader& in) {
  if (!in.GetVector(theta) || !in.GetVector(m) || !in.GetVector(v)) return false;
  steps = in.Get<uint64_t>();
  return in.ok();
}

// ---- the pass over the parameters

void ForBlocks(size_t parameters, double work, uint32_t threads,
               const std::function<void(size_t first, size_t size)>& body) {
  const size_t blocks = Blocks(parameters);
  std::atomic<size_t> next{0};
  const auto take = [&](size_t) {
    for (size_t b = next++; b < blocks; b = next++) {
      const size_t first = b * kAscentBlock;
      body(first, std::min(kAscentBlock, parameters - first));
    }
  };
  const auto wanted = static_cast<size_t>(std::min(1 + work / kWorkPerThread, 1024.0));
  const size_t others = std::min({wanted, blocks, size_t{std::max(threads, 1U)}}) - 1;
  ThreadGroup helpers(nullptr);  // they return when no block is left
  if (others > 0) (void)helpers.Start("update-", others, take);
  take(others);
  helpers.Join();
}

AscentReport Ascend(const Noise& noise, std::span<const uint64_t> keys,
                    std::span<const double> weights, double divisor, const AscentRule& rule,
                    double rate, Centre& centre, uint32_t threads) {
  CHECK_EQ(weights.size(), 2 * keys.size());
  const size_t parameters = std::min(centre.theta.size(), rule.evolved);
  const std::vector<float> pairs = PairWeights(weights, divisor);
  const Step step(rule, rate, ++centre.steps);
  std::vector<Squares> of_block(Blocks(parameters));
  ForBlocks(parameters, static_cast<double>(parameters) * static_cast<double>(keys.size()), threads,
            [&](size_t first, size_t size) {
              alignas(64) float block[kAscentBlock];
              const std::span gradient(block, size);
              Accumulate(noise, keys, pairs, first, gradient);
              of_block[first / kAscentBlock] = step.Take(gradient, first, centre);
            });
  Squares sums;  // in the order of the blocks
  for (const Squares& s : of_block)
    sums.gradient += s.gradient, sums.step += s.step, sums.centre += s.centre;
  return {std::sqrt(sums.gradient), std::sqrt(sums.step), std::sqrt(sums.centre)};
}

}  // namespace samara
