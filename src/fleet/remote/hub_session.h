// Types that hub.cc and hub_sessions.cc share.
#pragma once

#include "fleet/remote/hub.h"

namespace samara {

class RemoteHub::Session {
 public:
  enum class State : uint8_t { kGreeting, kPlaying, kEnding, kClosed };

  // constant after construction
  std::shared_ptr<RemoteStream> stream;
  std::string peer;
  const std::shared_ptr<MessagePool> pool = std::make_shared<MessagePool>();

  // guarded by the hub's mu_
  State state = State::kGreeting;
  uint32_t owed = 0;  // commands without an answer
  std::string actor;
  uint64_t incarnation = 0;
  std::vector<uint32_t> slots;    // of the learner process, by the actor's index
  std::deque<std::string> texts;  // whole messages that go first
  Message out;                    // header and command rows to be sent; null: none
  uint32_t out_rows = 0;
  bool writing = false, dirty = false;
  bool sent = false;           // rows since the last tick
  bool shutdown_sent = false;  // the last that is said
  SteadyTime seen;
  uint32_t offences = 0;

  // touched by Receive only
  std::vector<EventRow> rows;
  std::vector<std::byte*> to;  // where a row's observation goes; null: nowhere
  bool awaited = true;         // its next message

  // The next message, if one may go now. REQUIRES: mu_ held; the caller sends it.
  Message Take(const RemoteLayout* layout);
};

// Holds mu_ while it lives; the analysis does not know that inside its own functions.
class SCOPED_CAPABILITY RemoteHub::Posts {
 public:
  explicit Posts(RemoteHub& hub) ACQUIRE(hub.mu_) : hub_(hub) { hub.mu_.Lock(); }
  ~Posts() RELEASE();
  Posts(const Posts&) = delete;
  Posts& operator=(const Posts&) = delete;

  // The session has something to send.
  void Touch(Session& session);
  void End(Session& session, RemoteEnd end, bool now);

 private:
  RemoteHub& hub_;
  struct Ending {
    std::shared_ptr<RemoteStream> stream;
    RemoteEnd end;
    bool now;
  };
  std::vector<Ending> endings_;
};

}  // namespace samara
