// The actor's side of one stream after another: a learner process's commands go to a local fleet,
// the fleet's events go to the learner process, all that are ready in one message.
//
// Thread safety: Receive, Sent and Close are called by the transport, Receive and Close never at
// the same time; Open and Pump by the owner. Invariants: (1) commands of the learner process are
// checked before the fleet sees them: nothing that it sends reaches a CHECK; (2) what a slot
// answers to an earlier connection is never sent to a later one; (3) mu_ is not held while a stream
// or the fleet is called.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"
#include "fleet/fleet.h"
#include "fleet/remote/stream.h"
#include "fleet/remote/wire.h"

namespace samara {

class RemoteActor {
 public:
  // `fleet` outlives this; no other code drives it.
  explicit RemoteActor(Fleet& fleet);

  // Says Hello on a new stream. REQUIRES: the stream before it is closed.
  void Open(std::shared_ptr<RemoteStream> stream);
  // The transport's half.
  bool Receive(Pieces message);  // false when nothing more is to be read
  void Sent();
  void Close(const RemoteEnd& end);

  struct Outcome {
    bool welcomed = false;  // the learner process had accepted this actor
    bool shutdown = false;  // and said that training has finished
    RemoteEnd end;          // how the stream ended
    Status failure;         // of the local fleet
  };
  // Drives the fleet until the stream is closed. `stop`, when given, is asked four times a second.
  Outcome Pump(const std::function<bool()>& stop);
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    bool busy = false;      // the fleet owes an event
    bool answered = false;  // the learner process owes an action
    bool pending = false;   // `next` is begun as soon as the event of an older connection has come
    uint64_t connection = 0;
    CommandRow command{};  // the last one
    CommandRow next{};
  };

  bool ReceiveWelcome(const MessageHeader& header, PieceReader& in);
  // Fills begins_ and acts_; returns what is wrong with the message, if anything.
  std::string TakeCommands(const MessageHeader& header, PieceReader& in) REQUIRES(mu_);
  bool TakeCommand(const CommandRow& row, const float* values) REQUIRES(mu_);
  bool Execute();  // begins_ and acts_
  // `late_begins` is for the calling thread to keep.
  void Collect(std::span<const SlotEvent> events, std::vector<CommandRow>& late_begins);
  void CollectReady();  // without waiting; of Receive
  // A message that is to be sent without mu_; no stream: none.
  struct Outgoing {
    std::shared_ptr<RemoteStream> stream;
    Message head, body;
  };
  Outgoing TakeRows() REQUIRES(mu_);  // of what is there, if a message may go
  static void Send(Outgoing out);
  void KeepAlive();  // a sign of life; gives up a silent learner process
  bool Protest(const std::string& what);
  void Begin(const CommandRow& row);

  // constant after construction
  Fleet& fleet_;
  const RemoteLayout layout_;
  const std::string name_;
  const std::shared_ptr<MessagePool> pool_ = std::make_shared<MessagePool>();

  std::atomic<uint64_t> steps_{0};
  Mutex mu_;
  // guarded by mu_
  std::shared_ptr<RemoteStream> stream_ GUARDED_BY(mu_);
  uint64_t connection_ GUARDED_BY(mu_) = 0;
  RemoteWelcome welcome_ GUARDED_BY(mu_);
  bool open_ GUARDED_BY(mu_) = false, writing_ GUARDED_BY(mu_) = false,
             welcomed_ GUARDED_BY(mu_) = false, shutting_down_ GUARDED_BY(mu_) = false;
  RemoteEnd end_ GUARDED_BY(mu_);
  std::vector<Slot> slots_ GUARDED_BY(mu_);
  std::string heads_ GUARDED_BY(mu_);  // EventRows that wait to be sent
  Message bodies_ GUARDED_BY(mu_);     // and their observations; null: none
  uint32_t rows_ GUARDED_BY(mu_) = 0;
  Status failure_ GUARDED_BY(mu_);  // of the fleet
  SteadyTime received_ GUARDED_BY(mu_), sent_ GUARDED_BY(mu_);
  // touched by Receive only
  std::vector<float> values_;
  std::vector<SlotAction> acts_;
  std::vector<CommandRow> begins_;
  std::vector<SlotEvent> ready_;  // where the fleet answers at once
  std::vector<CommandRow> ready_begins_;
  // touched by Open and Pump only
  SteadyTime checked_;
  std::vector<SlotEvent> events_;
  std::vector<CommandRow> late_begins_;
};

}  // namespace samara
