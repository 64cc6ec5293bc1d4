#include "fleet/remote/grpc/settings.h"

#include <grpc/support/log.h>

#include <mutex>

#include "core/log.h"

namespace samara {

void QuietGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* args) {
      if (args->severity == GPR_LOG_SEVERITY_ERROR)
        Log(LogLevel::kDebug, std::string("grpc: ") + EscapeControl(args->message));
    });
  });
}

grpc::Status ToGrpc(const RemoteEnd& end) {
  using enum RemoteCode;
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  switch (end.code) {
    case kOk:
      return grpc::Status::OK;
    case kInvalidArgument:
      code = grpc::StatusCode::INVALID_ARGUMENT;
      break;
    case kUnauthenticated:
      code = grpc::StatusCode::UNAUTHENTICATED;
      break;
    case kPermissionDenied:
      code = grpc::StatusCode::PERMISSION_DENIED;
      break;
    case kFailedPrecondition:
      code = grpc::StatusCode::FAILED_PRECONDITION;
      break;
    case kResourceExhausted:
      code = grpc::StatusCode::RESOURCE_EXHAUSTED;
      break;
    case kAborted:
      code = grpc::StatusCode::ABORTED;
      break;
    case kDeadlineExceeded:
      code = grpc::StatusCode::DEADLINE_EXCEEDED;
      break;
    case kUnavailable:
      code = grpc::StatusCode::UNAVAILABLE;
      break;
  }
  return {code, end.message};
}

RemoteEnd FromGrpc(const grpc::Status& status) {
  using enum RemoteCode;
  RemoteCode code = kUnavailable;
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      code = kOk;
      break;
    case grpc::StatusCode::INVALID_ARGUMENT:
      code = kInvalidArgument;
      break;
    case grpc::StatusCode::UNAUTHENTICATED:
      code = kUnauthenticated;
      break;
    case grpc::StatusCode::PERMISSION_DENIED:
      code = kPermissionDenied;
      break;
    case grpc::StatusCode::UNIMPLEMENTED:  // another major version
    case grpc::StatusCode::FAILED_PRECONDITION:
      code = kFailedPrecondition;
      break;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      code = kResourceExhausted;
      break;
    case grpc::StatusCode::ABORTED:
      code = kAborted;
      break;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      code = kDeadlineExceeded;
      break;
    default:
      break;
  }
  return {code, EscapeControl(status.error_message())};
}

grpc::ByteBuffer ToBuffer(Message head, Message body) {
  grpc::Slice slices[2];
  size_t n = 0;
  for (Message* part : {&head, &body}) {
    if (*part == nullptr) continue;
    MessageBytes* kept = part->release();
    slices[n++] = grpc::Slice(
        kept->bytes.data(), kept->bytes.size(),
        [](void* p) { ReturnMessage()(static_cast<MessageBytes*>(p)); }, kept);
  }
  return {slices, n};
}

Pieces ReceivedPieces::Read(const grpc::ByteBuffer& buffer) {
  pieces_.clear();
  slices_.clear();
  if (buffer.Valid() && buffer.Dump(&slices_).ok()) {
    for (const grpc::Slice& slice : slices_) {
      if (slice.size() > 0)
        pieces_.push_back(std::as_bytes(std::span(slice.begin(), slice.size())));
    }
  }
  return pieces_;
}

}  // namespace samara
