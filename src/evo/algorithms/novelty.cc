#include "evo/algorithms/novelty.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/bytes.h"
#include "core/check.h"

namespace samara {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kRowsBetweenLooks = 32;  // at how far the sum has come
constexpr EnumName<BehaviourKind> kBehaviours[] = {
    {BehaviourKind::kFinalPosition, "final_position"},
    {BehaviourKind::kTrajectory, "trajectory"},
    {BehaviourKind::kRam, "ram"}};

double SquaredDifference(const std::byte* a, const std::byte* b, size_t bytes, float /*as*/) {
  double sum = 0;
  for (size_t i = 0; i < bytes; i += sizeof(float)) {
    float x, y;
    std::memcpy(&x, a + i, sizeof x), std::memcpy(&y, b + i, sizeof y);
    const double d = static_cast<double>(x) - static_cast<double>(y);
    sum += d * d;
  }
  return sum;
}

// A plain loop over integers of one width, which compilers turn into vector instructions.
uint64_t SquaredDifference(const std::byte* a, const std::byte* b, size_t bytes, uint8_t /*as*/) {
  uint32_t sum = 0;  // 65,536 bytes, the most a row has, sum up to less than 2^32
  for (size_t i = 0; i < bytes; ++i) {
    const int d = static_cast<int>(a[i]) - static_cast<int>(b[i]);
    sum += static_cast<uint32_t>(d * d);
  }
  return sum;
}

// `Sum` is exact for memory; of positions it adds in the order of steps and dimensions.
template <typename As, typename Sum>
double Distance(size_t row, const Behaviour& a, const Behaviour& b, double enough) {
  const bool longer = a.size() >= b.size();
  const Behaviour &x = longer ? a : b, &y = longer ? b : a;
  const size_t rows = x.size() / row, last = y.size() / row - 1;
  Sum sum = 0;
  for (size_t t = 0; t < rows; ++t) {
    sum += SquaredDifference(x.data() + t * row, y.data() + std::min(t, last) * row, row, As{});
    if (t % kRowsBetweenLooks == 0 && static_cast<double>(sum) >= enough) break;
  }
  return static_cast<double>(sum);
}

}  // namespace

// ---- configuration

void NoveltyRule::Bind(ConfigTable& table) {
  table.Add("novelty.behaviour", &kind, kBehaviours,
            "behaviour by which the novelty of an episode is measured");
  table.Add("novelty.neighbours", &neighbours, {1, 1'000'000}, "behaviours",
            "nearest known behaviours whose mean distance is the novelty");
}

Result<RecordKind> NoveltyRule::Records(const EnvironmentSpec& environment) const {
  const auto missing = [&](const char* name, const char* what) {
    return Status(Code::kConfig,
                  fmt::format("novelty.behaviour={}: {} has no {}", name, environment.id, what));
  };
  switch (kind) {
    case BehaviourKind::kFinalPosition:
      if (environment.position == 0) return missing("final_position", "position of a body");
      return RecordKind::kNothing;  // the position at the end is in every result
    case BehaviourKind::kTrajectory:
      if (environment.position == 0) return missing("trajectory", "position of a body");
      return RecordKind::kPositions;
    case BehaviourKind::kRam:
      if (environment.memory == 0) return missing("ram", "memory to record, as Atari games have");
      return RecordKind::kMemory;
  }
  return RecordKind::kNothing;
}

size_t NoveltyRule::RowBytes(const EnvironmentSpec& environment) const {
  return static_cast<size_t>(kind == BehaviourKind::kRam
                                 ? environment.memory
                                 : environment.position * static_cast<int64_t>(sizeof(float)));
}

std::vector<float> MeanPosition(std::span<const EpisodeResult> episodes) {
  std::vector<float> mean(episodes[0].position.size());
  for (size_t d = 0; d < mean.size(); ++d) {
    double sum = 0;
    for (const EpisodeResult& episode : episodes) sum += static_cast<double>(episode.position[d]);
    mean[d] = static_cast<float>(sum / static_cast<double>(episodes.size()));
  }
  return mean;
}

Behaviour NoveltyRule::BehaviourOf(std::span<const EpisodeResult> episodes) const {
  if (kind != BehaviourKind::kFinalPosition) return episodes[0].recording;
  const std::vector<float> mean = MeanPosition(episodes);
  const auto bytes = std::as_bytes(std::span(mean));
  return {bytes.begin(), bytes.end()};
}

// ---- distance

double SquaredDistance(BehaviourKind kind, size_t row, const Behaviour& a, const Behaviour& b,
                       double enough) {
  DCHECK(row > 0 && !a.empty() && !b.empty() && a.size() % row == 0 && b.size() % row == 0);
  return kind == BehaviourKind::kRam ? Distance<uint8_t, uint64_t>(row, a, b, enough)
                                     : Distance<float, double>(row, a, b, enough);
}

void NearestDistances::Offer(double squared) {
  if (std::isnan(squared) || squared >= bound()) return;
  squared_.insert(std::ranges::upper_bound(squared_, squared), squared);
  if (squared_.size() > k_) squared_.pop_back();
}

double NearestDistances::bound() const {
  return squared_.size() < k_ ? kInfinity : squared_.back();
}

double NearestDistances::MeanSquared() const {
  double sum = 0;
  for (const double d : squared_) sum += d;
  return squared_.empty() ? 0 : sum / static_cast<double>(squared_.size());
}

double NearestDistances::Mean() const {
  double sum = 0;
  for (const double d : squared_) sum += std::sqrt(d);
  return squared_.empty() ? 0 : sum / static_cast<double>(squared_.size());
}

// ---- archive

void NoveltyArchive::Add(Behaviour behaviour) {
  CHECK(row_ > 0 && !behaviour.empty() && behaviour.size() % row_ == 0)
      << "a behaviour of " << behaviour.size() << " bytes in rows of " << row_;
  Sha256 hash;
  hash.Update(std::as_bytes(std::span(digest_)));
  hash.Update(behaviour);
  digest_ = hash.Finish();
  entries_.push_back(std::move(behaviour));
}

void NoveltyArchive::OfferAll(const Behaviour& behaviour, NearestDistances& nearest) const {
  for (const Behaviour& entry : entries_)
    nearest.Offer(SquaredDistance(kind_, row_, behaviour, entry, nearest.bound()));
}

double NoveltyArchive::MeanDistance(const Behaviour& behaviour, size_t k) const {
  NearestDistances nearest(k);
  OfferAll(behaviour, nearest);
  return nearest.Mean();
}

std::string NoveltyArchive::Encode(size_t first) const {
  ByteWriter out;
  for (size_t i = first; i < entries_.size(); ++i)
    out.PutBytes({reinterpret_cast<const char*>(entries_[i].data()), entries_[i].size()});
  return out.Take();
}

Status NoveltyArchive::Append(std::string_view bytes) {
  ByteReader in(bytes);
  while (!in.AtEnd()) {
    const std::string_view entry = in.GetBytes();
    if (!in.ok() || row_ == 0 || entry.empty() || entry.size() % row_ != 0)
      return {Code::kBadData, "the recorded archive of behaviours is damaged"};
    const auto* begin = reinterpret_cast<const std::byte*>(entry.data());
    Add(Behaviour(begin, begin + entry.size()));
  }
  return Status::Ok();
}

}  // namespace samara
