// Faults of actor processes: they die, hang, raise and lie, at the start and while running.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/clock.h"
#include "core/log.h"
#include "env/dummy.h"
#include "fleet/fleet.h"
#include "fleet/fleet_test_util.h"

namespace samara {
namespace {

using Kind = SlotEvent::Kind;

// Processes whose parent is `parent` and that run samara.actor.
std::vector<pid_t> ActorsOf(pid_t parent) {
  std::vector<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string pid, command, state, ppid;
    stat >> pid >> command >> state >> ppid;
    std::ifstream arguments(entry.path() / "cmdline");
    bool actor = false;
    for (std::string word; std::getline(arguments, word, '\0');) actor |= word == "samara.actor";
    if (ppid == std::to_string(parent) && state != "Z" && actor) result.push_back(std::stoi(pid));
  }
  return result;
}

std::string Dummy(const std::string& more) {
  return R"({"kind": "dummy", "length": 20)" + (more.empty() ? "" : ", " + more) + "}";
}

std::vector<PlayedEpisode> Undisturbed(uint64_t episodes) {
  const auto fleet = MakeThreadFleet([] { return MakeDummyEnvironment({}); }, 1, 1).ValueOrThrow();
  return Player(*fleet).Play(episodes);
}

// Plays until the fleet gives up; the status it leaves.
Status PlayUntilFailed(Fleet& fleet, double seconds_max) {
  const SteadyTime start = Now();
  fleet.Begin(0, 0, EpisodeOf(0));
  while (SecondsSince(start) < seconds_max) {
    SlotEvent event;
    if (fleet.Wait({&event, 1}, std::chrono::seconds(1)) == 0) continue;
    if (event.kind == Kind::kFailed) return fleet.status();
    if (event.kind == Kind::kObservation)
      fleet.Act(0, {.index = 1, .values = {}});
    else
      fleet.Begin(0, 0, EpisodeOf(0));
  }
  ADD_FAILURE() << "did not give up in " << seconds_max << " s";
  return Status::Ok();
}

class ActorFleetTest : public testing::Test {
 protected:
  void SetUp() override {
    REQUIRE_ACTORS();
    SetLogLevel(LogLevel::kError);
  }
};

// --- while running

TEST_F(ActorFleetTest, KilledActorsChangeNoBits) {
  constexpr uint64_t kEpisodes = 60;
  ActorFleetOptions options = DummyActors(Dummy(R"("step_us": 2000)"));
  options.actors = 2;
  options.slots = 4;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  std::atomic<bool> done{false};
  std::atomic<int> kills{0};
  std::thread killer([&] {
    const CounterRng rng(11);
    for (uint64_t i = 0; !done && kills < 6; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rng.UniformInt(2 * i, 200)));
      const auto actors = ActorsOf(getpid());
      if (actors.empty()) continue;
      kill(actors[rng.UniformInt(2 * i + 1, actors.size())], SIGKILL);
      ++kills;
    }
  });
  Player player(*fleet);
  const auto records = player.Play(kEpisodes);
  done = true;
  killer.join();
  EXPECT_EQ(records, Undisturbed(kEpisodes));
  EXPECT_GE(kills.load(), 3);
  EXPECT_GT(player.lost(), 0U);
  EXPECT_EQ(fleet->counters().lost_episodes, player.lost());
  EXPECT_EQ(player.surplus_events(), 0);
  EXPECT_TRUE(fleet->status().ok()) << fleet->status().message();
}

