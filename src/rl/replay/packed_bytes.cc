#include "rl/replay/packed_bytes.h"

#include <lz4.h>

#include <algorithm>
#include <vector>

#include "core/check.h"

namespace samara {

PackedBytes Pack(std::span<const std::byte> bytes, bool compress, Slabs& slabs) {
  const std::span plain(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (compress) {
    CHECK_LE(bytes.size(), kPackedMax);
    const int size = static_cast<int>(bytes.size());
    std::vector<char> packed(static_cast<size_t>(LZ4_compressBound(size)));
    const int fewer =
        LZ4_compress_default(plain.data(), packed.data(), size, static_cast<int>(packed.size()));
    if (fewer > 0 && fewer < size)
      return {slabs.Keep(std::span<const char>(packed).first(static_cast<size_t>(fewer))), true};
  }
  return {slabs.Keep(plain), false};
}

bool Unpack(const PackedBytes& packed, std::span<std::byte> out) {
  if (packed.compressed) {
    const int size =
        LZ4_decompress_safe(packed.stored.data(), reinterpret_cast<char*>(out.data()),
                            static_cast<int>(packed.stored.size()), static_cast<int>(out.size()));
    return size == static_cast<int>(out.size());
  }
  if (packed.stored.size() != out.size()) return false;
  std::ranges::copy(std::as_bytes(packed.stored.values()), out.begin());
  return true;
}

}  // namespace samara
