// Slots over actor processes.
//
// One supervisor thread owns the processes: it spawns them, answers their Hello, notices their
// death (control socket) and their hanging (no reply for step_timeout), and spawns the next
// incarnation. An actor is starting -> serving -> (starting | resting before a retry | failed).
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/cpu.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "core/venv.h"
#include "fleet/actor_messages.h"
#include "fleet/actor_process.h"
#include "fleet/fleet.h"
#include "fleet/policy_segment.h"
#include "fleet/shared_memory.h"
#include "fleet/slot_table.h"

namespace samara {
namespace {

constexpr double kTick = 0.05;  // s between two looks of the supervisor when nothing happens
// A longer pause between two looks is the learner process's own (stopped, swapped, starved): time
// that the actors are not charged for.
constexpr double kGapMax = 4 * kTick;
constexpr double kRestFirst = 0.1, kRestMax = 10;  // s before a retry, doubling
constexpr int kPacketsPerTurn = 16;
constexpr std::chrono::milliseconds kLeaveGrace{300};
// Catches what is about to come. Where actors take all cores, longer spinning only takes one from
// them: with simulators of 500 us a step, 20 us cost 12 us more of the learner process's CPU a
// step.
constexpr std::chrono::microseconds kSpin{5}, kSpinWithCore{50};
constexpr std::chrono::milliseconds kSleepMax{100};  // a hostile actor cannot keep us asleep

struct Actor {
  Actor(SharedMemory memory, int policies) : segment(std::move(memory)), policies_fd(policies) {}
  enum class State { kStarting, kServing, kResting, kFailed } state = State::kResting;
  uint32_t index = 0, incarnation = 0;
  SharedMemory segment;
  const int policies_fd;
  std::unique_ptr<ActorProcess> process;
  bool served = false;               // at least once
  double waited = 0;                 // s in this state, or without a reply while serving
  double rest = 0;                   // s to stay in kResting
  uint32_t failures = 0;             // in a row without a completed step, by its own fault
  uint32_t kills = 0;                // in the same row, from outside
  double failing_for = 0;            // s since the row began
  uint64_t steps = 0, answered = 0;  // last seen
  // why the process is being ended, when known before its exit status
  Status error;
  std::string warned_of;  // the reason of the last warning: it is given once
  int error_slot = -1;
};

class ActorFleet : public Fleet, public PolicyPlayer {
 public:
  ActorFleet(const ActorFleetOptions& options, SharedMemory bell,
             std::vector<SharedMemory> policies, std::vector<Actor> actors, int wake_fd)
      : options_(options),
        bell_memory_(std::move(bell)),
        bell_(*reinterpret_cast<Doorbell*>(bell_memory_.data())),
        policies_(std::move(policies)),
        table_(options.slots, static_cast<uint32_t>(actors.size()), &bell_),
        wake_fd_(wake_fd),
        spin_(actors.size() < Cores() ? kSpinWithCore : kSpin),
        actors_(std::move(actors)),
        supervisor_("fleet", [this] { Supervise(); }) {}

  ~ActorFleet() override {
    Stop();
    leave_.store(true);
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
    supervisor_.Join();
    close(wake_fd_);
  }

  // Blocks until every actor serves, or one of them cannot be started.
  Status AwaitStart() {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this]() REQUIRES(mu_) { return started_ || !status_.ok(); });
    return status_;
  }

