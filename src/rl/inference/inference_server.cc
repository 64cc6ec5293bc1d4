#include "rl/inference/inference_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "core/rng.h"
#include "rl/inference/async_batching.h"
#include "rl/inference/chosen_entry.h"

namespace samara {

namespace {

constexpr size_t kEventsMax = 256;

}  // namespace

// State of one slot. Touched by the serving thread only.
struct InferenceServer::Slot {
  uint64_t episodes = 0;  // begun so far; the running one is the last
  EpisodeSpec spec;
  uint64_t key = 0;      // of its draws
  EpisodeRecord record;  // of the running episode, so far
  EntryHeader next;      // what the next entry will say of the step that led there
  std::vector<std::byte> final_observation;  // of the last episode, if has_final
  bool has_final = false;
  uint32_t stack_step = 0;  // since the frame stack began
  int32_t last_action = 0;
  uint32_t incarnation = 1;
  uint64_t entries = 0;  // appended so far
  // ordered: the running episode's actions, and how many of them were played again
  std::vector<int32_t> indices;
  std::vector<float> values;
  size_t replayed = 0;
};

InferenceServer::InferenceServer(Fleet& fleet, Model& model, UnrollStore* store,
                                 const InferenceConfig& config, ServerHooks hooks)
    : fleet_(fleet),
      model_(model),
      store_(store),
      config_(config),
      hooks_(std::move(hooks)),
      action_(fleet.spec().action),
      batch_(model.shape(), std::max(config.batch_max, config.ordered ? fleet.slots() : 1)),
      slots_(fleet.slots()) {
  const ModelShape& shape = model.shape();
  CHECK_EQ(shape.observation_bytes, fleet.spec().observation.bytes());
  actions_.reserve(slots_.size());
  for (Slot& slot : slots_) slot.final_observation.resize(shape.observation_bytes);
  if (config.ordered) {
    auto lockstep = std::make_unique<LockstepBatching>(config, fleet.slots(), model, store);
    lockstep_ = lockstep.get();
    batching_ = std::move(lockstep);
  } else {
    batching_ = std::make_unique<AsyncBatching>(config, fleet.slots(), store);
  }
}

InferenceServer::~InferenceServer() = default;

void InferenceServer::Stop() { stop_ = true; }

InferenceServer::Counters InferenceServer::counters() const {
  const MutexLock lock(mu_);
  return counters_;
}

Status InferenceServer::Failure() const {
  if (!failure_.ok()) return failure_;
  return fleet_.status();
}

// ---- episodes

// Key of the draws of a slot's episode.
uint64_t InferenceServer::KeyOf(uint32_t index, uint64_t episode) const {
  return DeriveKey(config_.seed, Purpose::kPolicyAction, config_.share.first + index, episode);
}

void InferenceServer::Begin(uint32_t index) {
  Slot& slot = slots_[index];
  const auto spec = hooks_.next(index, slot.episodes);
  if (!spec) {
    ++resting_;
    batching_->Rest(index);
    return;
  }
  slot.spec = *spec;
  slot.key = KeyOf(index, slot.episodes);
  slot.indices.clear(), slot.values.clear();
  ++slot.episodes;
  Restart(index);
}

// The running episode, from its beginning; what was recorded of it is played again.
void InferenceServer::Restart(uint32_t index) {
  Slot& slot = slots_[index];
  slot.record = {.slot = index, .number = slot.episodes - 1};
  slot.stack_step = 0;
  slot.last_action = 0;
  slot.replayed = 0;
  // one number for one episode of the run: fleets count failures by it
  fleet_.Begin(index, slot.record.number * slots_.size() + index, slot.spec);
}

void InferenceServer::Take(const SlotEvent& event) {
  const uint32_t index = event.slot;
  Slot& slot = slots_[index];
  switch (event.kind) {
    case SlotEvent::Kind::kObservation:
      TakeObservation(index, event);
      break;
    case SlotEvent::Kind::kEnded:
      TakeEnd(index, event);
      break;
    case SlotEvent::Kind::kLost:
      ++local_.lost_episodes;
      if (config_.ordered) {
        ++local_.replayed;
        return Restart(index);
      }
      // what was not complete goes, and nothing of it is mixed with what comes
      if (store_ != nullptr) store_->Drop(index);
      ++slot.incarnation;
      slot.next = {};
      slot.has_final = false;
      return Begin(index);
    case SlotEvent::Kind::kFailed:
      if (failure_.ok()) failure_ = fleet_.status();
      stop_ = true;
      return;
  }
}

namespace {

void Sum(EpisodeRecord& record, const StepResult& step) {
  record.score += step.reward;
  record.frames += step.frames;
  ++record.steps;
  record.truncated = step.truncated;
}

}  // namespace

// Steps of the running episode whose actions are known.
size_t InferenceServer::Recorded(const Slot& slot) const {
  return action_.discrete ? slot.indices.size()
                          : slot.values.size() / static_cast<size_t>(action_.n);
}

void InferenceServer::TakeObservation(uint32_t index, const SlotEvent& event) {
  Slot& slot = slots_[index];
  const StepResult& step = event.result;
  if (event.step > 0) {
    Sum(slot.record, step);
    slot.next = {};
    slot.next.reward = LearnersReward(config_.rewards, step.reward);
    slot.next.raw_reward = static_cast<float>(step.reward);
    slot.next.frames = step.frames;
    slot.next.previous_action = slot.last_action;
    ++slot.stack_step;
    if (step.life_lost && config_.life_loss != LifeLoss::kIgnored) {
      slot.next.terminated = true;
      if (config_.life_loss == LifeLoss::kEndsEpisode)
        slot.stack_step = 0, slot.next.previous_action = 0;
    }
  }
  slot.next.episode_step = slot.stack_step;
  const size_t recorded = Recorded(slot);
  if (slot.replayed < recorded) {
    const size_t at = slot.replayed++;
    if (action_.discrete) {
      slot.last_action = slot.indices[at];
      return fleet_.Act(index, {slot.last_action, {}});
    }
    const auto n = static_cast<size_t>(action_.n);
    return fleet_.Act(index, {0, std::span(slot.values).subspan(at * n, n)});
  }
  local_.frames += step.frames;
  if (event.step > 0) ++local_.steps;
  if (hooks_.shown) hooks_.shown(slot.record);
  batching_->Ready(index, slot.entries, now_);
}

void InferenceServer::TakeEnd(uint32_t index, const SlotEvent& event) {
  Slot& slot = slots_[index];
  const StepResult& step = event.result;
  const size_t recorded = Recorded(slot);
  if (slot.record.steps + 1 < recorded)
    LogWarning(
        fmt::format("slot {}: an episode that was played again ended after {} of {} steps: "
                    "from here on this run is not exact",
                    config_.share.first + index, slot.record.steps + 1, recorded));
  Sum(slot.record, step);
  local_.frames += step.frames;
  ++local_.steps, ++local_.episodes;
  if (hooks_.shown) hooks_.shown(slot.record);
  if (hooks_.ended) hooks_.ended(slot.record);
  slot.next = {};
  slot.next.reward = LearnersReward(config_.rewards, step.reward);
  slot.next.raw_reward = static_cast<float>(step.reward);
  slot.next.frames = step.frames;
  slot.next.terminated = step.terminated;
  slot.next.truncated = step.truncated && !step.terminated;
  slot.next.episode_ended = true;
  slot.next.episode_return = slot.record.score;
  slot.next.episode_steps = slot.record.steps;
  slot.next.episode_frames = slot.record.frames;
  slot.has_final = slot.next.truncated || (step.terminated && model_.keeps_last());
  if (slot.has_final) std::ranges::copy(fleet_.observation(index), slot.final_observation.begin());
  Begin(index);
}

// ---- serving

Status InferenceServer::Serve() {
  std::vector<SlotEvent> events(std::min(kEventsMax, slots_.size() + 1));
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    // restored: the running episode goes on
    if (slots_[i].episodes > 0)
      Restart(i);
    else
      Begin(i);
  }
  while (!stop_ && resting_ < slots_.size()) {
    if (Status status = NextBatch(events); !status.ok()) failure_ = status, stop_ = true;
    local_.stalls = batching_->stalls();
    const MutexLock lock(mu_);
    counters_ = local_;
  }
  return Failure();
}

