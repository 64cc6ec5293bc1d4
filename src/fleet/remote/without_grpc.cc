// The functions of remote.h where gRPC was not found at configure time.
#include "core/venv.h"
#include "fleet/remote/remote.h"

namespace samara {
namespace {

Status NoGrpc() {
  return {Code::kConfig,
          "this samara was built without gRPC: " + HowToBuildWith("libgrpc++-dev", "SAMARA_GRPC")};
}

}  // namespace

Result<RemoteFleet> MakeRemoteFleet(const RemoteFleetOptions&) { return NoGrpc(); }

Result<RemoteActorResult> RunRemoteActor(Fleet&, const RemoteActorOptions&) { return NoGrpc(); }

std::string GrpcVersion() { return {}; }

}  // namespace samara
