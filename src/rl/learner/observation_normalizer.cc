#include "rl/learner/observation_normalizer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/bytes.h"
#include "core/check.h"
#include "nn/layer_line.h"
#include "rl/learner/input_layout.h"

namespace samara {
namespace {

constexpr char kMean[] = "normalize_mean", kDeviation[] = "normalize_deviation";

}  // namespace

Result<size_t> ObservationNormalizer::Split(AgentSetup& setup) {
  AgentNetworkKeys& keys = setup.config.network;
  ASSIGN_OR_RETURN(std::optional<std::string> behind, BehindNormalize(keys.text()));
  if (!behind) return size_t{0};
  keys.layers = *std::move(behind);
  return static_cast<size_t>(setup.environment.observation.elements());
}

ObservationNormalizer::ObservationNormalizer(size_t numbers, bool bytes)
    : bytes_(bytes), statistics_(numbers), floats_(statistics_.Floats()) {}

std::vector<float> ObservationNormalizer::Moments(
    std::span<const UnrollStore::Loan> unrolls) const {
  const size_t n = numbers(), bytes = n * (bytes_ ? 1 : sizeof(float));
  std::vector<float> row(n);
  std::vector<double> sums(1 + 2 * n);
  for (const auto& unroll : unrolls)
    for (uint32_t t = 0; t + 1 < unroll->entries; ++t) {
      const std::byte* from = unroll->observations.data() + t * bytes;
      if (bytes_)
        BytesToUnit(from, row);
      else
        std::memcpy(row.data(), from, bytes);
      statistics_.AddRow(row, sums);
    }
  return {sums.begin(), sums.end()};
}

void ObservationNormalizer::Merge(std::span<const float> moments) {
  statistics_.Merge(moments);
  floats_ = statistics_.Floats();
}

std::map<std::string, Tensor> ObservationNormalizer::Tensors(std::span<const float> floats) {
  const size_t n = floats.size() / 2;
  const std::vector<int64_t> shape = {static_cast<int64_t>(n)};
  return {{kMean, Tensor::OfFloats(shape, floats.first(n))},
          {kDeviation, Tensor::OfFloats(shape, floats.last(n))}};
}

Result<std::vector<float>> ObservationNormalizer::FromTensors(
    const std::map<std::string, Tensor>& tensors) const {
  std::vector<float> floats;
  for (const char* name : {kMean, kDeviation}) {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.type != Tensor::Type::kFloat32 ||
        found->second.shape != std::vector{static_cast<int64_t>(numbers())})
      return Status(Code::kBadData,
                    std::string(name) + " is missing or has another shape than this run's network");
    std::ranges::copy(found->second.Floats(), std::back_inserter(floats));
  }
  return floats;
}

bool ObservationNormalizer::In(const std::map<std::string, Tensor>& tensors) {
  return tensors.contains(kMean) || tensors.contains(kDeviation);
}

// As a network with torch has them (network_statistics.h): observations', then values', which there
// are none of.
std::string ObservationNormalizer::Save() const {
  return ByteWriter().PutBytes(statistics_.Save()).PutBytes("").Take();
}

Status ObservationNormalizer::Restore(std::vector<float> floats, const std::string* saved) {
  CHECK_EQ(floats.size(), floats_.size());
  RunningStatistics statistics = statistics_;
  if (saved != nullptr) {
    ByteReader in(*saved);
    const std::string_view observations = in.GetBytes(), values = in.GetBytes();
    if (!in.AtEnd() || !values.empty()) return {Code::kBadData, "the saved statistics are damaged"};
    RETURN_IF_ERROR(statistics.Restore(observations));
  } else {
    const std::span<const float> all = floats;
    statistics.Assume(all.first(all.size() / 2), all.last(all.size() / 2));
  }
  statistics_ = std::move(statistics), floats_ = std::move(floats);
  return Status::Ok();
}

std::span<const std::byte> NormalizedObservations::Write(size_t row, std::span<const float> floats,
                                                         std::span<const std::byte> observation) {
  const auto values = std::span(values_).subspan(row * numbers_, numbers_);
  std::memcpy(values.data(), observation.data(), values.size_bytes());
  for (size_t i = 0; i < numbers_; ++i)
    values[i] = NormalizedInput(values[i], floats[i], floats[numbers_ + i]);
  return std::as_bytes(values);
}

void NormalizedObservations::Replace(std::span<const float> floats, std::span<Transition> steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].observation = Write(2 * i, floats, steps[i].observation);
    steps[i].next_observation = Write(2 * i + 1, floats, steps[i].next_observation);
  }
}

NormalizedObservations::Rows::Rows(NormalizedObservations& memory, std::span<const float> floats,
                                   InferenceBatch& batch)
    : batch_(batch), given_(memory.given_) {
  given_.clear();
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    std::span<const std::byte>& observation = batch.rows[i].observation;
    given_.push_back(observation);
    observation = memory.Write(i, floats, observation);
  }
}

NormalizedObservations::Rows::~Rows() {
  for (size_t i = 0; i < given_.size(); ++i) batch_.rows[i].observation = given_[i];
}

}  // namespace samara
