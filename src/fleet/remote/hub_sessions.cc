// The transport's half of RemoteHub: who is admitted, and what of their messages is believed.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/log.h"
#include "core/sha256.h"
#include "fleet/actor_messages.h"
#include "fleet/checks.h"
#include "fleet/remote/hub.h"
#include "fleet/remote/hub_session.h"

namespace samara {
namespace {

constexpr uint32_t kSessionLinesMax = 20;   // logged in one heartbeat
constexpr uint32_t kFramesMax = 1'000'000;  // of one step
constexpr size_t kQuarantinedMax = 10'000;  // actors remembered
constexpr size_t kArrivalsMax = 10'000;     // addresses told apart
constexpr std::string_view kScheme = "Bearer ";

// Takes as long for a wrong token as for a right one.
bool Equal(const std::string& token, std::string_view given) {
  const Digest a = Sha256().Update(token).Finish(), b = Sha256().Update(given).Finish();
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(a[i]) ^ static_cast<unsigned>(b[i]);
  return difference == 0;
}

bool Known(const std::vector<std::string>& tokens, std::string_view authorization) {
  if (tokens.empty()) return true;
  if (!authorization.starts_with(kScheme)) return false;
  authorization.remove_prefix(kScheme.size());
  bool known = false;
  for (const std::string& token : tokens) known |= Equal(token, authorization);
  return known;
}

}  // namespace

void RemoteHub::Say(const Session& session, const std::string& line) {
  if (++lines_ > kSessionLinesMax) return;
  LogInfo("remote actor " + (session.actor.empty() ? "?" : session.actor) + " (" + session.peer +
          "): " + line + (lines_ == kSessionLinesMax ? "; more such lines are left out" : ""));
}

bool RemoteHub::Refuse(Session& session, RemoteDrop drop, RemoteEnd end, Posts& posts) {
  ++drops_[static_cast<size_t>(drop)];
  Say(session, "refused: " + end.message);
  posts.End(session, std::move(end), drop == RemoteDrop::kExpired || drop == RemoteDrop::kHung);
  return false;
}

std::shared_ptr<RemoteHub::Session> RemoteHub::Open(std::shared_ptr<RemoteStream> stream,
                                                    const std::string& peer,
                                                    std::string_view authorization) {
  std::vector<std::string> tokens;
  {
    MutexLock lock(mu_);
    tokens = tokens_;
  }
  const bool known = Known(tokens, authorization);
  auto session = std::make_shared<Session>();
  session->stream = std::move(stream);
  session->peer = EscapeControl(peer);
  session->seen = Now();
  Posts posts(*this);
  sessions_.emplace(session.get(), session);
  // twice the slots: while actors that died are still to be noticed, their successors come
  if (!Arrive(peer)) {
    Refuse(*session, RemoteDrop::kCrowded,
           {RemoteCode::kResourceExhausted, "too many connections at once: try later"}, posts);
  } else if (!known) {
    Refuse(*session, RemoteDrop::kUnauthenticated,
           {RemoteCode::kUnauthenticated, "not accepted: see --token-file"}, posts);
  } else if (ending_ && !shutting_down_) {
    posts.End(*session, *ending_, false);
  } else if (sessions_.size() > size_t{2} * slots_.size() + 64) {
    Refuse(*session, RemoteDrop::kHello,
           {RemoteCode::kResourceExhausted, "too many connections: try later"}, posts);
  }
  return session;
}

bool RemoteHub::Arrive(const std::string& peer) {
  std::string address = peer.substr(0, peer.rfind(':'));  // without the port
  if (arrivals_.size() >= kArrivalsMax && !arrivals_.contains(address)) address.clear();
  // a whole farm may come back at once, and once more
  return ++arrivals_[address] <= size_t{2} * slots_.size() + 64;
}

void RemoteHub::SetTokens(std::vector<std::string> tokens) {
  MutexLock lock(mu_);
  tokens_ = std::move(tokens);
}

void RemoteHub::Close(Session& session) {
  Posts posts(*this);
  const auto owner = sessions_.find(&session);
  if (owner == sessions_.end()) return;
  const bool played = !session.slots.empty();
  for (const uint32_t index : session.slots) {
    Slot& slot = slots_[index];
    slot.session = nullptr;
    free_.push_back(index);
    if (slot.phase == Phase::kAnswered) slot.phase = Phase::kVoid;
    // the actor had the command: what became of it will never be known
    if (slot.phase == Phase::kBusy || slot.phase == Phase::kReading)
      Push(SlotEvent::Kind::kLost, index);
  }
  live_ -= static_cast<uint32_t>(session.slots.size());
  if (played && !shutting_down_) {
    ++counters_.respawns;
    Say(session, "gone, with " + std::to_string(session.slots.size()) + " slots");
  }
  session.slots.clear();
  session.state = Session::State::kClosed;
  std::erase(dirty_, &session);
  sessions_.erase(owner);
  changed_.NotifyAll();
}

void RemoteHub::SendShutdown(Session& session, Posts& posts) {
  session.state = Session::State::kEnding;
  session.shutdown_sent = true;
  session.texts.push_back(WriteShutdown("training has finished"));
  posts.Touch(session);
}

void RemoteHub::Sent(Session& session) {
  Posts posts(*this);
  session.writing = false;
  posts.Touch(session);
  if (session.shutdown_sent && session.texts.empty()) posts.End(session, {}, false);
}

void RemoteHub::EndAll(const RemoteEnd& end) {
  Posts posts(*this);
  ending_ = end;
  for (auto& [session, owner] : sessions_)
    if (!session->shutdown_sent) posts.End(*session, end, false);
}

bool RemoteHub::WaitUntilClosed(std::chrono::milliseconds timeout) {
  MutexLock lock(mu_);
  return changed_.WaitFor(mu_, timeout, [this]() REQUIRES(mu_) { return sessions_.empty(); });
}

RemoteHub::Next RemoteHub::Receive(Session& session, Pieces message) {
  session.awaited = true;
  if (!Take(session, message)) return Next::kNothing;
  return session.awaited ? Next::kRead : Next::kReadAfterSend;
}

bool RemoteHub::Take(Session& session, Pieces message) {
  PieceReader in(message);
  MessageHeader header;
  const bool whole = in.Read(header);
  bool greeting = false;
  {
    Posts posts(*this);
    // what comes after a shutdown notice does not matter any more
    if (session.state == Session::State::kEnding || session.state == Session::State::kClosed)
      return session.shutdown_sent;
    session.seen = Now();
    if (!whole) {
      return Refuse(session, RemoteDrop::kMalformed,
                    {RemoteCode::kInvalidArgument, "a message without a header"}, posts);
    }
    greeting = session.state == Session::State::kGreeting;
    if (header.kind != (greeting ? RemoteKind::kHello : RemoteKind::kEvents)) {
      return Refuse(session, RemoteDrop::kMalformed,
                    {RemoteCode::kInvalidArgument,
                     "kind " + std::to_string(static_cast<uint32_t>(header.kind)) +
                         (greeting ? " where Hello was expected" : " where events were expected")},
                    posts);
    }
    if (!greeting && header.incarnation != session.incarnation) {
      return Refuse(
          session, RemoteDrop::kStale,
          {RemoteCode::kAborted, "incarnation " + std::to_string(header.incarnation) +
                                     ", the lease has " + std::to_string(session.incarnation)},
          posts);
    }
    if (!greeting && !Claim(session, header, in, posts)) return false;
  }
  return greeting ? ReceiveHello(session, header, in) : ReceiveEvents(session, header, in);
}

// --- Hello

bool RemoteHub::ReceiveHello(Session& session, const MessageHeader& header, PieceReader& in) {
  const auto text = ReadText(header, in);
  if (!text.ok()) {
    Posts posts(*this);
    return Refuse(session,
                  header.rows > kTextBytesMax ? RemoteDrop::kOversized : RemoteDrop::kMalformed,
                  {RemoteCode::kInvalidArgument, text.status().message()}, posts);
  }
  const auto hello = ParseHello(*text);
  Posts posts(*this);
  if (!hello.ok()) {
    return Refuse(session, RemoteDrop::kHello,
                  {RemoteCode::kFailedPrecondition, hello.status().message()}, posts);
  }
  return Admit(session, *hello, posts);
}

bool RemoteHub::Admit(Session& session, const HelloMessage& hello, Posts& posts) {
  session.actor = hello.actor;
  // a coming shutdown notice is an answer too
  if (shutting_down_) {
    SendShutdown(session, posts);
    return true;
  }
  if (const auto kept_out = quarantine_.find(hello.actor);
      kept_out != quarantine_.end() && kept_out->second > Now()) {
    return Refuse(
        session, RemoteDrop::kQuarantined,
        {RemoteCode::kPermissionDenied, "kept out after " + std::to_string(options_.offences_max) +
                                            " refused rows: see the log of the learner process"},
        posts);
  }
  std::string difference;
  if (spec_) {
    difference = Difference(hello.spec, *spec_);
  } else if (!options_.environment.empty() && hello.spec.id != options_.environment) {
    difference = "id " + hello.spec.id + " instead of " + options_.environment;
  } else if (RemoteLayout(hello.spec).event_bytes() > kRowsBytesMax) {
    difference = "observations of more than a megabyte";
  } else {
    SetSpec(hello.spec);
  }
  if (!difference.empty()) {
    return Refuse(
        session, RemoteDrop::kHello,
        {RemoteCode::kFailedPrecondition, "the actor plays something else: " + difference}, posts);
  }
  if (free_.empty()) {
    return Refuse(session, RemoteDrop::kHello,
                  {RemoteCode::kResourceExhausted,
                   "all " + std::to_string(slots_.size()) + " slots have an actor: try later"},
                  posts);
  }
  Lease(session, std::min(hello.slots, static_cast<uint32_t>(free_.size())), posts);
  return true;
}

void RemoteHub::Lease(Session& session, uint32_t slots, Posts& posts) {
  session.state = Session::State::kPlaying;
  session.incarnation = incarnation_++;
  session.texts.push_back(WriteWelcome({.minor = kRemoteMinor,
                                        .incarnation = session.incarnation,
                                        .slots = slots,
                                        .heartbeat = options_.heartbeat,
                                        .lease = options_.lease,
                                        .events_max = layout_->events_max()}));
  posts.Touch(session);
  session.rows.reserve(slots);
  session.to.reserve(slots);
  const SteadyTime now = Now();
  for (uint32_t i = 0; i < slots; ++i) {
    const uint32_t index = free_.front();
    free_.pop_front();
    session.slots.push_back(index);
    slots_[index].session = &session;
    slots_[index].index = i;
    if (slots_[index].phase == Phase::kBusy) PostReset(index, now, posts);
  }
  live_ += slots;
  Say(session, std::to_string(slots) + " slots, incarnation " +
                   std::to_string(session.incarnation) + "; " + std::to_string(live_) + " of " +
                   std::to_string(slots_.size()) + " slots live");
}

// --- events: which rows answer a command, their observations, then the events

RemoteDrop RemoteHub::Judge(const Session& session, const EventRow& row) const {
  if (row.slot >= session.slots.size()) return RemoteDrop::kForeign;
  const Slot& slot = slots_[session.slots[row.slot]];
  // a slot that has an actor and is busy has posted its command
  if (row.sequence < slot.sequence || slot.phase != Phase::kBusy) return RemoteDrop::kDuplicate;
  if (row.sequence != slot.sequence || row.episode != slot.episode || row.step != slot.step)
    return RemoteDrop::kStale;
  const uint32_t ends = row.flags & (kRemoteTerminated | kRemoteTruncated);
  const bool lost = (row.flags & kRemoteLost) != 0;
  if ((row.flags & ~uint32_t{kRemoteFlagsAll}) != 0 || row.frames > kFramesMax ||
      ends == (kRemoteTerminated | kRemoteTruncated) || (lost && row.flags != kRemoteLost) ||
      (row.step == 0 && (row.flags & ~uint32_t{kRemoteLost}) != 0)) {
    return RemoteDrop::kMalformed;
  }
  return RemoteDrop::kCount;
}

void RemoteHub::Offend(Session& session, RemoteDrop drop, Posts& posts) {
  ++drops_[static_cast<size_t>(drop)];
  if (++session.offences <= options_.offences_max) {
    Say(session, std::string("a row was refused: ") + Name(drop));
    return;
  }
  if (session.state != Session::State::kPlaying) return;
  if (quarantine_.size() < kQuarantinedMax) {
    quarantine_[session.actor] =
        Now() + std::chrono::milliseconds(static_cast<int64_t>(options_.quarantine * 1000));
  }
  Say(session, "kept out after more than " + std::to_string(options_.offences_max) +
                   " refused rows, the last one " + Name(drop));
  posts.End(session,
            {RemoteCode::kInvalidArgument,
             std::string("too many rows were refused, the last one as ") + Name(drop)},
            false);
}

bool RemoteHub::Claim(Session& session, const MessageHeader& header, PieceReader& in,
                      Posts& posts) {
  const size_t slots = session.slots.size();  // changed by this thread only
  if (header.rows > slots || in.left() != header.rows * layout_->event_bytes()) {
    const bool large = in.left() > slots * layout_->event_bytes();
    return Refuse(
        session, large ? RemoteDrop::kOversized : RemoteDrop::kMalformed,
        {large ? RemoteCode::kResourceExhausted : RemoteCode::kInvalidArgument,
         std::to_string(in.left()) + " bytes for " + std::to_string(header.rows) + " rows of " +
             std::to_string(layout_->event_bytes()) + " and " + std::to_string(slots) + " slots"},
        posts);
  }
  session.rows.resize(header.rows);
  session.to.assign(header.rows, nullptr);
  in.Read(session.rows.data(), header.rows * sizeof(EventRow));
  for (uint32_t i = 0; i < header.rows; ++i) {
    const EventRow& row = session.rows[i];
    if (const RemoteDrop drop = Judge(session, row); drop != RemoteDrop::kCount) {
      Offend(session, drop, posts);
      continue;
    }
    const uint32_t index = session.slots[row.slot];
    slots_[index].phase = Phase::kReading;
    session.to[i] = Area(index, slots_[index].area);
  }
  return true;
}

bool RemoteHub::ReceiveEvents(Session& session, const MessageHeader& header, PieceReader& in) {
  if (header.rows == 0) return true;
  // their observations, copied once
  for (uint32_t i = 0; i < header.rows; ++i) {
    std::byte* to = session.to[i];
    in.Read(to, layout_->observation_bytes);
    EventRow& row = session.rows[i];
    if (to == nullptr || (row.flags & kRemoteLost) != 0) continue;
    const std::span<const std::byte> observation{to, layout_->observation_bytes};
    using Double = std::numeric_limits<double>;
    if (WithinRange(row.reward, spec_->observation, observation)) continue;
    const bool finite = NotFinite(row.reward, spec_->observation, observation).empty();
    row.reward = finite ? Double::infinity() : Double::quiet_NaN();
  }
  Posts posts(*this);
  for (uint32_t i = 0; i < header.rows; ++i)
    if (session.to[i] != nullptr) Publish(session, session.rows[i], posts);
  session.awaited = session.owed > 0;
  return session.state == Session::State::kPlaying;
}

void RemoteHub::Publish(Session& session, const EventRow& row, Posts& posts) {
  using Kind = SlotEvent::Kind;
  const uint32_t index = session.slots[row.slot];
  --session.owed;
  if ((row.flags & kRemoteLost) != 0) return Push(Kind::kLost, index);
  if (!std::isfinite(row.reward)) {
    Push(Kind::kLost, index);
    return Offend(session,
                  std::isnan(row.reward) ? RemoteDrop::kNotFinite : RemoteDrop::kOutOfRange, posts);
  }
  const StepResult result{.reward = row.reward,
                          .terminated = (row.flags & kRemoteTerminated) != 0,
                          .truncated = (row.flags & kRemoteTruncated) != 0,
                          .life_lost = (row.flags & kRemoteLifeLost) != 0,
                          .frames = row.frames};
  if (row.step > 0) ++counters_.steps;
  counters_.frames += row.frames;
  Push(result.terminated || result.truncated ? Kind::kEnded : Kind::kObservation, index, result);
}

}  // namespace samara
