#include "rl/learner/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "nn/torch/normal_quantile.h"
#include "rl/learner/log_sum_exp.h"

namespace samara {
namespace {

using torch::Tensor;

constexpr double kSmallestDeviation = 1e-3;

// log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), without the cancellation.
Tensor LogSquashing(const Tensor& u) { return 2 * (std::log(2.0) - u - torch::softplus(-2 * u)); }

// Sums up to and including each place. Those of torch's cumsum are in no fixed order on a GPU.
Tensor Cumulated(const Tensor& x) {
  if (x.is_cpu()) return x.cumsum(-1);
  return torch::matmul(x, torch::ones({x.size(-1), x.size(-1)}, x.options()).triu());
}

}  // namespace

double DeviationParameter(double deviation) {
  CHECK(deviation > kSmallestDeviation);
  return std::log(std::expm1(deviation - kSmallestDeviation));
}

int64_t ActionDistribution::parameters() const {
  return continuous() ? 2 * dimensions_ : std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0});
}

int64_t ActionDistribution::components() const {
  return continuous() ? dimensions_ : static_cast<int64_t>(sizes_.size());
}

std::vector<Tensor> ActionDistribution::LogProbs(const Tensor& parameters) const {
  CHECK_EQ(parameters.size(-1), this->parameters());
  std::vector<Tensor> parts = parameters.split_with_sizes(sizes_, -1);
  for (Tensor& part : parts) part = torch::log_softmax(part, -1);
  return parts;
}

std::pair<Tensor, Tensor> ActionDistribution::MeanAndDeviation(const Tensor& parameters) const {
  CHECK_EQ(parameters.size(-1), this->parameters());
  const auto parts = parameters.chunk(2, -1);
  return {parts[0], torch::softplus(parts[1]) + kSmallestDeviation};
}

Tensor ActionDistribution::LogProb(const Tensor& parameters, const Tensor& actions) const {
  CHECK_EQ(actions.size(-1), components());
  if (continuous()) {
    const auto [mean, deviation] = MeanAndDeviation(parameters);
    const Tensor normal =
        -0.5 * ((actions - mean) / deviation).square() - deviation.log() - 0.5 * std::log(2 * M_PI);
    return (normal - LogSquashing(actions)).sum(-1);
  }
  const auto parts = LogProbs(parameters);
  Tensor sum;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor index = actions.narrow(-1, static_cast<int64_t>(i), 1);
    const Tensor log_prob = parts[i].gather(-1, index).squeeze(-1);
    sum = i == 0 ? log_prob : sum + log_prob;
  }
  return sum;
}

Tensor ActionDistribution::Entropy(const Tensor& parameters, const Tensor& uniforms) const {
  if (continuous()) {
    const auto [mean, deviation] = MeanAndDeviation(parameters);
    const Tensor normal = deviation.log() + 0.5 * std::log(2 * M_PI * M_E);
    return (normal + LogSquashing(Sample(parameters, uniforms))).sum(-1);
  }
  Tensor sum;
  for (const Tensor& part : LogProbs(parameters)) {
    const Tensor entropy = -(part.exp() * part).sum(-1);
    sum = sum.defined() ? sum + entropy : entropy;
  }
  return sum;
}

Tensor ActionDistribution::Kl(const Tensor& parameters, const Tensor& others) const {
  if (continuous()) {
    const auto [mean, deviation] = MeanAndDeviation(parameters);
    const auto [other_mean, other_deviation] = MeanAndDeviation(others);
    return ((other_deviation / deviation).log() +
            (deviation.square() + (mean - other_mean).square()) / (2 * other_deviation.square()) -
            0.5)
        .sum(-1);
  }
  const auto p = LogProbs(parameters), q = LogProbs(others);
  Tensor sum;
  for (size_t i = 0; i < p.size(); ++i) {
    const Tensor kl = (p[i].exp() * (p[i] - q[i])).sum(-1);
    sum = i == 0 ? kl : sum + kl;
  }
  return sum;
}

Tensor ActionDistribution::Sample(const Tensor& parameters, const Tensor& uniforms) const {
  CHECK_EQ(uniforms.size(-1), components());
  if (continuous()) {
    const auto [mean, deviation] = MeanAndDeviation(parameters);
    // reparametrised: gradients flow through mean and deviation
    return mean + deviation * torch::special_ndtri(uniforms);
  }
  std::vector<Tensor> indices;
  const auto parts = LogProbs(parameters);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor below = Cumulated(parts[i].exp());
    const Tensor u = uniforms.narrow(-1, static_cast<int64_t>(i), 1);
    // how many cumulated probabilities lie at or below u; rounding may leave the last one short of
    // 1
    indices.push_back((below <= u).sum(-1, /*keepdim=*/true).clamp_max(parts[i].size(-1) - 1));
  }
  return torch::cat(indices, -1);
}

Tensor ActionDistribution::Mode(const Tensor& parameters) const {
  if (continuous()) return MeanAndDeviation(parameters).first;
  std::vector<Tensor> indices;
  for (const Tensor& part : LogProbs(parameters)) indices.push_back(part.argmax(-1, true));
  return torch::cat(indices, -1);
}

