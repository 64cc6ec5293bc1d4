// The other processes of `samara bench inference`, and the server of a bare streaming echo. What a
// peer is to do travels as one JSON object on its command line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/status.h"
#include "env/interface.h"

namespace samara::bench {

struct PeerTask {
  std::string kind = {};     // "slots": an actor of shared memory; "remote": actors; "echo"
  std::string address = {};  // of the engine, or of the echo
  std::string ca = {};       // PEM: TLS
  // payload bytes of a row, streams, rows of a message
  uint32_t payload = 0, streams = 1, rows = 1;
};
nlohmann::json ToJson(const PeerTask& task);
// In the peer: until the engine is done with it.
Status ServeAsPeer(const std::string& task_json);
// Observations of its environments: bytes; a frame, or four in one, where the payload has the size
// of Atari's, so that networks can look at it.
inline constexpr uint32_t kFrameSide = 84, kFrameBytes = kFrameSide * kFrameSide;
EnvironmentSpec PayloadSpec(uint32_t bytes);

// This program's file.
Result<std::string> OwnProgram();
// A child process of this program; it is killed if it does not end in time.
class Child {
 public:
  static Result<std::unique_ptr<Child>> Start(const std::vector<std::string>& arguments);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // Once it has ended: whether it did so well. kUnavailable after `timeout` too.
  Status Wait(std::chrono::milliseconds timeout);

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// A gRPC server of one streaming method that copies each message out and answers with `reply_bytes`
// times the rows of `row_bytes` that it held. kConfig without gRPC.
class EchoServer {
 public:
  static Result<std::unique_ptr<EchoServer>> Listen(const std::string& address,
                                                    const Path& certificate, const Path& key,
                                                    size_t row_bytes, size_t reply_bytes);
  virtual ~EchoServer() = default;
  virtual const std::string& address() const = 0;  // bound
  virtual uint64_t messages() const = 0;           // so far
};
// Streams that send `rows` payloads a message and wait for the answer, until the server is gone.
Status RunEchoes(const PeerTask& task);

}  // namespace samara::bench
