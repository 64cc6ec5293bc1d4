#include "evo/algorithms/observation_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace samara {
namespace {

constexpr double kVarianceMin = 1e-2;

}  // namespace

ObservationStatistics::ObservationStatistics(const NetworkDescription& network,
                                             std::span<const float> canonical)
    : ObservationStatistics(network.input_size()) {
  const Layer& layer = network.layers.front();
  const auto carries = [&](size_t i) {
    return canonical[layer.mean_offset + i] != 0 || canonical[layer.spread_offset + i] != 1;
  };
  bool carried = false;
  for (size_t i = 0; i < network.input_size(); ++i) carried |= carries(i);
  if (!carried) return;
  sum_.clear(), squares_.clear();
  count_ = kOfPolicy;
  for (size_t i = 0; i < network.input_size(); ++i) {
    const double mean = canonical[layer.mean_offset + i];
    const double deviation = canonical[layer.spread_offset + i];
    sum_.push_back(mean * kOfPolicy);
    squares_.push_back((mean * mean + deviation * deviation) * kOfPolicy);
  }
}

void ObservationStatistics::Add(std::span<const float> rows) {
  const size_t n = numbers();
  for (size_t i = 0; i < rows.size(); ++i) {
    const double value = std::isfinite(rows[i]) ? rows[i] : 0.0F;
    sum_[i % n] += value, squares_[i % n] += value * value;
  }
  const uint64_t count = rows.size() / n;
  count_ += static_cast<double>(count), seen_ += count;
}

void ObservationStatistics::Add(const ObservationStatistics& other) {
  for (size_t i = 0; i < numbers(); ++i)
    sum_[i] += other.sum_[i], squares_[i] += other.squares_[i] - kFirst;
  count_ += static_cast<double>(other.seen_), seen_ += other.seen_;
}

double ObservationStatistics::Deviation(size_t i) const {
  const double mean = Mean(i);
  return std::sqrt(std::max(squares_[i] / count_ - mean * mean, kVarianceMin));
}

void ObservationStatistics::Put(ByteWriter& out) const {
  out.PutVector(sum_).PutVector(squares_);
  out.Put(count_).Put(seen_);
}

bool ObservationStatistics::Get(ByteReader& in) {
  if (!in.GetVector(sum_) || !in.GetVector(squares_)) return false;
  count_ = in.Get<double>();
  seen_ = in.Get<uint64_t>();
  return in.ok() && sum_.size() == squares_.size() && (sum_.empty() || count_ > 0);
}

bool Normalizes(const NetworkDescription& network) {
  return network.layers.front().kind == Layer::Kind::kNormalize &&
         std::ranges::count_if(network.layers, &Layer::has_statistics) == 1;
}

void WriteStatistics(const ObservationStatistics& statistics, const NetworkDescription& network,
                     std::span<float> canonical) {
  const Layer& layer = network.layers.front();
  for (size_t i = 0; i < statistics.numbers(); ++i) {
    canonical[layer.mean_offset + i] = static_cast<float>(statistics.Mean(i));
    canonical[layer.spread_offset + i] = static_cast<float>(statistics.Deviation(i));
  }
}

namespace {

// Begins a reduced recording; as two float32 it is no pair of finite numbers.
constexpr uint64_t kReduced = 0xffffffff534d5553;

bool IsReduced(std::span<const std::byte> recording) {
  uint64_t first = 0;
  if (recording.size() < sizeof first) return false;
  std::memcpy(&first, recording.data(), sizeof first);
  return first == kReduced;
}

ObservationStatistics OfRows(size_t numbers, std::span<const std::byte> rows) {
  std::vector<float> values(rows.size() / sizeof(float) / numbers * numbers);
  std::memcpy(values.data(), rows.data(), values.size() * sizeof(float));
  ObservationStatistics part(numbers);
  part.Add(values);
  return part;
}

}  // namespace

void ReduceRecording(size_t numbers, EpisodeResult& result) {
  if (result.recording.empty() || IsReduced(result.recording)) return;
  ByteWriter out;
  out.Put(kReduced);
  OfRows(numbers, result.recording).Put(out);
  const std::string bytes = out.Take();
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  result.recording.assign(begin, begin + bytes.size());
}

bool AddRecording(const EpisodeResult& result, ObservationStatistics& statistics) {
  if (result.recording.empty()) return true;
  ObservationStatistics part;
  if (IsReduced(result.recording)) {
    ByteReader in(
        {reinterpret_cast<const char*>(result.recording.data()), result.recording.size()});
    (void)in.Get<uint64_t>();
    if (!part.Get(in) || !in.AtEnd() || part.numbers() != statistics.numbers()) return false;
  } else {
    part = OfRows(statistics.numbers(), result.recording);
  }
  statistics.Add(part);
  return true;
}

// ---- what an algorithm does with them

void StatisticsConfig::BindObservationShare(ConfigTable& config) {
  config.Add(table() + ".observation_share", &observation_share, {0, 1}, "share",
             "share of the population's episodes whose observations a `normalize` layer's "
             "statistics come from",
             OnResume::kMustMatchAdded);
}

EvolutionSetup WithoutRecording(EvolutionSetup setup) {
  setup.episodes.record = RecordKind::kNothing;
  return setup;
}

ObservationStatistics StatisticsKeeper::Begin(const InitialPolicy* initial,
                                              std::span<float> policy) const {
  if (!keeps_) return {};
  ObservationStatistics first = initial == nullptr
                                    ? ObservationStatistics(network_.input_size())
                                    : ObservationStatistics(network_, initial->parameters);
  Write(first, policy);
  return first;
}

void StatisticsKeeper::Choose(const GenerationPlayer& player, uint64_t index, Task& task) const {
  if (!keeps_) return;
  const CounterRng draw(player.Key(Purpose::kObservationStatistics, 0));
  if (index == 0 || draw.Uniform(index) < share_) task.episode.record = RecordKind::kObservations;
}

std::function<void(EpisodeResult&)> StatisticsKeeper::Reduce() const {
  if (!keeps_) return {};
  return [n = network_.input_size()](EpisodeResult& result) { ReduceRecording(n, result); };
}

Status StatisticsKeeper::Add(std::span<const EpisodeResult> played,
                             ObservationStatistics& statistics) const {
  for (const EpisodeResult& result : played)
    if (!AddRecording(result, statistics))
      return {Code::kBadData, "the recorded observations of an episode are damaged"};
  return Status::Ok();
}

}  // namespace samara
