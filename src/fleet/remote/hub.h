// The learner process's side of all remote actors: leases, which command is outstanding where, and
// which rows are to be believed. It is a Fleet for the caller, and a set of sessions for the
// transport.
//
// Thread safety: every method may be called from any thread; one slot is driven by one caller, and
// one session's Receive, Sent and Close by its transport, Receive and Close never at the same time.
// Invariants: (1) every Begin and Act is answered by exactly one event, once an actor holds the
// slot; (2) a row becomes an event only if its slot belongs to the session and its sequence,
// episode and step are those of the outstanding command: each command is answered once; (3) a
// slot's observation memory is written by the session that holds it, between two lookups under mu_,
// and a session gives its slots back only in Close, after its last Receive; (4) mu_ is never held
// while a stream is called; (5) nothing that a peer sends reaches a CHECK.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "fleet/event_queue.h"
#include "fleet/fleet.h"
#include "fleet/remote/remote.h"
#include "fleet/remote/stream.h"
#include "fleet/remote/wire.h"

namespace samara {

// Why rows and streams were refused; printed as "drops".
enum class RemoteDrop {
  kDuplicate,   // a row for a slot that owes nothing, or owes a later command's event
  kStale,       // a message of another incarnation, a row of another episode or step
  kForeign,     // a row for a slot that the actor does not hold
  kMalformed,   // lengths, kinds or flags that mean nothing
  kOversized,   // a message beyond the limit
  kNotFinite,   // reward or observation
  kOutOfRange,  // the same, beyond kMagnitudeMax
  kHello,       // refused: spec, protocol, no free slot
  kCrowded,     // too many streams from one address in a short time
  kUnauthenticated,
  kQuarantined,
  kExpired,  // silent for longer than the lease, or no Hello in time
  kHung,     // a step took longer than step_timeout
  kCount
};
const char* Name(RemoteDrop drop);

class RemoteHub : public Fleet {
 public:
  class Session;

  // `tokens`: any of them is accepted; none: every peer is. Unsupervised, nothing expires but by
  // TEST_Tick. REQUIRES: options.slots > 0.
  RemoteHub(const RemoteFleetOptions& options, std::vector<std::string> tokens,
            bool supervised = true);
  ~RemoteHub() override;  // REQUIRES: every session was closed

  // The transport's half.
  // A peer came. `authorization`: what it showed ("Bearer ..."). A session that is refused ends its
  // stream; it is to be closed like any other.
  std::shared_ptr<Session> Open(std::shared_ptr<RemoteStream> stream, const std::string& peer,
                                std::string_view authorization);
  enum class Next : uint8_t {
    kNothing,       // the stream ends
    kRead,          // the actor's next message
    kReadAfterSend  // the same, which is not awaited before the next Send (within two heartbeats)
  };
  // One message.
  Next Receive(Session& session, Pieces message);
  void Sent(Session& session);        // the last Send is done
  void Close(Session& session);       // the last call for this session
  void EndAll(const RemoteEnd& end);  // every session, and those to come
  // Sets the tokens that new actors must present; sessions that exist stay.
  void SetTokens(std::vector<std::string> tokens);
  bool WaitUntilClosed(std::chrono::milliseconds timeout);
  size_t message_bytes_max() const;  // what the transport may accept
  size_t row_bytes() const;          // of an event; of the largest while the spec is unknown

  // Blocks until the spec is known; kUnavailable after `seconds`.
  Status WaitForSpec(double seconds);

