// Environments on other machines, as slots of a fleet.
//
// The learner process listens; an actor connects, says what it plays and how many slots it offers,
// and gets a lease on free slots of the learner process. Protocol: wire.h; doc/remote_actors.md
// says how to run it safely. Without gRPC at configure time both functions return kConfig and say
// so.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/status.h"
#include "fleet/fleet.h"

namespace samara {

struct RemoteFleetOptions {
  // "unix:/folder/socket" (the folder has mode 0700, or is made so), "127.0.0.1:PORT",
  // "localhost:PORT", "[::1]:PORT": actors of this user and of root may connect. Any other
  // HOST:PORT needs TLS, certificates of actors and a token. Port 0 takes a free one.
  std::string address = {};
  // The environment that actors must have. Without it the first actor decides, and MakeRemoteFleet
  // waits for it for `spec_timeout` (kUnavailable after that), unless its id is not `environment`.
  std::optional<EnvironmentSpec> spec = {};
  std::string environment = {};  // id that the first actor must have; empty: any
  double spec_timeout = 600;     // s
  uint32_t slots = 64;           // capacity; slots without an actor are silent
  // Leases are numbered from here on: a resumed run gives a higher number than its predecessor.
  uint64_t incarnation = 1;
  double heartbeat = 1;        // s between signs of life on a silent stream
  double lease = 10;           // s of silence until an actor counts as gone
  double step_timeout = 60;    // s until a slot that owes a step counts as hung; ends its stream
  uint32_t offences_max = 10;  // rows refused until the stream is ended and its actor kept out
  double quarantine = 60;      // s that it is kept out
  std::vector<Path> token_files = {};  // at most two: either is accepted (rotation)
  Path certificate = {}, key = {};     // PEM: TLS
  // PEM: actors must show a certificate signed by it, before gRPC reads anything else of theirs.
  Path client_ca = {};
  bool token_only = false;       // any address without certificates of actors
  bool insecure_i_know = false;  // any address without TLS or token, and any user's actors
  // Asked four times a second: whether tokens and certificates are to be read again. Streams that
  // are there stay; files that make no sense change nothing.
  std::function<bool()> reload = {};
  // Answers health checks (grpc.health.v1): SERVING while this is empty or returns true.
  std::function<bool()> healthy = {};
};

struct RemoteFleet {
  std::unique_ptr<Fleet> fleet;
  std::string address = {};  // bound: what actors give to --connect
};
// kNotPermitted for an unsafe address or a readable token file, kCannotCreate when another learner
// process holds the address, kConfig for an address that cannot be read, kNoInput for missing
// files.
Result<RemoteFleet> MakeRemoteFleet(const RemoteFleetOptions& options);

struct RemoteActorOptions {
  std::string address = {};  // as bound by the learner process
  Path token_file = {};      // optional
  Path ca = {};              // PEM: TLS, and who may have signed the learner process's certificate
  Path certificate = {},
       key = {};  // PEM: shown to a learner process that asks for one, as all off this machine do
  double connect_timeout = 60;      // s until the first connection
  double reconnect_timeout = 3600;  // s without the learner process until the actor gives up
  std::function<bool()> stop = {};  // asked four times a second: kTryAgain once it says so
};
struct RemoteActorResult {
  uint64_t steps = 0, connections = 0;
};
// Steps `fleet` for the learner process at `address` until it says that training has finished. A
// learner process that goes away is looked for again (back-off 0.1 to 10 s with jitter).
// kUnavailable when it is not found in time or `fleet` fails; kNotPermitted and kConfig when it
// refuses the actor.
Result<RemoteActorResult> RunRemoteActor(Fleet& fleet, const RemoteActorOptions& options);

// Whether this build has gRPC; its version, empty without.
std::string GrpcVersion();

}  // namespace samara