  const EnvironmentSpec& spec() const override { return spec_; }
  uint32_t slots() const override { return options_.slots; }
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec) override {
    table_.Begin(slot, episode, spec);
  }
  void Act(uint32_t slot, const Action& action) override { table_.Act(slot, action); }
  void ActMany(std::span<const SlotAction> actions) override { table_.ActMany(actions); }

  Result<PolicyPlayer*> policy_player() override { return this; }
  Status InstallPolicies(const std::string& description, size_t parameter_bytes,
                         size_t recording_bytes) override {
    for (uint32_t a = 0; a < policies_.size(); ++a) {
      const PolicySegmentHeader header{kPolicyMagic, description.size(), parameter_bytes,
                                       recording_bytes, table_.SlotsOf(a)};
      if (Status mapped = policies_[a].Map(PolicySegment::Bytes(header)); !mapped.ok())
        return mapped;
      const PolicySegment segment(policies_[a].data());
      segment.header() = header;
      std::memcpy(policies_[a].data() + sizeof(header), description.data(), description.size());
    }
    return Status::Ok();
  }
  std::span<std::byte> parameters(uint32_t slot) override {
    return PolicySegmentOf(slot).parameters(slot / actor_count());
  }
  std::span<const std::byte> recording(uint32_t slot) override {
    return PolicySegmentOf(slot).recording(slot / actor_count());
  }
  void Play(uint32_t slot, uint64_t episode, const EpisodeSpec& spec, bool random) override {
    CHECK(policies_.front().data() != nullptr) << "no policies were installed";
    table_.Play(slot, episode, spec, random);
  }
  void Abandon(uint32_t slot) override { table_.Abandon(slot); }

  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    const SteadyTime deadline = Now() + timeout;
    for (;;) {
      // read before looking, so that an event that comes meanwhile is not slept over
      const uint32_t seen = bell_.rings();
      if (stopped_.load()) return 0;
      if (const size_t n = table_.Take(out); n > 0) return n;
      const std::chrono::nanoseconds left = deadline - Now();
      if (left.count() <= 0) return 0;
      WaitForRing(bell_, seen, spin_, std::min<std::chrono::nanoseconds>(left, kSleepMax));
    }
  }

  std::span<const std::byte> observation(uint32_t slot) const override {
    return table_.observation(slot);
  }
  std::span<const std::byte> memory(uint32_t slot) const override { return table_.memory(slot); }
  std::span<const float> position(uint32_t slot) const override { return table_.position(slot); }
  std::span<const std::byte> pictures(uint32_t slot) const override {
    return table_.pictures(slot);
  }
  FleetCounters counters() const override { return table_.counters(); }
  Status status() const override {
    MutexLock lock(mu_);
    return status_;
  }
  void Stop() override {
    stopped_.store(true);
    RingBell(bell_);
  }

 private:
  uint32_t actor_count() const { return static_cast<uint32_t>(policies_.size()); }
  PolicySegment PolicySegmentOf(uint32_t slot) {
    SharedMemory& memory = policies_[slot % actor_count()];
    CHECK(memory.data() != nullptr) << "no policies were installed";
    return PolicySegment(memory.data());
  }

  // The supervisor's loop: 1. look, 2. charge time, 3. act on each actor.
  void Supervise() {
    SteadyTime last = Now();
    while (!leave_.load()) {
      Poll();
      const SteadyTime now = Now();
      const double passed = std::min(std::chrono::duration<double>(now - last).count(), kGapMax);
      last = now;
      since_progress_ += passed;
      for (Actor& actor : actors_) {
        actor.waited += passed;
        if (actor.failures + actor.kills > 0) actor.failing_for += passed;
        Poll(actor);
      }
    }
    EndAll();
  }

  // Sleeps until a process says or prints something, or for a tick.
  void Poll() {
    polled_.assign(1, {wake_fd_, POLLIN, 0});
    double timeout = kTick;
    for (const Actor& actor : actors_) {
      if (actor.state == Actor::State::kResting) timeout = std::min(timeout, actor.rest);
      if (actor.process == nullptr) continue;
      polled_.push_back({actor.process->control_fd(), POLLIN, 0});
      polled_.push_back({actor.process->output_fd(), POLLIN, 0});
    }
    poll(polled_.data(), polled_.size(), static_cast<int>(timeout * 1000));
  }

  void Poll(Actor& actor) {
    if (actor.state == Actor::State::kFailed) return;
    if (actor.state == Actor::State::kResting) {
      if (actor.waited >= actor.rest) Start(actor);
      return;
    }
    actor.process->ReadOutput();
    // bounded work per turn: no actor's messages may keep the supervisor busy
    for (int i = 0; i < kPacketsPerTurn; ++i) {
      const auto packet = actor.process->Receive();
      if (!packet) break;
      HandleMessage(actor, *packet);
    }
    if (actor.state == Actor::State::kServing) Watch(actor);
    if (actor.state == Actor::State::kStarting && actor.waited > options_.hello_timeout)
      RecordFailure(actor, {Code::kUnavailable, fmt::format("no Hello within {} s of its start",
                                                            options_.hello_timeout)});
    if (!actor.error.ok() || actor.process->gone()) Reap(actor);
  }

  void Start(Actor& actor) {
    actor.error = Status::Ok();
    actor.error_slot = -1;
    actor.waited = 0;
    actor.state = Actor::State::kStarting;
    auto process = ActorProcess::Spawn({.program = options_.program,
                                        .python_path = options_.python_path,
                                        .name = fmt::format("actor {}", actor.index),
                                        .segment_fd = actor.segment.fd(),
                                        .bell_fd = bell_memory_.fd(),
                                        .policies_fd = actor.policies_fd});
    if (!process.ok()) {
      RecordFailure(actor, process.status());
      return Reap(actor);
    }
    actor.process = std::move(*process);
    actor.process->Send(Write(ConfigureMessage{.environment_json = options_.environment_json,
                                               .actor = actor.index,
                                               .incarnation = actor.incarnation,
                                               .slots = table_.SlotsOf(actor.index),
                                               .render = options_.render}));
  }

  void HandleMessage(Actor& actor, const std::string& packet) {
    auto message = ParseActorMessage(packet, table_.SlotsOf(actor.index));
    if (!message.ok()) return RecordFailure(actor, message.status());
    if (message->kind == ActorMessage::Kind::kError) {
      actor.error_slot = message->slot;
      return RecordFailure(actor, message->error);
    }
    if (actor.state != Actor::State::kStarting)
      return RecordFailure(actor, {Code::kUnavailable, "said Hello twice"});
    Welcome(actor, message->spec);
  }

  void Welcome(Actor& actor, const EnvironmentSpec& spec) {
    if (!spec_known_) {
      spec_ = spec;
      spec_known_ = true;
      table_.SetSpec(spec, options_.render);
    }
    if (const std::string difference = Difference(spec, spec_); !difference.empty())
      return RecordFailure(
          actor, {Code::kConfig, "plays something else than the first actor: " + difference});
    const SegmentLayout& layout = table_.layout(actor.index);
    if (actor.segment.data() == nullptr)
      if (Status mapped = actor.segment.Map(layout.segment_bytes()); !mapped.ok())
        return RecordFailure(actor, mapped);
    WriteHeader(actor, layout);
    table_.Up(actor.index, actor.segment.data(), actor.incarnation);
    actor.process->Send(WriteWelcome());
    actor.state = Actor::State::kServing;
    actor.waited = 0;
    actor.served = true;
    if (!std::all_of(actors_.begin(), actors_.end(), [](const Actor& a) { return a.served; }))
      return;
    MutexLock lock(mu_);
    started_ = true;
    changed_.NotifyAll();
  }

  void WriteHeader(const Actor& actor, const SegmentLayout& layout) const {
    auto& header = *reinterpret_cast<SegmentHeader*>(actor.segment.data());
    header.magic = kSegmentMagic;
    header.protocol = kSlotProtocol;
    header.slots = layout.slots;
    header.observation_bytes = layout.observation_bytes;
    header.pictures_bytes = layout.pictures_bytes;
    header.memory_bytes = static_cast<uint32_t>(layout.memory_bytes);
    header.position_bytes = static_cast<uint32_t>(layout.position_bytes);
    header.segment_bytes = layout.segment_bytes();
    header.incarnation = actor.incarnation;
    header.spin_us = static_cast<uint32_t>(spin_.count());
    header.leave.store(0);
  }

  // A serving actor is hung when something is asked of it and no reply comes for step_timeout.
  void Watch(Actor& actor) {
    const SlotTable::Progress progress = NoteProgress(actor);
    if (!progress.waiting || progress.answered != actor.answered) actor.waited = 0;
    actor.answered = progress.answered;
    if (!progress.offence.empty())
      RecordFailure(actor, {Code::kUnavailable, "broke the slot protocol: " + progress.offence});
    if (actor.waited > options_.step_timeout)
      RecordFailure(actor,
                    {Code::kUnavailable, fmt::format("hung: no reply for {} s (fleet.step_timeout)",
                                                     options_.step_timeout)});
  }

  // A completed step ends a row of failures.
  SlotTable::Progress NoteProgress(Actor& actor) {
    SlotTable::Progress progress = table_.progress(actor.index);
    if (progress.steps != actor.steps) {
      actor.failures = actor.kills = 0;
      actor.failing_for = since_progress_ = 0;
    }
    actor.steps = progress.steps;
    return progress;
  }

  // Keeps the first reason.
  static void RecordFailure(Actor& actor, const Status& reason) {
    if (actor.error.ok()) actor.error = reason;
  }

  // The process has ended or must: makes sure, finds the reason, decides what comes next.
  void Reap(Actor& actor) {
    if (actor.process != nullptr) {
      actor.process->Kill();
      // its last words may still lie in the socket
      for (int i = 0; i < kPacketsPerTurn; ++i) {
        auto packet = actor.process->Receive();
        if (!packet) break;
        auto message = ParseActorMessage(*packet, table_.SlotsOf(actor.index));
        if (!message.ok() || message->kind != ActorMessage::Kind::kError) continue;
        actor.error_slot = message->slot;
        RecordFailure(actor, message->error);
      }
    }
    const bool blamed = !actor.error.ok() || actor.process->own_fault();
    if (actor.error.ok()) actor.error = {Code::kUnavailable, actor.process->Cause()};
    const auto printed =
        actor.process == nullptr ? std::vector<std::string>() : actor.process->Explanation();
    actor.process.reset();
    // who learns that the episode is lost finds the reason
    const bool final = actor.error_slot >= 0 && !options_.retry_exceptions;
    if (final) SetStatus(WhatFailed(actor, "failed"));
    const uint32_t episode_failures = table_.Down(actor.index, blamed, actor.error_slot);
    NoteProgress(actor);
    ++actor.incarnation;
    ++(blamed ? actor.failures : actor.kills);
    if (!started() && blamed) return GiveUp(actor, StartFailure(actor));
    // a process that kills actors faster than they start says nothing about them, and while others
    // complete steps the work goes on without this one
    const bool killed_for_long =
        std::min(actor.failing_for, since_progress_) >= options_.killed_timeout;
    const uint32_t in_a_row = actor.failures + (killed_for_long ? actor.kills : 0);
    const uint32_t failures = std::max(in_a_row, episode_failures);
    // an exception at the same step of the same episode comes again however often it is tried
    const bool said = actor.warned_of == actor.error.message();
    const bool reproducible = said && actor.error_slot >= 0 && episode_failures > 1;
    if (final || reproducible || failures >= options_.failures_max) {
      if (blamed && (final || status().ok()))  // once: other actors may fail for the same reason
        for (const std::string& line : printed) LogInfo(line);
      const std::string what =
          episode_failures > in_a_row ? "one of its episodes failed" : "failed";
      const std::string row =
          failures > 1 ? fmt::format(" {} times in a row, giving up", failures) : "";
      return GiveUp(actor, WhatFailed(actor, what + row));
    }
    actor.warned_of = actor.error.message();
    Log(said || WarnedOf(actor) ? LogLevel::kDebug : LogLevel::kWarning,
        fmt::format("actor {} ({}) is started again: {}", actor.index,
                    spec_known_ ? spec_.id : "not yet ready", actor.error.message()));
    actor.state = Actor::State::kResting;
    actor.waited = 0;
    // the first retry comes at once
    const uint32_t row = std::max(actor.failures + actor.kills, episode_failures);
    actor.rest = row <= 1 ? 0 : std::min(kRestMax, kRestFirst * (1U << std::min(row - 2, 10U)));
  }

  // Whether a warning has just named the same exception, of another actor's episode; else notes it.
  bool WarnedOf(const Actor& actor) {
    if (actor.error_slot < 0) return false;
    constexpr double kSeconds = 10;
    const std::string& message = actor.error.message();
    const std::string reason = message.substr(0, message.rfind(" ("));  // without the episode
    const bool again = reason == warned_reason_ && SecondsSince(warned_at_) < kSeconds;
    if (!again) warned_reason_ = reason, warned_at_ = Now();
    return again;
  }

  // Returns the actor's own message if it reported its configuration as wrong.
  static Status StartFailure(const Actor& actor) {
    const Code code = actor.error.code();
    if (code == Code::kConfig || code == Code::kNoInput) return actor.error;
    return actor.error.Annotate(fmt::format("actor {} could not be started", actor.index));
  }

  Status WhatFailed(const Actor& actor, const std::string& what) const {
    return {Code::kUnavailable, fmt::format("actor {} ({}): {}: {}", actor.index, spec_.id, what,
                                            actor.error.message())};
  }

  void SetStatus(const Status& reason) {
    MutexLock lock(mu_);
    if (status_.ok()) status_ = reason;
    changed_.NotifyAll();
  }

  void GiveUp(Actor& actor, const Status& reason) {
    actor.state = Actor::State::kFailed;
    SetStatus(reason);
    // after the status, so that a reader of kFailed finds the reason
    table_.Fail(actor.index);
  }

  bool started() {
    MutexLock lock(mu_);
    return started_;
  }

  // All at once, so that the grace passes once.
  void EndAll() {
    for (Actor& actor : actors_) {
      if (actor.process == nullptr) continue;
      if (auto* header = reinterpret_cast<SegmentHeader*>(actor.segment.data())) {
        header->leave.store(1);
        RingBell(header->commands);
      }
      actor.process->HangUp();
    }
    const SteadyTime deadline = Now() + kLeaveGrace;
    for (Actor& actor : actors_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Now());
      if (actor.process != nullptr) actor.process->End(std::max(left, {}));
    }
  }

  // constant after construction
  const ActorFleetOptions options_;
  const SharedMemory bell_memory_;
  Doorbell& bell_;                      // rung by all actors and by the supervisor
  std::vector<SharedMemory> policies_;  // one per actor; mapped by InstallPolicies
  // synchronised by themselves
  SlotTable table_;
  const int wake_fd_;
  const std::chrono::microseconds spin_;
  std::atomic<bool> stopped_{false}, leave_{false};
  mutable Mutex mu_;
  CondVar changed_;  // signalled when started_ or status_ changes
  // guarded by mu_
  Status status_ GUARDED_BY(mu_);
  bool started_ GUARDED_BY(mu_) = false;  // every actor has served once
  // written by the supervisor before started_, constant afterwards
  EnvironmentSpec spec_;
  bool spec_known_ = false;
  // touched only by the supervisor
  std::vector<Actor> actors_;
  std::string warned_reason_;  // of the last warning about an exception
  SteadyTime warned_at_;
  double since_progress_ = 0;  // s since some actor completed a step
  std::vector<pollfd> polled_;
  Thread supervisor_;  // last: it starts when everything else is there
};

