#include "fleet/remote/hub.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/check.h"
#include "fleet/checks.h"
#include "fleet/remote/hub_session.h"

namespace samara {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kArrivalsForgotten = 100;  // of an address, each heartbeat

}  // namespace

const char* Name(RemoteDrop drop) {
  switch (drop) {
    case RemoteDrop::kDuplicate:
      return "duplicate";
    case RemoteDrop::kStale:
      return "stale";
    case RemoteDrop::kForeign:
      return "foreign";
    case RemoteDrop::kMalformed:
      return "malformed";
    case RemoteDrop::kOversized:
      return "oversized";
    case RemoteDrop::kNotFinite:
      return "not_finite";
    case RemoteDrop::kOutOfRange:
      return "out_of_range";
    case RemoteDrop::kHello:
      return "hello";
    case RemoteDrop::kCrowded:
      return "crowded";
    case RemoteDrop::kUnauthenticated:
      return "unauthenticated";
    case RemoteDrop::kQuarantined:
      return "quarantined";
    case RemoteDrop::kExpired:
      return "expired";
    case RemoteDrop::kHung:
      return "hung";
    case RemoteDrop::kCount:
      break;
  }
  return "";
}

// --- messages

Message RemoteHub::Session::Take(const RemoteLayout* layout) {
  if (writing || state == State::kClosed) return nullptr;
  Message message;
  if (!texts.empty()) {
    message = MessageOf(std::move(texts.front()));
    texts.pop_front();
  } else if (out_rows > 0 && state == State::kPlaying) {
    const uint32_t n = std::min(out_rows, layout->commands_max());
    const size_t bytes = sizeof(MessageHeader) + n * layout->command_bytes();
    const MessageHeader header{RemoteKind::kCommands, n, incarnation};
    message = std::move(out);
    out_rows -= n;
    if (out_rows > 0) {
      out = pool->Take();
      out->bytes.assign(sizeof header, '\0').append(message->bytes, bytes);
      message->bytes.resize(bytes);
    }
    std::memcpy(message->bytes.data(), &header, sizeof header);
    sent = true;
  } else {
    return nullptr;
  }
  writing = true;
  return message;
}

void RemoteHub::Posts::Touch(Session& session) NO_THREAD_SAFETY_ANALYSIS {
  if (std::exchange(session.dirty, true)) return;
  hub_.dirty_.push_back(&session);
}

void RemoteHub::Posts::End(Session& session, RemoteEnd end, bool now) {
  session.state = Session::State::kEnding;
  endings_.push_back({session.stream, std::move(end), now});
}

RemoteHub::Posts::~Posts() NO_THREAD_SAFETY_ANALYSIS {
  // kept between calls: nothing is allocated for it in the long run; taken, since gRPC may run
  // another stream's beginning inside a Send
  thread_local std::vector<std::pair<std::shared_ptr<RemoteStream>, Message>> kept;
  auto messages = std::move(kept);
  for (Session* session : hub_.dirty_) {
    session->dirty = false;
    if (Message message = session->Take(hub_.layout_ ? &*hub_.layout_ : nullptr))
      messages.emplace_back(session->stream, std::move(message));
  }
  hub_.dirty_.clear();
  const bool wake = hub_.events_.Due();
  hub_.mu_.Unlock();
  if (wake) hub_.events_.Wake();
  for (auto& [stream, message] : messages) stream->Send(std::move(message), nullptr);
  messages.clear();
  kept = std::move(messages);
  for (Ending& e : endings_) e.stream->End(e.end, e.now);
}

// --- life

RemoteHub::RemoteHub(const RemoteFleetOptions& options, std::vector<std::string> tokens,
                     bool supervised)
    : options_(options),
      tokens_(std::move(tokens)),
      memory_(nullptr, std::free),
      slots_(options.slots),
      events_(options.slots),
      incarnation_(options.incarnation),
      ticked_(Now()) {
  CHECK(options.slots > 0);
  for (uint32_t i = 0; i < options.slots; ++i) free_.push_back(i);
  if (options.spec) SetSpec(*options.spec);
  if (supervised) supervisor_ = std::make_unique<Thread>("remote leases", [this] { Supervise(); });
}

RemoteHub::~RemoteHub() {
  {
    MutexLock lock(mu_);
    quit_ = true;
    events_.Stop();
    changed_.NotifyAll();
    events_.Wake();
  }
  supervisor_.reset();
  CHECK(sessions_.empty()) << "the transport is closed first";
}

