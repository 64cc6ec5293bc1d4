#include "rl/replay/block_links.h"

namespace samara {

void BlockLinks::Add(uint64_t block, const Unroll& unroll, uint64_t stream) {
  // what led to the block that is replaced was older and is gone
  std::erase_if(newest_, [&](const auto& of) { return of.second.block == block; });
  if (block == next_.size()) next_.push_back(kNone);
  next_[block] = kNone;
  const auto before = newest_.find(stream);
  if (before != newest_.end() && before->second.unroll + 1 == unroll.index &&
      before->second.episode_step == unroll.headers[0].episode_step)
    next_[before->second.block] = block;
  newest_[stream] = {block, unroll.index, unroll.headers[unroll.entries - 1].episode_step};
}

void BlockLinks::Save(ByteWriter& out) const {
  out.PutVector(next_).Put(uint64_t{newest_.size()});
  for (const auto& [stream, newest] : newest_)
    out.Put(stream).Put(newest.block).Put(newest.unroll).Put(newest.episode_step);
}

bool BlockLinks::Restore(ByteReader& in, uint64_t blocks, uint64_t oldest) {
  if (!in.GetVector(next_) || next_.size() != blocks) return false;
  for (auto streams = in.Get<uint64_t>(); streams > 0 && in.ok(); --streams) {
    Newest& newest = newest_[in.Get<uint64_t>()];
    newest.block = in.Get<uint64_t>(), newest.unroll = in.Get<uint64_t>();
    newest.episode_step = in.Get<uint32_t>();
    if (newest.block >= blocks) return false;
  }
  // each leads to a newer one: nothing is followed in a circle
  const auto age = [&](uint64_t block) { return (block + blocks - oldest) % blocks; };
  for (uint64_t block = 0; block < blocks; ++block)
    if (next_[block] != kNone && (next_[block] >= blocks || age(next_[block]) <= age(block)))
      return false;
  return in.ok();
}

}  // namespace samara
