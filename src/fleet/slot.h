// SPDX-License-Identifier: Apache-2.0 OR MIT
// The slot protocol: how the learner process and one actor process share memory. Included by both.
//
// One sealed memfd per actor holds
//   SegmentHeader | SlotCommand of every slot | SlotReply of every slot | data of every slot
// where a slot's data is observation 0 | observation 1 | pictures | memory | position, each 64-byte
// aligned. What both
// sides scan lies close together, and a discrete step needs one cache line of each kind.
// The learner process writes commands, the actor replies and data; each ends by storing its
// sequence number (release). After one of them or several a doorbell is rung: the actor's own for
// commands, one shared by all actors for replies. Rules:
//  (1) One command is outstanding per slot; its reply carries the same sequence number.
//  (2) An episode writes to one of the two observation areas, the next episode to the other, so the
//      final observation of an episode outlives the beginning of the next.
//  (3) Neither side trusts the other's bytes: fixed-size parts are copied once (CopyOnce) and only
//      the copy is checked and used; all sizes come from the reader's own SegmentLayout.
//  (4) A segment serves all incarnations of its actor: the learner process clears the slots between
//  them.
// A kPlay command asks for a whole episode: the actor chooses the actions itself, with the policy
// that lies in its policy segment (policy_segment.h), and replies once, at the end. Version 5.
// Incompatible changes raise kSlotProtocol; values are never reused.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "core/checksum.h"
#include "core/futex.h"

namespace samara {

inline constexpr uint32_t kSlotProtocol = 5;
inline constexpr uint64_t kSegmentMagic = 0x31544f4c534d4153;  // "SAMSLOT1"
inline constexpr size_t kActionValuesMax = 64;
// Limits that a Hello must keep: nothing an actor says makes the learner process allocate without
// bound.
inline constexpr uint64_t kObservationBytesMax = uint64_t{64} << 20;
inline constexpr uint64_t kPicturesBytesMax = uint64_t{256} << 20;
inline constexpr double kPictureRateMin = 0.1, kPictureRateMax = 1000;  // a second
inline constexpr uint64_t kMemoryBytesMax = uint64_t{1} << 16;
inline constexpr int64_t kPositionMax = 64;  // numbers

struct SegmentHeader {
  // written by the learner process before the actor maps the segment
  uint64_t magic;
  uint32_t protocol;
  uint32_t slots;
  uint64_t observation_bytes;  // of one observation
  uint64_t pictures_bytes;     // of one slot; 0 when not rendering
  uint64_t segment_bytes;
  uint32_t incarnation;                   // of the actor that is served now
  std::atomic<uint32_t> leave;            // learner process: 1 asks the actor to end
  uint32_t spin_us;                       // how long the actor may poll before it sleeps
  uint32_t memory_bytes, position_bytes;  // of one slot; 0 when the simulator has none
  uint32_t unused[1];
  Doorbell commands;  // rung by the learner process
};

enum class SlotCommandKind : uint32_t { kReset = 1, kAct = 2, kPlay = 3 };

enum SlotOptions : uint32_t {
  kSlotRandom = 1,        // kPlay: act uniformly at random, without the policy
  kSlotRecordMemory = 2,  // write the simulator's memory after each step
  // kPlay, one of them: append memory or position after each step to the slot's recording in the
  // policy segment
  kSlotKeepMemory = 4,
  kSlotKeepPositions = 8,
  kSlotKeepObservations = 16,  // the same of the observation before each step
  kSlotSigns = 32,             // kPlay: sum the signs of the rewards
};

struct SlotCommand {
  std::atomic<uint64_t> sequence;
  uint64_t episode;
  uint64_t seed;       // kReset, kPlay
  int64_t frames_max;  // kReset, kPlay
  SlotCommandKind kind;
  uint32_t incarnation;
  uint32_t step;                    // number of the step that an action is for, from 1; 0 otherwise
  uint32_t observation;             // which of the two areas to fill
  int32_t noops;                    // kReset, kPlay
  int32_t index;                    // kAct, discrete
  uint32_t options;                 // SlotOptions
  std::atomic<uint32_t> abandoned;  // kPlay: 1 asks the actor to break the episode off
  float values[kActionValuesMax];   // kAct, box; kPlay: the first is EpisodeSpec::action_noise
};

enum SlotFlags : uint32_t {
  kSlotTerminated = 1,
  kSlotTruncated = 2,
  kSlotLifeLost = 4,
  kSlotAbandoned = 8,  // kPlay, alone: broken off as asked
  kSlotFlagsAll = 15,
};

struct SlotReply {
  std::atomic<uint64_t> sequence;
  uint64_t episode;
  double reward;                   // kPlay: the sum over the steps, in their order
  uint64_t nanoseconds;            // spent in the simulator
  uint64_t inference_nanoseconds;  // kPlay
  uint32_t incarnation;
  uint32_t step;   // kPlay: steps of the episode
  uint32_t flags;  // SlotFlags
  uint32_t frames;
  uint32_t pictures;  // how many of the pictures area are filled
  uint32_t checksum;  // ReplyChecksum
  // a line of its own
  std::atomic<uint64_t> played;  // kPlay: steps so far, ever; shows that the actor lives
  uint64_t padding[7];
};
// Bytes that are read and written at every step: of a command all but values.
inline constexpr size_t kCommandHead = 64, kReplyHead = 64;
static_assert(sizeof(SlotCommand) == kCommandHead + 256 &&
              offsetof(SlotCommand, values) == kCommandHead);
static_assert(sizeof(SlotReply) == 128 && offsetof(SlotReply, played) == kReplyHead);

// Where things lie. Both sides compute it from the numbers agreed at Hello.
struct SegmentLayout {
  SegmentLayout() = default;
  // REQUIRES: sizes within the limits above.
  SegmentLayout(uint32_t n, uint64_t observation, uint64_t picture, uint64_t memory = 0,
                uint64_t position = 0)
      : slots(n),
        observation_bytes(observation),
        pictures_bytes(picture),
        memory_bytes(memory),
        position_bytes(position) {}

