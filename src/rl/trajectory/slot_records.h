// Slots of a run in a checkpoint: version, number of slots, one record each. Learners that share
// the slots write one file, and read it at another number of learners.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"

namespace samara {

// Which of a run's slots one learner has: [first, first + its own).
struct SlotShare {
  uint32_t first = 0;
  uint32_t all = 0;  // of all learners; 0: these are all
};

// First eight bytes of a file. Files of version 1 have none and begin with the number of slots.
inline constexpr uint64_t kSlotsTag = 0x534C'4F54'0000'0000;
inline constexpr uint64_t kSlotsVersion = 2;

// Number of slots, read past the version. kBadData: a later version.
inline Result<uint64_t> ReadSlotCount(ByteReader& in) {
  const auto first = in.Get<uint64_t>();
  if (first >> 32 != kSlotsTag >> 32) return first;
  if (const uint64_t version = first - kSlotsTag; version != kSlotsVersion)
    return Status(Code::kBadData, "saved slots of version " + std::to_string(version) +
                                      ", expected at most " + std::to_string(kSlotsVersion));
  return in.Get<uint64_t>();
}

inline std::string WriteSlotRecords(std::span<const std::string> records) {
  ByteWriter out;
  out.Put(kSlotsTag | kSlotsVersion).Put(uint64_t{records.size()});
  for (const std::string& record : records) out.PutBytes(record);
  return out.Take();
}

// Joins files that WriteSlotRecords of this build made, in the order of their slots. kBadData: one
// is no such file.
inline Result<std::string> JoinSlotRecords(std::span<const std::string> files) {
  uint64_t slots = 0;
  std::string records;
  for (const std::string& file : files) {
    ByteReader in(file);
    const uint64_t tag = in.Get<uint64_t>(), count = in.Get<uint64_t>();
    if (!in.ok() || tag != (kSlotsTag | kSlotsVersion))
      return Status(Code::kBadData, "the slots of a learner are missing");
    slots += count;
    records += std::string_view(file).substr(sizeof tag + sizeof count);
  }
  return ByteWriter().Put(kSlotsTag | kSlotsVersion).Put(slots).Take() + records;
}

// The records of `slots` slots from share.first on; views into `file`. kBadData: damaged, or of
// another number of slots.
inline Result<std::vector<std::string_view>> ReadSlotRecords(std::string_view file,
                                                             const SlotShare& share,
                                                             uint32_t slots) {
  ByteReader in(file);
  ASSIGN_OR_RETURN(const uint64_t count, ReadSlotCount(in));
  std::vector<std::string_view> mine;
  if (count == (share.all > 0 ? share.all : slots)) {
    for (uint64_t i = 0; i < count; ++i) {
      const std::string_view record = in.GetBytes();
      if (i >= share.first && mine.size() < slots) mine.push_back(record);
    }
    if (in.AtEnd() && mine.size() == slots) return mine;
  }
  return Status(Code::kBadData, "the saved slots have another shape than this run's");
}

}  // namespace samara
