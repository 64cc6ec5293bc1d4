#include "rl/replay/unroll_replay.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/check.h"

namespace samara {
namespace {

constexpr uint64_t kUnrollFormat = 1;

}  // namespace

UnrollReplay::UnrollReplay(const ReplayShape& shape)
    : shape_(shape),
      action_floats_(std::max<size_t>(1, shape.action_values)),
      blocks_max_(std::max<uint64_t>(1, shape.capacity / shape.length)) {}

uint64_t UnrollReplay::Bytes(const ReplayShape& shape) {
  const uint64_t blocks = std::max<uint64_t>(1, shape.capacity / shape.length);
  const uint64_t floats = std::max<size_t>(1, shape.action_values) + 1;
  return blocks * ((shape.length + 1) * shape.observation_bytes +
                   shape.length * (floats * sizeof(float) + sizeof(uint8_t)));
}

// Room for all blocks at once: memory that is not written costs nothing.
void UnrollReplay::Reserve() {
  const size_t steps = blocks_max_ * shape_.length;
  observations_.reserve((steps + blocks_max_) * shape_.observation_bytes);
  actions_.reserve(steps * action_floats_);
  rewards_.reserve(steps);
  ends_.reserve(steps);
}

uint64_t UnrollReplay::Add(const Unroll& unroll) {
  CHECK_EQ(unroll.entries, shape_.length + 1);
  const size_t length = shape_.length, bytes = (length + 1) * shape_.observation_bytes;
  const uint64_t block = added_ % blocks_max_, first = block * length;
  if (block == blocks_) {
    if (block == 0) Reserve();
    ++blocks_;
    observations_.resize(blocks_ * bytes);
    actions_.resize(blocks_ * length * action_floats_);
    rewards_.resize(blocks_ * length);
    ends_.resize(blocks_ * length);
  }
  ++added_;
  finals_.erase(finals_.lower_bound(first), finals_.lower_bound(first + length));
  std::copy_n(unroll.observations.begin(), bytes,
              observations_.begin() + static_cast<ptrdiff_t>(block * bytes));
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

Transition UnrollReplay::At(uint64_t step, const ReturnRule& rule) const {
  const size_t bytes = shape_.observation_bytes;
  const auto observation = [&](uint64_t block, uint64_t entry) {
    const size_t at = (block * (shape_.length + 1) + entry) * bytes;
    return std::span(observations_).subspan(at, bytes);
  };
  const uint64_t block = step / shape_.length, t = step % shape_.length;
  const auto most = static_cast<uint64_t>(rule.steps);
  uint64_t last = step, left = std::min<uint64_t>(most, shape_.length - t);
  double reward = rewards_[step], discount = rule.gamma;
  while (--left > 0 && ends_[last] == kNone) {
    reward += discount * rewards_[++last];
    discount *= rule.gamma;
  }
  Transition transition = {
      .observation = observation(block, t),
      .action = {actions_.data() + step * action_floats_, action_floats_},
      .reward = static_cast<float>(reward),
      .next_observation = observation(block, last % shape_.length + 1),
      .discount = ends_[last] == kTerminated ? 0 : static_cast<float>(discount)};
  if (ends_[last] == kTruncated) {
    const auto final = finals_.find(last);
    CHECK(final != finals_.end()) << "a truncated step without its last observation";
    transition.next_observation = final->second;
  }
  return transition;
}

std::string UnrollReplay::Save() const {
  ByteWriter out;
  out.Put(kUnrollFormat).Put(shape_.length).Put(blocks_max_).Put(added_);
  out.PutVector(observations_).PutVector(actions_).PutVector(rewards_).PutVector(ends_);
  out.Put(uint64_t{finals_.size()});
  for (const auto& [step, observation] : finals_) out.Put(step).PutVector(observation);
  return out.Take();
}

Status UnrollReplay::Restore(std::string_view saved) {
  const Status bad(Code::kBadData, "the saved replay has another shape than this run's");
  ByteReader in(saved);
  UnrollReplay read(shape_);
  const bool same = in.Get<uint64_t>() == kUnrollFormat && in.Get<uint32_t>() == shape_.length &&
                    in.Get<uint64_t>() == blocks_max_;
  if (!same) return bad;
  read.Reserve();
  read.added_ = in.Get<uint64_t>();
  read.blocks_ = std::min(read.added_, blocks_max_);
  const uint64_t steps = read.size();
  const bool whole =
      in.GetVector(read.observations_) && in.GetVector(read.actions_) &&
      in.GetVector(read.rewards_) && in.GetVector(read.ends_) &&
      read.observations_.size() == read.blocks_ * (shape_.length + 1) * shape_.observation_bytes &&
      read.actions_.size() == steps * action_floats_ && read.rewards_.size() == steps &&
      read.ends_.size() == steps;
  if (!whole) return bad;
  for (auto finals = in.Get<uint64_t>(); finals > 0 && in.ok(); --finals) {
    const auto step = in.Get<uint64_t>();
    std::vector<std::byte>& observation = read.finals_[step];
    if (!in.GetVector(observation) || observation.size() != shape_.observation_bytes ||
        step >= steps)
      return bad;
  }
  for (uint64_t step = 0; step < steps; ++step)
    if (read.ends_[step] > kTruncated ||
        (read.ends_[step] == kTruncated && !read.finals_.contains(step)))
      return bad;
  if (!in.AtEnd()) return bad;
  blocks_ = read.blocks_, added_ = read.added_;
  observations_ = std::move(read.observations_), actions_ = std::move(read.actions_);
  rewards_ = std::move(read.rewards_), ends_ = std::move(read.ends_);
  finals_ = std::move(read.finals_);
  return Status::Ok();
}

}  // namespace samara
