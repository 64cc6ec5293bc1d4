// The seam between what is said (hub.h, actor.h) and how it travels (grpc/, in-memory in tests).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fleet/remote/message.h"

namespace samara {

// How a stream ended, as gRPC would say it; the transport translates.
enum class RemoteCode {
  kOk,
  kInvalidArgument,     // malformed rows, more of them than are forgiven
  kUnauthenticated,     // no token, or a wrong one
  kPermissionDenied,    // quarantined
  kFailedPrecondition,  // another protocol or spec: never retry
  kResourceExhausted,   // no free slot, message too large: later, or smaller
  kAborted,             // stale incarnation: say Hello again
  kDeadlineExceeded,    // silent or hung
  kUnavailable,         // the other side is gone or going
};
struct RemoteEnd {
  RemoteCode code = RemoteCode::kOk;
  std::string message;
};

// One direction's sender. Thread safety: any thread. After the other half was told that the stream
// is closed, every call does nothing.
class RemoteStream {
 public:
  virtual ~RemoteStream() = default;
  // One message of two parts; the next one only after the owner's Sent. Neither blocks nor calls
  // back from inside.
  virtual void Send(Message head, Message body) = 0;
  // Ends the stream after the message that is being sent; `now`: without waiting for it.
  virtual void End(const RemoteEnd& end, bool now) = 0;
};

// A message as it arrived.
using Pieces = std::span<const std::span<const std::byte>>;

}  // namespace samara
