#include "rl/replay/sequence_replay.h"

#include <algorithm>
#include <set>

#include "core/check.h"

namespace samara {
namespace {

bool SameEntry(const EntryHeader& a, const EntryHeader& b) {
  return a.absent == b.absent && a.incarnation == b.incarnation &&
         a.episode_step == b.episode_step && a.policy_version == b.policy_version &&
         a.action == b.action;
}

}  // namespace

std::vector<StepRange> LearnedByEpisode(const Unroll& unroll) {
  StepRange rest = LearnedSteps(unroll);
  std::vector<StepRange> parts;
  for (uint32_t entry = rest.begin + 1; entry < rest.end; ++entry)
    if (unroll.headers[entry].episode_step == 0) {
      parts.push_back({rest.begin, entry});
      rest.begin = entry;
    }
  parts.push_back(rest);
  return parts;
}

SequenceReplay::SequenceReplay(const SequenceShape& shape)
    : shape_(shape), parts_(shape.parts, shape.capacity, Bytes(shape, true) / shape.capacity) {
  CHECK(shape.entries() * shape.observation_bytes <= kPackedMax || !shape.compress);
}

uint64_t SequenceReplay::Bytes(const SequenceShape& shape, bool shared) {
  return shape.capacity *
         ((shared ? shape.length : shape.entries()) *
              (shape.observation_bytes + sizeof(EntryHeader)) +
          shape.state * sizeof(float) + shape.history_bytes + sizeof(Sequence) + sizeof(Block));
}

uint64_t SequenceReplay::NumberAt(uint64_t place) const {
  const uint64_t first = added_ - size();
  const uint64_t round = first - PlaceOf(first) + place;
  return round < first ? round + shape_.capacity : round;
}

// Entries `from` and later.
std::shared_ptr<const SequenceReplay::Block> SequenceReplay::MakeBlock(const Unroll& unroll,
                                                                       uint32_t from) {
  Block block;
  block.number = added_;
  block.headers = slabs_.Keep(std::span(unroll.headers).subspan(from, unroll.entries - from));
  block.observations = Pack(std::span(unroll.observations)
                                .subspan(from * shape_.observation_bytes,
                                         block.headers.size() * shape_.observation_bytes),
                            shape_.compress, slabs_);
  for (const Unroll::Final& final : unroll.finals)
    if (final.entry >= from) block.finals.push_back({final.entry - from, final.observation});
  return std::make_shared<const Block>(std::move(block));
}

const SequenceReplay::Sequence* SequenceReplay::Before(const Unroll& unroll) const {
  const auto last = last_.find(unroll.slot);
  if (last == last_.end() || !Has(last->second)) return nullptr;
  const Sequence& before = sequences_[PlaceOf(last->second)];
  if (unroll.index != before.index + 1) return nullptr;
  // the last overlap + 1 entries of the one are the first of the other
  size_t shared = shape_.overlap + 1;
  for (auto block = before.blocks.rbegin(); shared > 0; ++block) {
    CHECK(block != before.blocks.rend());
    const std::span<const EntryHeader> headers = (*block)->headers.values();
    for (auto header = headers.rbegin(); header != headers.rend() && shared > 0; ++header)
      if (!SameEntry(*header, unroll.headers[--shared])) return nullptr;
  }
  return &before;
}

uint64_t SequenceReplay::Add(const Unroll& unroll, std::span<const StepRange> steps) {
  CHECK_EQ(unroll.entries, shape_.entries());
  Sequence sequence{.slot = unroll.slot,
                    .index = unroll.index,
                    .blocks = {},
                    .skipped = 0,
                    .steps = {},
                    .state = slabs_.Keep<float>(unroll.state),
                    .history = slabs_.Keep<std::byte>(unroll.history)};
  if (const Sequence* before = Before(unroll)) {
    uint32_t shared = 0;
    auto first = before->blocks.end();
    while (shared < shape_.overlap + 1) shared += static_cast<uint32_t>((*--first)->headers.size());
    sequence.blocks.assign(first, before->blocks.end());
    sequence.skipped = shared - (shape_.overlap + 1);
    sequence.blocks.push_back(MakeBlock(unroll, shape_.overlap + 1));
  } else {
    sequence.blocks.push_back(MakeBlock(unroll, 0));
  }
  const uint64_t number = added_;
  for (const StepRange& range : steps) {
    CHECK(range.begin < range.end);
    sequence.steps = range;
    const uint64_t place = PlaceOf(added_);
    if (place == sequences_.size())
      sequences_.push_back(sequence);
    else
      sequences_[place] = sequence;
    last_[unroll.slot] = added_++;
  }
  return number;
}

StepRange SequenceReplay::Read(uint64_t number, Unroll& unroll) const {
  CHECK(Has(number)) << "sequence " << number << " is no longer in the replay";
  const Sequence& sequence = sequences_[PlaceOf(number)];
  const size_t bytes = shape_.observation_bytes;
  unroll.slot = sequence.slot, unroll.index = sequence.index, unroll.entries = shape_.entries();
  unroll.overlap = shape_.overlap;
  const auto state = sequence.state.values();
  const auto history = sequence.history.values();
  unroll.state.assign(state.begin(), state.end());
  unroll.history.assign(history.begin(), history.end());
  unroll.headers.clear(), unroll.finals.clear();
  size_t entries = 0;
  for (const auto& block : sequence.blocks) entries += block->headers.size();
  unroll.observations.resize(entries * bytes);
  uint32_t at = 0;  // before the skipped ones are gone
  for (const auto& block : sequence.blocks) {
    const auto headers = block->headers.values();
    const auto to = std::span(unroll.observations).subspan(at * bytes, headers.size() * bytes);
    CHECK(Unpack(block->observations, to)) << "a damaged block of the replay";
    unroll.headers.insert(unroll.headers.end(), headers.begin(), headers.end());
    for (const Unroll::Final& final : block->finals)
      if (at + final.entry >= sequence.skipped)
        unroll.finals.push_back({at + final.entry - sequence.skipped, final.observation});
    at += static_cast<uint32_t>(block->headers.size());
  }
  unroll.headers.erase(unroll.headers.begin(), unroll.headers.begin() + sequence.skipped);
  unroll.observations.erase(
      unroll.observations.begin(),
      unroll.observations.begin() + static_cast<ptrdiff_t>(sequence.skipped * bytes));
  return sequence.steps;
}

size_t SequenceReplay::TEST_Blocks() const {
  std::set<const Block*> blocks;
  for (const Sequence& sequence : sequences_)
    for (const auto& block : sequence.blocks) blocks.insert(block.get());
  return blocks.size();
}

}  // namespace samara
