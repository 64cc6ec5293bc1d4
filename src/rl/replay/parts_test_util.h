// Checkpoints of a replay, for tests of every kind of replay.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "rl/replay/parts.h"

namespace samara {

// The files of the last of several checkpoints: a part is written when it is complete, and never
// again.
struct SavedParts {
  std::map<uint64_t, std::string> files;
  std::string rest;
  int written = 0;

  template <typename Replay>
  void Save(const Replay& replay) {
    std::map<uint64_t, std::string> now;
    for (const uint64_t part : replay.parts()) {
      const auto before = files.find(part);
      written += before == files.end();
      now[part] = before != files.end() ? before->second : replay.SavePart(part);
    }
    files = std::move(now), rest = replay.Save();
  }
  template <typename Replay>
  Status Restore(Replay& replay) const {
    return replay.Restore(rest, [&](uint64_t part) -> Result<std::string_view> {
      const auto found = files.find(part);
      if (found == files.end()) return NoParts(part);
      return std::string_view(found->second);
    });
  }
};

}  // namespace samara
