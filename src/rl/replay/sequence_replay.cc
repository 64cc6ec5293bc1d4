#include "rl/replay/sequence_replay.h"

#include <lz4.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/check.h"

namespace samara {
namespace {

constexpr uint64_t kSequenceFormat = 1;

bool SameEntry(const EntryHeader& a, const EntryHeader& b) {
  return a.absent == b.absent && a.incarnation == b.incarnation &&
         a.episode_step == b.episode_step && a.policy_version == b.policy_version &&
         a.action == b.action;
}

}  // namespace

SequenceReplay::SequenceReplay(const SequenceShape& shape) : shape_(shape) {
  CHECK(shape.entries() * shape.observation_bytes < LZ4_MAX_INPUT_SIZE || !shape.compress);
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
                                                                       uint32_t from) const {
  Block block;
  block.headers.assign(unroll.headers.begin() + from, unroll.headers.begin() + unroll.entries);
  const auto* begin =
      reinterpret_cast<const char*>(unroll.observations.data()) + from * shape_.observation_bytes;
  const size_t size = block.headers.size() * shape_.observation_bytes;
  if (shape_.compress) {
    std::vector<char> packed(static_cast<size_t>(LZ4_compressBound(static_cast<int>(size))));
    const int bytes = LZ4_compress_default(begin, packed.data(), static_cast<int>(size),
                                           static_cast<int>(packed.size()));
    if (bytes > 0 && static_cast<size_t>(bytes) < size) {
      block.observations.assign(packed.begin(), packed.begin() + bytes);
      block.compressed = true;
    }
  }
  if (!block.compressed) block.observations.assign(begin, begin + size);
  for (const Unroll::Final& final : unroll.finals)
    if (final.entry >= from) block.finals.push_back({final.entry - from, final.observation});
  return std::make_shared<const Block>(std::move(block));
}

void SequenceReplay::Unpack(const Block& block, std::byte* out) const {
  const size_t size = block.headers.size() * shape_.observation_bytes;
  if (!block.compressed) {
    std::memcpy(out, block.observations.data(), size);
    return;
  }
  const int bytes =
      LZ4_decompress_safe(block.observations.data(), reinterpret_cast<char*>(out),
                          static_cast<int>(block.observations.size()), static_cast<int>(size));
  CHECK_EQ(bytes, static_cast<int>(size)) << "a damaged block of the replay";
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
    for (auto header = (*block)->headers.rbegin(); header != (*block)->headers.rend() && shared > 0;
         ++header)
      if (!SameEntry(*header, unroll.headers[--shared])) return nullptr;
  }
  return &before;
}

uint64_t SequenceReplay::Add(const Unroll& unroll) {
  CHECK_EQ(unroll.entries, shape_.entries());
  Sequence sequence{.slot = unroll.slot,
                    .index = unroll.index,
                    .blocks = {},
                    .skipped = 0,
                    .state = unroll.state,
                    .history = unroll.history};
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
  const uint64_t number = added_++, place = PlaceOf(number);
  if (place == sequences_.size())
    sequences_.push_back(std::move(sequence));
  else
    sequences_[place] = std::move(sequence);
  last_[unroll.slot] = number;
  return number;
}

void SequenceReplay::Read(uint64_t number, Unroll& unroll) const {
  CHECK(Has(number)) << "sequence " << number << " is no longer in the replay";
  const Sequence& sequence = sequences_[PlaceOf(number)];
  const size_t bytes = shape_.observation_bytes;
  unroll.slot = sequence.slot, unroll.index = sequence.index, unroll.entries = shape_.entries();
  unroll.overlap = shape_.overlap;
  unroll.state = sequence.state, unroll.history = sequence.history;
  unroll.headers.clear(), unroll.finals.clear();
  size_t entries = 0;
  for (const auto& block : sequence.blocks) entries += block->headers.size();
  unroll.observations.resize(entries * bytes);
  uint32_t at = 0;  // before the skipped ones are gone
  for (const auto& block : sequence.blocks) {
    Unpack(*block, unroll.observations.data() + at * bytes);
    unroll.headers.insert(unroll.headers.end(), block->headers.begin(), block->headers.end());
    for (const Unroll::Final& final : block->finals)
      if (at + final.entry >= sequence.skipped)
        unroll.finals.push_back({at + final.entry - sequence.skipped, final.observation});
    at += static_cast<uint32_t>(block->headers.size());
  }
  unroll.headers.erase(unroll.headers.begin(), unroll.headers.begin() + sequence.skipped);
  unroll.observations.erase(
      unroll.observations.begin(),
      unroll.observations.begin() + static_cast<ptrdiff_t>(sequence.skipped * bytes));
}

