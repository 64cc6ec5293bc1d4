// Checkpoints of a replay of sequences (sequence_replay.h).
#include <map>
#include <memory>

#include "core/bytes.h"
#include "rl/replay/sequence_replay.h"

namespace samara {
namespace {

// As earlier builds wrote them, without the steps of sequences: without parts; with parts; of one
// part.
constexpr uint64_t kWholeUnlabelled = 1, kUnlabelled = 2, kUnlabelledPart = 3;
// With the steps of each sequence: with parts; of one part.
constexpr uint64_t kSequences = 4, kSequencePart = 5;

template <typename T>
void Put(ByteWriter& out, const Kept<T>& kept) {
  out.PutBytes({reinterpret_cast<const char*>(kept.data()), kept.values().size_bytes()});
}

// False: as ByteReader::GetVector.
template <typename T>
bool Get(ByteReader& in, Slabs& slabs, Kept<T>& kept) {
  std::vector<T> values;
  const bool whole = in.GetVector(values);
  kept = slabs.Keep<T>(values);
  return whole;
}

}  // namespace

// Numbers of the first sequence and the one after the last, the blocks that they have, and what
// else they are.
void SequenceReplay::PutSequences(const ItemRange& range, ByteWriter& out) const {
  std::map<uint64_t, const Block*> blocks;
  for (uint64_t number = range.first; number < range.end; ++number)
    for (const auto& block : sequences_[PlaceOf(number)].blocks)
      blocks.emplace(block->number, block.get());
  out.Put(range.first).Put(range.end).Put(uint64_t{blocks.size()});
  for (const auto& [number, block] : blocks) {
    out.Put(number);
    Put(out, block->headers), Put(out, block->observations.stored);
    out.Put(uint8_t{block->observations.compressed}).Put(uint64_t{block->finals.size()});
    for (const Unroll::Final& final : block->finals)
      out.Put(final.entry).PutVector(final.observation);
  }
  for (uint64_t number = range.first; number < range.end; ++number) {
    const Sequence& sequence = sequences_[PlaceOf(number)];
    std::vector<uint64_t> numbers;
    for (const auto& block : sequence.blocks) numbers.push_back(block->number);
    out.Put(sequence.slot).Put(sequence.index).Put(sequence.skipped);
    out.Put(sequence.steps.begin).Put(sequence.steps.end);
    out.PutVector(numbers);
    Put(out, sequence.state), Put(out, sequence.history);
  }
}

std::string SequenceReplay::SavePart(uint64_t part) const {
  ByteWriter out;
  out.Put(kSequencePart).Put(shape_.length).Put(shape_.overlap);
  PutSequences(parts_.Of(part, Held()), out);
  return out.Take();
}

std::string SequenceReplay::Save() const {
  ByteWriter out;
  out.Put(kSequences).Put(shape_.length).Put(shape_.overlap).Put(shape_.capacity).Put(added_);
  out.Put(parts_.items());
  PutSequences(parts_.Rest(Held()), out);
  return out.Take();
}

// Whether its parts have the sizes that its headers say.
bool SequenceReplay::Fits(const Block& block) const {
  const size_t entries = block.headers.size(), size = entries * shape_.observation_bytes;
  if (entries == 0 || entries > shape_.entries() ||
      !AreSound(block.headers.values(), shape_.choices))
    return false;
  for (const Unroll::Final& final : block.finals)
    if (final.entry >= entries || final.observation.size() != shape_.observation_bytes)
      return false;
  std::vector<std::byte> unpacked(size);
  return Unpack(block.observations, unpacked);
}

// All but its number.
bool SequenceReplay::GetBlock(ByteReader& in, Block& block) {
  bool whole = Get(in, slabs_, block.headers) && Get(in, slabs_, block.observations.stored);
  block.observations.compressed = in.Get<uint8_t>() != 0;
  for (auto finals = in.Get<uint64_t>(); finals > 0 && in.ok(); --finals) {
    block.finals.emplace_back();
    block.finals.back().entry = in.Get<uint32_t>();
    whole = in.GetVector(block.finals.back().observation) && whole;
  }
  return whole && in.ok() && Fits(block);
}

bool SequenceReplay::GetSequence(ByteReader& in, const Blocks& blocks, bool with_steps,
                                 Sequence& sequence) {
  sequence.slot = in.Get<uint32_t>(), sequence.index = in.Get<uint64_t>();
  sequence.skipped = in.Get<uint32_t>();
  const StepRange all = {shape_.overlap, shape_.entries() - 1};
  StepRange& steps = sequence.steps = all;
  if (with_steps) steps.begin = in.Get<uint32_t>(), steps.end = in.Get<uint32_t>();
  if (steps.begin < all.begin || steps.begin >= steps.end || steps.end > all.end) return false;
  std::vector<uint64_t> numbers;
  const bool whole = in.GetVector(numbers) && Get(in, slabs_, sequence.state) &&
                     Get(in, slabs_, sequence.history) && sequence.state.size() == shape_.state &&
                     sequence.history.size() == shape_.history_bytes;
  uint64_t entries = 0;
  for (const uint64_t number : numbers) {
    const auto block = blocks.find(number);
    if (block == blocks.end()) return false;
    entries += block->second->headers.size();
    sequence.blocks.push_back(block->second);
  }
  return whole && entries == uint64_t{sequence.skipped} + shape_.entries() &&
         sequence.skipped < sequence.blocks[0]->headers.size();
}

bool SequenceReplay::GetPart(uint64_t part, std::string_view saved, Blocks& blocks) {
  ByteReader in(saved);
  const auto format = in.Get<uint64_t>();
  return (format == kSequencePart || format == kUnlabelledPart) &&
         in.Get<uint32_t>() == shape_.length && in.Get<uint32_t>() == shape_.overlap &&
         GetSequences(parts_.Of(part, Held()), in, format == kSequencePart, blocks) && in.AtEnd();
}

// Reads the sequences of `range` of those that are saved: older ones have left the replay since. A
// block that another part has too is shared again.
bool SequenceReplay::GetSequences(const ItemRange& range, ByteReader& in, bool with_steps,
                                  Blocks& blocks) {
  const auto first = in.Get<uint64_t>(), end = in.Get<uint64_t>();
  if (!in.ok() || first > range.first || end != range.end) return false;
  for (auto left = in.Get<uint64_t>(); left > 0; --left) {
    auto block = std::make_shared<Block>();
    block->number = in.Get<uint64_t>();
    if (!GetBlock(in, *block)) return false;
    blocks.emplace(block->number, std::move(block));
  }
  for (uint64_t number = first; number < end; ++number) {
    Sequence sequence;
    if (!GetSequence(in, blocks, with_steps, sequence)) return false;
    if (number >= range.first) sequences_[PlaceOf(number)] = std::move(sequence);
  }
  return in.ok();
}

// Reads what a build without parts saved: blocks have the numbers of their places in the file, and
// get those of the sequences that came with them. Those of others, which are gone, are below.
bool SequenceReplay::GetWhole(ByteReader& in) {
  Blocks blocks;
  const auto count = in.Get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    auto block = std::make_shared<Block>();
    if (!GetBlock(in, *block)) return false;
    blocks.emplace(i, std::move(block));
  }
  std::map<const Block*, uint64_t> came_with;
  const ItemRange held = Held();
  for (uint64_t number = held.first; number < held.end; ++number) {
    Sequence& sequence = sequences_[PlaceOf(number)];
    if (!GetSequence(in, blocks, /*with_steps=*/false, sequence)) return false;
    came_with.emplace(sequence.blocks.back().get(), number);
  }
  uint64_t gone = 0;
  for (auto& [place, block] : blocks) {
    const auto found = came_with.find(block.get());
    block->number = found != came_with.end() ? found->second : gone++;
  }
  return true;
}