Status CheckOptions(const ActorFleetOptions& options) {
  if (options.slots < 1 || options.actors < 1)
    return {Code::kConfig, "fleet.slots and fleet.actors: expected at least 1"};
  CHECK(options.failures_max > 0 && options.hello_timeout > 0);
  if (!(options.step_timeout > 0))
    return {Code::kConfig,
            fmt::format("fleet.step_timeout={}: expected more than 0 s", options.step_timeout)};
  if (!nlohmann::json::parse(options.environment_json, nullptr, false).is_object())
    return {Code::kConfig,
            "environment '" + Shown(options.environment_json) + "': expected a JSON object"};
  return Status::Ok();
}

// Makes `program` that of Python actors.
Status ChoosePython(ActorFleetOptions& options) {
  if (options.python.empty()) {
    ASSIGN_OR_RETURN(const Path venv, FindVenv());
    options.python = (venv / "bin" / "python").string();
  }
  if (options.python_path.empty()) options.python_path = DefaultPythonPath();
  if (access(options.python.c_str(), X_OK) != 0)
    return {Code::kNoInput, "no Python at '" + options.python +
                                "': expected the interpreter of .venv; " + HowToInstallPackages()};
  if (!std::filesystem::exists(options.python_path + "/samara/actor.py"))
    return {Code::kNoInput, "no package 'samara' in '" + options.python_path +
                                "': expected it next to the program, run 'make build'"};
  // -P: not the current folder's modules
  options.program = {options.python, "-P", "-m", "samara.actor"};
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Fleet>> MakeActorFleet(const ActorFleetOptions& given) {
  ActorFleetOptions options = given;
  RETURN_IF_ERROR(CheckOptions(options));
  if (options.program.empty()) RETURN_IF_ERROR(ChoosePython(options));
  options.actors = std::min(options.actors, options.slots);
  ASSIGN_OR_RETURN(SharedMemory bell, SharedMemory::Create("samara-bell"));
  RETURN_IF_ERROR(bell.Map(sizeof(Doorbell)));
  std::vector<Actor> actors;
  std::vector<SharedMemory> policies;
  for (uint32_t i = 0; i < options.actors; ++i) {
    ASSIGN_OR_RETURN(SharedMemory segment, SharedMemory::Create("samara-slots"));
    ASSIGN_OR_RETURN(SharedMemory policy, SharedMemory::Create("samara-policies"));
    policies.push_back(std::move(policy));
    Actor& actor = actors.emplace_back(std::move(segment), policies.back().fd());
    actor.index = i;
  }
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) return Status(Code::kIoError, std::string("eventfd: ") + std::strerror(errno));
  auto fleet = std::make_unique<ActorFleet>(options, std::move(bell), std::move(policies),
                                            std::move(actors), wake_fd);
  RETURN_IF_ERROR(fleet->AwaitStart());
  return std::unique_ptr<Fleet>(std::move(fleet));
}

}  // namespace samara
