// How both ends of the gRPC transport are set up.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/status.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fleet/remote/stream.h"

namespace samara {

inline constexpr int kKeepaliveMs = 20'000, kKeepaliveTimeoutMs = 10'000;
inline constexpr int kPingIntervalMs = 10'000;  // not above the client's keepalive time
inline constexpr int kHandshakeMs = 10'000;
inline constexpr int kHttp2FrameBytes = 256 << 10;
// Distance between gRPC's own limit of a message and samara's, so that samara's is exact.
inline constexpr size_t kMessageSlackBytes = size_t{64} << 10;

// Settings of gRPC on both ends, and of the bare echo of `samara bench`.
inline std::array<std::pair<const char*, int>, 3> StreamSettings(int message_max) {
  // a window of two messages; probing would widen it for peers that send much
  return {{{GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes},
           {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 2 * message_max},
           {GRPC_ARG_HTTP2_BDP_PROBE, 0}}};
}

// Memory of all connections: of the first ones, and of a stream with one slot (measured: 1,000
// streams of one slot take 40 to 80 MB).
inline constexpr size_t kQuotaBytes = size_t{32} << 20, kQuotaSlotBytes = size_t{128} << 10;

// gRPC's own log goes to ours at its lowest level. Once per process.
void QuietGrpc();

grpc::Status ToGrpc(const RemoteEnd& end);
RemoteEnd FromGrpc(const grpc::Status& status);

// Takes both parts over without copying them.
grpc::ByteBuffer ToBuffer(Message head, Message body);

// The memory of a received message, valid until the next Read. Its vectors keep their room.
class ReceivedPieces {
 public:
  Pieces Read(const grpc::ByteBuffer& buffer);

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<std::span<const std::byte>> pieces_;
};

}  // namespace samara