TEST_F(ActorFleetTest, DeathIsNoticedAtOnce) {
  const auto fleet = MakeActorFleet(DummyActors(Dummy(R"("reset_us": 5000000)"))).ValueOrThrow();
  fleet->Begin(0, 0, EpisodeOf(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const SteadyTime start = Now();
  kill(ActorsOf(getpid()).at(0), SIGKILL);
  EXPECT_EQ(WaitForOne(*fleet).kind, Kind::kLost);
  EXPECT_LT(SecondsSince(start), 0.5);  // the bar is 2 s
}

TEST_F(ActorFleetTest, AnActionAfterTheDeathIsAnsweredByLost) {
  ActorFleetOptions options = DummyActors(Dummy(""));
  options.slots = 1;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  fleet->Begin(0, 4, EpisodeOf(0));
  ASSERT_EQ(WaitForOne(*fleet).kind, Kind::kObservation);
  kill(ActorsOf(getpid()).at(0), SIGKILL);
  // the observation stays readable and nothing is said before something is asked
  SlotEvent event;
  EXPECT_EQ(fleet->Wait({&event, 1}, std::chrono::milliseconds(200)), 0U);
  EXPECT_EQ(ReadFloats(fleet->observation(0))[1], 0);
  fleet->Act(0, {});
  event = WaitForOne(*fleet);
  EXPECT_EQ(event.kind, Kind::kLost);
  EXPECT_EQ(event.episode, 4U);
  EXPECT_EQ(Player(*fleet).Play(3), Undisturbed(3));
}

TEST_F(ActorFleetTest, HungActorIsReplaced) {
  ActorFleetOptions options = DummyActors(Dummy(R"("fault": "hang", "fault_incarnations": 1)"));
  options.slots = 1;
  options.step_timeout = 0.4;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  const SteadyTime start = Now();
  EXPECT_EQ(Player(*fleet).Play(2), Undisturbed(2));
  EXPECT_GE(SecondsSince(start), 0.4);
  EXPECT_LT(SecondsSince(start), 4);
  EXPECT_EQ(fleet->counters().respawns, 1U);
}

// A reply that the caller has not fetched is no sign of a hung actor, nor is having nothing to do.
TEST_F(ActorFleetTest, ABusyEngineBlamesNoActor) {
  ActorFleetOptions options = DummyActors(Dummy(""));
  options.step_timeout = 0.2;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  fleet->Begin(0, 0, EpisodeOf(0));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_EQ(WaitForOne(*fleet).kind, Kind::kObservation);
  EXPECT_EQ(fleet->counters().respawns, 0U);
}

struct Fault {
  const char* name;
  const char* cause;  // part of the status
};
class ActorFaultTest : public testing::TestWithParam<Fault> {};

TEST_P(ActorFaultTest, IsReportedInOneLineAfterTheLastRetry) {
  REQUIRE_ACTORS();
  ActorFleetOptions options =
      DummyActors(Dummy(R"("fault": ")" + std::string(GetParam().name) + "\""));
  options.failures_max = 2;
  options.step_timeout = 0.3;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  const Status status = PlayUntilFailed(*fleet, 10);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(GetParam().cause), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("actor 0 (dummy/guess): one of its episodes failed 2 times"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  // later commands are answered too
  fleet->Begin(1, 1, EpisodeOf(1));
  EXPECT_EQ(WaitForOne(*fleet).kind, Kind::kFailed);
}
INSTANTIATE_TEST_SUITE_P(
    All, ActorFaultTest,
    testing::Values(Fault{"raise",
                          "ValueError: the dummy was told to raise (dummy/guess, slot 0, "
                          "episode 0, step 3)"},
                    Fault{"exit", "exit status 3: the dummy was told to exit"},
                    Fault{"crash", "killed by signal 6 (Aborted)"},
                    Fault{"hang", "hung: no reply for 0.3 s"},
                    Fault{"nan", "observation[3] is not a finite number"},
                    Fault{"reward", "the reward is not a finite number"}),
    [](const auto& fault) { return std::string(fault.param.name); });

// Random bytes all over the shared memory look by chance like no reply, mostly, or like numbers
// that the next process refuses.
TEST_F(ActorFleetTest, AProcessThatWritesGarbageIsReportedInOneLine) {
  ActorFleetOptions options = DummyActors(Dummy(R"("fault": "garbage")"));
  options.failures_max = 2;
  options.step_timeout = 0.3;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  const Status status = PlayUntilFailed(*fleet, 10);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("failed 2 times in a row, giving up: "), std::string::npos)
      << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  fleet->Begin(1, 1, EpisodeOf(1));
  EXPECT_EQ(WaitForOne(*fleet).kind, Kind::kFailed);
}

TEST_F(ActorFleetTest, ExceptionOfOneIncarnationCostsOneEpisode) {
  ActorFleetOptions options = DummyActors(Dummy(R"("fault": "raise", "fault_incarnations": 1)"));
  options.slots = 3;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  Player player(*fleet);
  EXPECT_EQ(player.Play(9), Undisturbed(9));
  EXPECT_EQ(fleet->counters().respawns, 1U);
}

// The same exception at the same step of the same episode is not tried five times.
TEST_F(ActorFleetTest, GivesUpAtOnceOnAnExceptionThatRepeats) {
  const auto fleet = MakeActorFleet(DummyActors(Dummy(R"("fault": "raise")"))).ValueOrThrow();
  const Status status = PlayUntilFailed(*fleet, 10);
  EXPECT_NE(status.message().find("one of its episodes failed 2 times in a row, giving up: "
                                  "ValueError: the dummy was told to raise"),
            std::string::npos)
      << status.message();
}

TEST_F(ActorFleetTest, GivesUpOnAnActorThatNeverCompletesAStep) {
  ActorFleetOptions options = DummyActors(Dummy(R"("fault": "crash", "fault_step": 1)"));
  options.failures_max = 2;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  const Status status = PlayUntilFailed(*fleet, 10);
  EXPECT_NE(status.message().find("failed 2 times in a row"), std::string::npos)
      << status.message();
}

// Kills whatever actor there is, before it can complete a step, `times` times.
void KillAtTheStart(int times) {
  const SteadyTime start = Now();
  for (std::set<pid_t> killed; static_cast<int>(killed.size()) < times;) {
    ASSERT_LT(SecondsSince(start), 30) << killed.size() << " kills";
    for (const pid_t pid : ActorsOf(getpid()))
      if (killed.insert(pid).second) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_F(ActorFleetTest, ActorsThatAreKilledFasterThanTheyStartAreStartedOnAndOn) {
  ActorFleetOptions options = DummyActors(Dummy(R"("reset_us": 200000)"));
  options.failures_max = 2;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  fleet->Begin(0, 0, EpisodeOf(0));
  KillAtTheStart(5);
  EXPECT_EQ(WaitForOne(*fleet).kind, Kind::kLost);
  EXPECT_EQ(Player(*fleet).Play(2), Undisturbed(2));
  EXPECT_TRUE(fleet->status().ok()) << fleet->status().message();
}

TEST_F(ActorFleetTest, GivesUpOnAnActorThatIsKilledForLong) {
  ActorFleetOptions options = DummyActors(Dummy(R"("reset_us": 200000)"));
  options.failures_max = 2;
  options.killed_timeout = 0;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  fleet->Begin(0, 0, EpisodeOf(0));
  KillAtTheStart(2);
  EXPECT_EQ(WaitForOne(*fleet).kind, Kind::kLost);
  fleet->Begin(0, 0, EpisodeOf(0));
  EXPECT_EQ(WaitForOne(*fleet).kind, Kind::kFailed);
  EXPECT_NE(
      fleet->status().message().find("failed 2 times in a row, giving up: killed by signal 9"),
      std::string::npos)
      << fleet->status().message();
}

TEST_F(ActorFleetTest, OneActorThatIsKilledForLongDoesNotEndTheWorkOfOthers) {
  ActorFleetOptions options = DummyActors(Dummy(R"("step_us": 2000)"));
  options.actors = 2;
  options.slots = 2;
  options.failures_max = 2;
  options.killed_timeout = 1;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  const auto actors = ActorsOf(getpid());
  ASSERT_EQ(actors.size(), 2U);
  std::thread killer([spared = actors[0]] {
    // before it can say Hello
    const SteadyTime start = Now();
    for (std::set<pid_t> killed; killed.size() < 7 && SecondsSince(start) < 30;) {
      for (const pid_t pid : ActorsOf(getpid()))
        if (pid != spared && killed.insert(pid).second) kill(pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  Player player(*fleet);
  // the other one has work until the last kill
  EXPECT_EQ(player.Play(240), Undisturbed(240));
  killer.join();
  EXPECT_TRUE(fleet->status().ok()) << fleet->status().message();
}

TEST_F(ActorFleetTest, PicturesComeWhenAskedFor) {
  ActorFleetOptions options = DummyActors(Dummy(""));
  options.render = true;
  options.slots = 2;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  EXPECT_EQ(fleet->spec().render_frames, 2);
  for (uint32_t slot : {0, 1}) {
    fleet->Begin(slot, slot, EpisodeOf(0));
    WaitForOne(*fleet);
    EXPECT_EQ(fleet->pictures(slot).size(), 8U * 16 * 3);
    fleet->Act(slot, {});
    WaitForOne(*fleet);
    ASSERT_EQ(fleet->pictures(slot).size(), 2U * 8 * 16 * 3);
    EXPECT_EQ(fleet->pictures(slot)[1], std::byte{1});
  }
}

// --- at the start

TEST(ActorFleetStartTest, NoInterpreterIsAMissingInput) {
  ActorFleetOptions options = DummyActors(Dummy(""));
  options.python = "/nowhere/.venv/bin/python";
  const auto fleet = MakeActorFleet(options);
  EXPECT_EQ(fleet.status().code(), Code::kNoInput);
  EXPECT_NE(fleet.status().message().find("/nowhere/.venv/bin/python"), std::string::npos);
  EXPECT_NE(fleet.status().message().find("make setup"), std::string::npos);
}

TEST(ActorFleetStartTest, NoPackageIsAMissingInput) {
  ActorFleetOptions options = DummyActors(Dummy(""));
  options.python_path = "/nowhere";
  EXPECT_EQ(MakeActorFleet(options).status().code(), Code::kNoInput);
}

struct BadStart {
  const char* environment;
  Code code;
  const char* words;
};

TEST_F(ActorFleetTest, AnEnvironmentThatCannotBeBuiltIsReportedAtOnce) {
  const BadStart cases[] = {
      {R"({"kind": "atary"})", Code::kConfig,
       "'atary': expected one of atari, dmlab, dummy, envpool, gym"},
      {R"({"kind": "dummy", "lenght": 1})", Code::kConfig, "unknown key 'lenght'"},
      {R"(["kind"])", Code::kConfig, "expected a JSON object"},
      {R"({"kind": "gym", "id": "CartPol-v1"})", Code::kConfig, "CartPol"},
      {R"({"kind": "gym", "id": "nowhere:Name-v0"})", Code::kNoInput, "nowhere"},
      {R"({"kind": "dummy", "fault": "raise", "fault_step": 0})", Code::kConfig,
       "ValueError: the dummy was told to raise"},
      {R"({"kind": "dummy", "fault": "exit", "fault_step": 0})", Code::kUnavailable,
       "could not be started: exit status 3: the dummy was told to exit"},
      {R"({"kind": "dummy", "fault": "crash", "fault_step": 0})", Code::kUnavailable,
       "killed by signal 6"},
  };
  for (const BadStart& c : cases) {
    ActorFleetOptions options = DummyActors(c.environment);
    const auto fleet = MakeActorFleet(options);
    EXPECT_EQ(fleet.status().code(), c.code) << c.environment;
    EXPECT_NE(fleet.status().message().find(c.words), std::string::npos)
        << fleet.status().message();
  }
}

TEST_F(ActorFleetTest, ASilentStartIsGivenUp) {
  ActorFleetOptions options = DummyActors(Dummy(R"("fault": "hang", "fault_step": 0)"));
  options.hello_timeout = 1;
  const auto fleet = MakeActorFleet(options);
  EXPECT_EQ(fleet.status().code(), Code::kUnavailable);
  EXPECT_NE(fleet.status().message().find("no Hello within 1 s"), std::string::npos);
}

TEST_F(ActorFleetTest, FewerSlotsThanActorsMakeFewerActors) {
  ActorFleetOptions options = DummyActors(Dummy(""));
  options.actors = 3;
  options.slots = 1;
  const auto fleet = MakeActorFleet(options).ValueOrThrow();
  EXPECT_EQ(ActorsOf(getpid()).size(), 1U);
}

// --- the learner process's own misfortunes, in a child process that plays the learner process

// Runs `body` in a forked learner process and returns its pid.
pid_t ForkLearner(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  return pid;
}

// Gone, or waiting for init to take notice.
bool Ended(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, command, state;
  stat >> number >> command >> state;
  return !stat || state == "Z";
}

bool Vanish(const std::vector<pid_t>& pids, double seconds) {
  const SteadyTime start = Now();
  for (const pid_t pid : pids) {
    while (!Ended(pid)) {
      if (SecondsSince(start) > seconds) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  return true;
}

std::vector<pid_t> AwaitActors(pid_t learner, size_t count) {
  for (int i = 0; i < 500; ++i) {
    if (auto pids = ActorsOf(learner); pids.size() == count) return pids;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

TEST_F(ActorFleetTest, NoActorOutlivesAKilledEngine) {
  // one actor is in the middle of an endless step, the other has nothing to do
  const pid_t learner = ForkLearner([] {
    ActorFleetOptions options = DummyActors(Dummy(R"("fault": "hang", "fault_step": 1)"));
    options.actors = options.slots = 2;
    const auto fleet = MakeActorFleet(options).ValueOrThrow();
    fleet->Begin(0, 0, EpisodeOf(0));
    WaitForOne(*fleet);
    fleet->Act(0, {});
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  });
  const auto actors = AwaitActors(learner, 2);
  ASSERT_EQ(actors.size(), 2U);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(learner, SIGKILL);
  waitpid(learner, nullptr, 0);
  EXPECT_TRUE(Vanish(actors, 2));
}

TEST_F(ActorFleetTest, APauseOfTheWholeMachineIsNoFaultOfAnActor) {
  int serving[2];
  ASSERT_EQ(pipe(serving), 0);
  const pid_t learner = ForkLearner([&] {
    ActorFleetOptions options = DummyActors(Dummy(R"("step_us": 20000)"));
    options.actors = options.slots = 2;
    options.step_timeout = 0.5;
    const auto fleet = MakeActorFleet(options).ValueOrThrow();
    int steps = 0;
    Player(*fleet).Play(20, [&](const SlotEvent&) {
      if (++steps == 20) {
        EXPECT_EQ(write(serving[1], "!", 1), 1);
      }
    });
    return fleet->counters().respawns == 0 ? 0 : 1;
  });
  // in the middle of play, when a command is outstanding nearly always
  char byte;
  ASSERT_EQ(read(serving[0], &byte, 1), 1);
  const auto actors = ActorsOf(learner);
  ASSERT_EQ(actors.size(), 2U);
  for (const pid_t pid : actors) kill(pid, SIGSTOP);
  kill(learner, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(learner, SIGCONT);
  for (const pid_t pid : actors) kill(pid, SIGCONT);
  int status = -1;
  waitpid(learner, &status, 0);
  EXPECT_EQ(status, 0) << "1 in the exit status: an actor was replaced";
  close(serving[0]);
  close(serving[1]);
}

}  // namespace
}  // namespace samara