void RemoteHub::SetSpec(const EnvironmentSpec& spec) {
  spec_ = spec;
  layout_.emplace(spec);
  area_bytes_ = (layout_->observation_bytes + kAlignment - 1) / kAlignment * kAlignment;
  // pages are touched when an actor writes to them
  memory_.reset(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, slots_.size() * 2 * area_bytes_)));
  CHECK(memory_ != nullptr) << slots_.size() << " slots of " << area_bytes_ << " bytes";
  changed_.NotifyAll();
}

Status RemoteHub::WaitForSpec(double seconds) {
  MutexLock lock(mu_);
  changed_.WaitFor(mu_, FromSeconds(seconds),
                   [this]() REQUIRES(mu_) { return spec_.has_value() || quit_; });
  if (spec_) return {};
  return {Code::kUnavailable, "no actor came within " + std::to_string(static_cast<int>(seconds)) +
                                  " s: start `samara actor --connect`"};
}

size_t RemoteHub::message_bytes_max() const {
  MutexLock lock(mu_);
  // without a spec: what one with observations below kRowsBytesMax needs
  return layout_ ? MessageBytesMax(*layout_) : sizeof(MessageHeader) + kRowsBytesMax;
}

size_t RemoteHub::row_bytes() const {
  MutexLock lock(mu_);
  return layout_ ? layout_->event_bytes() : kRowsBytesMax;
}

void RemoteHub::Supervise() {
  MutexLock lock(mu_);
  while (!quit_) {
    changed_.WaitFor(mu_, FromSeconds(options_.heartbeat),
                     [this]() REQUIRES(mu_) { return quit_; });
    if (quit_) return;
    lock.Unlock();
    Tick(Now());
    lock.Lock();
  }
}

void RemoteHub::Tick(SteadyTime now) {
  Posts posts(*this);
  lines_ = 0;
  for (auto& [address, opened] : arrivals_) opened -= std::min(opened, kArrivalsForgotten);
  std::erase_if(arrivals_, [](const auto& arrival) { return arrival.second == 0; });
  // 1. time in which this process did not run counts for no session
  const auto gap = now - ticked_ - FromSeconds(options_.heartbeat);
  const bool paused = gap > FromSeconds(options_.heartbeat / 2);
  ticked_ = now;
  // 2. silent and hung actors; signs of life
  for (auto& [session, owner] : sessions_) {
    if (paused) session->seen += gap;
    if (session->state == Session::State::kClosed) continue;
    if (now - session->seen > FromSeconds(options_.lease)) {
      if (session->state != Session::State::kEnding)
        Refuse(*session, RemoteDrop::kExpired,
               {RemoteCode::kDeadlineExceeded, "heartbeat timeout: the lease has expired"}, posts);
      else
        posts.End(*session, {RemoteCode::kDeadlineExceeded, ""}, true);
      continue;
    }
    if (session->state == Session::State::kPlaying && !std::exchange(session->sent, false)) {
      const MessageHeader header{RemoteKind::kCommands, 0, session->incarnation};
      if (!session->writing && session->texts.empty())
        session->texts.emplace_back(reinterpret_cast<const char*>(&header), sizeof header);
      posts.Touch(*session);
    }
  }
  for (Slot& slot : slots_) {
    if (slot.phase != Phase::kBusy || !slot.posted) continue;
    if (paused) slot.posted_at += gap;
    if (now - slot.posted_at > FromSeconds(options_.step_timeout) &&
        slot.session->state == Session::State::kPlaying) {
      Refuse(*slot.session, RemoteDrop::kHung,
             {RemoteCode::kDeadlineExceeded, "a step took longer than step_timeout"}, posts);
    }
  }
  std::erase_if(quarantine_, [now](const auto& entry) { return entry.second < now; });
}

// --- the caller's half

const EnvironmentSpec& RemoteHub::spec() const {
  CHECK(spec_.has_value());
  return *spec_;
}

uint32_t RemoteHub::live() const {
  MutexLock lock(mu_);
  return live_;
}

std::byte* RemoteHub::Append(Slot& slot, const CommandRow& row, SteadyTime now, Posts& posts) {
  Session& session = *slot.session;
  if (session.out == nullptr) session.out = session.pool->Take();
  std::string& out = session.out->bytes;
  const size_t at = std::max(out.size(), sizeof(MessageHeader));
  out.resize(at + layout_->command_bytes());
  ++session.out_rows;
  ++session.owed;
  std::memcpy(out.data() + at, &row, sizeof row);
  slot.posted = true;
  slot.posted_at = now;
  posts.Touch(session);
  return reinterpret_cast<std::byte*>(out.data() + at + sizeof row);
}

