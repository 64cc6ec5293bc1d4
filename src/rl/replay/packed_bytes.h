// Bytes that a replay stores: as they are, or compressed by LZ4 where that makes fewer of them.
#pragma once

#include <cstddef>
#include <span>

#include "rl/replay/slabs.h"

namespace samara {

struct PackedBytes {
  Kept<char> stored;
  bool compressed = false;
};

// Most bytes that can be compressed at a time.
constexpr size_t kPackedMax = size_t{1} << 30;

// Copies `bytes` into `slabs`, compressed where they are to be and it helps. The same bytes are
// stored in the same way. REQUIRES: at most kPackedMax, if they are to be compressed.
PackedBytes Pack(std::span<const std::byte> bytes, bool compress, Slabs& slabs);
// Writes what was packed. False: it is damaged, or of another size; `out` has no meaning then.
bool Unpack(const PackedBytes& packed, std::span<std::byte> out);

}  // namespace samara
