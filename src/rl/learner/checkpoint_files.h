// The files of a learner in a checkpoint beside its replays (replay_files.h), and how they are
// read.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "core/status.h"
#include "nn/safetensors.h"

namespace samara {

// and Agent::kWeightsFile
inline constexpr char kOptimizerFile[] = "optimizer.safetensors",
                      kTargetsFile[] = "targets.safetensors",
                      kVersionsFile[] = "versions.safetensors", kSlotsFile[] = "slots.bin",
                      kStatisticsFile[] = "statistics.bin";

// kBadData: there is no file of this name, or it is damaged.
inline Result<Safetensors> ParsedFile(const std::map<std::string, std::string>& files,
                                      const char* name) {
  const auto found = files.find(name);
  if (found == files.end()) return Status(Code::kBadData, std::string("holds no ") + name);
  auto parsed = ParseSafetensors(found->second);
  if (!parsed.ok()) return parsed.status().Annotate(name);
  return parsed;
}

// The number that the file's metadata says of `key`. kBadData: they say none.
inline Result<uint64_t> NumberIn(const Safetensors& file, const char* name, const char* key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end())
    return Status(Code::kBadData, std::string(name) + ": says no " + key);
  return std::strtoull(found->second.c_str(), nullptr, 10);
}

}  // namespace samara