  const EnvironmentSpec& spec() const override;  // REQUIRES: known
  uint32_t slots() const override { return options_.slots; }
  uint32_t live() const override;
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec) override;
  void Act(uint32_t slot, const Action& action) override;
  void ActMany(std::span<const SlotAction> actions) override;
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    return WaitForMany(out, 1, timeout);
  }
  size_t WaitForMany(std::span<SlotEvent> out, size_t wanted,
                     std::chrono::microseconds timeout) override;
  std::span<const std::byte> observation(uint32_t slot) const override;
  std::span<const std::byte> pictures(uint32_t) const override { return {}; }
  FleetCounters counters() const override;
  std::map<std::string, uint64_t> drops() const override;
  Status status() const override { return {}; }
  void Stop() override;
  void NotifyShutdown() override;

  // Test only: what the supervisor does at `now`.
  void TEST_Tick(SteadyTime now) { Tick(now); }

 private:
  enum class Phase : uint8_t {
    kIdle,      // owes nothing
    kBusy,      // a command is outstanding
    kReading,   // its answer is being copied
    kAnswered,  // an observation waits for its action
    kVoid       // the episode was lost meanwhile; the next action is told so
  };
  struct Slot {
    Phase phase = Phase::kIdle;
    bool posted = false;  // kBusy: the actor has the command
    Session* session = nullptr;
    uint32_t index = 0;     // within the session
    uint64_t sequence = 0;  // of the last command
    uint64_t episode = 0;
    EpisodeSpec spec;
    uint32_t step = 0;
    uint32_t area = 0;
    SteadyTime posted_at;
  };
  class Posts;  // holds mu_; calls the streams once it has let go of it

  // hub_sessions.cc
  // Counts a stream that `peer`'s address opens; false when it opens them too fast.
  bool Arrive(const std::string& peer) REQUIRES(mu_);
  // These say whether more is to be read.
  bool Take(Session& session, Pieces message);
  bool ReceiveHello(Session& session, const MessageHeader& header, PieceReader& in);
  bool Admit(Session& session, const HelloMessage& hello, Posts& posts) REQUIRES(mu_);
  void Lease(Session& session, uint32_t slots, Posts& posts) REQUIRES(mu_);
  bool ReceiveEvents(Session& session, const MessageHeader& header, PieceReader& in);
  // Marks the slots of the rows that answer a command; false when the message is refused.
  bool Claim(Session& session, const MessageHeader& header, PieceReader& in, Posts& posts)
      REQUIRES(mu_);
  // Why the row does not answer what its slot owes; kCount when it does.
  RemoteDrop Judge(const Session& session, const EventRow& row) const REQUIRES(mu_);
  // `row.reward` is NaN when anything of the row is not finite, and infinite when it is out of
  // range.
  void Publish(Session& session, const EventRow& row, Posts& posts) REQUIRES(mu_);
  void Offend(Session& session, RemoteDrop drop, Posts& posts) REQUIRES(mu_);
  // Counts, ends the stream, logs. Returns false.
  bool Refuse(Session& session, RemoteDrop drop, RemoteEnd end, Posts& posts) REQUIRES(mu_);
  void SendShutdown(Session& session, Posts& posts) REQUIRES(mu_);
  void Say(const Session& session, const std::string& line) REQUIRES(mu_);

  // hub.cc
  void Push(SlotEvent::Kind kind, uint32_t slot, const StepResult& result = {}) REQUIRES(mu_);
  void PostReset(uint32_t slot, SteadyTime now, Posts& posts) REQUIRES(mu_);
  void PostAct(uint32_t slot, const Action& action, SteadyTime now, Posts& posts) REQUIRES(mu_);
  std::byte* Append(Slot& slot, const CommandRow& row, SteadyTime now, Posts& posts) REQUIRES(mu_);
  void SetSpec(const EnvironmentSpec& spec) REQUIRES(mu_);
  std::byte* Area(uint32_t slot, uint32_t area) const {
    return memory_.get() + (size_t{slot} * 2 + area) * area_bytes_;
  }
  void Tick(SteadyTime now);
  void Supervise();

  // constant after construction
  const RemoteFleetOptions options_;

  mutable Mutex mu_;
  CondVar changed_;  // signalled when the spec is known, a session closed, quit_ set
  // guarded by mu_
  std::vector<std::string> tokens_ GUARDED_BY(mu_);
  // written once, under mu_; read without it by threads that drive a slot
  std::optional<EnvironmentSpec> spec_;
  std::optional<RemoteLayout> layout_;
  size_t area_bytes_ = 0;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;  // slots x two areas
  // guarded by mu_
  std::vector<Slot> slots_ GUARDED_BY(mu_);
  std::deque<uint32_t> free_ GUARDED_BY(mu_);  // slots without a session
  std::map<Session*, std::shared_ptr<Session>> sessions_ GUARDED_BY(mu_);
  // have something to send; empty whenever mu_ is free
  std::vector<Session*> dirty_ GUARDED_BY(mu_);
  std::map<std::string, SteadyTime> quarantine_ GUARDED_BY(mu_);  // actors, until when
  EventQueue events_ GUARDED_BY(mu_);
  uint32_t live_ GUARDED_BY(mu_) = 0;
  uint64_t incarnation_ GUARDED_BY(mu_);
  FleetCounters counters_ GUARDED_BY(mu_);
  std::map<std::string, size_t> arrivals_ GUARDED_BY(mu_);  // streams opened lately, by address
  uint64_t drops_[static_cast<size_t>(RemoteDrop::kCount)] GUARDED_BY(mu_) = {};
  std::optional<RemoteEnd> ending_ GUARDED_BY(mu_);  // for later sessions
  bool shutting_down_ GUARDED_BY(mu_) = false, quit_ GUARDED_BY(mu_) = false;
  uint32_t lines_ GUARDED_BY(mu_) = 0;  // logged since the last tick
  SteadyTime ticked_ GUARDED_BY(mu_);
  std::unique_ptr<Thread> supervisor_;
};

}  // namespace samara
