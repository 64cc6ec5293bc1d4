// The health check that Kubernetes and others know: grpc.health.v1.Health/Check. It needs no token:
// it says whether the learner process works, and nothing else.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>

namespace samara {

inline constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";

// Answers one question: SERVING while `healthy` says so. It deletes itself. Asked about a service
// that is not here: NOT_FOUND; in a message that is none: INVALID_ARGUMENT.
grpc::ServerGenericBidiReactor* MakeHealthReactor(const std::function<bool()>& healthy);

}  // namespace samara