  static constexpr uint64_t Aligned(uint64_t n) { return (n + 63) / 64 * 64; }
  // Offsets in the segment.
  uint64_t command(uint32_t slot) const {
    return sizeof(SegmentHeader) + slot * sizeof(SlotCommand);
  }
  uint64_t reply(uint32_t slot) const { return command(slots) + slot * sizeof(SlotReply); }
  uint64_t data(uint32_t slot) const {
    return reply(slots) + slot * (2 * Aligned(observation_bytes) + Aligned(pictures_bytes) +
                                  Aligned(memory_bytes) + Aligned(position_bytes));
  }
  uint64_t segment_bytes() const {
    constexpr uint64_t kPage = 4096;
    return (data(slots) + kPage - 1) / kPage * kPage;
  }

  uint32_t slots = 0;
  uint64_t observation_bytes = 0, pictures_bytes = 0, memory_bytes = 0, position_bytes = 0;
};

// The parts of one slot. REQUIRES: slot < layout.slots, observation area < 2.
class SlotView {
 public:
  SlotView(std::byte* segment, const SegmentLayout& layout, uint32_t slot)
      : layout_(&layout),
        command_(segment + layout.command(slot)),
        reply_(segment + layout.reply(slot)),
        data_(segment + layout.data(slot)) {}
  SlotCommand& command() const { return *reinterpret_cast<SlotCommand*>(command_); }
  SlotReply& reply() const { return *reinterpret_cast<SlotReply*>(reply_); }
  std::span<std::byte> observation(uint32_t area) const {
    return {data_ + area * SegmentLayout::Aligned(layout_->observation_bytes),
            layout_->observation_bytes};
  }
  std::span<std::byte> pictures() const {
    return {data_ + 2 * SegmentLayout::Aligned(layout_->observation_bytes),
            layout_->pictures_bytes};
  }
  std::span<std::byte> memory() const {
    return {data_ + 2 * SegmentLayout::Aligned(layout_->observation_bytes) +
                SegmentLayout::Aligned(layout_->pictures_bytes),
            layout_->memory_bytes};
  }
  std::span<std::byte> position() const {
    std::byte* const memory = this->memory().data();
    return {memory + SegmentLayout::Aligned(layout_->memory_bytes), layout_->position_bytes};
  }
  // Command and reply; the data stays.
  void Clear() const {
    std::memset(command_, 0, sizeof(SlotCommand));
    std::memset(reply_, 0, sizeof(SlotReply));
  }

 private:
  const SegmentLayout* layout_;
  std::byte *command_, *reply_, *data_;
};

// Reads the first kBytes of `from` exactly once, so that a check and the use after it see the same
// bytes.
template <size_t kBytes, typename T>
void CopyFirst(const T& from, T& to) {
  static_assert(kBytes <= sizeof(T) && kBytes % sizeof(uint64_t) == 0 &&
                std::is_standard_layout_v<T>);
  uint64_t words[kBytes / sizeof(uint64_t)];
  const auto* source = reinterpret_cast<const volatile uint64_t*>(&from);
  for (size_t i = 0; i < std::size(words); ++i) words[i] = source[i];
  std::memcpy(static_cast<void*>(&to), words, kBytes);
}
template <typename T>
void CopyOnce(const T& from, T& to) {
  CopyFirst<sizeof(T)>(from, to);
}

// Computes SlotReply::checksum: over all other fields but the sequence and what is played, then the
// observation.
inline uint32_t ReplyChecksum(const SlotReply& reply, std::span<const std::byte> observation) {
  SlotReply head{};
  CopyFirst<kReplyHead>(reply, head);
  head.checksum = 0;
  uint64_t words[kReplyHead / sizeof(uint64_t)];
  std::memcpy(words, static_cast<const void*>(&head), kReplyHead);
  uint64_t h = kSlotProtocol;
  for (size_t i = 1; i < std::size(words); ++i) h = MixWord(h, words[i]);
  h = Checksum(observation, h);
  return static_cast<uint32_t>(h ^ (h >> 32));
}

// Index of the first value that is infinite or not a number; values.size() when there is none.
inline size_t FirstNonFinite(std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    if ((bits & 0x7F800000) == 0x7F800000) return i;
  }
  return values.size();
}

}  // namespace samara
