#include "rl/replay/unroll_replay.h"

#include <algorithm>

#include "core/check.h"
#include "rl/trajectory/frame_index.h"

namespace samara {

UnrollReplay::UnrollReplay(const ReplayShape& shape)
    : shape_(shape),
      action_floats_(std::max<size_t>(1, shape.action_values)),
      blocks_max_(std::max<uint64_t>(1, shape.capacity / shape.length)),
      parts_(shape.parts, blocks_max_, Bytes(shape) / blocks_max_) {
  CHECK(!shape.compress || (!shape.episodes && shape.observation_bytes <= kPackedMax));
}

uint64_t UnrollReplay::Bytes(const ReplayShape& shape) {
  const uint64_t blocks = std::max<uint64_t>(1, shape.capacity / shape.length);
  const uint64_t floats = std::max<size_t>(1, shape.action_values) + 1;
  const uint64_t frames = shape.history + shape.length + 1;
  return blocks * (frames * (shape.observation_bytes + (shape.compress ? sizeof(PackedBytes) : 0)) +
                   (shape.history > 0 ? (shape.length + 1) * sizeof(uint32_t) : 0) +
                   shape.length * (floats * sizeof(float) + sizeof(uint8_t)) +
                   (shape.episodes ? sizeof(uint64_t) : 0));
}

// Room for all blocks at once: memory that is not written costs nothing.
void UnrollReplay::Reserve() {
  const size_t steps = blocks_max_ * shape_.length;
  const size_t frames = blocks_max_ * FramesOfBlock();
  if (shape_.compress)
    packed_.reserve(frames);
  else
    observations_.reserve(frames * shape_.observation_bytes);
  if (shape_.history > 0) stack_steps_.reserve(steps + blocks_max_);
  actions_.reserve(steps * action_floats_);
  rewards_.reserve(steps);
  ends_.reserve(steps);
}

// To blocks_.
void UnrollReplay::Resize() {
  const size_t steps = size();
  const size_t frames = blocks_ * FramesOfBlock();
  if (shape_.compress)
    packed_.resize(frames);
  else
    observations_.resize(frames * shape_.observation_bytes);
  if (shape_.history > 0) stack_steps_.resize(steps + blocks_);
  actions_.resize(steps * action_floats_);
  rewards_.resize(steps);
  ends_.resize(steps);
}

uint64_t UnrollReplay::Add(const Unroll& unroll, uint64_t stream) {
  CHECK_EQ(unroll.entries, shape_.length + 1);
  const size_t length = shape_.length, bytes = shape_.observation_bytes;
  const uint64_t block = added_ % blocks_max_, first = block * length;
  if (block == blocks_) {
    if (block == 0) Reserve();
    ++blocks_;
    Resize();
  }
  ++added_;
  if (shape_.episodes) links_.Add(block, unroll, stream);
  finals_.erase(finals_.lower_bound(first), finals_.lower_bound(first + length));
  for (size_t t = 0; t <= length; ++t)
    SetFrame(PlaceOf(block, t), std::span(unroll.observations).subspan(t * bytes, bytes));
  if (shape_.history > 0) PutHistory(unroll, block);
  for (size_t t = 0; t < length; ++t) {
    const EntryHeader &acted = unroll.headers[t], &led = unroll.headers[t + 1];
    CHECK(!acted.absent);
    float* action = actions_.data() + (first + t) * action_floats_;
    if (shape_.action_values > 0)
      std::copy_n(unroll.action_values.data() + t * action_floats_, action_floats_, action);
    else
      *action = static_cast<float>(acted.action);
    rewards_[first + t] = led.reward;
    ends_[first + t] = led.terminated ? kTerminated : led.truncated ? kTruncated : kNone;
  }
  for (const Unroll::Final& final : unroll.finals)
    if (final.entry > 0) finals_[first + final.entry - 1] = final.observation;
  return first;
}

// The frames before a block's first, and where each of its stacks began.
void UnrollReplay::PutHistory(const Unroll& unroll, uint64_t block) {
  const size_t bytes = shape_.observation_bytes;
  CHECK_EQ(unroll.history.size(), shape_.history * bytes);
  for (size_t age = 1; age <= shape_.history; ++age)
    SetFrame(PlaceOf(block, 0) - age, std::span(unroll.history).subspan((age - 1) * bytes, bytes));
  for (size_t t = 0; t <= shape_.length; ++t)
    stack_steps_[block * (shape_.length + 1) + t] = unroll.headers[t].episode_step;
}

void UnrollReplay::SetFrame(uint64_t place, std::span<const std::byte> frame) {
  if (shape_.compress)
    packed_[place] = Pack(frame, /*compress=*/true, slabs_);
  else
    std::ranges::copy(
        frame, observations_.begin() + static_cast<ptrdiff_t>(place * shape_.observation_bytes));
}

void UnrollReplay::StackBefore(uint64_t step, const FrameStackRule& rule,
                               std::span<std::byte> memory,
                               std::span<const std::byte*> planes) const {
  StackOf(step / shape_.length, step % shape_.length, nullptr, rule, memory, planes);
}

void UnrollReplay::StackAfter(uint64_t step, const FrameStackRule& rule,
                              std::span<std::byte> memory,
                              std::span<const std::byte*> planes) const {
  const uint64_t block = step / shape_.length, entry = step % shape_.length;
  const auto final = ends_[step] == kNone ? finals_.end() : finals_.find(step);
  if (final == finals_.end()) return StackOf(block, entry + 1, nullptr, rule, memory, planes);
  StackOf(block, entry, final->second.data(), rule, memory, planes);
}

// The stack of an entry's frame, or of `after`, which follows it, unless that is null.
void UnrollReplay::StackOf(uint64_t block, uint64_t entry, const std::byte* after,
                           const FrameStackRule& rule, std::span<std::byte> memory,
                           std::span<const std::byte*> planes) const {
  CHECK_EQ(planes.size(), shape_.history + size_t{1});
  const int64_t now = StackStep(block, entry);
  size_t unpacked = 0;
  const auto at = [&](int64_t number) {
    if (number > now) return after;
    const uint64_t place = PlaceOf(block, entry) - static_cast<uint64_t>(now - number);
    const size_t bytes = shape_.observation_bytes;
    if (!shape_.compress) return observations_.data() + place * bytes;
    const std::span<std::byte> own = memory.subspan(bytes * unpacked++, bytes);
    CHECK(Unpack(packed_[place], own)) << "a damaged frame of the replay";
    return static_cast<const std::byte*>(own.data());
  };
  FillStack(rule, after == nullptr ? now : now + 1, at, planes);
}

std::span<const std::byte> UnrollReplay::After(uint64_t step) const {
  if (shape_.compress) return {};
  if (ends_[step] != kNone) {
    if (const auto final = finals_.find(step); final != finals_.end()) return final->second;
    CHECK(ends_[step] == kTerminated && !shape_.episodes) << "an episode without its end";
  }
  return Entry(step / shape_.length, step % shape_.length + 1);
}

// ---- episodes

uint64_t UnrollReplay::StepsInBlock(uint64_t step) const {
  const uint64_t end = (step / shape_.length + 1) * shape_.length;
  uint64_t last = step;
  while (last + 1 < end && ends_[last] == kNone) ++last;
  return last - step + 1;
}

uint64_t UnrollReplay::StepsFrom(uint64_t step) const {
  for (uint64_t count = 0;;) {
    const uint64_t here = StepsInBlock(step), last = step + here - 1;
    count += here;
    const uint64_t next = links_.next(step / shape_.length);
    if (ends_[last] != kNone || next == BlockLinks::kNone) return count;
    step = next * shape_.length;
  }
}

uint64_t UnrollReplay::Later(uint64_t step, uint64_t ahead) const {
  for (;;) {
    const uint64_t here = shape_.length - step % shape_.length;
    if (ahead < here) return step + ahead;
    ahead -= here;
    step = links_.next(step / shape_.length) * shape_.length;
  }
}

}  // namespace samara
