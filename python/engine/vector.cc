// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "engine/vector.h"

#include <algorithm>
#include <cstring>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/rng.h"
#include "engine/refuse.h"
#include "env/registry.h"

namespace samara {
namespace {

// Steps that cost less than this are taken by the caller's thread: to wake another costs more.
constexpr double kCheapStep = 10e-6;

// Seconds of a step of a native environment.
double StepSeconds(const EnvironmentFactory& factory) {
  const auto environment = factory().ValueOrThrow();
  const EnvironmentSpec& spec = environment->spec();
  std::vector<float> observation((spec.observation.bytes() + 3) / 4);
  const auto bytes = std::as_writable_bytes(std::span(observation)).first(spec.observation.bytes());
  const std::vector<float> values(spec.action.discrete ? 0 : static_cast<size_t>(spec.action.n));
  environment->Reset({.seed = 1}, bytes);
  int steps = 0;
  bool over = false;
  const SteadyTime start = Now();
  for (; steps < 20 && !over; ++steps) {
    const StepResult result = environment->Step({.index = 0, .values = values}, bytes);
    over = result.terminated || result.truncated;
  }
  return SecondsSince(start) / steps;
}

uint32_t ChooseWorkers(const VectorOptions& options, const NamedEnvironment& named) {
  if (options.workers) return *options.workers;
  if (named.native && StepSeconds(named.native) < kCheapStep) return 0;
  return std::min(Cores(), options.environments);
}

std::optional<FrameStackRule> ChooseStack(int64_t wanted, const NamedEnvironment& named) {
  if (wanted == 0 || (wanted < 0 && !named.preset)) return std::nullopt;
  FrameStackRule rule = named.preset ? named.preset->stack : FrameStackRule{};
  if (wanted > 0) rule.depth = wanted;
  return rule;
}

}  // namespace

EnvironmentVector::EnvironmentVector(const VectorOptions& options)
    : options_(options),
      named_(FindEnvironment(options.environment, options.preset, options.gym).ValueOrThrow()),
      stack_(ChooseStack(options.stack, named_)),
      slots_(options.environments),
      events_(options.environments) {
  if (options.environments < 1) Refuse("num_envs=0: expected at least 1");
  workers_ = ChooseWorkers(options, named_);
  ActorFleetOptions actors = options.actors;
  actors.slots = options.environments;
  fleet_ = MakeNamedFleet(named_, workers_, actors).ValueOrThrow();
  has_fire_ = HasFire(spec());
  for (Slot& slot : slots_) {
    if (stack_) slot.planes.resize(observation_bytes());
    if (options.autoreset == Autoreset::kSameStep)
      slot.final_observation.resize(observation_bytes());
  }
}

EnvironmentVector::~EnvironmentVector() {
  if (::getpid() == made_in_)
    fleet_->Stop();
  else
    (void)fleet_.release();  // its threads and processes belong to the parent of this one
}

void EnvironmentVector::Reset(std::span<const int32_t> environments,
                              std::span<const std::optional<uint64_t>> seeds) {
  if (seeds.size() != environments.size()) Refuse("expected one seed for each environment");
  for (const int32_t e : environments)
    if (slots_.at(static_cast<size_t>(e)).phase == Phase::kBusy)
      Refuse("environment " + std::to_string(e) + ": its last result was not received");
  for (size_t i = 0; i < environments.size(); ++i) {
    Slot& slot = slots_[static_cast<size_t>(environments[i])];
    if (seeds[i]) slot.seed = *seeds[i], slot.episode = 0;
    ++outstanding_;
    Begin(static_cast<uint32_t>(environments[i]));
  }
}

void EnvironmentVector::Begin(uint32_t environment, bool again) {
  Slot& slot = slots_[environment];
  slot.phase = Phase::kBusy;
  slot.resetting = true;
  if (again)
    --slot.episode;
  else
    slot.number = number_++;
  const uint64_t key = DeriveKey(slot.seed, Purpose::kEpisodeEval, 0, 0, slot.episode++);
  fleet_->Begin(environment, slot.number,
                {.seed = key,
                 .noops = named_.preset ? DrawNoops(*named_.preset, key, has_fire_) : 0,
                 .frames_max = options_.frames_max});
}

void EnvironmentVector::CheckMaySend(std::span<const int32_t> environments) const {
  std::vector<bool> seen(slots_.size());
  for (const int32_t e : environments) {
    if (e < 0 || static_cast<size_t>(e) >= slots_.size())
      Refuse("environment " + std::to_string(e) + ": expected 0 to " +
             std::to_string(slots_.size() - 1));
    const Slot& slot = slots_[static_cast<size_t>(e)];
    const std::string name = "environment " + std::to_string(e) + ": ";
    if (seen[static_cast<size_t>(e)]) Refuse(name + "two actions at a time");
    seen[static_cast<size_t>(e)] = true;
    if (slot.phase == Phase::kNew) Refuse(name + "expected reset before its first step");
    if (slot.phase == Phase::kBusy) Refuse(name + "its last result was not received");
    if (slot.phase == Phase::kEnded && options_.autoreset == Autoreset::kDisabled)
      Refuse(name + "its episode has ended; expected reset");
  }
}

void EnvironmentVector::Send(std::span<const int32_t> environments, std::span<const int32_t> index,
                             std::span<const float> values) {
  CheckMaySend(environments);
  const ActionSpec& action = spec().action;
  const size_t dimensions = action.discrete ? 0 : static_cast<size_t>(action.n);
  if (action.discrete ? index.size() != environments.size()
                      : values.size() != environments.size() * dimensions)
    Refuse("expected one action for each environment");
  for (const int32_t i : index)
    if (i < 0 || i >= action.n)
      Refuse("action " + std::to_string(i) + ": expected 0 to " + std::to_string(action.n - 1));
  actions_.clear();
  for (size_t i = 0; i < environments.size(); ++i) {
    const auto e = static_cast<uint32_t>(environments[i]);
    Slot& slot = slots_[e];
    ++outstanding_;
    if (slot.phase == Phase::kEnded) {
      Begin(e);
      continue;
    }
    slot.phase = Phase::kBusy;
    slot.resetting = false;
    actions_.push_back({e,
                        {.index = action.discrete ? index[i] : 0,
                         .values = values.subspan(i * dimensions, dimensions)}});
  }
  fleet_->ActMany(actions_);
}

size_t EnvironmentVector::Receive(const VectorRows& rows, size_t filled, bool by_environment,
                                  std::chrono::microseconds timeout) {
  const size_t all = rows.reward.size();
  if (all - filled > outstanding_) Refuse("nothing was sent that could be received");
  const size_t wanted = all - filled;
  const size_t n = fleet_->WaitForMany(std::span(events_).first(std::min(wanted, events_.size())),
                                       wanted, timeout);
  for (SlotEvent& event : std::span(events_).first(n)) {
    if (!Take(event)) continue;
    const size_t row = by_environment ? event.slot : filled;
    WriteRow(event, rows, row);
    ++filled;
    --outstanding_;
  }
  if (n == 0)
    if (const Status status = fleet_->status(); !status.ok()) throw Error(status);
  return filled;
}

bool EnvironmentVector::Take(SlotEvent& event) {
  Slot& slot = slots_[event.slot];
  if (event.kind == SlotEvent::Kind::kFailed || event.kind == SlotEvent::Kind::kLost)
    if (const Status status = fleet_->status(); !status.ok()) throw Error(status);
  if (event.kind == SlotEvent::Kind::kLost && slot.resetting) {
    Begin(event.slot, /*again=*/true);
    return false;
  }
  if (event.kind == SlotEvent::Kind::kLost)
    TakeLost(event);
  else
    PushFrame(event.slot, slot.resetting);
  slot.phase = event.kind == SlotEvent::Kind::kEnded ? Phase::kEnded : Phase::kAnswered;
  if (slot.ended) {  // the observation that its result waited for
    const SlotEvent result = *slot.ended;
    slot.ended.reset();
    event.result = result.result;
    return true;
  }
  if (slot.phase != Phase::kEnded || options_.autoreset != Autoreset::kSameStep) return true;
  WriteObservation(event.slot, slot.final_observation);
  slot.ended = event;
  Begin(event.slot);
  return false;
}

// An actor was killed under a running episode: it ends here, truncated, at its last observation.
void EnvironmentVector::TakeLost(SlotEvent& event) {
  event.kind = SlotEvent::Kind::kEnded;
  event.result = {.truncated = true};
}

void EnvironmentVector::Observe(uint32_t environment, std::span<std::byte> out) const {
  const Phase phase = slots_.at(environment).phase;
  if (out.size() != observation_bytes() || phase == Phase::kBusy)
    Refuse("environment " + std::to_string(environment) + ": no observation to copy");
  if (phase == Phase::kNew)
    std::ranges::fill(out, std::byte{0});
  else
    WriteObservation(environment, out);
}

void EnvironmentVector::PushFrame(uint32_t environment, bool first) {
  if (!stack_) return;
  Slot& slot = slots_[environment];
  const auto frame = fleet_->observation(environment);
  slot.frames = first ? 0 : slot.frames + 1;
  std::byte* plane =
      slot.planes.data() + static_cast<size_t>(slot.frames % stack_->depth) * frame.size();
  std::memcpy(plane, frame.data(), frame.size());
}

void EnvironmentVector::WriteObservation(uint32_t environment, std::span<std::byte> out) const {
  if (!stack_) {
    const auto frame = fleet_->observation(environment);
    std::memcpy(out.data(), frame.data(), frame.size());
    return;
  }
  const Slot& slot = slots_[environment];
  const int64_t depth = stack_->depth;
  const size_t bytes = spec().observation.bytes();
  const bool from_front = stack_->at_reset == StackReset::kFront && slot.frames < depth;
  for (int64_t k = 0; k < depth; ++k) {  // oldest first
    const int64_t frame = from_front ? k : slot.frames - depth + 1 + k;
    const bool absent =
        frame > slot.frames || (frame < 0 && stack_->at_reset != StackReset::kRepeat);
    const int64_t place = stack_->order == StackOrder::kOldestFirst ? k : depth - 1 - k;
    std::byte* plane = out.data() + static_cast<size_t>(place) * bytes;
    if (absent)
      std::memset(plane, 0, bytes);
    else
      std::memcpy(
          plane,
          slot.planes.data() + static_cast<size_t>(std::max<int64_t>(0, frame) % depth) * bytes,
          bytes);
  }
}

void EnvironmentVector::WriteRow(const SlotEvent& event, const VectorRows& rows, size_t row) const {
  rows.environment[row] = static_cast<int32_t>(event.slot);
  rows.reward[row] = event.result.reward;
  rows.terminated[row] = event.result.terminated;
  rows.truncated[row] = event.result.truncated;
  rows.life_lost[row] = event.result.life_lost;
  rows.frames[row] = static_cast<int32_t>(event.result.frames);
  const size_t bytes = observation_bytes();
  WriteObservation(event.slot, rows.observation.subspan(row * bytes, bytes));
}

}  // namespace samara
