// The learner process's own path of a step allocates nothing: over environments on threads, over
// actor processes, over remote actors. What torch and gRPC allocate inside is theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "core/allocations_test_util.h"
#include "core/log.h"
#include "core/ring.h"
#include "core/thread.h"
#include "env/dummy.h"
#include "fleet/fleet_test_util.h"
#include "fleet/remote/actor.h"
#include "fleet/remote/hub.h"
#include "rl/inference/inference_server.h"

namespace samara::no_allocation_test {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kEndless = int64_t{1} << 19;  // steps of an episode; observed, so within range
constexpr uint32_t kSlots = 12;
constexpr uint64_t kRows = 4000;
constexpr int kSpans = 30;

std::unique_ptr<Fleet> LocalFleet(uint32_t slots, uint32_t threads) {
  return MakeThreadFleet([] { return MakeDummyEnvironment({.length = kEndless}); }, slots, threads)
      .ValueOrThrow();
}

// How often the whole program allocates while the server answers kRows rows, in the first such span
// without one, or the best of kSpans: memory that grows with the largest message so far, or the
// longest queue, grows a few times, the more often the busier the machine; a step's own allocations
// would be in all of them. Without what `others` counts.
int64_t CallsOf(Fleet& fleet, UnrollStore* store = nullptr,
                const std::atomic<uint64_t>* others = nullptr) {
  NullModel model(fleet.spec().observation.bytes(), fleet.slots());
  InferenceServer server(fleet, model, store, {.batch_max = 8},
                         {.next = [](uint32_t, uint64_t) { return EpisodeSpec{}; },
                          .ended = nullptr,
                          .shown = nullptr});
  Thread serving("serving", [&] { EXPECT_TRUE(server.Serve().ok()); });
  const auto wait_for = [&](uint64_t count) {
    while (server.counters().rows < count) std::this_thread::sleep_for(1ms);
  };
  wait_for(kRows);
  const auto so_far = [&] {
    return static_cast<int64_t>(AllocationsSoFar().calls - (others ? others->load() : 0));
  };
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int span = 0; span < kSpans && least > 0; ++span) {
    const int64_t before = so_far();
    wait_for(server.counters().rows + kRows);
    least = std::min(least, so_far() - before);
  }
  server.Stop();
  return least;
}

TEST(NoAllocationTest, OverThreads) {
  const auto fleet = LocalFleet(kSlots, 2);
  EXPECT_EQ(CallsOf(*fleet), 0);
}

TEST(NoAllocationTest, OverActorProcesses) {
  REQUIRE_ACTORS();
  ActorFleetOptions options = DummyActors(R"({"kind": "dummy", "length": 1000000000})");
  options.slots = kSlots;
  options.actors = 2;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  EXPECT_EQ(CallsOf(*fleet), 0);
}

// Messages go straight from one side's memory to the other side, on one thread, as they are.
class QuietLink {
 public:
  QuietLink(RemoteHub& hub, RemoteActor& actor) : hub_(hub), actor_(actor), messages_(64) {
    session_ = hub.Open(std::make_shared<Side>(*this, false), "quiet", {});
    actor.Open(std::make_shared<Side>(*this, true));
  }
  ~QuietLink() {
    {
      const std::lock_guard lock(mu_);
      closed_ = true;
      changed_.notify_one();
    }
    network_.Join();
    hub_.Close(*session_);
    actor_.Close({RemoteCode::kUnavailable, "closed"});
  }

 private:
  struct Carried {
    bool from_actor = false;
    Message head, body;
  };
  class Side : public RemoteStream {
   public:
    Side(QuietLink& link, bool actor) : link_(link), actor_(actor) {}
    void Send(Message head, Message body) override {
      const std::lock_guard lock(link_.mu_);
      link_.messages_.Push({actor_, std::move(head), std::move(body)});
      link_.changed_.notify_one();
    }
    void End(const RemoteEnd&, bool) override {}

   private:
    QuietLink& link_;
    const bool actor_;
  };
  void Carry() {
    for (;;) {
      Carried carried;
      {
        std::unique_lock lock(mu_);
        changed_.wait(lock, [this] { return closed_ || !messages_.empty(); });
        if (closed_) return;
        carried = messages_.Pop();
      }
      std::span<const std::byte> pieces[2];
      size_t n = 0;
      for (const Message* part : {&carried.head, &carried.body})
        if (*part != nullptr) pieces[n++] = std::as_bytes(std::span((*part)->bytes));
      if (carried.from_actor) {
        actor_.Sent();
        hub_.Receive(*session_, std::span(pieces).first(n));
      } else {
        hub_.Sent(*session_);
        actor_.Receive(std::span(pieces).first(n));
      }
    }
  }

  RemoteHub& hub_;
  RemoteActor& actor_;
  std::shared_ptr<RemoteHub::Session> session_;
  std::mutex mu_;
  std::condition_variable changed_;  // signalled when messages_ grows or closed_ is set
  // guarded by mu_
  Ring<Carried> messages_;
  bool closed_ = false;
  Thread network_{"network", [this] { Carry(); }};
};

// Nothing is kept of a call.
TEST(NoAllocationTest, OverRemoteActors) {
  SetLogLevel(LogLevel::kWarning);
  for (const uint32_t threads : {0, 2}) {
    const auto local = LocalFleet(kSlots, threads);
    RemoteHub hub({.spec = local->spec(), .slots = kSlots}, {});
    RemoteActor actor(*local);
    std::optional<QuietLink> link(std::in_place, hub, actor);
    Thread pump("pump", [&] { actor.Pump(nullptr); });
    EXPECT_EQ(CallsOf(hub), 0) << threads << " threads of the actor";
    for (const auto& [reason, count] : hub.drops()) EXPECT_EQ(count, 0U) << reason;
    link.reset();  // ends the pump
  }
  SetLogLevel(LogLevel::kInfo);
}

// A learner takes unrolls meanwhile: the list that it gets them in is all.
TEST(NoAllocationTest, WithAnUnrollStore) {
  const auto fleet = LocalFleet(kSlots, 2);
  UnrollStore store({.observation_bytes = fleet->spec().observation.bytes(), .values = 1},
                    {.slots = kSlots, .length = 20, .buffers = 4 * kSlots});
  std::atomic<bool> done{false};
  std::atomic<uint64_t> lists{0};
  Thread learner("learner", [&] {
    while (!done) {
      store.WaitFor(1, 1ms);
      if (!store.Take(2 * kSlots).empty()) ++lists;
    }
  });
  const int64_t calls = CallsOf(*fleet, &store, &lists);
  done = true;
  EXPECT_NEAR(calls, 0, 1);  // a list may be there and not be counted yet
}

}  // namespace
}  // namespace samara::no_allocation_test
