// One contract for every evaluator: a result depends on its task alone.
#include "evo/evaluate/evaluator.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "core/log.h"
#include "env/dummy.h"
#include "evo/evaluate/evaluate_test_util.h"
#include "fleet/fleet_test_util.h"

namespace samara::evaluator_test {
namespace {

constexpr const char* kNetwork = "mlp-8-tanh";

// Random parameters, a function of the handle.
class KeyedSource : public ParameterSource {
 public:
  void Write(PolicyHandle policy, std::span<float> canonical) const override {
    const CounterRng rng(policy.id);
    for (size_t i = 0; i < canonical.size(); ++i)
      canonical[i] = static_cast<float>(2 * rng.Uniform(i) - 1);
  }
};

// Several episodes of several policies, some at random, some cut short.
std::vector<Task> MakeTasks(uint32_t count) {
  std::vector<Task> tasks;
  for (uint32_t i = 0; i < count; ++i) {
    const EpisodeSpec episode{DeriveKey(3, Purpose::kEpisodeTest, 0, i), 0, i % 4 == 3 ? 5 : 0};
    tasks.push_back({i % 5 == 4 ? kRandomHandle : PolicyHandle{i / 2, 0}, Role::kTrain, episode});
  }
  return tasks;
}

std::vector<EpisodeResult> PlayAll(Evaluator& evaluator, std::span<const Task> tasks) {
  LocalWork work(tasks, nullptr);
  const Status status = evaluator.Play(KeyedSource(), work);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(work.posted(), tasks.size());
  return work.TakeResults();
}

std::unique_ptr<Evaluator> Direct(const std::string& id, uint32_t threads) {
  const auto factory = Native(id);
  return MakeDirectEvaluator(factory, ModelFor(factory, kNetwork), threads).ValueOrThrow();
}

std::unique_ptr<Evaluator> Slots(const std::string& id, uint32_t slots, uint32_t threads,
                                 const ChangedFleet::Change& change = nullptr) {
  const auto factory = Native(id);
  auto fleet = MakeThreadFleet(factory, slots, 2).ValueOrThrow();
  if (change) fleet = std::make_unique<ChangedFleet>(std::move(fleet), change);
  return MakeSlotEvaluator(std::move(fleet), ModelFor(factory, kNetwork), threads);
}

// Another way to play: plain loops, one state per episode.
std::vector<EpisodeResult> PlayPlainly(const EnvironmentFactory& factory,
                                       std::span<const Task> tasks) {
  const auto model = ModelFor(factory, kNetwork);
  PolicyWorkspace workspace(*model);
  std::vector<EpisodeResult> results;
  for (const Task& task : tasks) {
    const auto environment = factory().ValueOrThrow();
    std::vector<std::byte> observation(environment->spec().observation.bytes());
    PolicyState policy(*model);
    policy.Load(workspace, task.policy, KeyedSource());
    policy.StartEpisode(task.episode);
    environment->Reset(task.episode, observation);
    EpisodeResult& r = results.emplace_back();
    while (!r.done) {
      const StepResult step = environment->Step(policy.Decide(workspace, observation), observation);
      r.fitness += step.reward, r.frames += step.frames, ++r.steps;
      r.truncated = step.truncated;
      r.done = step.terminated || step.truncated;
      r.position.resize(static_cast<size_t>(environment->spec().position));
      environment->Position(r.position);
      if (task.episode.record == RecordKind::kPositions)
        AppendRow(std::span<const float>(r.position), r.recording);
    }
  }
  return results;
}

std::vector<EpisodeResult> PlayPlainly(const std::string& id, std::span<const Task> tasks) {
  return PlayPlainly(Native(id), tasks);
}

// Actor processes that play whole episodes; `more` are further keys of the dummy's configuration.
std::unique_ptr<Evaluator> Actors(uint32_t actors, uint32_t slots, const std::string& more = "") {
  ActorFleetOptions options = DummyActors(R"({"kind": "dummy", "length": 20)" + more + "}");
  options.actors = actors, options.slots = slots;
  options.step_timeout = 1;
  const auto native = [] { return MakeDummyEnvironment({}); };
  return MakeEpisodeEvaluator(MakeActorFleet(options).ValueOrThrow(), ModelFor(native, kNetwork),
                              /*recording_bytes=*/20 * 1024)
      .ValueOrThrow();
}

// The same in slots, with networks on this side.
std::unique_ptr<Evaluator> ActorSlots(uint32_t actors, uint32_t slots) {
  ActorFleetOptions options = DummyActors(R"({"kind": "dummy", "length": 20})");
  options.actors = actors, options.slots = slots;
  const auto native = [] { return MakeDummyEnvironment({}); };
  return MakeSlotEvaluator(MakeActorFleet(options).ValueOrThrow(), ModelFor(native, kNetwork), 2);
}

TEST(EvaluateTest, EveryEvaluatorGivesTheSameResults) {
  for (const std::string id : {"CartPole-v1", "Pendulum-v1"}) {
    const auto tasks = MakeTasks(11);
    const auto expected = PlayPlainly(id, tasks);
    EXPECT_TRUE(expected[3].truncated);
    EXPECT_EQ(expected[3].steps, 5U);
    for (uint32_t threads = 1; threads <= 3; ++threads) {
      EXPECT_EQ(PlayAll(*Direct(id, threads), tasks), expected) << id << ", " << threads;
      for (uint32_t slots = 1; slots <= 5; ++slots)
        EXPECT_EQ(PlayAll(*Slots(id, slots, threads), tasks), expected)
            << id << ", " << slots << " slots, " << threads << " threads";
    }
  }
}

TEST(EvaluateTest, EpisodesSideBySideGiveTheSameResults) {
  for (const std::string id : {"CartPole-v1", "Pendulum-v1"}) {
    std::atomic<int> made = 0;
    const EnvironmentFactory factory = [&, native = Native(id)] {
      ++made;
      return native();
    };
    const auto tasks = MakeTasks(60);
    const auto expected = PlayPlainly(id, tasks);
    for (const double cheap_step : {0.0, 1e9}) {
      const auto model = [&] { return ModelFor(Native(id), kNetwork); };
      made = 0;
      const auto evaluator = MakeDirectEvaluator(factory, model(), 2, cheap_step).ValueOrThrow();
      for (int call = 0; call < 3; ++call)
        EXPECT_EQ(PlayAll(*evaluator, tasks), expected) << id << ' ' << call;
      EXPECT_EQ(evaluator->counters().steps % 3, 0U);
      EXPECT_EQ(made > 2, cheap_step > 0);  // three more for a thread, or for both
    }
  }
}

TEST(EvaluateTest, EveryEvaluatorRecordsTheSamePositions) {
  const EnvironmentFactory dummy = [] { return MakeDummyEnvironment({}); };
  auto tasks = MakeTasks(9);
  for (Task& task : tasks) task.episode.record = RecordKind::kPositions;
  const auto expected = PlayPlainly(dummy, tasks);
  EXPECT_EQ(expected[0].position[0], static_cast<float>(expected[0].steps));
  EXPECT_EQ(expected[0].recording.size(), expected[0].steps * 2 * sizeof(float));
  for (const double cheap_step : {0.0, 1e9}) {
    const auto direct =
        MakeDirectEvaluator(dummy, ModelFor(dummy, kNetwork), 2, cheap_step).ValueOrThrow();
    for (int call = 0; call < 60; ++call) EXPECT_EQ(PlayAll(*direct, tasks), expected);
  }
  EXPECT_EQ(PlayAll(*MakeSlotEvaluator(MakeThreadFleet(dummy, 3, 2).ValueOrThrow(),
                                       ModelFor(dummy, kNetwork), 2),
                    tasks),
            expected);
  EXPECT_EQ(PlayAll(*Actors(2, 3), tasks), expected);
  EXPECT_EQ(PlayAll(*ActorSlots(2, 3), tasks), expected);
}

// The dummy's memory after step n is 0, n, 2 n, ... of 16 bytes.
TEST(EvaluateTest, ActorsRecordTheMemoryAfterEachStep) {
  auto tasks = MakeTasks(9);
  for (size_t i = 0; i < tasks.size(); i += 2) tasks[i].episode.record = RecordKind::kMemory;
  const auto results = PlayAll(*Actors(2, 4), tasks);
  EXPECT_EQ(PlayAll(*ActorSlots(2, 3), tasks), results);
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].recording.size(), i % 2 == 0 ? results[i].steps * 16 : 0);
    for (size_t j = 0; j < results[i].recording.size(); ++j)
      ASSERT_EQ(static_cast<size_t>(results[i].recording[j]), (j % 16) * (j / 16 + 1) % 256) << j;
  }
}

