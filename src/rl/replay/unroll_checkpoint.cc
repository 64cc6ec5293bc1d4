// Checkpoints of a replay of steps (unroll_replay.h).
#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "rl/replay/unroll_replay.h"

namespace samara {
namespace {

// Without parts, as earlier builds wrote them; with parts; of one part. A replay of episodes adds
// links of blocks to the first two. The last two are of compressed frames.
enum Format : uint64_t {
  kWhole = 1,
  kWholeEpisodes,
  kUnrolls,
  kEpisodes,
  kUnrollPart,
  kPackedUnrolls,
  kPackedPart
};

// Rows of `each` values, one a block, of blocks in a ring of `ring` places.
template <typename T>
void PutRows(const std::vector<T>& rows, size_t each, const ItemRange& blocks, uint64_t ring,
             ByteWriter& out) {
  std::vector<T> saved;
  saved.reserve(blocks.size() * each);
  for (uint64_t block = blocks.first; block < blocks.end; ++block) {
    const auto row = rows.begin() + static_cast<ptrdiff_t>(block % ring * each);
    saved.insert(saved.end(), row, row + static_cast<ptrdiff_t>(each));
  }
  out.PutVector(saved);
}

// Those of `blocks` among the saved ones, which end with them. False: the bytes are of another
// size.
template <typename T>
bool GetRows(ByteReader& in, size_t each, const ItemRange& saved, const ItemRange& blocks,
             uint64_t ring, std::vector<T>& rows) {
  std::vector<T> all;
  if (!in.GetVector(all) || all.size() % each != 0 || all.size() / each != saved.size())
    return false;
  for (uint64_t block = blocks.first; block < blocks.end; ++block)
    std::copy_n(all.begin() + static_cast<ptrdiff_t>((block - saved.first) * each), each,
                rows.begin() + static_cast<ptrdiff_t>(block % ring * each));
  return true;
}

}  // namespace

void UnrollReplay::PutFrames(const ItemRange& blocks, ByteWriter& out) const {
  const size_t each = FramesOfBlock();
  if (!shape_.compress)
    return PutRows(observations_, each * shape_.observation_bytes, blocks, blocks_max_, out);
  ByteWriter frames;
  for (uint64_t block = blocks.first; block < blocks.end; ++block)
    for (const PackedBytes& frame : std::span(packed_).subspan(block % blocks_max_ * each, each))
      frames.Put(frame.compressed).PutBytes({frame.stored.data(), frame.stored.size()});
  out.PutBytes(frames.Take());
}

// Reads them, `packed` or as they are, and stores them as this replay does.
bool UnrollReplay::GetFrames(const ItemRange& saved, const ItemRange& blocks, bool packed,
                             ByteReader& in) {
  const size_t each = FramesOfBlock(), bytes = shape_.observation_bytes;
  const std::string_view all = in.GetBytes();
  if (!packed && (all.size() % (each * bytes) != 0 || all.size() / (each * bytes) != saved.size()))
    return false;
  ByteReader frames(all);
  std::vector<std::byte> frame(bytes);
  Slabs slabs;
  for (uint64_t block = saved.first; block < saved.end; ++block)
    for (size_t i = 0; i < each; ++i) {
      if (packed) {
        const auto compressed = frames.Get<bool>();
        const std::string_view stored = frames.GetBytes();
        if (!frames.ok() || !Unpack({slabs.Keep(std::span(stored)), compressed}, frame))
          return false;
      } else {
        const std::string_view plain =
            all.substr(((block - saved.first) * each + i) * bytes, bytes);
        std::ranges::copy(std::as_bytes(std::span(plain)), frame.begin());
      }
      if (block >= blocks.first) SetFrame(block % blocks_max_ * each + i, frame);
    }
  return !packed || frames.AtEnd();
}

// Numbers of the first block and the one after the last, their rows, and last observations of
// episodes, by step among theirs.
void UnrollReplay::PutBlocks(const ItemRange& blocks, ByteWriter& out) const {
  const size_t length = shape_.length;
  out.Put(blocks.first).Put(blocks.end);
  PutFrames(blocks, out);
  if (shape_.history > 0) PutRows(stack_steps_, length + 1, blocks, blocks_max_, out);
  PutRows(actions_, length * action_floats_, blocks, blocks_max_, out);
  PutRows(rewards_, length, blocks, blocks_max_, out);
  PutRows(ends_, length, blocks, blocks_max_, out);
  ByteWriter finals;
  uint64_t count = 0;
  for (uint64_t block = blocks.first; block < blocks.end; ++block) {
    const uint64_t first = block % blocks_max_ * length;
    for (auto final = finals_.lower_bound(first);
         final != finals_.end() && final->first < first + length; ++final, ++count)
      finals.Put((block - blocks.first) * length + final->first - first).PutVector(final->second);
  }
  out.Put(count).PutBytes(finals.Take());
}

// Reads `blocks` of those that are saved: older ones have left the replay since.
bool UnrollReplay::GetBlocks(const ItemRange& blocks, bool packed, ByteReader& in) {
  const size_t length = shape_.length;
  ItemRange saved;
  saved.first = in.Get<uint64_t>(), saved.end = in.Get<uint64_t>();
  if (!in.ok() || saved.first > blocks.first || saved.end != blocks.end) return false;
  const bool whole =
      GetFrames(saved, blocks, packed, in) &&
      (shape_.history == 0 || GetRows(in, length + 1, saved, blocks, blocks_max_, stack_steps_)) &&
      GetRows(in, length * action_floats_, saved, blocks, blocks_max_, actions_) &&
      GetRows(in, length, saved, blocks, blocks_max_, rewards_) &&
      GetRows(in, length, saved, blocks, blocks_max_, ends_);
  if (!whole) return false;
  const auto count = in.Get<uint64_t>();
  ByteReader finals(in.GetBytes());
  for (uint64_t i = 0; i < count; ++i) {
    const auto step = finals.Get<uint64_t>();
    std::vector<std::byte> observation;
    if (!finals.GetVector(observation) || observation.size() != shape_.observation_bytes ||
        step / length >= saved.size())
      return false;
    const uint64_t block = saved.first + step / length;
    if (block >= blocks.first)
      finals_[block % blocks_max_ * length + step % length] = std::move(observation);
  }
  return in.ok() && finals.AtEnd();
}

std::string UnrollReplay::SavePart(uint64_t part) const {
  ByteWriter out;
  out.Put(uint64_t{shape_.compress ? kPackedPart : kUnrollPart}).Put(shape_.length);
  PutBlocks(parts_.Of(part, Held()), out);
  return out.Take();
}

bool UnrollReplay::GetPart(uint64_t part, std::string_view saved) {
  ByteReader in(saved);
  const auto format = in.Get<uint64_t>();
  return (format == kUnrollPart || format == kPackedPart) && in.Get<uint32_t>() == shape_.length &&
         GetBlocks(parts_.Of(part, Held()), format == kPackedPart, in) && in.AtEnd();
}

std::string UnrollReplay::Save() const {
  ByteWriter out;
  out.Put(uint64_t{shape_.episodes   ? kEpisodes
                   : shape_.compress ? kPackedUnrolls
                                     : kUnrolls})
      .Put(shape_.length)
      .Put(blocks_max_)
      .Put(added_)
      .Put(parts_.items());
  PutBlocks(parts_.Rest(Held()), out);
  if (shape_.episodes) links_.Save(out);
  return out.Take();
}

// Whether every episode that needs its last observation has it, and actions are among the choices.
bool UnrollReplay::Whole() const {
  const auto chosen = [this](float action) {
    return action >= 0 && action < static_cast<float>(shape_.choices) &&
           action == std::floor(action);
  };
  for (uint64_t step = 0; step < size(); ++step) {
    const bool needed =
        ends_[step] == kTruncated || (shape_.episodes && ends_[step] == kTerminated);
    if (ends_[step] > kTruncated || (needed && !finals_.contains(step))) return false;
    if (shape_.choices > 0 && !chosen(actions_[step])) return false;
  }
  return true;
}

// Reads what a build without parts saved: the rows by place.
bool UnrollReplay::GetWhole(ByteReader& in) {
  const uint64_t steps = size();
  const bool whole =
      shape_.history == 0 && !shape_.compress && in.GetVector(observations_) &&
      in.GetVector(actions_) && in.GetVector(rewards_) && in.GetVector(ends_) &&
      observations_.size() == blocks_ * (shape_.length + 1) * shape_.observation_bytes &&
      actions_.size() == steps * action_floats_ && rewards_.size() == steps &&
      ends_.size() == steps;
  if (!whole) return false;
  for (auto finals = in.Get<uint64_t>(); finals > 0; --finals) {
    const auto step = in.Get<uint64_t>();
    std::vector<std::byte>& observation = finals_[step];
    if (!in.GetVector(observation) || observation.size() != shape_.observation_bytes ||
        step >= steps)
      return false;
  }
  return true;
}

Status UnrollReplay::Restore(std::string_view saved, const PartSource& part) {
  const Status bad(Code::kBadData, "the saved replay has another shape than this run's");
  ByteReader in(saved);
  UnrollReplay read(shape_);
  const auto format = in.Get<uint64_t>();
  const bool whole = format == (shape_.episodes ? kWholeEpisodes : kWhole);
  const bool packed = format == kPackedUnrolls && !shape_.episodes;
  const bool same = (whole || packed || format == (shape_.episodes ? kEpisodes : kUnrolls)) &&
                    in.Get<uint32_t>() == shape_.length && in.Get<uint64_t>() == blocks_max_;
  if (!same) return bad;
  read.Reserve();
  read.added_ = in.Get<uint64_t>();
  read.blocks_ = std::min(read.added_, blocks_max_);
  if (whole) {
    if (!read.GetWhole(in)) return bad;
  } else {
    const auto items = in.Get<uint64_t>();
    if (!in.ok() || items == 0) return bad;
    read.parts_ = ReplayParts(items);
    read.Resize();
    for (const uint64_t number : read.parts()) {
      ASSIGN_OR_RETURN(const std::string_view bytes, part(number));
      if (!read.GetPart(number, bytes)) return bad;
    }
    if (!read.GetBlocks(read.parts_.Rest(read.Held()), packed, in)) return bad;
  }
  if (!read.Whole()) return bad;
  const uint64_t oldest = read.Held().first % blocks_max_;
  if (shape_.episodes && !read.links_.Restore(in, read.blocks_, oldest)) return bad;
  if (!in.AtEnd()) return bad;
  parts_ = read.parts_, blocks_ = read.blocks_, added_ = read.added_;
  observations_ = std::move(read.observations_), packed_ = std::move(read.packed_);
  slabs_ = std::move(read.slabs_), actions_ = std::move(read.actions_);
  rewards_ = std::move(read.rewards_), ends_ = std::move(read.ends_);
  stack_steps_ = std::move(read.stack_steps_);
  finals_ = std::move(read.finals_), links_ = std::move(read.links_);
  return Status::Ok();
}

}  // namespace samara
