// The parsers of what peers say first: Hello, Welcome, and rows in pieces.
#include "core/log.h"
#include "fleet/remote/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace samara;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto hello = ParseHello(text); hello.ok()) {
    // what was accepted is within the limits, and comes through again
    CHECK(hello->spec.observation.bytes() <= size_t{64} << 20);
    CHECK(hello->slots >= 1 && hello->slots <= kRemoteSlotsMax);
    const std::string again = WriteHello(*hello);
    CHECK(ParseHello(std::string_view(again).substr(sizeof(MessageHeader))).ok());
  }
  if (const auto welcome = ParseWelcome(text); welcome.ok()) {
    CHECK(welcome->slots >= 1 && welcome->lease > 0 && welcome->events_max >= 1);
  }
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::span<const std::byte> pieces[] = {bytes.first(size / 3), {}, bytes.subspan(size / 3)};
  PieceReader in(pieces);
  MessageHeader header;
  size_t read = 0;
  if (in.Read(header)) {
    read += sizeof header;
    if (const auto words = ReadText(header, in); words.ok()) read += words->size();
  }
  CHECK(read + in.left() == size);
  return 0;
}
