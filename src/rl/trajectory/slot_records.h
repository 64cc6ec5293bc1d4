// What a checkpoint holds of a run's slots: how many there are, then one record each. Learners that
// share the slots write one file, and read it at another number of learners.
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

inline std::string WriteSlotRecords(std::span<const std::string> records) {
  ByteWriter out;
  out.Put(uint64_t{records.size()});
  for (const std::string& record : records) out.PutBytes(record);
  return out.Take();
}

// One file of several learners' files, in the order of their slots. kBadData: one is no such file.
inline Result<std::string> JoinSlotRecords(std::span<const std::string> files) {
  uint64_t slots = 0;
  std::string records;
  for (const std::string& file : files) {
    ByteReader in(file);
    slots += in.Get<uint64_t>();
    if (!in.ok()) return Status(Code::kBadData, "the slots of a learner are missing");
    records += std::string_view(file).substr(sizeof slots);
  }
  return ByteWriter().Put(slots).Take() + records;
}

// The records of `slots` slots from share.first on; views into `file`. kBadData: damaged, or of
// another number of slots.
inline Result<std::vector<std::string_view>> ReadSlotRecords(std::string_view file,
                                                             const SlotShare& share,
                                                             uint32_t slots) {
  ByteReader in(file);
  const auto count = in.Get<uint64_t>();
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