void RemoteHub::PostReset(uint32_t index, SteadyTime now, Posts& posts) {
  Slot& slot = slots_[index];
  Append(slot,
         {.sequence = slot.sequence,
          .episode = slot.episode,
          .seed = slot.spec.seed,
          .frames_max = slot.spec.frames_max,
          .slot = slot.index,
          .kind = RemoteCommand::kReset,
          .step = 0,
          .argument = slot.spec.noops},
         now, posts);
}

void RemoteHub::Begin(uint32_t index, uint64_t episode, const EpisodeSpec& spec) {
  CHECK_LT(index, options_.slots);
  Posts posts(*this);
  Slot& slot = slots_[index];
  CHECK(slot.phase != Phase::kBusy && slot.phase != Phase::kReading)
      << "slot " << index << " owes an event";
  slot.phase = Phase::kBusy;
  slot.posted = false;
  ++slot.sequence;
  slot.episode = episode;
  slot.spec = spec;
  slot.step = 0;
  slot.area ^= 1;
  if (slot.session != nullptr) PostReset(index, Now(), posts);
}

void RemoteHub::PostAct(uint32_t index, const Action& action, SteadyTime now, Posts& posts) {
  CHECK_LT(index, slots_.size());
  Slot& slot = slots_[index];
  CheckAction(spec_->action, action);
  if (slot.phase == Phase::kVoid) {
    ++slot.step;
    return Push(SlotEvent::Kind::kLost, index);
  }
  CHECK(slot.phase == Phase::kAnswered) << "slot " << index << " has no observation";
  slot.phase = Phase::kBusy;
  ++slot.sequence;
  ++slot.step;
  std::byte* values = Append(slot,
                             {.sequence = slot.sequence,
                              .episode = slot.episode,
                              .seed = 0,
                              .frames_max = 0,
                              .slot = slot.index,
                              .kind = RemoteCommand::kAct,
                              .step = slot.step,
                              .argument = action.index},
                             now, posts);
  // unaligned: through bytes
  for (size_t i = 0; i < action.values.size(); ++i) {
    float v = 0;
    ClampAction(action.values.subspan(i, 1), &v);
    std::memcpy(values + i * sizeof v, &v, sizeof v);
  }
}

void RemoteHub::Act(uint32_t slot, const Action& action) {
  Posts posts(*this);
  PostAct(slot, action, Now(), posts);
}

void RemoteHub::ActMany(std::span<const SlotAction> actions) {
  Posts posts(*this);
  const SteadyTime now = Now();
  for (const SlotAction& a : actions) PostAct(a.slot, a.action, now, posts);
}

void RemoteHub::Push(SlotEvent::Kind kind, uint32_t index, const StepResult& result) {
  Slot& slot = slots_[index];
  slot.phase = kind == SlotEvent::Kind::kObservation ? Phase::kAnswered : Phase::kIdle;
  slot.posted = false;
  if (kind == SlotEvent::Kind::kLost) ++counters_.lost_episodes;
  events_.Push(
      {.kind = kind, .slot = index, .episode = slot.episode, .step = slot.step, .result = result});
}

size_t RemoteHub::WaitForMany(std::span<SlotEvent> out, size_t wanted,
                              std::chrono::microseconds timeout) {
  MutexLock lock(mu_);
  return events_.Wait(mu_, out, wanted, timeout);
}

// The slot is its caller's between an event and the next command.
std::span<const std::byte> RemoteHub::observation(uint32_t slot) const NO_THREAD_SAFETY_ANALYSIS {
  CHECK_LT(slot, options_.slots);
  return {Area(slot, slots_[slot].area), layout_->observation_bytes};
}

FleetCounters RemoteHub::counters() const {
  MutexLock lock(mu_);
  FleetCounters counters = counters_;
  for (const auto drop : {RemoteDrop::kDuplicate, RemoteDrop::kStale, RemoteDrop::kForeign})
    counters.stale_events += drops_[static_cast<size_t>(drop)];
  return counters;
}

std::map<std::string, uint64_t> RemoteHub::drops() const {
  MutexLock lock(mu_);
  std::map<std::string, uint64_t> drops;
  for (size_t i = 0; i < std::size(drops_); ++i)
    drops[Name(static_cast<RemoteDrop>(i))] = drops_[i];
  return drops;
}

void RemoteHub::Stop() {
  MutexLock lock(mu_);
  events_.Stop();
  events_.Wake();
}

void RemoteHub::NotifyShutdown() {
  Posts posts(*this);
  shutting_down_ = true;
  for (auto& [session, owner] : sessions_) {
    if (session->state != Session::State::kPlaying) continue;
    SendShutdown(*session, posts);
  }
}

}  // namespace samara
