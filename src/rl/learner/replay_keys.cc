#include "rl/learner/replay_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/enum_names.h"
#include "rl/trajectory/slot_records.h"

namespace samara {
namespace {

constexpr EnumName<Compression> kCompressionNames[] = {{Compression::kNone, "none"},
                                                       {Compression::kLz4, "lz4"}};

}  // namespace

void ReplayKeys::Bind(ConfigTable& table) {
  table.Add("replay.capacity", &capacity, {1, 1e9}, "steps", "size of the replay, over all shards");
  table.Add("replay.start", &start, {0, 1e9}, "steps",
            "steps that are played before learning starts");
  table.Add("replay.batch", &batch, {1, 10'000'000}, "steps",
            "size of a minibatch, over all shards");
  table.Add("replay.ratio", &ratio, {0, 1e6}, "",
            "how often a step is learned from on average: replay.batch is one minibatch a step");
  const auto added = OnResume::kMustMatchAdded;
  table.Add("replay.alpha", &alpha, {0, 10}, "",
            "exponent of the priorities in sampling; 0 = uniform", added);
  table.Add("replay.beta", &beta, {0, 1}, "",
            "exponent of the weights that correct for priorities; 0 = none", added);
  table.Add("replay.compress", &compress, kCompressionNames,
            "lossless compression of the observations that are stored", OnResume::kMayChange);
}

Status ReplayKeys::Check(const LearningConfig& config) const {
  const LearnConfig& learn = config.learn;
  if (config.optimizer.epsilon <= 0)
    return {Code::kConfig, "optimizer.epsilon=0: expected it above 0"};
  if (batch < learn.shards)
    return {Code::kConfig,
            fmt::format("replay.batch={}: expected at least learn.shards={}", batch, learn.shards)};
  const auto update = static_cast<double>(learn.batch * learn.unroll);
  if (capacity < update)
    return {Code::kConfig,
            fmt::format("replay.capacity={:.0f}: expected at least the {:.0f} steps of an "
                        "update (learn.batch * learn.unroll)",
                        capacity, update)};
  if (start > capacity)
    return {Code::kConfig,
            fmt::format("replay.start={:.0f}: expected at most replay.capacity={:.0f}", start,
                        capacity)};
  if (beta > 0 && alpha == 0)
    return {Code::kConfig,
            fmt::format("replay.beta={}: corrects for priorities, which replay.alpha=0 has not; "
                        "expected 0",
                        beta)};
  return Status::Ok();
}

uint64_t ReplayKeys::Due(const LearnConfig& learn, uint64_t updates) const {
  const double stored =
      static_cast<double>(updates) * static_cast<double>(learn.batch * learn.unroll);
  const double learned_from = std::max(0.0, stored - start) * ratio;
  return static_cast<uint64_t>(learned_from / static_cast<double>(batch));
}

void ExplorationKeys::Bind(ConfigTable& table, const std::string& algorithm) {
  table.Add(algorithm + ".epsilon", &epsilon, {0, 1}, "",
            "exploration rate of the first environment; later ones explore less");
  table.Add(algorithm + ".epsilon_last", &epsilon_last, {0, 1}, "",
            "exploration rate of the last environment");
}

Status ExplorationKeys::Check(const std::string& algorithm) const {
  if (epsilon_last <= epsilon) return Status::Ok();
  return {Code::kConfig, algorithm + ".epsilon_last=" + std::to_string(epsilon_last) +
                             ": expected at most " + algorithm +
                             ".epsilon=" + std::to_string(epsilon)};
}

void HindsightKeys::Bind(ConfigTable& table) {
  table.Add(
      "her.fraction", &fraction, {0, 1}, "",
      "share of the sampled steps that are learned from with a goal that their episode achieved "
      "later; 0 = none",
      OnResume::kMustMatchAdded);
}

Status HindsightKeys::Check(const EnvironmentSpec& environment) const {
  if (fraction == 0 || environment.goal.size > 0) return Status::Ok();
  return {Code::kConfig,
          fmt::format("her.fraction={}: {} has no goals whose reward is known to depend on a "
                      "distance alone; expected 0",
                      fraction, environment.id)};
}

void ReplayAlgorithmConfig::BindSteps(ConfigTable& table) {
  replay.Bind(table);
  hindsight.Bind(table);
  table.Add("replay.random_shift", &random_shift, {0, 1000}, "pixels",
            "images that are learned from are moved by up to so many at random; 0 = they are not",
            OnResume::kMustMatchAdded);
}

Result<std::vector<std::string_view>> ReplayRecords(const std::map<std::string, std::string>& files,
                                                    const char* name, int64_t first, int64_t shards,
                                                    int64_t all) {
  const auto found = files.find(name);
  if (found == files.end()) return Status(Code::kBadData, std::string("holds no ") + name);
  auto records = ReadSlotRecords(
      found->second, {.first = static_cast<uint32_t>(first), .all = static_cast<uint32_t>(all)},
      static_cast<uint32_t>(shards));
  if (!records.ok())
    return Status(Code::kBadData,
                  fmt::format("{}: damaged, or of another number of shards than {}", name, all));
  return records;
}

}  // namespace samara