Status SequenceReplay::Restore(std::string_view saved, const PartSource& part) {
  const Status bad(Code::kBadData, "the saved replay has another shape than this run's");
  ByteReader in(saved);
  const auto format = in.Get<uint64_t>();
  const bool same = (format == kWholeUnlabelled || format == kUnlabelled || format == kSequences) &&
                    in.Get<uint32_t>() == shape_.length && in.Get<uint32_t>() == shape_.overlap &&
                    in.Get<uint64_t>() == shape_.capacity;
  if (!same) return bad;
  SequenceReplay read(shape_);
  read.added_ = in.Get<uint64_t>();
  read.sequences_.resize(read.size());
  if (format == kWholeUnlabelled) {
    if (!read.GetWhole(in)) return bad;
  } else {
    const auto items = in.Get<uint64_t>();
    if (!in.ok() || items == 0) return bad;
    read.parts_ = ReplayParts(items);
    Blocks blocks;
    for (const uint64_t number : read.parts()) {
      ASSIGN_OR_RETURN(const std::string_view bytes, part(number));
      if (!read.GetPart(number, bytes, blocks)) return bad;
    }
    if (!read.GetSequences(read.parts_.Rest(read.Held()), in, format == kSequences, blocks))
      return bad;
  }
  if (!in.AtEnd()) return bad;
  for (uint64_t number = read.Held().first; number < read.added_; ++number)
    read.last_[read.sequences_[PlaceOf(number)].slot] = number;
  parts_ = read.parts_, added_ = read.added_, slabs_ = std::move(read.slabs_);
  sequences_ = std::move(read.sequences_), last_ = std::move(read.last_);
  return Status::Ok();
}

}  // namespace samara