// Takes events until a batch may run, or until it is time to look at requests again.
Status InferenceServer::NextBatch(std::span<SlotEvent> events) {
  const SteadyTime start = Now();
  const Batching::Wait wait = batching_->NextWait(fleet_.live());
  const size_t n = fleet_.WaitForMany(events, wait.events, wait.timeout);
  now_ = Now();
  local_.wait_seconds += std::chrono::duration<double>(now_ - start).count();
  for (size_t i = 0; i < n; ++i) Take(events[i]);
  batch_.rows.clear();
  if (stop_ || !batching_->Next(fleet_.live(), batch_)) return Status::Ok();
  return RunBatch();
}

// ---- one batch

Status InferenceServer::RunBatch() {
  const SteadyTime start = Now();
  for (InferenceRow& row : batch_.rows) {
    const Slot& slot = slots_[row.slot];
    row.first = slot.stack_step == 0;
    row.keeps = store_ != nullptr && store_->NeedsState(row.slot);
    row.greedy = config_.greedy;
    row.reward = slot.next.reward;
    row.previous_action = slot.next.previous_action;
    row.step = slot.record.steps;
    row.key = slot.key;
    row.observation = fleet_.observation(row.slot);
  }
  const SteadyTime gathered = Now();
  RETURN_IF_ERROR(model_.Infer(batch_));
  const double infer_seconds = SecondsSince(gathered);
  actions_.clear();
  for (size_t i = 0; i < batch_.rows.size(); ++i) Answer(i);
  fleet_.ActMany(actions_);
  local_.rows += batch_.rows.size();
  ++local_.batches;
  local_.infer_seconds += infer_seconds;
  local_.rest_seconds += SecondsSince(start) - infer_seconds;
  return failure_;
}