// Tasks in any order of play.
TEST(EvaluateTest, TheOrderOfPlayChangesNoResult) {
  auto tasks = MakeTasks(11);
  const auto expected = PlayPlainly("CartPole-v1", tasks);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (size_t i = 0; i < tasks.size(); ++i)
      tasks[i].frames_expected = CounterRng(seed).Uniform(i);
    EXPECT_EQ(PlayAll(*Direct("CartPole-v1", 2), tasks), expected);
    EXPECT_EQ(PlayAll(*Slots("CartPole-v1", 3, 2), tasks), expected);
  }
}

TEST(EvaluateTest, AnEvaluatorPlaysOneCallAfterAnother) {
  const auto evaluator = Slots("CartPole-v1", 3, 2);
  for (const uint32_t count : {5, 0, 1, 17}) {
    const auto tasks = MakeTasks(count);
    EXPECT_EQ(PlayAll(*evaluator, tasks), PlayPlainly("CartPole-v1", tasks));
  }
}

TEST(EvaluateTest, ZeroTasksEndAtOnce) {
  EXPECT_TRUE(PlayAll(*Direct("CartPole-v1", 2), {}).empty());
  EXPECT_TRUE(PlayAll(*Slots("CartPole-v1", 4, 2), {}).empty());
}

TEST(EvaluateTest, ManySlotsAndFewTasks) {
  const auto tasks = MakeTasks(3);
  EXPECT_EQ(PlayAll(*Slots("CartPole-v1", 64, 3), tasks), PlayPlainly("CartPole-v1", tasks));
}

