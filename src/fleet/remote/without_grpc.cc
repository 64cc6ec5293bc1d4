// The functions of remote.h where gRPC was not found at configure time.
#include "fleet/remote/remote.h"

namespace samara {
namespace {

Status NoGrpc() {
  return {
      Code::kConfig,
      "this samara was built without gRPC: install libgrpc++-dev, remove build/ and build again"};
}

}  // namespace

Result<RemoteFleet> MakeRemoteFleet(const RemoteFleetOptions&) { return NoGrpc(); }

Result<RemoteActorResult> RunRemoteActor(Fleet&, const RemoteActorOptions&) { return NoGrpc(); }

std::string GrpcVersion() { return {}; }

}  // namespace samara
