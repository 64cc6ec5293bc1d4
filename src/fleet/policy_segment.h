// SPDX-License-Identifier: Apache-2.0 OR MIT
// The policies that one actor plays by itself, in shared memory. Included by both sides.
//
// A sealed memfd per actor: PolicySegmentHeader | description | parameters of each slot | recording
// of each slot, each 64-byte aligned. It gets its size and description once, before the first kPlay
// command; after that the learner process writes a slot's parameters while that slot is idle, and
// the actor reads them when it begins the slot's next kPlay. The command's sequence number orders
// the two. The actor writes a slot's recording while it plays, and the learner process reads it
// after the reply. All of it is reserved at once (shared_memory.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace samara {

inline constexpr uint64_t kPolicyMagic = 0x32594c4f504d4153;  // "SAMPOLY2"
// Limits of a reader.
inline constexpr uint64_t kPolicyDescriptionBytesMax = uint64_t{1} << 16;
inline constexpr uint64_t kPolicyParameterBytesMax = uint64_t{64} << 30;
inline constexpr uint64_t kPolicyRecordingBytesMax = uint64_t{1} << 30;

struct PolicySegmentHeader {
  uint64_t magic;
  uint64_t description_bytes;
  uint64_t parameter_bytes;  // of one slot
  uint64_t recording_bytes;  // of one slot; 0 = nothing is recorded
  uint64_t slots;
};

// Both sides compute where things lie from the header's numbers.
class PolicySegment {
 public:
  static constexpr uint64_t Aligned(uint64_t n) { return (n + 63) / 64 * 64; }
  static uint64_t Bytes(const PolicySegmentHeader& h) {
    return Recordings(h) + h.slots * Aligned(h.recording_bytes);
  }

  explicit PolicySegment(std::byte* base) : base_(base) {}
  PolicySegmentHeader& header() const { return *reinterpret_cast<PolicySegmentHeader*>(base_); }
  std::string_view description() const {
    return {reinterpret_cast<const char*>(base_ + sizeof(PolicySegmentHeader)),
            header().description_bytes};
  }
  std::span<std::byte> parameters(uint32_t slot) const {
    return {base_ + Offset(header()) + slot * Aligned(header().parameter_bytes),
            header().parameter_bytes};
  }
  std::span<std::byte> recording(uint32_t slot) const {
    return {base_ + Recordings(header()) + slot * Aligned(header().recording_bytes),
            header().recording_bytes};
  }

 private:
  static uint64_t Offset(const PolicySegmentHeader& h) {
    return Aligned(sizeof(PolicySegmentHeader) + h.description_bytes);
  }
  static uint64_t Recordings(const PolicySegmentHeader& h) {
    return Offset(h) + h.slots * Aligned(h.parameter_bytes);
  }
  std::byte* base_;
};

}  // namespace samara
