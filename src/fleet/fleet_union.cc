// Several fleets as one. Each member has a thread that waits for its events; the union's own Wait
// takes them from one ring.
#include <algorithm>

#include "core/check.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "fleet/actor_messages.h"
#include "fleet/event_queue.h"
#include "fleet/fleet.h"

namespace samara {
namespace {

struct Member {
  std::unique_ptr<Fleet> fleet;
  uint32_t first = 0;  // slot of the union
};

class FleetUnion : public Fleet {
 public:
  FleetUnion(std::vector<Member> members, uint32_t slots)
      : members_(std::move(members)), slots_(slots), events_(slots) {}

  Status Start() {
    return threads_.Start("fleet ", members_.size(), [this](size_t i) { Forward(members_[i]); });
  }

  const EnvironmentSpec& spec() const override { return members_[0].fleet->spec(); }
  uint32_t slots() const override { return slots_; }
  uint32_t live() const override {
    uint32_t live = 0;
    for (const Member& m : members_) live += m.fleet->live();
    return live;
  }
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec) override {
    const Member& m = Of(slot);
    m.fleet->Begin(slot - m.first, episode, spec);
  }
  void Act(uint32_t slot, const Action& action) override {
    const Member& m = Of(slot);
    m.fleet->Act(slot - m.first, action);
  }
  void ActMany(std::span<const SlotAction> actions) override {
    // kept between calls: nothing is allocated in the long run
    thread_local std::vector<SlotAction> part;
    for (const Member& m : members_) {
      part.clear();
      for (const SlotAction& a : actions)
        if (a.slot - m.first < m.fleet->slots()) part.push_back({a.slot - m.first, a.action});
      if (!part.empty()) m.fleet->ActMany(part);
    }
  }
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    return WaitForMany(out, 1, timeout);
  }
  size_t WaitForMany(std::span<SlotEvent> out, size_t wanted,
                     std::chrono::microseconds timeout) override {
    MutexLock lock(mu_);
    return events_.Wait(mu_, out, wanted, timeout);
  }
  std::span<const std::byte> observation(uint32_t slot) const override {
    const Member& m = Of(slot);
    return m.fleet->observation(slot - m.first);
  }
  std::span<const std::byte> pictures(uint32_t slot) const override {
    const Member& m = Of(slot);
    return m.fleet->pictures(slot - m.first);
  }
  FleetCounters counters() const override {
    FleetCounters sum;
    for (const Member& m : members_) sum = sum + m.fleet->counters();
    return sum;
  }
  std::map<std::string, uint64_t> drops() const override {
    std::map<std::string, uint64_t> sum;
    for (const Member& m : members_)
      for (const auto& [reason, count] : m.fleet->drops()) sum[reason] += count;
    return sum;
  }
  Status status() const override {
    for (const Member& m : members_)
      if (Status status = m.fleet->status(); !status.ok()) return status;
    return {};
  }
  void Stop() override {
    for (const Member& m : members_) m.fleet->Stop();
    MutexLock lock(mu_);
    events_.Stop();
    events_.Wake();
  }
  void NotifyShutdown() override {
    for (const Member& m : members_) m.fleet->NotifyShutdown();
  }

 private:
  const Member& Of(uint32_t slot) const {
    CHECK_LT(slot, slots_);
    size_t i = members_.size() - 1;
    while (slot < members_[i].first) --i;
    return members_[i];
  }

  void Forward(const Member& m) {
    std::vector<SlotEvent> events(m.fleet->slots());
    for (;;) {
      const size_t n = m.fleet->Wait(events, std::chrono::seconds(1));
      MutexLock lock(mu_);
      if (events_.stopped()) return;
      for (size_t i = 0; i < n; ++i) {
        events[i].slot += m.first;
        events_.Push(events[i]);
      }
      if (events_.Due()) events_.Wake();
    }
  }

  // constant after construction
  const std::vector<Member> members_;
  const uint32_t slots_;
  Mutex mu_;
  // guarded by mu_
  EventQueue events_ GUARDED_BY(mu_);
  ThreadGroup threads_{[this] { Stop(); }};  // last: they use everything above
};

}  // namespace

Result<std::unique_ptr<Fleet>> MakeFleetUnion(std::vector<std::unique_ptr<Fleet>> fleets) {
  if (fleets.empty()) return Status(Code::kConfig, "a union of fleets: expected at least one");
  std::vector<Member> members;
  uint32_t slots = 0;
  for (auto& fleet : fleets) {
    const std::string difference =
        Difference(fleet->spec(), fleets[0] ? fleets[0]->spec() : members[0].fleet->spec());
    if (!difference.empty())
      return Status(Code::kConfig, "fleets of one run play the same: " + difference);
    CHECK(!fleet->answers_at_once()) << "its events wake no thread";
    const uint32_t n = fleet->slots();
    members.push_back({std::move(fleet), slots});
    slots += n;
  }
  auto fleet = std::make_unique<FleetUnion>(std::move(members), slots);
  RETURN_IF_ERROR(fleet->Start());
  return std::unique_ptr<Fleet>(std::move(fleet));
}

}  // namespace samara
