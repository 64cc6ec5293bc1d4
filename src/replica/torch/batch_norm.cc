#include "samara/batch_norm.h"

#include <algorithm>

#include "replica/torch/leaves.h"

namespace samara {
namespace {

// [1, channels, 1, ...] for a tensor of x's dimensions.
torch::Tensor AsChannels(const torch::Tensor& v, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = v.numel();
  return v.to(x.scalar_type()).view(shape);
}

// The same value; its gradient is multiplied.
struct ScaleGradient : torch::autograd::Function<ScaleGradient> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               double factor) {
    ctx->saved_data["factor"] = factor;
    return x.view_as(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0] * ctx->saved_data["factor"].toDouble(), {}};
  }
};

// Moments of a batch or of several: count, mean and the sum of squared deviations, float64
// [channels].
struct Moments {
  double count = 0;
  torch::Tensor mean, m2;
};

// Chan's merge: no difference of large numbers. Parts without rows contribute nothing.
void Merge(Moments& a, const Moments& b) {
  if (b.count == 0) return;
  if (a.count == 0) {
    a = b;
    return;
  }
  const double total = a.count + b.count;
  const torch::Tensor delta = b.mean - a.mean;
  a.mean = a.mean + delta * (b.count / total);
  a.m2 = a.m2 + b.m2 + delta * delta * (a.count * b.count / total);
  a.count = total;
}

Moments MomentsOf(const torch::Tensor& x) {
  std::vector<int64_t> dims{0};
  for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  Moments m{.count = static_cast<double>(x.numel() / std::max<int64_t>(1, x.size(1))),
            .mean = {},
            .m2 = {}};
  const double count = std::max(1.0, m.count);
  const torch::Tensor mean = x.sum(dims) / count;
  m.m2 = (x - AsChannels(mean, x)).square().sum(dims).to(torch::kDouble);
  m.mean = mean.to(torch::kDouble);
  return m;
}

// Returns the moments of all replicas, in the order of their ids: one message of [count, samples,
// means, squares].
Moments MomentsOfAll(const Moments& mine, int64_t channels, const ReplicaContext& replica,
                     Site site) {
  const auto samples = static_cast<double>(replica.samples());
  const torch::Tensor head = torch::tensor({mine.count, samples}, torch::kDouble);
  torch::Tensor message = torch::cat({head, mine.mean.cpu(), mine.m2.cpu()});
  // gradients are weighted by samples once the backward pass is over; what comes from a replica
  // with another number of samples is weighed here, so that it counts by its own
  const bool weigh = torch::GradMode::is_enabled() && message.requires_grad();
  if (weigh) message = ScaleGradient::apply(message, samples > 0 ? 1 / samples : 0);
  torch::Tensor all = replica.AllGather(message, site);
  if (weigh) all = ScaleGradient::apply(all, samples);
  Moments merged;
  for (int64_t i = 0; i < all.size(0); ++i) {
    const torch::Tensor row = all[i];
    Merge(merged, {row[0].item<double>(), row.narrow(0, 2, channels),
                   row.narrow(0, 2 + channels, channels)});
  }
  return merged;
}

}  // namespace

CrossReplicaBatchNormImpl::CrossReplicaBatchNormImpl(int64_t channels, const Options& given)
    : options(given) {
  weight = register_parameter("weight", torch::ones({channels}));
  bias = register_parameter("bias", torch::zeros({channels}));
  running_mean = register_buffer("running_mean", torch::zeros({channels}));
  running_var = register_buffer("running_var", torch::ones({channels}));
}

torch::Tensor CrossReplicaBatchNormImpl::forward(const torch::Tensor& x) {
  return CrossReplicaNormalise(x, {weight, bias, running_mean, running_var}, is_training(), options,
                               nullptr);
}
torch::Tensor CrossReplicaBatchNormImpl::forward(const torch::Tensor& x, ReplicaContext& replica,
                                                 Site site) {
  return CrossReplicaNormalise(x, {weight, bias, running_mean, running_var}, is_training(), options,
                               &replica, site);
}

torch::Tensor CrossReplicaNormalise(const torch::Tensor& x, const BatchNormTensors& t,
                                    bool training, const CrossReplicaBatchNormOptions& options,
                                    const ReplicaContext* replica, Site site) {
  const int64_t channels = t.weight.numel();
  if (x.dim() < 2 || x.size(1) != channels) {
    throw ReplicationError(78, "batch norm of " + DescribeTensor(x) + ": expected " +
                                   std::to_string(channels) + " channels in dimension 1");
  }
  if (!training) {
    const torch::Tensor scale = t.weight * torch::rsqrt(t.running_var + options.eps);
    return x * AsChannels(scale, x) + AsChannels(t.bias - t.running_mean * scale, x);
  }
  Moments m = MomentsOf(x);
  if (replica != nullptr) m = MomentsOfAll(m, channels, *replica, site);
  if (m.count == 0) return x;
  const torch::Tensor variance = m.m2 / m.count;
  // once a rank: the model is its replicas', and all have the same numbers
  if (replica == nullptr || replica->local() == 0) {
    const torch::NoGradGuard none;
    const torch::Tensor unbiased = m.m2 / std::max(1.0, m.count - 1);
    t.running_mean.mul_(1 - options.momentum)
        .add_(m.mean.to(t.running_mean.options()), options.momentum);
    t.running_var.mul_(1 - options.momentum)
        .add_(unbiased.to(t.running_var.options()), options.momentum);
  }
  const torch::Tensor scale =
      t.weight * torch::rsqrt(variance + options.eps).to(t.weight.options());
  return (x - AsChannels(m.mean.to(x.device()), x)) * AsChannels(scale, x) + AsChannels(t.bias, x);
}

}  // namespace samara