std::string SequenceReplay::Save() const {
  ByteWriter out;
  out.Put(kSequenceFormat).Put(shape_.length).Put(shape_.overlap).Put(shape_.capacity).Put(added_);
  std::map<const Block*, uint64_t> numbers;
  std::vector<const Block*> blocks;
  for (uint64_t number = added_ - size(); number < added_; ++number)
    for (const auto& block : sequences_[PlaceOf(number)].blocks)
      if (numbers.emplace(block.get(), blocks.size()).second) blocks.push_back(block.get());
  out.Put(uint64_t{blocks.size()});
  for (const Block* block : blocks) {
    out.PutVector(block->headers).PutVector(block->observations).Put(uint8_t{block->compressed});
    out.Put(uint64_t{block->finals.size()});
    for (const Unroll::Final& final : block->finals)
      out.Put(final.entry).PutVector(final.observation);
  }
  for (uint64_t number = added_ - size(); number < added_; ++number) {
    const Sequence& sequence = sequences_[PlaceOf(number)];
    std::vector<uint64_t> block_numbers;
    for (const auto& block : sequence.blocks) block_numbers.push_back(numbers.at(block.get()));
    out.Put(sequence.slot).Put(sequence.index).Put(sequence.skipped);
    out.PutVector(block_numbers).PutVector(sequence.state).PutVector(sequence.history);
  }
  return out.Take();
}

// Whether its parts have the sizes that its headers say.
bool SequenceReplay::Fits(const Block& block) const {
  const size_t entries = block.headers.size(), size = entries * shape_.observation_bytes;
  if (entries == 0 || entries > shape_.entries() || !HaveFlags(block.headers)) return false;
  for (const Unroll::Final& final : block.finals)
    if (final.entry >= entries || final.observation.size() != shape_.observation_bytes)
      return false;
  if (!block.compressed) return block.observations.size() == size;
  std::vector<char> unpacked(size);
  return LZ4_decompress_safe(block.observations.data(), unpacked.data(),
                             static_cast<int>(block.observations.size()),
                             static_cast<int>(size)) == static_cast<int>(size);
}

Status SequenceReplay::Restore(std::string_view saved) {
  const Status bad(Code::kBadData, "the saved replay has another shape than this run's");
  ByteReader in(saved);
  const bool same = in.Get<uint64_t>() == kSequenceFormat && in.Get<uint32_t>() == shape_.length &&
                    in.Get<uint32_t>() == shape_.overlap && in.Get<uint64_t>() == shape_.capacity;
  if (!same) return bad;
  const auto added = in.Get<uint64_t>();
  std::vector<std::shared_ptr<const Block>> blocks;
  for (auto left = in.Get<uint64_t>(); left > 0; --left) {
    Block block;
    bool whole = in.GetVector(block.headers) && in.GetVector(block.observations);
    block.compressed = in.Get<uint8_t>() != 0;
    for (auto finals = in.Get<uint64_t>(); finals > 0 && in.ok(); --finals) {
      block.finals.emplace_back();
      block.finals.back().entry = in.Get<uint32_t>();
      whole = in.GetVector(block.finals.back().observation) && whole;
    }
    if (!whole || !in.ok() || !Fits(block)) return bad;
    blocks.push_back(std::make_shared<const Block>(std::move(block)));
  }
  std::vector<Sequence> sequences(std::min(added, shape_.capacity));
  std::map<uint32_t, uint64_t> last;
  for (uint64_t number = added - sequences.size(); number < added; ++number) {
    Sequence& sequence = sequences[PlaceOf(number)];
    sequence.slot = in.Get<uint32_t>(), sequence.index = in.Get<uint64_t>();
    sequence.skipped = in.Get<uint32_t>();
    std::vector<uint64_t> block_numbers;
    bool whole = in.GetVector(block_numbers) && in.GetVector(sequence.state) &&
                 in.GetVector(sequence.history) && sequence.state.size() == shape_.state &&
                 sequence.history.size() == shape_.history_bytes;
    uint64_t entries = 0;
    for (const uint64_t block : block_numbers) {
      if (block >= blocks.size()) return bad;
      entries += blocks[block]->headers.size();
      sequence.blocks.push_back(blocks[block]);
    }
    whole = whole && entries == uint64_t{sequence.skipped} + shape_.entries();
    if (!whole || sequence.skipped >= sequence.blocks[0]->headers.size()) return bad;
    last[sequence.slot] = number;
  }
  if (!in.AtEnd()) return bad;
  added_ = added, sequences_ = std::move(sequences), last_ = std::move(last);
  return Status::Ok();
}

}  // namespace samara
