#include "rl/inference/inference_server.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "core/bytes.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/thread.h"
#include "env/dummy.h"
#include "env/registry.h"
#include "rl/trajectory/slot_records.h"

namespace samara::inference_server_test {
namespace {

constexpr uint32_t kSlots = 6, kLength = 5;

// A recurrent "network" of one number that acts by its draws, its state and its version.
class TestModel : public Model {
 public:
  explicit TestModel(const EnvironmentSpec& spec)
      : choices_(static_cast<uint64_t>(spec.action.n)),
        shape_{.observation_bytes = spec.observation.bytes(), .behaviour = 1, .state = 1},
        state_(kSlots) {}
  const ModelShape& shape() const override { return shape_; }
  bool Has(uint64_t version) const override { return version <= published_.load(); }
  bool keeps_last() const override { return last; }
  void Publish(uint64_t version) { published_ = version; }
  std::vector<float>& state() { return state_; }
  std::atomic<uint32_t> sick{kSlots};  // this slot's outputs are not finite
  std::vector<size_t> sizes;
  bool last = false;  // keeps_last

  Status Infer(InferenceBatch& batch) override {
    if (batch.version == InferenceBatch::kNewest) batch.version = published_;
    sizes.push_back(batch.rows.size());
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      const InferenceRow& row = batch.rows[i];
      float& h = state_[row.slot];
      if (row.first) h = 0;
      if (row.keeps) batch.state[i] = h;
      float x;
      std::memcpy(&x, row.observation.data(), sizeof x);
      h = h / 2 + x + row.reward + static_cast<float>(row.previous_action);
      const uint64_t draw = CounterRng(row.key).Bits(row.step);
      batch.index[i] = static_cast<int32_t>((draw + batch.version) % choices_);
      batch.behaviour[i] = batch.values[i] = h;
      batch.status[i] =
          row.slot == sick ? InferenceBatch::RowStatus::kNotFinite : InferenceBatch::RowStatus::kOk;
    }
    return Status::Ok();
  }

 private:
  const uint64_t choices_;
  const ModelShape shape_;
  std::vector<float> state_;
  std::atomic<uint64_t> published_{0};
};

// Loses every n-th event's episode (n well above the length of an episode, or none is ever played
// again whole), or keeps all events of some slots to itself.
class UnreliableFleet : public Fleet {
 public:
  UnreliableFleet(uint32_t threads, uint64_t lose_every = 0, uint32_t silent_from = kSlots)
      : fleet_(
            MakeThreadFleet(NativeEnvironment("CartPole-v1", false).ValueOrThrow(), kSlots, threads)
                .ValueOrThrow()),
        lose_every_(lose_every),
        silent_from_(silent_from) {}
  const EnvironmentSpec& spec() const override { return fleet_->spec(); }
  uint32_t slots() const override { return kSlots; }
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec) override {
    begun[episode].insert(spec.seed);
    fleet_->Begin(slot, episode, spec);
  }
  std::map<uint64_t, std::set<uint64_t>> begun;  // episodes, their seeds
  void Act(uint32_t slot, const Action& action) override { fleet_->Act(slot, action); }
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    const size_t n = fleet_->Wait(out, timeout);
    size_t kept = 0;
    for (size_t i = 0; i < n; ++i) {
      if (out[i].slot >= silent_from_) continue;
      out[kept] = out[i];
      if (lose_every_ > 0 && ++events_ % lose_every_ == 0) out[kept].kind = SlotEvent::Kind::kLost;
      ++kept;
    }
    return kept;
  }
  std::span<const std::byte> observation(uint32_t slot) const override {
    return fleet_->observation(slot);
  }
  std::span<const std::byte> pictures(uint32_t) const override { return {}; }
  FleetCounters counters() const override { return fleet_->counters(); }
  Status status() const override { return fleet_->status(); }
  void Stop() override { fleet_->Stop(); }

 private:
  const std::unique_ptr<Fleet> fleet_;
  const uint64_t lose_every_;
  const uint32_t silent_from_;
  uint64_t events_ = 0;
};

