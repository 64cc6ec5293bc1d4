#include "fleet/slot_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "fleet/checks.h"

namespace samara {

namespace {

// Episodes that fail are few; a caller that never finishes one cannot make the map grow.
constexpr size_t kBlamedMax = 100'000;

std::span<const float> Floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

uint32_t RecordOptions(RecordKind record, bool play) {
  switch (record) {
    case RecordKind::kNothing:
      return 0;
    case RecordKind::kPositions:
      return play ? kSlotKeepPositions : 0U;
    case RecordKind::kMemory:
      return kSlotRecordMemory | (play ? kSlotKeepMemory : 0U);
    case RecordKind::kObservations:
      return play ? kSlotKeepObservations : 0U;
  }
  return 0;
}

}  // namespace

SlotTable::SlotTable(uint32_t slots, uint32_t actors, Doorbell* bell)
    : bell_(bell), slot_count_(slots), actor_count_(actors), slots_(slots), actors_(actors) {
  CHECK(slots > 0 && actors > 0 && actors <= slots) << slots << " slots, " << actors << " actors";
}

uint32_t SlotTable::SlotsOf(uint32_t actor) const {
  return slot_count_ / actor_count_ + (actor < slot_count_ % actor_count_ ? 1 : 0);
}

SlotView SlotTable::View(uint32_t slot) const {
  const Actor& actor = actors_[ActorOf(slot)];
  return {actor.segment, actor.layout, slot / actor_count_};
}

// --- the caller's half

void SlotTable::Begin(uint32_t index, uint64_t episode, const EpisodeSpec& spec) {
  MutexLock lock(mu_);
  Start(index, SlotCommandKind::kReset, episode, spec);
}

void SlotTable::Play(uint32_t index, uint64_t episode, const EpisodeSpec& spec, bool random) {
  MutexLock lock(mu_);
  slots_.at(index).random = random;
  Start(index, SlotCommandKind::kPlay, episode, spec);
}

void SlotTable::Abandon(uint32_t index) {
  MutexLock lock(mu_);
  const Slot& slot = slots_.at(index);
  if (slot.phase != Phase::kBusy || !slot.posted || slot.kind != SlotCommandKind::kPlay) return;
  View(index).command().abandoned.store(1, std::memory_order_relaxed);
}

void SlotTable::Start(uint32_t index, SlotCommandKind kind, uint64_t episode,
                      const EpisodeSpec& spec) {
  CHECK_LT(index, slot_count_);
  Slot& slot = slots_[index];
  CHECK(slot.phase != Phase::kBusy) << "slot " << index << " was begun while it owes an event";
  slot.phase = Phase::kBusy;
  slot.posted = false;
  slot.kind = kind;
  slot.episode = episode;
  slot.spec = spec;
  slot.step = 0;
  slot.area ^= 1;  // the last episode's final observation stays where it is
  slot.pictures = 0;
  const Actor& actor = actors_[ActorOf(index)];
  if (actor.failed)
    PushEvent(SlotEvent::Kind::kFailed, index);
  else if (actor.up) {
    Post(index, nullptr);
    RingActor(ActorOf(index));
  }
}

void SlotTable::ActMany(std::span<const SlotAction> actions) {
  MutexLock lock(mu_);
  for (const SlotAction& a : actions) ActOne(a.slot, a.action);
  // once per actor: it sees all of them
  for (uint32_t a = 0; a < actor_count_; ++a)
    if (std::exchange(actors_[a].unrung, false)) RingActor(a);
}

void SlotTable::ActOne(uint32_t index, const Action& action) {
  CHECK_LT(index, slot_count_);
  Slot& slot = slots_[index];
  Actor& actor = actors_[ActorOf(index)];
  if (actor.failed) return PushEvent(SlotEvent::Kind::kFailed, index);
  if (slot.phase == Phase::kVoid) return PushEvent(SlotEvent::Kind::kLost, index);
  CHECK(slot.phase == Phase::kAnswered) << "slot " << index << " has no observation to act on";
  CheckAction(spec_.action, action);
  slot.phase = Phase::kBusy;
  slot.kind = SlotCommandKind::kAct;
  ++slot.step;
  Post(index, &action);
  actor.unrung = true;
}

void SlotTable::Post(uint32_t index, const Action* action) {
  Slot& slot = slots_[index];
  const Actor& actor = actors_[ActorOf(index)];
  SlotCommand& command = View(index).command();
  command.episode = slot.episode;
  command.seed = slot.spec.seed;
  command.frames_max = slot.spec.frames_max;
  command.noops = slot.spec.noops;
  command.kind = slot.kind;
  command.incarnation = actor.incarnation;
  command.step = slot.step;
  command.observation = slot.area;
  command.options = (slot.random ? kSlotRandom : 0U) | (slot.spec.signs ? kSlotSigns : 0U) |
                    RecordOptions(slot.spec.record, slot.kind == SlotCommandKind::kPlay);
  command.abandoned.store(0, std::memory_order_relaxed);
  if (slot.kind == SlotCommandKind::kPlay) command.values[0] = slot.spec.action_noise;
  if (action != nullptr) {
    command.index = action->index;
    ClampAction(action->values, command.values);
  }
  slot.posted = true;
  // release: pairs with the acquire in SlotServer::Next
  command.sequence.store(++slot.sequence, std::memory_order_release);
}

void SlotTable::RingActor(uint32_t index) {
  RingBell(reinterpret_cast<SegmentHeader*>(actors_[index].segment)->commands);
}

size_t SlotTable::Take(std::span<SlotEvent> out) {
  MutexLock lock(mu_);
  size_t n = 0;
  for (; n < out.size() && !events_.empty(); ++n) {
    out[n] = events_.front();
    events_.pop_front();
  }
  for (uint32_t i = 0; i < slot_count_ && n < out.size(); ++i) {
    const uint32_t index = (next_ + i) % slot_count_;
    if (slots_[index].phase == Phase::kBusy && slots_[index].posted && TakeReply(index, out[n])) {
      ++n;
      if (n == out.size()) next_ = index + 1;
    }
  }
  return n;
}

bool SlotTable::TakeReply(uint32_t index, SlotEvent& out) {
  Slot& slot = slots_[index];
  Actor& actor = actors_[ActorOf(index)];
  const SlotView view = View(index);
  // acquire: pairs with the release in SlotServer::Publish
  const uint64_t sequence = view.reply().sequence.load(std::memory_order_acquire);
  if (sequence == slot.seen || !actor.offence.empty()) return false;
  slot.seen = sequence;
  SlotReply reply{};
  CopyFirst<kReplyHead>(view.reply(), reply);
  const bool play = slot.kind == SlotCommandKind::kPlay;
  if (sequence != slot.sequence || reply.incarnation != actor.incarnation ||
      reply.episode != slot.episode || (!play && reply.step != slot.step)) {
    ++counters_.stale_events;
    return false;
  }
  const auto observation = view.observation(slot.area);
  if (std::string refusal = Refusal(slot, reply, observation); !refusal.empty()) {
    actor.offence = std::move(refusal);  // the supervisor ends this actor
    return false;
  }
  const bool ended = (reply.flags & (kSlotTerminated | kSlotTruncated)) != 0;
  const bool abandoned = (reply.flags & kSlotAbandoned) != 0;
  slot.phase = ended || abandoned ? Phase::kIdle : Phase::kAnswered;
  slot.step = reply.step;
  slot.posted = false;
  slot.pictures = reply.pictures;
  ++actor.answered;
  out = {.kind = abandoned ? SlotEvent::Kind::kLost
                 : ended   ? SlotEvent::Kind::kEnded
                           : SlotEvent::Kind::kObservation,
         .slot = index,
         .episode = slot.episode,
         .step = slot.step,
         .result = {}};
  if (ended) blamed_.erase(slot.episode);
  counters_.step_seconds += static_cast<double>(reply.nanoseconds) * 1e-9;
  counters_.inference_seconds += static_cast<double>(reply.inference_nanoseconds) * 1e-9;
  if (slot.kind != SlotCommandKind::kReset) {
    out.result = {.reward = reply.reward,
                  .terminated = (reply.flags & kSlotTerminated) != 0,
                  .truncated = (reply.flags & kSlotTruncated) != 0,
                  .life_lost = (reply.flags & kSlotLifeLost) != 0,
                  .frames = reply.frames};
    actor.steps += play ? reply.step : 1;
    counters_.steps += play ? reply.step : 1;
    counters_.frames += reply.frames;
  }
  return true;
}

std::string SlotTable::Refusal(const Slot& slot, const SlotReply& reply,
                               std::span<const std::byte> observation) const {
  if (reply.checksum != ReplyChecksum(reply, observation)) return "wrong checksum";
  if ((reply.flags & ~kSlotFlagsAll) != 0 ||
      (reply.flags & kSlotTerminated && reply.flags & kSlotTruncated))
    return "flags " + std::to_string(reply.flags);
  const bool abandoned = reply.flags == kSlotAbandoned;
  if ((reply.flags & kSlotAbandoned) != 0 && !(abandoned && slot.kind == SlotCommandKind::kPlay))
    return "flags " + std::to_string(reply.flags);
  if (slot.kind == SlotCommandKind::kPlay && !abandoned &&
      (reply.flags & (kSlotTerminated | kSlotTruncated)) == 0)
    return "a whole episode without an end";
  if (reply.step == 0 && reply.flags != 0 && !abandoned)
    return "an episode that ends before its first step";
  if (reply.pictures > (render_ ? static_cast<uint32_t>(spec_.render_frames) : 0))
    return std::to_string(reply.pictures) + " pictures";
  if (std::max(reply.nanoseconds, reply.inference_nanoseconds) > uint64_t{1} << 53)
    return "impossible time of a step";
  const auto position = Floats(View(static_cast<uint32_t>(&slot - slots_.data())).position());
  if (FirstNonFinite(position) < position.size()) return "the position is not finite";
  return NotFinite(reply.reward, spec_.observation, observation);
}

void SlotTable::PushEvent(SlotEvent::Kind kind, uint32_t index) {
  Slot& slot = slots_[index];
  slot.phase = Phase::kIdle;
  slot.posted = false;
  events_.push_back(
      {.kind = kind, .slot = index, .episode = slot.episode, .step = slot.step, .result = {}});
  RingBell(*bell_);
}

std::span<const std::byte> SlotTable::observation(uint32_t slot) const {
  MutexLock lock(mu_);
  CHECK(actors_[ActorOf(slot)].segment != nullptr);
  return View(slot).observation(slots_[slot].area);
}

std::span<const std::byte> SlotTable::memory(uint32_t slot) const {
  MutexLock lock(mu_);
  CHECK(actors_[ActorOf(slot)].segment != nullptr);
  return View(slot).memory();
}

std::span<const float> SlotTable::position(uint32_t slot) const {
  MutexLock lock(mu_);
  CHECK(actors_[ActorOf(slot)].segment != nullptr);
  return Floats(View(slot).position());
}

std::span<const std::byte> SlotTable::pictures(uint32_t slot) const {
  MutexLock lock(mu_);
  if (!render_ || actors_[ActorOf(slot)].segment == nullptr) return {};
  return View(slot).pictures().first(slots_[slot].pictures * picture_bytes_);
}

FleetCounters SlotTable::counters() const {
  MutexLock lock(mu_);
  return counters_;
}

// --- the supervisor's half

void SlotTable::SetSpec(const EnvironmentSpec& spec, bool render) {
  MutexLock lock(mu_);
  spec_ = spec;
  render_ = render;
  picture_bytes_ = static_cast<uint64_t>(spec.render_height * spec.render_width * 3);
  const uint64_t pictures = render ? picture_bytes_ * static_cast<uint64_t>(spec.render_frames) : 0;
  for (uint32_t a = 0; a < actor_count_; ++a)
    actors_[a].layout = {SlotsOf(a), spec.observation.bytes(), pictures,
                         static_cast<uint64_t>(spec.memory),
                         static_cast<uint64_t>(spec.position) * sizeof(float)};
}

void SlotTable::Up(uint32_t index, std::byte* segment, uint32_t incarnation) {
  MutexLock lock(mu_);
  Actor& actor = actors_[index];
  CHECK(!actor.up && segment != nullptr);
  actor.segment = segment;
  actor.incarnation = incarnation;
  actor.up = true;
  if (incarnation > 0) ++counters_.respawns;
  for (uint32_t s = index; s < slot_count_; s += actor_count_)
    if (slots_[s].phase == Phase::kBusy) Post(s, nullptr), actor.unrung = true;
  if (std::exchange(actor.unrung, false)) RingActor(index);
}

uint32_t SlotTable::Down(uint32_t index, bool blamed, int blamed_slot) {
  MutexLock lock(mu_);
  Actor& actor = actors_[index];
  if (!actor.up) return 0;  // it had not been given anything yet
  actor.up = false;
  actor.offence.clear();
  if (blamed_.size() > kBlamedMax) blamed_.clear();
  uint32_t worst = 0;
  int position = 0;
  for (uint32_t s = index; s < slot_count_; s += actor_count_) {
    Slot& slot = slots_[s];
    // commands and replies of the dead are wiped; observations stay, a reader may still use them
    View(s).Clear();
    slot.seen = slot.played = 0;
    const bool suspect = blamed_slot < 0 ? slot.phase == Phase::kBusy : blamed_slot == position;
    ++position;
    if (slot.phase != Phase::kBusy && slot.phase != Phase::kAnswered) continue;
    ++counters_.lost_episodes;
    if (blamed && suspect) worst = std::max(worst, ++blamed_[slot.episode]);
    if (slot.phase == Phase::kBusy)
      PushEvent(SlotEvent::Kind::kLost, s);
    else
      slot.phase = Phase::kVoid;
  }
  return worst;
}

void SlotTable::Fail(uint32_t index) {
  MutexLock lock(mu_);
  CHECK(!actors_[index].up);
  actors_[index].failed = true;
  for (uint32_t s = index; s < slot_count_; s += actor_count_)
    if (slots_[s].phase == Phase::kBusy) PushEvent(SlotEvent::Kind::kFailed, s);
}

SlotTable::Progress SlotTable::progress(uint32_t index) {
  MutexLock lock(mu_);
  Actor& actor = actors_[index];
  Progress result{
      .waiting = false, .answered = actor.answered, .steps = actor.steps, .offence = {}};
  for (uint32_t s = index; actor.up && s < slot_count_; s += actor_count_) {
    Slot& slot = slots_[s];
    if (slot.phase != Phase::kBusy || !slot.posted) continue;
    // a reply that was not read yet is no sign of a hung actor, nor are steps of a whole episode
    const uint64_t sequence = View(s).reply().sequence.load(std::memory_order_acquire);
    if (slot.kind == SlotCommandKind::kPlay) {
      const uint64_t played = View(s).reply().played.load(std::memory_order_relaxed);
      if (played < std::exchange(slot.played, played)) actor.offence = "steps that count backwards";
      result.answered += played;
    }
    if (sequence == slot.sequence && slot.seen != sequence)
      ++result.answered;
    else
      result.waiting = true;
  }
  result.offence = actor.offence;
  return result;
}

}  // namespace samara