TEST(EvaluateTest, LostSlotsGiveTheSameResults) {
  const auto tasks = MakeTasks(23);
  const auto expected = PlayPlainly("CartPole-v1", tasks);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::atomic<uint64_t> events{0};
    std::atomic<int> lost{0};
    const auto lose = [&](SlotEvent& event) {
      if (CounterRng(seed).Uniform(events++) > 0.02) return;
      event.kind = SlotEvent::Kind::kLost, event.result = {};
      ++lost;
    };
    EXPECT_EQ(PlayAll(*Slots("CartPole-v1", 1 + static_cast<uint32_t>(seed), 2, lose), tasks),
              expected);
    EXPECT_GT(lost, 3);
  }
}

TEST(EvaluateTest, AFailedFleetEndsThePlayWithItsStatus) {
  for (uint32_t threads = 1; threads <= 3; ++threads) {
    for (const uint64_t fails_at : {0, 1, 40}) {
      std::atomic<uint64_t> events{0};
      const auto fail = [&](SlotEvent& event) {
        if (events++ == fails_at) event.kind = SlotEvent::Kind::kFailed;
      };
      const auto evaluator = Slots("Pendulum-v1", 4, threads, fail);
      const auto tasks = MakeTasks(200);
      LocalWork work(tasks, nullptr);
      const Status status = evaluator->Play(KeyedSource(), work);
      EXPECT_EQ(status.code(), Code::kUnavailable);
      EXPECT_EQ(status.message(), "the changed fleet failed");
      // the other slots do not play on for a call that has failed
      EXPECT_LT(events, fails_at + 20);
      EXPECT_LT(work.posted(), 10U);
    }
  }
}

TEST(EvaluateTest, AStopEndsEpisodesInTheirMiddle) {
  const auto tasks = MakeTasks(20);
  const auto expected = PlayPlainly("Pendulum-v1", tasks);
  for (const bool direct : {true, false}) {
    const auto evaluator = direct ? Direct("Pendulum-v1", 2) : Slots("Pendulum-v1", 3, 2);
    std::atomic<int> asked{0};
    LocalWork work(tasks, [&] { return ++asked > 1500; });
    EXPECT_TRUE(evaluator->Play(KeyedSource(), work).ok());
    EXPECT_LT(work.posted(), tasks.size());
    const auto results = work.TakeResults();
    for (size_t i = 0; i < tasks.size(); ++i) {
      const bool whole = !results[i].done || results[i] == expected[i];
      EXPECT_TRUE(whole) << i;
    }
    // and what was stopped leaves nothing behind
    EXPECT_EQ(PlayAll(*evaluator, tasks), expected);
  }
}

