#include "rl/learner/network_statistics.h"

#include "core/bytes.h"

namespace samara {
namespace {

using torch::Tensor;

// REQUIRES: of the CPU, dense.
std::span<const float> NumbersIn(const Tensor& x) {
  return {x.data_ptr<float>(), static_cast<size_t>(x.numel())};
}

size_t NumbersOf(const std::optional<RunningStatistics>& statistics) {
  return statistics ? statistics->numbers() : 0;
}

// Moments that Merge takes for nothing.
std::vector<float> NoMoments(const RunningStatistics& statistics) {
  return std::vector<float>(1 + 2 * statistics.numbers());
}

}  // namespace

NetworkStatistics::NetworkStatistics(const AgentNetworkImpl& network) {
  const auto numbers = [](const Tensor& mean) { return static_cast<size_t>(mean.numel()); };
  if (const Tensor mean = network.observations().mean; mean.defined())
    observations_.emplace(numbers(mean));
  if (const Tensor mean = network.values().mean; mean.defined()) values_.emplace(numbers(mean));
}

size_t NetworkStatistics::numbers() const { return NumbersOf(observations_) + NumbersOf(values_); }

std::vector<float> NetworkStatistics::Moments(const Tensor& observations,
                                              const Tensor& values) const {
  std::vector<float> all;
  const auto append = [&](const std::vector<float>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  if (observations_) {
    const Tensor numbers = observations.cpu().to(torch::kFloat32).contiguous();
    append(observations_->Moments(
        NumbersIn(observations.scalar_type() == torch::kUInt8 ? numbers / 255 : numbers)));
  }
  if (values_)
    append(values.defined() ? values_->Moments(NumbersIn(values.cpu().contiguous()))
                            : NoMoments(*values_));
  return all;
}

void NetworkStatistics::SetObservations(const AgentNetworkImpl::Statistics& to) const {
  const torch::NoGradGuard no_gradient;
  const std::vector<Tensor> halves = torch::tensor(observations_->Floats()).chunk(2);
  Tensor(to.mean).copy_(halves[0]);
  Tensor(to.deviation).copy_(halves[1]);
}

void NetworkStatistics::Merge(std::span<const float> moments, AgentNetworkImpl& network) {
  if (observations_) {
    const size_t size = 1 + 2 * observations_->numbers();
    observations_->Merge(moments.first(size));
    moments = moments.subspan(size);
    SetObservations(network.observations());
  }
  if (values_) {
    values_->Merge(moments);
    network.SetValueStatistics(values_->Mean(0), values_->Deviation(0));
  }
}

void NetworkStatistics::Assume(const AgentNetworkImpl& network) {
  const auto assume = [](const AgentNetworkImpl::Statistics& from, auto& to) {
    if (to) to->Assume(NumbersIn(from.mean.cpu()), NumbersIn(from.deviation.cpu()));
  };
  assume(network.observations(), observations_);
  assume(network.values(), values_);
}

std::string NetworkStatistics::Save() const {
  ByteWriter out;
  for (const auto* statistics : {&observations_, &values_})
    out.PutBytes(*statistics ? (*statistics)->Save() : "");
  return out.Take();
}

Status NetworkStatistics::Restore(std::string_view saved) {
  NetworkStatistics read = *this;
  ByteReader in(saved);
  for (auto* statistics : {&read.observations_, &read.values_}) {
    const std::string_view bytes = in.GetBytes();
    if (*statistics) RETURN_IF_ERROR((*statistics)->Restore(bytes));
  }
  if (!in.AtEnd()) return {Code::kBadData, "the saved statistics are damaged"};
  *this = std::move(read);
  return Status::Ok();
}

}  // namespace samara
