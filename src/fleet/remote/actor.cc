#include "fleet/remote/actor.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "core/log.h"

namespace samara {
namespace {

constexpr std::chrono::milliseconds kWait{250};
// Seconds until Hello is answered. When thousands connect at once the learner process needs a
// while, and an actor that gives up makes it start again; keepalive detects that it has ended.
constexpr double kWelcomeSeconds = 60;

// Tells processes apart in the learner process's log and in its quarantine.
std::string ChooseName() {
  char host[65] = "host";
  ::gethostname(host, sizeof host - 1);
  std::random_device random;
  char text[100];
  std::snprintf(text, sizeof text, "%s-%d-%08x", host, static_cast<int>(::getpid()), random());
  return text;
}

}  // namespace

RemoteActor::RemoteActor(Fleet& fleet)
    : fleet_(fleet),
      layout_(fleet.spec()),
      name_(ChooseName()),
      slots_(fleet.slots()),
      ready_(fleet.slots() + 1),  // never all of it: what is left says that there is no more
      events_(fleet.slots()) {}

void RemoteActor::Open(std::shared_ptr<RemoteStream> stream) {
  std::shared_ptr<RemoteStream> to = stream;
  {
    MutexLock lock(mu_);
    CHECK(!open_) << "the stream before is still open";
    ++connection_;
    stream_ = std::move(stream);
    open_ = writing_ = true;
    welcomed_ = shutting_down_ = false;
    end_ = {};
    welcome_ = {};
    heads_.clear(), bodies_.reset();
    rows_ = 0;
    received_ = sent_ = checked_ = Now();
    for (Slot& slot : slots_) slot.pending = slot.answered = false;
  }
  to->Send(MessageOf(WriteHello({.actor = name_, .slots = fleet_.slots(), .spec = fleet_.spec()})),
           nullptr);
}

void RemoteActor::Close(const RemoteEnd& end) {
  MutexLock lock(mu_);
  open_ = false;
  if (end_.message.empty()) end_ = end;
  stream_.reset();
}

bool RemoteActor::Protest(const std::string& what) {
  std::shared_ptr<RemoteStream> stream;
  const RemoteEnd end{RemoteCode::kInvalidArgument, "the learner process sent " + what};
  {
    MutexLock lock(mu_);
    end_ = end;
    stream = stream_;
  }
  if (stream) stream->End(end, true);
  return false;
}

// --- what the learner process says

bool RemoteActor::Receive(Pieces message) {
  PieceReader in(message);
  MessageHeader header;
  if (!in.Read(header)) return Protest("a message without a header");
  std::shared_ptr<RemoteStream> stream;
  std::string offence;
  bool welcomed = false;
  {
    MutexLock lock(mu_);
    received_ = Now();
    if (shutting_down_) return false;
    welcomed = welcomed_;
    stream = stream_;
    if (header.kind == RemoteKind::kShutdown) shutting_down_ = welcomed_ = true;
    if (welcomed && header.kind == RemoteKind::kCommands) offence = TakeCommands(header, in);
  }
  if (!offence.empty()) return Protest(offence);
  if (welcomed && header.kind == RemoteKind::kCommands) return Execute();
  if (header.kind == RemoteKind::kShutdown) {
    if (stream) stream->End({}, false);
    return false;
  }
  if (!welcomed && header.kind == RemoteKind::kWelcome) return ReceiveWelcome(header, in);
  return Protest("kind " + std::to_string(static_cast<uint32_t>(header.kind)) +
                 " where it means nothing");
}

bool RemoteActor::ReceiveWelcome(const MessageHeader& header, PieceReader& in) {
  const auto text = ReadText(header, in);
  if (!text.ok()) return Protest(text.status().message());
  const auto welcome = ParseWelcome(*text);
  if (!welcome.ok()) return Protest(welcome.status().message());
  if (welcome->slots > fleet_.slots())
    return Protest(std::to_string(welcome->slots) + " slots granted");
  {
    MutexLock lock(mu_);
    welcome_ = *welcome;
    welcomed_ = true;
  }
  LogInfo("connected: " + std::to_string(welcome->slots) + " slots, incarnation " +
          std::to_string(welcome->incarnation));
  return true;
}

std::string RemoteActor::TakeCommands(const MessageHeader& header, PieceReader& in) {
  std::string offence;
  if (header.incarnation != welcome_.incarnation)
    offence = "commands of incarnation " + std::to_string(header.incarnation);
  else if (header.rows > welcome_.slots || in.left() != header.rows * layout_.command_bytes())
    offence = std::to_string(header.rows) + " commands in " + std::to_string(in.left()) + " bytes";
  acts_.clear();
  begins_.clear();
  if (offence.empty()) values_.resize(size_t{header.rows} * layout_.action_values);
  for (uint32_t i = 0; offence.empty() && i < header.rows; ++i) {
    CommandRow row;
    float* values = values_.data() + size_t{i} * layout_.action_values;
    in.Read(row);
    in.Read(values, layout_.action_values * sizeof(float));
    if (!TakeCommand(row, values)) offence = "a command that its slot does not expect";
  }
  return offence;
}

bool RemoteActor::Execute() {
  for (const CommandRow& row : begins_) Begin(row);
  if (!acts_.empty()) fleet_.ActMany(acts_);
  if (fleet_.answers_at_once()) CollectReady();
  return true;
}

bool RemoteActor::TakeCommand(const CommandRow& row, const float* values) {
  if (row.slot >= welcome_.slots) return false;
  Slot& slot = slots_[row.slot];
  if (row.kind == RemoteCommand::kReset) {
    // an answer to the connection before is still to come
    if (slot.busy) {
      if (slot.connection == connection_) return false;
      slot.pending = true;
      slot.next = row;
      return true;
    }
    begins_.push_back(row);
  } else if (row.kind == RemoteCommand::kAct) {
    const ActionSpec& spec = fleet_.spec().action;
    if (slot.busy || !slot.answered || row.step != slot.command.step + 1) return false;
    if (spec.discrete && (row.argument < 0 || row.argument >= spec.n)) return false;
    acts_.push_back({row.slot, {row.argument, {values, layout_.action_values}}});
  } else {
    return false;
  }
  slot.command = row;
  slot.connection = connection_;
  slot.busy = true;
  slot.answered = false;
  return true;
}

void RemoteActor::Begin(const CommandRow& row) {
  fleet_.Begin(row.slot, row.episode,
               {.seed = row.seed, .noops = row.argument, .frames_max = row.frames_max});
}

// --- what the fleet says

void RemoteActor::CollectReady() {
  do {
    const size_t n = fleet_.Wait(ready_, std::chrono::microseconds(0));
    Collect(std::span(ready_).first(n), ready_begins_);
  } while (!ready_begins_.empty());
}

void RemoteActor::Collect(std::span<const SlotEvent> events, std::vector<CommandRow>& late_begins) {
  using Kind = SlotEvent::Kind;
  late_begins.clear();
  MutexLock lock(mu_);
  for (const SlotEvent& event : events) {
    if (event.kind == Kind::kFailed) {
      if (failure_.ok()) failure_ = fleet_.status();
      continue;
    }
    Slot& slot = slots_[event.slot];
    slot.busy = false;
    if (slot.connection != connection_ || !open_) {
      if (!slot.pending || !open_) continue;
      slot.pending = false;
      slot.busy = true;
      slot.connection = connection_;
      slot.command = slot.next;
      late_begins.push_back(slot.command);
      continue;
    }
    slot.answered = event.kind == Kind::kObservation;
    const bool lost = event.kind == Kind::kLost;
    const StepResult& r = event.result;
    const EventRow row{.sequence = slot.command.sequence,
                       .episode = slot.command.episode,
                       .reward = lost ? 0 : r.reward,
                       .slot = event.slot,
                       .step = slot.command.step,
                       .frames = lost ? 0 : r.frames,
                       .flags = lost ? uint32_t{kRemoteLost}
                                     : (r.terminated ? kRemoteTerminated : 0U) |
                                           (r.truncated ? kRemoteTruncated : 0U) |
                                           (r.life_lost ? kRemoteLifeLost : 0U)};
    heads_.append(reinterpret_cast<const char*>(&row), sizeof row);
    if (bodies_ == nullptr) bodies_ = pool_->Take();
    if (lost)
      bodies_->bytes.append(layout_.observation_bytes, '\0');
    else
      bodies_->bytes.append(reinterpret_cast<const char*>(fleet_.observation(event.slot).data()),
                            layout_.observation_bytes);
    ++rows_;
    if (row.step > 0) steps_.fetch_add(1, std::memory_order_relaxed);
  }
  Outgoing out = TakeRows();
  lock.Unlock();
  Send(std::move(out));
  for (const CommandRow& row : late_begins) Begin(row);
}

RemoteActor::Outgoing RemoteActor::TakeRows() {
  if (!open_ || writing_ || !welcomed_ || rows_ == 0) return {};
  const uint32_t rows = std::min(rows_, welcome_.events_max);
  const size_t head_bytes = rows * sizeof(EventRow), body_bytes = rows * layout_.observation_bytes;
  const MessageHeader header{RemoteKind::kEvents, rows, welcome_.incarnation};
  Message head = pool_->Take();
  head->bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
  head->bytes.append(heads_, 0, head_bytes);
  heads_.erase(0, head_bytes);
  Message body;
  if (rows == rows_) {
    body = std::move(bodies_);
  } else {
    body = pool_->Take();
    body->bytes.assign(bodies_->bytes, 0, body_bytes);
    bodies_->bytes.erase(0, body_bytes);
  }
  rows_ -= rows;
  writing_ = true;
  sent_ = Now();
  return {stream_, std::move(head), std::move(body)};
}

void RemoteActor::Send(Outgoing out) {
  if (out.stream) out.stream->Send(std::move(out.head), std::move(out.body));
}

void RemoteActor::Sent() {
  MutexLock lock(mu_);
  writing_ = false;
  Outgoing out = TakeRows();
  lock.Unlock();
  Send(std::move(out));
}

void RemoteActor::KeepAlive() {
  std::shared_ptr<RemoteStream> stream;
  bool silent = false;
  MessageHeader header{RemoteKind::kEvents, 0, 0};
  {
    MutexLock lock(mu_);
    const SteadyTime now = Now();
    // time in which this process did not run is not the learner process's silence
    if (const auto gap = now - checked_ - FromSeconds(1); gap > FromSeconds(1)) received_ += gap;
    checked_ = now;
    if (!open_) return;
    stream = stream_;
    silent = now - received_ > FromSeconds(welcomed_ ? welcome_.lease : kWelcomeSeconds);
    header.incarnation = welcome_.incarnation;
    if (!silent && (!welcomed_ || writing_ || now - sent_ < FromSeconds(welcome_.heartbeat)))
      return;
    if (silent)
      end_ = {RemoteCode::kDeadlineExceeded, "heartbeat timeout of the learner process"};
    else
      writing_ = true;
    sent_ = now;
  }
  if (silent)
    stream->End({RemoteCode::kDeadlineExceeded, "heartbeat timeout of the learner process"}, true);
  else
    stream->Send(MessageOf({reinterpret_cast<const char*>(&header), sizeof header}), nullptr);
}

RemoteActor::Outcome RemoteActor::Pump(const std::function<bool()>& stop) {
  bool ending = false;
  for (;;) {
    const size_t n = fleet_.Wait(events_, kWait);
    if (n > 0) Collect(std::span(events_).first(n), late_begins_);
    if (n == 0 || Now() - checked_ > kWait) KeepAlive();
    std::shared_ptr<RemoteStream> stream;
    Status failure;
    {
      MutexLock lock(mu_);
      if (!open_) return {welcomed_, shutting_down_, end_, failure_};
      stream = stream_;
      failure = failure_;
    }
    const bool stopped = stop && stop();
    if (!ending && (stopped || !failure.ok())) {
      ending = true;
      stream->End({RemoteCode::kUnavailable, stopped ? "stopped" : failure.message()}, true);
    }
  }
}

}  // namespace samara