// Two tasks at first, two more with every result; the source drops the odd ones once they are
// claimed.
class LateWork : public WorkSource {
 public:
  explicit LateWork(std::span<const Task> tasks) : tasks_(tasks), results_(tasks.size()) {}
  std::optional<uint32_t> Claim() override {
    const std::lock_guard lock(mu_);
    if (next_ == tasks_.size() || next_ >= 2 * (posted_ + 1)) return std::nullopt;
    return next_++;
  }
  Task TaskOf(uint32_t index) const override { return tasks_[index]; }
  void Post(uint32_t index, const EpisodeResult& result) override {
    const std::lock_guard lock(mu_);
    EXPECT_TRUE(index % 2 == 0) << "an unwanted episode was played to its end";
    results_[index] = result;
    ++posted_;
  }
  bool Wanted(uint32_t index) const override { return index % 2 == 0; }
  bool Finished() const override {
    const std::lock_guard lock(mu_);
    return posted_ == tasks_.size() / 2;
  }
  const std::vector<EpisodeResult>& results() const { return results_; }

 private:
  const std::span<const Task> tasks_;
  mutable std::mutex mu_;
  // guarded by mu_
  uint32_t next_ = 0;
  size_t posted_ = 0;
  std::vector<EpisodeResult> results_;
};

void PlayLate(Evaluator& evaluator, std::span<const Task> tasks,
              const std::vector<EpisodeResult>& expected) {
  LateWork work(tasks);
  const Status status = evaluator.Play(KeyedSource(), work);
  EXPECT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < tasks.size(); i += 2) EXPECT_EQ(work.results()[i], expected[i]) << i;
}

TEST(EvaluateTest, IdleSlotsAskAgainAndUnwantedEpisodesAreBrokenOff) {
  std::vector<Task> tasks = MakeTasks(12);
  for (Task& task : tasks) task.episode.frames_max = 0;  // of 200 steps
  const auto expected = PlayPlainly("Pendulum-v1", tasks);
  for (uint32_t threads = 1; threads <= 3; ++threads) {
    PlayLate(*Direct("Pendulum-v1", threads), tasks, expected);
    for (uint32_t slots = 1; slots <= 5; slots += 2)
      PlayLate(*Slots("Pendulum-v1", slots, threads), tasks, expected);
  }
}

TEST(EvaluateTest, EpisodesBesideABrokenOffOneRecordEachStepOnce) {
  std::vector<Task> tasks = MakeTasks(12);
  for (Task& task : tasks)
    task.episode.frames_max = 0, task.episode.record = RecordKind::kObservations;
  const auto factory = Native("Pendulum-v1");
  const auto direct = [&](double cheap_step) {
    return MakeDirectEvaluator(factory, ModelFor(factory, kNetwork), 1, cheap_step).ValueOrThrow();
  };
  const auto expected = PlayAll(*direct(0), tasks);
  EXPECT_EQ(expected[0].recording.size(), 200 * 3 * sizeof(float));
  const auto side_by_side = direct(1e9);
  EXPECT_EQ(PlayAll(*side_by_side, tasks), expected);
  PlayLate(*side_by_side, tasks, expected);
}