std::optional<EpisodeSpec> Episode(uint32_t slot, uint64_t number) {
  return EpisodeSpec{.seed = DeriveKey(3, Purpose::kEpisodeTrain, 0, slot, number),
                     .noops = 0,
                     .frames_max = number % 3 == 1 ? 7 : 0};  // some are cut by the clock
}

EntryShape ShapeOf(const ModelShape& shape) {
  return {.observation_bytes = shape.observation_bytes, .behaviour = 1, .state = 1};
}

void Digest(Sha256& hash, const Unroll& unroll) {
  hash.UpdateU32(unroll.slot).UpdateU64(unroll.index);
  for (uint32_t t = 0; t < unroll.entries; ++t) {
    const EntryHeader& h = unroll.headers[t];
    hash.UpdateU32(static_cast<uint32_t>(h.action)).UpdateU64(h.policy_version);
    hash.UpdateU32(h.episode_step).UpdateU32(h.terminated).UpdateU32(h.truncated);
    hash.Update(std::as_bytes(std::span(&h.reward, 1)));
    hash.Update(std::as_bytes(std::span(&h.episode_return, 1)));
  }
  hash.Update(std::span(unroll.observations));
  hash.Update(std::as_bytes(std::span(unroll.values)));
  hash.Update(std::as_bytes(std::span(unroll.state)));
  for (const auto& final : unroll.finals) hash.Update(std::span(final.observation));
}

// One ordered run: the learner only counts. `rounds` in all, with an interruption after `cut`:
// everything is saved, thrown away and made again.
std::string Ordered(uint32_t threads, uint64_t lag, uint64_t lose_every, uint64_t rounds,
                    uint64_t cut = 0) {
  constexpr uint32_t kBatch = 3;
  Sha256 hash;
  uint64_t updates = 0;
  std::pair<uint64_t, uint32_t> expected;
  std::string saved;
  std::vector<float> memory;
  for (bool again = true; again;) {
    again = false;
    UnreliableFleet fleet(threads, lose_every);
    TestModel model(fleet.spec());
    UnrollStore store(
        ShapeOf(model.shape()),
        {.slots = kSlots, .length = kLength, .buffers = kSlots * (static_cast<uint32_t>(lag) + 3)});
    ServerHooks hooks;
    hooks.next = Episode;
    InferenceServer server(fleet, model, &store,
                           {.seed = 5,
                            .ordered = true,
                            .lag = lag,
                            .unroll_length = kLength,
                            .unrolls_per_update = kBatch},
                           hooks);
    if (!saved.empty()) {
      EXPECT_TRUE(server.Restore(saved).ok());
      model.state() = memory;
      model.Publish(updates);
    }
    std::map<std::pair<uint64_t, uint32_t>, UnrollStore::Loan> waiting;
    std::optional<uint64_t> park;
    Thread serving("serving", [&] { EXPECT_TRUE(server.Serve().ok()); });
    while (expected.first < rounds) {
      const bool parked = server.lockstep()->parked();
      store.WaitFor(1, std::chrono::milliseconds(5));
      for (auto& unroll : store.Take(100)) {
        const std::pair key(unroll->index, unroll->slot);
        waiting.emplace(key, std::move(unroll));
      }
      bool learnt = false;
      while (expected.first < rounds && !waiting.empty() && waiting.begin()->first == expected) {
        for (uint32_t t = 1; t < kLength; ++t)
          EXPECT_EQ(waiting.begin()->second->headers[t].policy_version,
                    server.lockstep()->VersionOf(expected.first));
        Digest(hash, *waiting.begin()->second);
        waiting.erase(waiting.begin());
        if (++expected.second == kSlots) ++expected.first, expected.second = 0;
        learnt = true;
        if (expected.second % kBatch == 0) model.Publish(++updates);
      }
      if (cut > 0 && expected.first >= cut) {
        if (!park) server.lockstep()->Park(*(park = expected.first + lag + 1));
        if (parked && !learnt && waiting.empty() && store.counters().waiting == 0) {
          saved = server.Save();
          memory = model.state();
          cut = 0;
          again = true;
          break;
        }
      }
    }
    server.Stop();
  }
  return Hex(hash.Finish());
}

