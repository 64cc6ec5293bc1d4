// Replay of learners of recurrent networks: the last unrolls, whole, with the state that entered
// each, so that replaying one gives the values of acting.
//
// Consecutive unrolls of a slot share overlap + 1 entries (unroll_store.h). These are stored once:
// a sequence is a row of blocks of entries, and a block goes with the last sequence that has a part
// in it. A block has the number of the sequence that came with it. Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "rl/replay/packed_bytes.h"
#include "rl/replay/parts.h"
#include "rl/replay/slabs.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

// Steps of an unroll, each by the entry that it began at: [begin, end).
struct StepRange {
  uint32_t begin = 0, end = 0;
  uint32_t size() const { return end - begin; }
  bool operator==(const StepRange&) const = default;
};
// Steps that are learned from.
inline StepRange LearnedSteps(const Unroll& unroll) { return {unroll.overlap, unroll.entries - 1}; }
// Divides these where episodes end.
std::vector<StepRange> LearnedByEpisode(const Unroll& unroll);

struct SequenceShape {
  uint64_t capacity = 1;  // sequences
  uint32_t length = 1;    // steps that are learned from; entries are one more
  uint32_t overlap = 0;   // entries before them
  size_t observation_bytes = 0;
  size_t state = 0;          // floats
  size_t history_bytes = 0;  // of the frames before entry 0
  int64_t choices = 0;       // number of discrete actions; 0 when continuous
  bool compress = false;     // observations, by LZ4
  PartRule parts = {};       // of a checkpoint; its items are sequences
  uint32_t entries() const { return overlap + length + 1; }
  // Shape of what is not compressed.
  SequenceShape Rest() const {
    SequenceShape rest = *this;
    if (compress) rest.observation_bytes = 0;
    return rest;
  }
};

class SequenceReplay {
 public:
  explicit SequenceReplay(const SequenceShape& shape);

  // Memory when full, as if nothing could be compressed. `shared`: every unroll follows the last
  // one of its slot that was added.
  static uint64_t Bytes(const SequenceShape& shape, bool shared);
  // Adds a sequence for each range of steps, in place of the oldest ones once it is full. Returns
  // the first one's number: how many there were before. REQUIRES: `unroll` is whole; some ranges,
  // none of them empty.
  uint64_t Add(const Unroll& unroll, std::span<const StepRange> steps);
  uint64_t Add(const Unroll& unroll) {
    const StepRange all = LearnedSteps(unroll);
    return Add(unroll, {&all, 1});
  }
  uint64_t added() const { return added_; }
  uint64_t size() const { return std::min(added_, shape_.capacity); }
  // Memory of what is there, but for a few words for each sequence.
  uint64_t stored_bytes() const { return slabs_.bytes(); }
  double filled() const {
    return static_cast<double>(size()) / static_cast<double>(shape_.capacity);
  }
  bool Has(uint64_t number) const { return number < added_ && number + size() >= added_; }
  // The place of a sequence, below size(), which later ones take over.
  uint64_t PlaceOf(uint64_t number) const { return number % shape_.capacity; }
  // Number of the sequence in a place.
  uint64_t NumberAt(uint64_t place) const;
  // Reads everything but behaviour, values and continuous actions of the sequence's whole unroll.
  // Returns its own steps. REQUIRES: Has(number).
  StepRange Read(uint64_t number, Unroll& unroll) const;

  // Contents of a checkpoint: the complete parts, by number, and all else. A block is in every part
  // whose sequences it belongs to.
  std::vector<uint64_t> parts() const { return parts_.Complete(Held()); }
  std::string SavePart(uint64_t part) const;  // REQUIRES: one of parts()
  std::string Save() const;
  // kBadData: of another shape or damaged; nothing has changed. Reads what earlier builds saved
  // without parts, too.
  Status Restore(std::string_view saved, const PartSource& part = NoParts);

  size_t TEST_Blocks() const;  // that are in memory

 private:
  struct Block {
    uint64_t number = 0;
    Kept<EntryHeader> headers;
    PackedBytes observations;
    std::vector<Unroll::Final> finals;  // by entry of the block
  };
  struct Sequence {
    uint32_t slot = 0;
    uint64_t index = 0;                                // of the unroll, among its slot's
    std::vector<std::shared_ptr<const Block>> blocks;  // oldest first; the last came with it
    uint32_t skipped = 0;                              // entries of the first block, before entry 0
    StepRange steps;
    Kept<float> state;
    Kept<std::byte> history;
  };
  std::shared_ptr<const Block> MakeBlock(const Unroll& unroll, uint32_t from);
  // The slot's last sequence, where `unroll` goes on from its end; otherwise null.
  const Sequence* Before(const Unroll& unroll) const;
  bool Fits(const Block& block) const;

  ItemRange Held() const { return {added_ - size(), added_}; }
  // Blocks that are read, by the number that sequences have for them.
  using Blocks = std::map<uint64_t, std::shared_ptr<Block>>;
  void PutSequences(const ItemRange& range, ByteWriter& out) const;
  bool GetBlock(ByteReader& in, Block& block);
  bool GetSequence(ByteReader& in, const Blocks& blocks, bool with_steps, Sequence& sequence);
  bool GetSequences(const ItemRange& range, ByteReader& in, bool with_steps, Blocks& blocks);
  bool GetPart(uint64_t part, std::string_view saved, Blocks& blocks);
  bool GetWhole(ByteReader& in);

  const SequenceShape shape_;
  ReplayParts parts_;
  Slabs slabs_;
  uint64_t added_ = 0;
  std::vector<Sequence> sequences_;
  std::map<uint32_t, uint64_t> last_;  // of each slot: number
};

}  // namespace samara