Tensor ActionDistribution::Join(const Tensor& parts) const {
  CHECK_EQ(parts.size(-1), components());
  Tensor index = parts.narrow(-1, 0, 1);
  for (int64_t i = 1; i < components(); ++i)
    index = index * sizes_[static_cast<size_t>(i)] + parts.narrow(-1, i, 1);
  return index;
}

Tensor ActionDistribution::Split(const Tensor& index) const {
  std::vector<Tensor> parts(sizes_.size());
  Tensor rest = index;
  for (size_t i = sizes_.size(); i-- > 0;) {
    parts[i] = rest.remainder(sizes_[i]);
    rest = rest.floor_divide(sizes_[i]);
  }
  return torch::cat(parts, -1);
}

Tensor ActionDistribution::Squash(const Tensor& actions) const {
  return continuous() ? actions.tanh() : actions;
}

DistributionRow::Values DistributionRow::Evaluate(const float* parameters, int64_t index,
                                                  const float* sample, const float* normal,
                                                  float* by_log_prob, float* by_entropy) {
  return distribution_.continuous()
             ? EvaluateContinuous(parameters, sample, normal, by_log_prob, by_entropy)
             : EvaluateDiscrete(parameters, index, by_log_prob, by_entropy);
}

const SquashedDeviation& DistributionRow::DeviationOf(const float* parameters, size_t dimension) {
  const float output = parameters[deviations_.size() + dimension];
  SquashedDeviation& deviation = deviations_[dimension];
  if (output != deviation.output) deviation = SquashedDeviation(output);
  return deviation;
}

DistributionRow::Values DistributionRow::EvaluateContinuous(const float* parameters,
                                                            const float* sample,
                                                            const float* normal, float* by_log_prob,
                                                            float* by_entropy) {
  Values values;
  const size_t dimensions = deviations_.size();
  for (size_t d = 0; d < dimensions; ++d) {
    const SquashedNormal of(parameters[d], DeviationOf(parameters, d));
    const float z = (sample[d] - of.mean) / of.deviation;
    values.log_prob += of.LogProb(z, sample[d]);
    by_log_prob[d] = z / of.deviation;
    by_log_prob[dimensions + d] = (z * z - 1) / of.deviation * of.slope;
    if (by_entropy == nullptr) continue;
    const float drawn = of.Sample(normal[d]), by_drawn = -2 * std::tanh(drawn);
    constexpr float kHalfLog2PiE = 1.41893853F;
    values.entropy += of.log_deviation + kHalfLog2PiE + SquashedNormal::LogSquashing(drawn);
    by_entropy[d] = by_drawn;
    by_entropy[dimensions + d] = (1 / of.deviation + by_drawn * normal[d]) * of.slope;
  }
  return values;
}

DistributionRow::Values DistributionRow::EvaluateDiscrete(const float* parameters, int64_t index,
                                                          float* by_log_prob,
                                                          float* by_entropy) const {
  Values values;
  const std::vector<int64_t>& sizes = distribution_.sizes();
  int64_t end = distribution_.parameters();
  for (size_t part = sizes.size(); part-- > 0;) {  // the last one counts fastest
    const int64_t size = sizes[part], chosen = index % size;
    index /= size;
    end -= size;
    const float* logits = parameters + end;
    const float log_sum = LogSumExp({logits, static_cast<size_t>(size)});
    values.log_prob += logits[chosen] - log_sum;
    float entropy = 0;
    for (int64_t k = 0; k < size; ++k) {
      const float log_prob = logits[k] - log_sum, prob = std::exp(log_prob);
      by_log_prob[end + k] = (k == chosen ? 1.0F : 0.0F) - prob;
      entropy -= prob * log_prob;
    }
    if (by_entropy == nullptr) continue;
    for (int64_t k = 0; k < size; ++k) {
      const float log_prob = logits[k] - log_sum;
      by_entropy[end + k] = -std::exp(log_prob) * (log_prob + entropy);
    }
    values.entropy += entropy;
  }
  return values;
}

int64_t DistributionRow::DrawIndex(const float* parameters, const float* uniforms) const {
  int64_t index = 0;
  for (const int64_t size : distribution_.sizes()) {
    const std::span<const float> logits(parameters, static_cast<size_t>(size));
    int64_t chosen = 0;
    if (uniforms == nullptr) {
      chosen = std::ranges::max_element(logits) - logits.begin();
    } else {
      const float log_sum = LogSumExp(logits), u = *uniforms++;
      float below = 0;
      while (chosen < size - 1) {
        below += std::exp(logits[static_cast<size_t>(chosen)] - log_sum);
        if (below > u) break;
        ++chosen;
      }
    }
    index = index * size + chosen;
    parameters += size;
  }
  return index;
}

void DistributionRow::DrawSample(const float* parameters, const float* uniforms, float* sample,
                                 float* squashed) {
  for (size_t d = 0; d < deviations_.size(); ++d) {
    const SquashedNormal of(parameters[d], DeviationOf(parameters, d));
    sample[d] = uniforms == nullptr ? of.mean : of.Sample(NormalQuantile(uniforms[d]));
    squashed[d] = std::tanh(sample[d]);
  }
}

}  // namespace samara