TEST(EvaluateTest, KnownResultsAreNotPlayedAgain) {
  const auto tasks = MakeTasks(10);
  const auto expected = PlayPlainly("CartPole-v1", tasks);
  const EpisodeResult known{.fitness = -5, .frames = 77, .steps = 1, .done = true};
  LocalWork work(tasks, nullptr, {{2, known}, {9, known}, {4'000'000'000, known}});
  EXPECT_EQ(work.posted(), 2U);
  EXPECT_EQ(work.frames(), 154U);
  const auto evaluator = Direct("CartPole-v1", 2);
  EXPECT_TRUE(evaluator->Play(KeyedSource(), work).ok());
  const auto results = work.TakeResults();
  uint64_t played = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const bool reused = i == 2 || i == 9;
    EXPECT_EQ(results[i], reused ? known : expected[i]);
    if (!reused) played += expected[i].steps;
  }
  EXPECT_EQ(evaluator->counters().steps, played);
}

// Actors that die are warned about; here that is noise.
class EpisodeEvaluatorTest : public testing::Test {
 protected:
  void SetUp() override {
    REQUIRE_ACTORS();
    SetLogLevel(LogLevel::kError);
  }
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(EpisodeEvaluatorTest, ActorsGiveTheResultsOfPlainLoops) {
  const auto tasks = MakeTasks(23);
  const auto expected = PlayPlainly([] { return MakeDummyEnvironment({}); }, tasks);
  for (const auto& [actors, slots] : {std::pair{1U, 1U}, {1U, 3U}, {2U, 4U}}) {
    const auto evaluator = Actors(actors, slots);
    EXPECT_EQ(PlayAll(*evaluator, tasks), expected) << actors << " actors, " << slots << " slots";
    EXPECT_EQ(PlayAll(*evaluator, tasks), expected) << "again";
    uint64_t steps = 0;
    for (const EpisodeResult& r : expected) steps += 2 * r.steps;
    EXPECT_EQ(evaluator->counters().steps, steps);
    EXPECT_GT(evaluator->seconds().inference, 0);
    EXPECT_GT(evaluator->seconds().environment, 0);
    EXPECT_GT(evaluator->seconds().decode, 0);
  }
}

TEST_F(EpisodeEvaluatorTest, EpisodesOfLostActorsArePlayedAgain) {
  const auto tasks = MakeTasks(23);
  const auto expected = PlayPlainly([] { return MakeDummyEnvironment({}); }, tasks);
  for (const std::string fault : {"exit", "crash", "hang"}) {
    const auto evaluator =
        Actors(2, 4, R"(, "fault": ")" + fault + R"(", "fault_step": 4, "fault_incarnations": 2)");
    EXPECT_EQ(PlayAll(*evaluator, tasks), expected) << fault;
    EXPECT_GE(evaluator->counters().respawns, 4U) << fault;
  }
}

TEST_F(EpisodeEvaluatorTest, AnExceptionThatStaysEndsThePlayWithItsText) {
  const auto evaluator = Actors(1, 2, R"(, "fault": "raise")");
  const auto tasks = MakeTasks(5);
  LocalWork work(tasks, nullptr);
  const Status status = evaluator->Play(KeyedSource(), work);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("step 3"), std::string::npos) << status.message();
}

TEST_F(EpisodeEvaluatorTest, IdleSlotsAskAgainAndUnwantedEpisodesAreBrokenOff) {
  std::vector<Task> tasks = MakeTasks(12);
  for (Task& task : tasks) task.episode.frames_max = 0;  // of 0.1 s
  const auto expected = PlayPlainly([] { return MakeDummyEnvironment({}); }, tasks);
  for (const uint32_t slots : {1U, 2U, 4U}) {
    const auto evaluator = Actors(std::min(slots, 2U), slots, R"(, "step_us": 5000)");
    PlayLate(*evaluator, tasks, expected);
    EXPECT_EQ(PlayAll(*evaluator, tasks), expected) << "nothing is left behind";
  }
}

TEST_F(EpisodeEvaluatorTest, AStopBreaksEpisodesOff) {
  const auto evaluator = Actors(2, 4, R"(, "step_us": 20000)");  // an episode takes 0.3 s
  const auto tasks = MakeTasks(40);
  const auto expected = PlayPlainly([] { return MakeDummyEnvironment({}); }, tasks);
  std::atomic<int> asked{0};
  LocalWork work(tasks, [&] { return ++asked > 60; });
  EXPECT_TRUE(evaluator->Play(KeyedSource(), work).ok());
  EXPECT_LT(work.posted(), tasks.size() / 2);
  const auto results = work.TakeResults();
  for (size_t i = 0; i < tasks.size(); ++i)
    EXPECT_TRUE(!results[i].done || results[i] == expected[i]) << i;
  // and nothing of it is left behind
  const std::span few(tasks.data(), 6);
  EXPECT_EQ(PlayAll(*evaluator, few),
            std::vector<EpisodeResult>(expected.begin(), expected.begin() + 6));
}

TEST(LocalWorkTest, ClaimsEachIndexOnceAndIgnoresDuplicates) {
  const std::vector<Task> tasks(3);
  LocalWork work(tasks, nullptr);
  EXPECT_EQ(work.Claim(), 0U);
  EXPECT_EQ(work.Claim(), 1U);
  EXPECT_EQ(work.Claim(), 2U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(work.Claim(), std::nullopt);
  for (uint32_t index : {1U, 0U, 1U}) work.Post(index, {.fitness = 1.0 + index, .frames = 5});
  EXPECT_FALSE(work.Finished());
  work.Post(1, {.fitness = 99, .frames = 5});
  work.Post(2, {.fitness = 3, .frames = 5});
  EXPECT_TRUE(work.Finished());
  EXPECT_EQ(work.frames(), 15U);
  const auto results = work.TakeResults();
  EXPECT_EQ(results[0].fitness, 1);
  EXPECT_EQ(results[1].fitness, 2);
  EXPECT_TRUE(results[2].done);
}

TEST(LocalWorkTest, UnknownLengthsComeFirstThenTheLongest) {
  std::vector<Task> tasks(7);
  const double expected[] = {3, 0, 5, 3, 0, 1, 5};
  for (size_t i = 0; i < tasks.size(); ++i) tasks[i].frames_expected = expected[i];
  LocalWork work(tasks, nullptr, {{2, {.done = true}}});
  std::vector<uint32_t> claimed;
  while (const auto index = work.Claim()) claimed.push_back(*index);
  EXPECT_EQ(claimed, (std::vector<uint32_t>{1, 4, 6, 0, 3, 5}));
}

TEST(LocalWorkTest, IsSafeForManyThreads) {
  constexpr uint32_t kCount = 20'000;
  ResultsByIndex kept;
  const std::vector<Task> tasks(kCount);
  LocalWork work(tasks, nullptr);
  work.OnPost([&](uint32_t index, const EpisodeResult& result) { kept[index] = result; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (const auto index = work.Claim()) {
        work.Post(*index, {.fitness = *index * 2.0, .frames = 1});
        work.Finished();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(work.Finished());
  EXPECT_EQ(work.frames(), kCount);
  const auto results = work.TakeResults();
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(results[i].fitness, i * 2.0);
  EXPECT_EQ(kept.size(), kCount);
}

TEST(EvaluateTest, SecondsAndCountersAreSummed) {
  const auto tasks = MakeTasks(10);
  uint64_t steps = 0;
  for (const auto& r : PlayPlainly("CartPole-v1", tasks)) steps += r.steps;
  const auto direct = Direct("CartPole-v1", 2), slots = Slots("CartPole-v1", 3, 2);
  for (Evaluator* evaluator : {direct.get(), slots.get()}) {
    PlayAll(*evaluator, tasks);
    EXPECT_EQ(evaluator->counters().steps, steps);
    EXPECT_EQ(evaluator->counters().frames, steps);  // one a step
    EXPECT_GT(evaluator->seconds().environment, 0);
    EXPECT_GT(evaluator->seconds().decode, 0);
  }
  EXPECT_GT(slots->seconds().inference, 0);
}

// The same tasks over episodes of 40 and of 4,000 steps: what is allocated does not follow the
// steps.
TEST(EvaluateTest, NoStepAllocatesMemory) {
  enum Kind { kSlots, kAlone, kSideBySide };
  const auto calls_of = [](int64_t length, Kind kind) {
    const auto factory = [length] { return MakeDummyEnvironment({.length = length}); };
    auto model = ModelFor(factory, kNetwork);
    const double cheap_step = kind == kAlone ? 0 : 1e9;
    const auto evaluator =
        kind == kSlots
            ? MakeSlotEvaluator(MakeThreadFleet(factory, 4, 2).ValueOrThrow(), std::move(model), 2)
            : MakeDirectEvaluator(factory, std::move(model), 2, cheap_step).ValueOrThrow();
    std::vector<Task> tasks = MakeTasks(8);
    for (Task& task : tasks) task.episode.frames_max = 0;
    PlayAll(*evaluator, tasks);  // first uses
    const uint64_t before = AllocationsSoFar().calls;
    const auto results = PlayAll(*evaluator, tasks);
    uint64_t steps = 0;
    for (const EpisodeResult& r : results) steps += r.steps;
    EXPECT_GE(steps, static_cast<uint64_t>(length) * 4);
    return AllocationsSoFar().calls - before;
  };
  // some 24,000 steps more
  for (const Kind kind : {kSlots, kAlone})
    EXPECT_LE(calls_of(4000, kind), calls_of(40, kind) + 20) << kind;
  // and in the second call up to six more environments, each with a policy
  EXPECT_LE(calls_of(4000, kSideBySide), calls_of(40, kSideBySide) + 300);
}

}  // namespace
}  // namespace samara::evaluator_test
