// Messages between the learner process and a remote actor; python/samara/wire.py has the same.
//
// One bidirectional stream per actor process, method kRemoteMethod; each gRPC message is one
// message of ours: a MessageHeader, then what its kind says. All numbers are little-endian.
//   actor -> learner process   kHello: text (JSON, HelloMessage)
//                     kEvents: `rows` EventRows, then `rows` observations (rows = 0: a sign of
//                     life)
//   learner process -> actor   kWelcome: text (JSON, RemoteWelcome)
//                     kCommands: `rows` times a CommandRow and action_values float32 (0: a sign of
//                     life); kShutdown: text, why the actor should end
// Rules: (1) the first message each way is Hello and Welcome; (2) a slot owes one event per
// command, and the event repeats the command's sequence, episode and step; (3) lengths are exactly
// what the agreed spec gives, and neither side trusts the other's bytes: nothing read here can
// abort. A token travels as gRPC metadata ("authorization: Bearer ..."), so that nothing is read of
// a peer without one. The major version is in the method's name, the minor one in Hello; unknown
// JSON fields are ignored; values are never reused.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/clock.h"
#include "core/status.h"
#include "env/interface.h"

namespace samara {

inline constexpr char kRemoteMethod[] = "/samara.v1.Actors/Play";
inline constexpr int64_t kRemoteMajor = 1, kRemoteMinor = 0;

enum class RemoteKind : uint32_t {
  kHello = 1,
  kEvents = 2,
  kWelcome = 3,
  kCommands = 4,
  kShutdown = 5,
};
struct MessageHeader {
  RemoteKind kind;
  uint32_t rows;         // of text: bytes
  uint64_t incarnation;  // of the lease; 0 in Hello
};

enum RemoteFlags : uint32_t {
  kRemoteTerminated = 1,
  kRemoteTruncated = 2,
  kRemoteLifeLost = 4,
  kRemoteLost = 8,  // alone: the simulator failed, the episode is void
  kRemoteFlagsAll = 15,
};
struct EventRow {
  uint64_t sequence;
  uint64_t episode;
  double reward;
  uint32_t slot;  // 0 .. slots of the lease - 1
  uint32_t step;
  uint32_t frames;
  uint32_t flags;
};

enum class RemoteCommand : uint32_t { kReset = 1, kAct = 2 };
struct CommandRow {
  uint64_t sequence;
  uint64_t episode;
  uint64_t seed;       // kReset
  int64_t frames_max;  // kReset
  uint32_t slot;
  RemoteCommand kind;
  uint32_t step;     // kAct: number of the step, from 1; kReset: 0
  int32_t argument;  // kAct: index of a discrete action; kReset: noops
};
static_assert(sizeof(MessageHeader) == 16 && sizeof(EventRow) == 40 && sizeof(CommandRow) == 48);

// Sizes that follow from the spec. A message of rows holds at most about a megabyte, or one row.
struct RemoteLayout {
  explicit RemoteLayout(const EnvironmentSpec& spec)
      : observation_bytes(spec.observation.bytes()),
        action_values(spec.action.discrete ? 0 : static_cast<uint32_t>(spec.action.n)) {}
  size_t event_bytes() const { return sizeof(EventRow) + observation_bytes; }
  size_t command_bytes() const { return sizeof(CommandRow) + action_values * sizeof(float); }
  uint32_t events_max() const;    // rows of one message
  uint32_t commands_max() const;  // rows of one message
  size_t observation_bytes;
  uint32_t action_values;
};
inline constexpr size_t kTextBytesMax = size_t{1} << 20;  // Hello, Welcome, Shutdown
inline constexpr size_t kRowsBytesMax = size_t{1} << 20;  // aimed at by a message of many rows
// The largest message that either side may send under `layout`.
size_t MessageBytesMax(const RemoteLayout& layout);

// A message as it arrives: pieces of memory in order, read once.
class PieceReader {
 public:
  explicit PieceReader(std::span<const std::span<const std::byte>> pieces) : pieces_(pieces) {
    for (const auto& piece : pieces) left_ += piece.size();
  }
  size_t left() const { return left_; }
  // False, and nothing is read, when fewer than `n` bytes are left. A null `out` skips.
  bool Read(void* out, size_t n);
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  bool Read(T& out) { return Read(&out, sizeof out); }

 private:
  std::span<const std::span<const std::byte>> pieces_;
  size_t offset_ = 0;  // within the first piece
  size_t left_ = 0;
};

struct HelloMessage {
  int64_t minor = kRemoteMinor;
  std::string actor;  // name that the process chose at its start; the same at every connection
  uint32_t slots = 0;
  EnvironmentSpec spec;
};

// Seconds as messages and options have them.
inline SteadyTime::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(seconds));
}

struct RemoteWelcome {
  int64_t minor = kRemoteMinor;
  uint64_t incarnation = 0;
  uint32_t slots = 0;  // granted
  double heartbeat = 1, lease = 10;
  uint32_t events_max = 1;  // rows of one message to the learner process
};
inline constexpr int64_t kRemoteSlotsMax = 65536;  // that one actor may offer

// Whole messages. The text of Shutdown is for people.
std::string WriteHello(const HelloMessage& hello);
std::string WriteWelcome(const RemoteWelcome& welcome);
std::string WriteShutdown(const std::string& why);
// Parses a message's text. kConfig names the first field that is missing, of another type or out of
// range.
Result<HelloMessage> ParseHello(std::string_view text);
Result<RemoteWelcome> ParseWelcome(std::string_view text);

// Reads header and, for kinds that hold text, the text. kConfig when the lengths do not agree.
Result<std::string> ReadText(const MessageHeader& header, PieceReader& in);

}  // namespace samara
