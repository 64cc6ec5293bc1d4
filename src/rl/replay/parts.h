// How a checkpoint divides a replay, whose items are numbered in the order in which they were
// added: into parts of equally many. A part whose last item was added never changes again, so that
// a checkpoint writes it once and later ones keep it; the items after it are written every time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace samara {

// Items by number: [first, end).
struct ItemRange {
  uint64_t first = 0, end = 0;
  uint64_t size() const { return end - first; }
};

// A part is a file: a 32nd of a full replay, but neither very small nor so large that the items
// after the last part, which are written every time, take long.
struct PartRule {
  uint64_t parts_max = 2048;               // of a full replay
  uint64_t bytes_min = uint64_t{1} << 18;  // of a part
  uint64_t bytes_max = uint64_t{1} << 24;  // unless there would be too many
};

class ReplayParts {
 public:
  // Divides a replay of `capacity` items of `item_bytes` each.
  ReplayParts(const PartRule& rule, uint64_t capacity, uint64_t item_bytes)
      : items_(std::max<uint64_t>(
            {1, (capacity + rule.parts_max - 1) / rule.parts_max,
             std::clamp(capacity * item_bytes / 32, rule.bytes_min, rule.bytes_max) /
                 std::max<uint64_t>(1, item_bytes)})) {}
  explicit ReplayParts(uint64_t items) : items_(items) {}

  uint64_t items() const { return items_; }  // of a part
  // The complete parts of which there are items, by number, when those in `held` are there.
  std::vector<uint64_t> Complete(const ItemRange& held) const {
    std::vector<uint64_t> parts;
    for (uint64_t part = held.first / items_; part < held.end / items_; ++part)
      parts.push_back(part);
    return parts;
  }
  // Items of a complete part that are there, and those after the last such part.
  ItemRange Of(uint64_t part, const ItemRange& held) const {
    return {std::max(held.first, part * items_), (part + 1) * items_};
  }
  ItemRange Rest(const ItemRange& held) const {
    return {std::max(held.first, held.end / items_ * items_), held.end};
  }

 private:
  uint64_t items_;
};

// The saved bytes of a part. kBadData: there are none.
using PartSource = std::function<Result<std::string_view>(uint64_t part)>;
inline Result<std::string_view> NoParts(uint64_t part) {
  return Status(Code::kBadData, "holds no part " + std::to_string(part) + " of the replay");
}

}  // namespace samara
