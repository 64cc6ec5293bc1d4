// SPDX-License-Identifier: Apache-2.0 OR MIT
// The actor's side of the slots in shared memory (slot.h): which command comes next, and how a
// reply is published. Included by the extension of Python actors and by native actors.
//
// Thread safety: none; an actor serves its slots on one thread. Invariants: (1) a command is copied
// once and only the copy is checked and used; (2) every command that Next returns is answered by
// one Publish before the next Next; (3) a thread that waits for replies is woken before this side
// sleeps, and at once after a step that took long.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "fleet/slot.h"

namespace samara {

class SlotServer {
 public:
  // How often a silent learner process's life is to be checked.
  static constexpr std::chrono::milliseconds kPatience{500};

  // Why the memory does not hold what was agreed at Hello; empty when it does. REQUIRES: `bytes` of
  // it are mapped.
  static std::string Mismatch(const std::byte* segment, size_t bytes, const SegmentLayout& layout) {
    if (bytes < layout.segment_bytes()) return "shared memory is smaller than the protocol says";
    const auto& header = *reinterpret_cast<const SegmentHeader*>(segment);
    if (header.magic != kSegmentMagic || header.protocol != kSlotProtocol ||
        header.slots != layout.slots || header.observation_bytes != layout.observation_bytes ||
        header.pictures_bytes != layout.pictures_bytes ||
        header.memory_bytes != layout.memory_bytes ||
        header.position_bytes != layout.position_bytes)
      return "shared memory does not hold what was agreed with the learner process";
    return {};
  }

  // Borrows the mappings. `values`: of a continuous action. REQUIRES: Mismatch says nothing; `bell`
  // is that of the fleet; values <= kActionValuesMax.
  SlotServer(std::byte* segment, const SegmentLayout& layout, Doorbell* bell, size_t values)
      : layout_(layout),
        values_(values),
        segment_(segment),
        header_(*reinterpret_cast<SegmentHeader*>(segment)),
        bell_(*bell),
        incarnation_(header_.incarnation),
        spin_(std::min(header_.spin_us, kSpinMaxUs)),
        done_(layout.slots, 0) {}

  // The next command, if there is one. `command()` and `slot()` are its.
  bool Next() {
    // read before looking, so that a command posted meanwhile is not slept over
    if (next_ == 0) seen_ = header_.commands.rings();
    while (next_ < layout_.slots) {
      slot_ = next_++;
      // acquire: pairs with the release in SlotTable::Post
      sequence_ = view().command().sequence.load(std::memory_order_acquire);
      if (sequence_ == done_[slot_]) continue;
      CopyFirst<kCommandHead>(view().command(), command_);
      if (values_ > 0)
        std::memcpy(command_.values, view().command().values, values_ * sizeof(float));
      return true;
    }
    next_ = 0;
    return false;
  }
  // Why it breaks the protocol; empty when it does not.
  std::string Refusal() const {
    const bool known =
        command_.kind >= SlotCommandKind::kReset && command_.kind <= SlotCommandKind::kPlay;
    if (known && command_.incarnation == incarnation_ && command_.observation < 2) return {};
    return "a command of the learner process breaks the slot protocol";
  }
  SlotCommand& command() { return command_; }
  const SlotCommand& command() const { return command_; }
  uint32_t slot() const { return slot_; }
  SlotView view() const { return {segment_, layout_, slot_}; }
  SlotView view(uint32_t slot) const { return {segment_, layout_, slot}; }
  std::span<std::byte> observation() const { return view().observation(command_.observation); }

  // Answers the command; the observation is in its place.
  void Publish(SlotReply& reply) {
    done_[slot_] = sequence_;
    reply.episode = command_.episode;
    reply.incarnation = command_.incarnation;
    reply.checksum = ReplyChecksum(reply, observation());
    SlotReply& out = view().reply();
    constexpr size_t kFirst = offsetof(SlotReply, episode);
    std::memcpy(reinterpret_cast<std::byte*>(&out) + kFirst,
                reinterpret_cast<const std::byte*>(&reply) + kFirst, kReplyHead - kFirst);
    // release: pairs with the acquire in SlotTable::TakeReply
    out.sequence.store(sequence_, std::memory_order_release);
    ++unrung_;
    if (reply.nanoseconds >= kSlowStep || unrung_ >= kUnrungMax) Flush();
  }
  // Wakes the reader of replies, if there are any that were not signalled.
  void Flush() {
    if (unrung_ > 0) RingBell(bell_);
    unrung_ = 0;
  }

  bool leave() const { return header_.leave.load(std::memory_order_relaxed) != 0; }
  // Sleeps until there may be another command; false after kPatience without one.
  bool Wait() {
    Flush();
    return WaitForRing(header_.commands, seen_, spin_, kPatience);
  }

  const SegmentLayout& layout() const { return layout_; }

 private:
  static constexpr uint32_t kSpinMaxUs = 1000;
  // Replies of simulators that take no longer than a wake-up share one; no reply waits for a slow
  // one.
  static constexpr uint64_t kSlowStep = 2000;  // ns
  static constexpr uint32_t kUnrungMax = 16;

  // constant after construction
  const SegmentLayout layout_;
  const size_t values_;
  std::byte* const segment_;
  SegmentHeader& header_;
  Doorbell& bell_;  // shared by all actors
  const uint32_t incarnation_;
  const std::chrono::microseconds spin_;
  // of the command being served
  SlotCommand command_{};
  uint64_t sequence_ = 0;
  uint32_t slot_ = 0;

  uint32_t unrung_ = 0;         // replies since the last ring
  uint32_t seen_ = 0;           // rings of the commands before the last look
  uint32_t next_ = 0;           // slot to look at
  std::vector<uint64_t> done_;  // per slot: sequence of the last command served
};

}  // namespace samara