void InferenceServer::Answer(size_t row) {
  const uint32_t index = batch_.rows[row].slot;
  Slot& slot = slots_[index];
  if (batch_.status[row] != InferenceBatch::RowStatus::kOk) {
    ++local_.not_finite;
    if (config_.ordered && failure_.ok())
      failure_ = {Code::kInternal, fmt::format("slot {}: the network's output is not finite",
                                               config_.share.first + index)};
    if (store_ != nullptr) store_->Drop(index);
    ++slot.incarnation;
    slot.next = {};
    slot.has_final = false;
    return Begin(index);
  }
  if (store_ != nullptr) AppendEntry(row);
  ++slot.entries;
  slot.has_final = false;
  if (action_.discrete)
    Act(index, {batch_.index[row], {}});
  else
    Act(index,
        {0,
         std::span(batch_.actions).subspan(row * model_.shape().actions, model_.shape().actions)});
}

void InferenceServer::AppendEntry(size_t row) {
  const InferenceRow& in = batch_.rows[row];
  Slot& slot = slots_[in.slot];
  slot.next.action = batch_.index[row];
  slot.next.incarnation = slot.incarnation;
  slot.next.policy_version = batch_.version;
  Entry entry = ChosenEntry(slot.next, batch_, row, model_.shape());
  if (slot.has_final) entry.final_observation = slot.final_observation;
  store_->Append(in.slot, entry);
}

void InferenceServer::Act(uint32_t index, Action action) {
  Slot& slot = slots_[index];
  slot.last_action = action.index;
  if (config_.ordered) {  // to be played again if the actor is lost
    if (action_.discrete)
      slot.indices.push_back(action.index);
    else
      slot.values.insert(slot.values.end(), action.values.begin(), action.values.end());
    slot.replayed = slot.record.steps + 1;
  }
  actions_.push_back({index, action});
}

// ---- what a checkpoint holds

std::string InferenceServer::Save() const {
  std::vector<std::string> records;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    ByteWriter out;
    out.Put(slot.episodes).Put(slot.entries).Put(slot.incarnation);
    out.PutBytes({reinterpret_cast<const char*>(&slot.next), sizeof slot.next});
    out.Put(slot.has_final);
    out.PutBytes({reinterpret_cast<const char*>(slot.final_observation.data()),
                  slot.final_observation.size()});
    out.PutBytes({reinterpret_cast<const char*>(slot.indices.data()),
                  slot.indices.size() * sizeof(int32_t)});
    out.PutBytes(
        {reinterpret_cast<const char*>(slot.values.data()), slot.values.size() * sizeof(float)});
    out.PutBytes(store_ != nullptr ? store_->Save(i) : std::string());
    records.push_back(out.Take());
  }
  return WriteSlotRecords(records);
}

Status InferenceServer::Restore(std::string_view saved) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> records,
                   ReadSlotRecords(saved, config_.share, static_cast<uint32_t>(slots_.size())));
  for (uint32_t i = 0; i < slots_.size(); ++i) RETURN_IF_ERROR(RestoreSlot(i, records[i]));
  return Status::Ok();
}

Status InferenceServer::RestoreSlot(uint32_t index, std::string_view record) {
  const Status bad(Code::kBadData, "the saved slots have another shape than this run's");
  ByteReader in(record);
  const auto get = [&](auto& values) {
    const std::string_view bytes = in.GetBytes();
    using T = typename std::decay_t<decltype(values)>::value_type;
    if (!in.ok() || bytes.size() % sizeof(T) != 0) return false;
    values.resize(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return true;
  };
  Slot& slot = slots_[index];
  slot.episodes = in.Get<uint64_t>(), slot.entries = in.Get<uint64_t>();
  slot.incarnation = in.Get<uint32_t>();
  const std::string_view next = in.GetBytes();
  if (!in.ok() || next.size() != sizeof slot.next) return bad;
  std::memcpy(&slot.next, next.data(), next.size());
  if (!AreSound({&slot.next, 1}, action_.discrete ? action_.n : 0)) return bad;
  slot.has_final = in.Get<bool>();
  const size_t bytes = slot.final_observation.size();
  if (!get(slot.final_observation) || slot.final_observation.size() != bytes) return bad;
  if (!get(slot.indices) || !get(slot.values)) return bad;
  const std::string_view stream = in.GetBytes();
  if (!in.AtEnd()) return bad;
  if (store_ != nullptr) RETURN_IF_ERROR(store_->Restore(index, stream));
  if (slot.episodes == 0) return Status::Ok();
  const auto spec = hooks_.next(index, slot.episodes - 1);
  if (!spec) return bad;
  slot.spec = *spec;
  slot.key = KeyOf(index, slot.episodes - 1);
  for (const int32_t action : slot.indices)
    if (action < 0 || action >= action_.n) return bad;
  const bool whole = action_.discrete ? slot.values.empty()
                                      : slot.values.size() % static_cast<size_t>(action_.n) == 0;
  return whole ? Status::Ok() : bad;
}

}  // namespace samara