// At any number of threads, with lost episodes, over an interruption.
TEST(InferenceServerTest, OrderedRunsHaveTheSameBits) {
  for (const uint64_t lag : {0, 1, 2}) {
    const std::string expected = Ordered(1, lag, 0, 40);
    EXPECT_EQ(Ordered(3, lag, 0, 40), expected) << "threads, lag " << lag;
    EXPECT_EQ(Ordered(2, lag, 331, 40), expected) << "lost episodes, lag " << lag;
    EXPECT_EQ(Ordered(2, lag, 0, 40, 5), expected) << "interrupted, lag " << lag;
    EXPECT_NE(Ordered(1, lag, 0, 39), expected);
  }
}

// The first rounds of a share of six slots: each slot's unrolls, what is saved after them, and how
// large batches were.
struct Played {
  std::map<uint32_t, std::string> unrolls;
  std::string saved;
  std::set<size_t> sizes;
};
Played PlayShare(uint32_t first, uint32_t slots, uint32_t shards) {
  constexpr uint64_t kRounds = 20;
  const auto fleet =
      MakeThreadFleet(NativeEnvironment("CartPole-v1", false).ValueOrThrow(), slots, 2)
          .ValueOrThrow();
  TestModel model(fleet->spec());
  UnrollStore store(ShapeOf(model.shape()),
                    {.slots = slots, .length = kLength, .buffers = 4 * slots});
  ServerHooks hooks;
  hooks.next = [&](uint32_t slot, uint64_t number) { return Episode(first + slot, number); };
  InferenceServer server(*fleet, model, &store,
                         {.seed = 5,
                          .share = {.first = first, .all = kSlots},
                          .ordered = true,
                          .unroll_length = kLength,
                          .unrolls_per_update = slots,
                          .shards = shards},
                         hooks);
  server.lockstep()->Park(kRounds);
  Thread serving("serving", [&] { EXPECT_TRUE(server.Serve().ok()); });
  std::map<uint32_t, Sha256> hashes;
  for (uint64_t learnt = 0; learnt < kRounds * slots; model.Publish(learnt / slots)) {
    store.WaitFor(1, std::chrono::milliseconds(5));
    for (auto& unroll : store.Take(100)) {
      unroll->slot += first;
      Digest(hashes[unroll->slot], *unroll);
      ++learnt;
    }
  }
  while (!server.lockstep()->parked()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Played played{.unrolls = {}, .saved = server.Save(), .sizes = {}};
  server.Stop();
  serving.Join();
  for (auto& [slot, hash] : hashes) played.unrolls[slot] = Hex(hash.Finish());
  played.sizes.insert(model.sizes.begin(), model.sizes.end());
  return played;
}

// Servers that share a run's shards play what one plays, in batches of the same shapes.
TEST(InferenceServerTest, ServersThatShareAShardedRunHaveTheBitsOfOne) {
  const Played whole = PlayShare(0, kSlots, 2);
  Played low = PlayShare(0, kSlots / 2, 1);
  const Played high = PlayShare(kSlots / 2, kSlots / 2, 1);
  EXPECT_EQ(whole.sizes, (std::set<size_t>{1, 2})) << "halves of three slots";
  EXPECT_EQ(low.sizes, whole.sizes);
  EXPECT_EQ(high.sizes, whole.sizes);
  EXPECT_EQ(JoinSlotRecords(std::vector<std::string>{low.saved, high.saved}).ValueOrThrow(),
            whole.saved);
  low.unrolls.insert(high.unrolls.begin(), high.unrolls.end());
  EXPECT_EQ(low.unrolls, whole.unrolls);
  EXPECT_EQ(whole.unrolls.size(), kSlots);
}

struct FreeRun {
  FreeRun(uint64_t lose_every, uint32_t silent_from, const InferenceConfig& config,
          uint32_t buffers = 3 * kSlots)
      : fleet(2, lose_every, silent_from),
        model(fleet.spec()),
        store(ShapeOf(model.shape()), {.slots = kSlots, .length = kLength, .buffers = buffers}),
        server(fleet, model, &store, config, Hooks()) {}
  static ServerHooks Hooks() {
    ServerHooks hooks;
    hooks.next = Episode;
    return hooks;
  }
  UnreliableFleet fleet;
  TestModel model;
  UnrollStore store;
  InferenceServer server;
};

// Replays an unroll by the environment's and the model's rules.
void ExpectOneStream(const Unroll& unroll) {
  float h = unroll.state[0];
  for (uint32_t t = 0; t < unroll.entries; ++t) {
    const EntryHeader& entry = unroll.headers[t];
    EXPECT_EQ(entry.incarnation, unroll.headers[0].incarnation) << "spliced";
    if (entry.episode_step == 0) h = 0;
    float x;
    std::memcpy(&x, unroll.observations.data() + t * 16, sizeof x);
    h = h / 2 + x + entry.reward + static_cast<float>(entry.previous_action);
    EXPECT_EQ(h, unroll.values[t]) << "entry " << t;
    if (t == 0) continue;
    const EntryHeader& before = unroll.headers[t - 1];
    const bool ended = entry.terminated || entry.truncated;
    EXPECT_EQ(entry.episode_step, ended ? 0 : before.episode_step + 1);
    EXPECT_EQ(entry.previous_action, ended ? 0 : before.action);
    EXPECT_EQ(entry.reward, 1) << "CartPole pays 1 a step";
    EXPECT_FALSE(entry.terminated && entry.truncated);
    EXPECT_EQ(entry.episode_ended, ended);
    EXPECT_EQ(entry.episode_return, ended ? before.episode_step + 1.0 : 0);
  }
}

// CartPole terminates beyond 2.4 or 12 degrees: so does the observation that is kept, and only it.
TEST(InferenceServerTest, LastObservationsAreKeptOfTruncatedEpisodesOrOfAll) {
  for (const bool all : {false, true}) {
    FreeRun run(0, kSlots, {.batch_max = 4, .wait = 0.0005});
    run.model.last = all;
    Thread serving("serving", [&] { EXPECT_TRUE(run.server.Serve().ok()); });
    size_t terminated = 0, truncated = 0;
    for (size_t unrolls = 0; unrolls < 200;) {
      run.store.WaitFor(1, std::chrono::milliseconds(20));
      for (const auto& unroll : run.store.Take(100)) {
        ++unrolls;
        std::set<uint32_t> kept, expected;
        for (const Unroll::Final& final : unroll->finals) {
          float state[4];
          std::memcpy(state, final.observation.data(), sizeof state);
          const bool fallen = std::abs(state[0]) > 2.4F || std::abs(state[2]) > 0.2094F;
          EXPECT_EQ(fallen, unroll->headers[final.entry].terminated);
          kept.insert(final.entry);
        }
        for (uint32_t t = 0; t < unroll->entries; ++t) {
          const EntryHeader& entry = unroll->headers[t];
          terminated += entry.terminated, truncated += entry.truncated;
          if (entry.truncated || (all && entry.terminated)) expected.insert(t);
        }
        EXPECT_EQ(kept, expected);
      }
    }
    run.server.Stop();
    serving.Join();
    EXPECT_GT(std::min(terminated, truncated), 5u);
  }
}

// Fleets know by its number an episode that brings its actors down again and again.
TEST(InferenceServerTest, ANumberBelongsToOneEpisodeOfAllSlots) {
  FreeRun run(23, kSlots, {.batch_max = 4, .wait = 0.0005});
  Thread serving("serving", [&] { EXPECT_TRUE(run.server.Serve().ok()); });
  for (size_t unrolls = 0; unrolls < 60;) {
    run.store.WaitFor(1, std::chrono::milliseconds(20));
    unrolls += run.store.Take(100).size();
  }
  run.server.Stop();
  serving.Join();
  EXPECT_GT(run.fleet.begun.size(), 2U * kSlots);
  for (const auto& [number, seeds] : run.fleet.begun) EXPECT_EQ(seeds.size(), 1U) << number;
}

TEST(InferenceServerTest, FreeRunsSpliceNothingWhateverIsLost) {
  for (const uint64_t lose_every : {0, 23}) {
    FreeRun run(lose_every, kSlots, {.batch_max = 4, .wait = 0.0005});
    Thread serving("serving", [&] { EXPECT_TRUE(run.server.Serve().ok()); });
    size_t unrolls = 0;
    while (unrolls < 300) {
      run.store.WaitFor(1, std::chrono::milliseconds(20));
      for (const auto& unroll : run.store.Take(100)) {
        ExpectOneStream(*unroll);
        ++unrolls;
      }
    }
    run.server.Stop();
    serving.Join();
    EXPECT_EQ(run.server.counters().lost_episodes > 0, lose_every > 0);
    EXPECT_LE(*std::max_element(run.model.sizes.begin(), run.model.sizes.end()), 4U);
  }
}

// With two thirds of the slots silent the rest go on.
TEST(InferenceServerTest, SilentSlotsDelayNoOthers) {
  FreeRun run(0, 2, {.batch_max = kSlots, .wait = 0.001, .low_mark = 1});
  Thread serving("serving", [&] { EXPECT_TRUE(run.server.Serve().ok()); });
  size_t unrolls = 0;
  for (const SteadyTime start = Now(); unrolls < 20 && SecondsSince(start) < 20;) {
    run.store.WaitFor(1, std::chrono::milliseconds(20));
    for (const auto& unroll : run.store.Take(100)) {
      EXPECT_LT(unroll->slot, 2U);
      ++unrolls;
    }
  }
  EXPECT_GE(unrolls, 20U);
  run.server.Stop();
}

// Without a free buffer slots wait, nothing blocks, nothing is lost.
TEST(InferenceServerTest, BackPressureWithholdsActions) {
  FreeRun run(0, kSlots, {.batch_max = 3, .wait = 0.0005}, kSlots + 2);
  Thread serving("serving", [&] { EXPECT_TRUE(run.server.Serve().ok()); });
  const auto steps = [&] { return run.server.counters().steps; };
  uint64_t before = ~uint64_t{0};
  while (steps() != before || before == 0) {
    before = steps();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(run.store.counters().free, 0U);
  EXPECT_GT(run.server.counters().stalls, 0U);
  std::map<uint32_t, uint64_t> next;
  for (size_t unrolls = 0; unrolls < 50;) {
    run.store.WaitFor(1, std::chrono::milliseconds(20));
    for (const auto& unroll : run.store.Take(1)) {
      EXPECT_EQ(unroll->index, next[unroll->slot]++);
      ++unrolls;
    }
  }
  run.server.Stop();
}

// One sick row fails alone.
TEST(InferenceServerTest, ARowThatIsNotFiniteFailsAlone) {
  FreeRun run(0, kSlots, {.batch_max = kSlots, .wait = 0.0005});
  run.model.sick = 4;
  Thread serving("serving", [&] { EXPECT_TRUE(run.server.Serve().ok()); });
  for (size_t unrolls = 0; unrolls < 40;) {
    run.store.WaitFor(1, std::chrono::milliseconds(20));
    for (const auto& unroll : run.store.Take(10)) {
      EXPECT_NE(unroll->slot, 4U);
      ++unrolls;
    }
  }
  run.server.Stop();
  serving.Join();
  EXPECT_GT(run.server.counters().not_finite, 0U);
}

TEST(InferenceServerTest, DamagedStateIsRefused) {
  FreeRun run(0, kSlots, {});
  const std::string saved = run.server.Save();
  EXPECT_TRUE(run.server.Restore(saved).ok());
  for (size_t n = 0; n < saved.size(); n += 7)
    EXPECT_EQ(run.server.Restore(saved.substr(0, n)).code(), Code::kBadData);
}

// The record of a slot before its first episode, whole but for what a case spoils.
struct SavedSlot {
  uint64_t episodes = 0;
  std::string next = std::string(sizeof(EntryHeader), '\0');
  uint8_t has_final = 0;
  std::string final_observation = std::string(16, '\0');  // four numbers of CartPole
  std::string indices, values, rest;
  size_t bytes = std::string::npos;  // that are left of it

  std::string Encode() const {
    return ByteWriter()
               .Put(episodes)
               .Put(uint64_t{0})
               .Put(uint32_t{1})
               .PutBytes(next)
               .Put(has_final)
               .PutBytes(final_observation)
               .PutBytes(indices)
               .PutBytes(values)
               .PutBytes("")
               .Take() +
           rest;
  }
};

TEST(InferenceServerTest, ASlotOfAnotherShapeIsRefused) {
  using Spoil = std::function<void(SavedSlot&)>;
  const auto fleet = [](bool discrete) {
    return MakeThreadFleet([=] { return MakeDummyEnvironment({.discrete = discrete}); }, kSlots, 0)
        .ValueOrThrow();
  };
  const auto plays = fleet(true), moves = fleet(false);
  const auto restore = [&](const Spoil& spoil, bool discrete = true) {
    Fleet& all = discrete ? *plays : *moves;
    TestModel model(all.spec());
    ServerHooks hooks;
    hooks.next = [](uint32_t slot, uint64_t number) {
      return number < 5 ? Episode(slot, number) : std::nullopt;
    };
    InferenceServer server(all, model, nullptr, {}, hooks);
    SavedSlot slot;
    spoil(slot);
    const std::vector<std::string> records(kSlots, slot.Encode().substr(0, slot.bytes));
    return server.Restore(WriteSlotRecords(records));
  };
  const int32_t n = static_cast<int32_t>(plays->spec().action.n);
  const auto index = [](int32_t i) {
    return std::string(reinterpret_cast<const char*>(&i), sizeof i);
  };
  const Spoil spoils[] = {
      [](SavedSlot& s) { s.next.pop_back(); },
      [](SavedSlot& s) { s.next[offsetof(EntryHeader, absent)] = 2; },
      [](SavedSlot& s) { s.has_final = 2; },
      [](SavedSlot& s) { s.final_observation.pop_back(); },
      [](SavedSlot& s) { s.indices = "123"; },
      [](SavedSlot& s) { s.values = "123"; },
      [](SavedSlot& s) { s.rest = "x"; },
      [](SavedSlot& s) { s.episodes = 6; },  // beyond the last
      [&](SavedSlot& s) { s.episodes = 1, s.indices = index(-1); },
      [&](SavedSlot& s) { s.episodes = 1, s.indices = index(n); },
      [](SavedSlot& s) { s.episodes = 1, s.values = "1234"; },  // of a discrete action
  };
  for (size_t i = 0; i < std::size(spoils); ++i) {
    const Status status = restore(spoils[i]);
    EXPECT_EQ(status.code(), Code::kBadData) << i;
    EXPECT_EQ(status.message(), "the saved slots have another shape than this run's") << i;
  }
  const Spoil sound[] = {[](SavedSlot&) {}, [](SavedSlot& s) { s.has_final = 1; },
                         [&](SavedSlot& s) { s.episodes = 5, s.indices = index(n - 1); }};
  for (const Spoil& spoil : sound) EXPECT_TRUE(restore(spoil).ok());
  for (size_t bytes = 0; bytes < SavedSlot().Encode().size(); ++bytes)
    EXPECT_EQ(restore([&](SavedSlot& s) { s.bytes = bytes; }).code(), Code::kBadData) << bytes;
  // actions of two values
  const auto moved = [&](size_t bytes) {
    return restore([&](SavedSlot& s) { s.episodes = 1, s.values.assign(bytes, '\0'); }, false);
  };
  EXPECT_TRUE(moved(16).ok());
  EXPECT_EQ(moved(12).code(), Code::kBadData);
}

// Slots that have no more episodes rest; when all do, serving ends.
TEST(InferenceServerTest, EpisodesThatAreAskedForArePlayedOnceEach) {
  UnreliableFleet fleet(2);
  TestModel model(fleet.spec());
  std::map<std::pair<uint32_t, uint64_t>, int> ended;
  ServerHooks hooks;
  hooks.next = [](uint32_t slot, uint64_t number) {
    return number < 1 + slot % 3 ? Episode(slot, number) : std::nullopt;
  };
  hooks.ended = [&](const EpisodeRecord& record) {
    ++ended[{record.slot, record.number}];
    EXPECT_EQ(record.score, record.steps);
  };
  InferenceServer server(fleet, model, nullptr, {.ordered = true}, hooks);
  EXPECT_TRUE(server.Serve().ok());
  EXPECT_EQ(ended.size(), 2U + 4 + 6);
  for (const auto& [episode, times] : ended) EXPECT_EQ(times, 1);
}

// An episode of Atari goes on after a lost life; for the learner it is over, and so is what it
// remembers of it.
TEST(InferenceServerTest, ALostLifeThatEndsTheLearnersEpisodeBeginsAnother) {
  class LivesFleet : public UnreliableFleet {
   public:
    using UnreliableFleet::UnreliableFleet;
    size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
      const size_t n = UnreliableFleet::Wait(out, timeout);
      for (SlotEvent& event : out.first(n)) event.result.life_lost = event.step % 3 == 2;
      return n;
    }
  };
  class RowsModel : public TestModel {
   public:
    using TestModel::TestModel;
    Status Infer(InferenceBatch& batch) override {
      for (const InferenceRow& row : batch.rows) {
        EXPECT_TRUE(!row.first || row.previous_action == 0);
        begun += row.first ? 1 : 0, remembered += row.previous_action != 0 ? 1 : 0;
      }
      return TestModel::Infer(batch);
    }
    int begun = 0, remembered = 0;
  };
  for (const LifeLoss rule : {LifeLoss::kZeroDiscount, LifeLoss::kEndsEpisode}) {
    LivesFleet fleet(1);
    RowsModel model(fleet.spec());
    ServerHooks hooks;
    hooks.next = [](uint32_t slot, uint64_t number) {
      return number < 1 ? Episode(slot, number) : std::nullopt;
    };
    InferenceServer server(fleet, model, nullptr, {.life_loss = rule, .ordered = true}, hooks);
    EXPECT_TRUE(server.Serve().ok());
    EXPECT_GT(model.remembered, 0);
    EXPECT_EQ(model.begun > static_cast<int>(kSlots), rule == LifeLoss::kEndsEpisode);
  }
}

TEST(RewardsTest, AsTheSourcesDefineThem) {
  EXPECT_EQ(LearnersReward(RewardMode::kRaw, -7.5), -7.5F);
  EXPECT_EQ(LearnersReward(RewardMode::kClip, -7.5), -1.0F);
  EXPECT_EQ(LearnersReward(RewardMode::kClip, 0.25), 0.25F);
  EXPECT_EQ(LearnersReward(RewardMode::kSign, 0.25), 1.0F);
  EXPECT_EQ(LearnersReward(RewardMode::kSign, 0), 0.0F);
  // scalable_agent: squeezed = tanh(r / 5); where(r < 0, .3 squeezed, squeezed) 5
  EXPECT_FLOAT_EQ(LearnersReward(RewardMode::kAsymmetric, 10),
                  static_cast<float>(5 * std::tanh(2.0)));
  EXPECT_FLOAT_EQ(LearnersReward(RewardMode::kAsymmetric, -10),
                  static_cast<float>(-1.5 * std::tanh(2.0)));
}

}  // namespace
}  // namespace samara::inference_server_test
