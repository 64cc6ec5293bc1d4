// SPDX-License-Identifier: Apache-2.0 OR MIT
// The actor's side of the slots in shared memory (slot.h): which command comes next, and how a
// reply is published. Included by the extension of Python actors and by native actors.
//
// Thread safety: none; an actor serves its slots on one thread.
// Invariants: (1) a command is copied once and only the copy is checked and used; (2) every command
// that Next returns is answered by one Publish before the next Next; (3) whoever waits for replies
// is woken before this side sleeps.
#pragma once

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "fleet/slot.h"

namespace samara {

class SlotServer {
 public:
  // How often a silent engine's life is to be checked.
  static constexpr std::chrono::milliseconds kPatience{500};

  // Why the memory does not hold what was agreed at Hello; empty when it does. REQUIRES: `bytes` of
  // it are mapped.
  static std::string Mismatch(const std::byte* segment, size_t bytes, const SegmentLayout& layout) {
    if (bytes < layout.segment_bytes()) return "shared memory is smaller than the protocol says";
    const auto& header = *reinterpret_cast<const SegmentHeader*>(segment);
    if (header.magic != kSegmentMagic || header.protocol != kSlotProtocol ||
        header.slots != layout.slots || header.observation_bytes != layout.observation_bytes ||
        header.pictures_bytes != layout.pictures_bytes)
      return "shared memory does not hold what was agreed with the engine";
    return {};
  }

  // Borrows the mappings. REQUIRES: Mismatch says nothing; `bell` is that of the fleet.
  SlotServer(std::byte* segment, const SegmentLayout& layout, Doorbell* bell)
      : layout_(layout),
        segment_(segment),
        header_(*reinterpret_cast<SegmentHeader*>(segment)),
        bell_(*bell),
        incarnation_(header_.incarnation),
        done_(layout.slots, 0) {}

  // The next command, if there is one. `command()` and `slot()` are its.
  bool Next() {
    // read before looking, so that a command posted meanwhile is not slept over
    if (next_ == 0) seen_ = header_.commands.count.load(std::memory_order_acquire);
    while (next_ < layout_.slots) {
      slot_ = next_++;
      // acquire: pairs with the release in SlotTable::Post
      sequence_ = view().command().sequence.load(std::memory_order_acquire);
      if (sequence_ == done_[slot_]) continue;
      CopyOnce(view().command(), command_);
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
    return "command of the engine breaks the slot protocol";
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
    constexpr size_t kFirst = offsetof(SlotReply, episode), kEnd = offsetof(SlotReply, played);
    std::memcpy(reinterpret_cast<std::byte*>(&view().reply()) + kFirst,
                reinterpret_cast<const std::byte*>(&reply) + kFirst, kEnd - kFirst);
    // release: pairs with the acquire in SlotTable::TakeReply
    view().reply().sequence.store(sequence_, std::memory_order_release);
    Ring(bell_);
  }

  bool leave() const { return header_.leave.load(std::memory_order_relaxed) != 0; }
  // Sleeps until there may be another command; false after kPatience without one.
  bool Wait() const { return WaitForRing(header_.commands, seen_, kSpin, kPatience); }

  const SegmentLayout& layout() const { return layout_; }

 private:
  // Catches an engine that answers at once; longer only takes the core from the other processes.
  static constexpr std::chrono::microseconds kSpin{5};

  // constant after construction
  const SegmentLayout layout_;
  std::byte* const segment_;
  SegmentHeader& header_;
  Doorbell& bell_;  // shared by all actors
  const uint32_t incarnation_;
  // of the command being served
  SlotCommand command_{};
  uint64_t sequence_ = 0;
  uint32_t slot_ = 0;

  uint32_t seen_ = 0;           // count of commands.bell before the last look
  uint32_t next_ = 0;           // slot to look at
  std::vector<uint64_t> done_;  // per slot: sequence of the last command served
};

}  // namespace samara
