// Stands in for the echo where gRPC was not found at configure time.
#include "bench/peer.h"

namespace samara::bench {

namespace {
Status NoGrpc() { return {Code::kConfig, "this build has no gRPC: expected --transport shared"}; }
}  // namespace

Result<std::unique_ptr<EchoServer>> EchoServer::Listen(const std::string&, const Path&, const Path&,
                                                       size_t, size_t) {
  return NoGrpc();
}

Status RunEchoes(const PeerTask&) { return NoGrpc(); }

}  // namespace samara::bench
