// The files of a checkpoint that hold the replays of a learner's shards:
//   replay.bin               a record each shard of all learners (slot_records.h): what changes
//   replay-SHARD-PART.bin    a complete part of a shard's replay (replay/parts.h), which never does
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rl/learner/agent.h"
#include "rl/learner/replay_keys.h"
#include "rl/replay/parts.h"

namespace samara {

constexpr char kReplayFile[] = "replay.bin";

// All shards together have not more files than one would, and not more to write every time.
inline PartRule PartRuleOf(int64_t all_shards) {
  PartRule rule;
  const auto shards = static_cast<uint64_t>(all_shards);
  rule.parts_max /= shards;
  rule.bytes_max = std::max(rule.bytes_min, rule.bytes_max / shards);
  return rule;
}

inline std::string ReplayPartFile(int64_t shard, uint64_t part) {
  return Agent::kReplayParts + std::to_string(shard) + "-" + std::to_string(part) + ".bin";
}

// Calls `visit`(file's name, replay, part) for every part of a learner's replays, `replay_of` each
// element of `shards`, which are `first` and later ones of all learners', until it returns false.
template <typename Shards, typename Projection, typename Visit>
void VisitParts(const Shards& shards, int64_t first, const Projection& replay_of,
                const Visit& visit) {
  for (const auto& shard : shards) {
    const auto& replay = std::invoke(replay_of, shard);
    for (const uint64_t part : replay.parts())
      if (!visit(ReplayPartFile(first, part), replay, part)) return;
    ++first;
  }
}

// Adds the files of these replays; those of parts that are `kept` are empty.
template <typename Shards, typename Projection = std::identity>
void SaveReplays(const Shards& shards, int64_t first, const std::set<std::string>& kept,
                 std::map<std::string, std::string>& files, Projection replay_of = {}) {
  VisitParts(shards, first, replay_of, [&](const std::string& name, const auto& of, uint64_t part) {
    files[name] = kept.contains(name) ? std::string() : of.SavePart(part);
    return true;
  });
  std::vector<std::string> records;
  records.reserve(std::size(shards));
  for (const auto& shard : shards) records.push_back(std::invoke(replay_of, shard).Save());
  files[kReplayFile] = WriteSlotRecords(records);
}

// Parts of these replays that are not `kept`, of about 16 MB in all, or one; none: all are.
template <typename Shards, typename Projection = std::identity>
std::map<std::string, std::string> SaveNextParts(const Shards& shards, int64_t first,
                                                 const std::set<std::string>& kept,
                                                 Projection replay_of = {}) {
  std::map<std::string, std::string> files;
  uint64_t bytes = 0;
  VisitParts(shards, first, replay_of, [&](const std::string& name, const auto& of, uint64_t part) {
    if (!kept.contains(name)) bytes += (files[name] = of.SavePart(part)).size();
    return bytes < PartRule().bytes_max;
  });
  return files;
}

// `all`: shards of all learners. kBadData; the replays of some shards may have changed then.
template <typename Shards, typename Projection = std::identity>
Status RestoreReplays(const std::map<std::string, std::string>& files, int64_t first, int64_t all,
                      Shards& shards, Projection replay_of = {}) {
  ASSIGN_OR_RETURN(const auto records,
                   ReplayRecords(files, kReplayFile, first, std::ssize(shards), all));
  int64_t shard = first;
  for (auto& each : shards) {
    auto& replay = std::invoke(replay_of, each);
    const auto part = [&](uint64_t number) -> Result<std::string_view> {
      const auto found = files.find(ReplayPartFile(shard, number));
      if (found == files.end()) return NoParts(number);
      return std::string_view(found->second);
    };
    RETURN_IF_ERROR(
        replay.Restore(records[static_cast<size_t>(shard - first)], part).Annotate(kReplayFile));
    ++shard;
  }
  return Status::Ok();
}

}  // namespace samara
