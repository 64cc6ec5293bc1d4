// Which block of a replay goes on where another one ends: the unrolls of a slot follow each other,
// and an episode may go over several of them. Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/bytes.h"
#include "rl/trajectory/unroll_store.h"

namespace samara {

class BlockLinks {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // `unroll`, of a slot that is number `stream` among the run's, replaces the oldest block or is
  // the next new one.
  void Add(uint64_t block, const Unroll& unroll, uint64_t stream);
  // The block whose first observation is this one's last, or kNone.
  uint64_t next(uint64_t block) const { return next_[block]; }
  // No block that is added from now on continues one that is there: streams have begun again.
  void EndStreams() { newest_.clear(); }

  void Save(ByteWriter& out) const;
  // False: damaged, or of another number of blocks; the links have no meaning then. `oldest`: the
  // block that would be replaced next.
  bool Restore(ByteReader& in, uint64_t blocks, uint64_t oldest);

 private:
  // The newest block of a stream, and where the stream was at its end.
  struct Newest {
    uint64_t block = 0, unroll = 0;
    uint32_t episode_step = 0;
  };
  std::vector<uint64_t> next_;         // by block
  std::map<uint64_t, Newest> newest_;  // by stream
};

}  // namespace samara
