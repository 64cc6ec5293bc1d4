// The monitors of ranks, as threads and as processes that are killed, frozen and lied to.
#include "replica/liveness/monitor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "replica/liveness/polled_monitor.h"

namespace samara::monitor_test {
namespace {

using namespace std::chrono_literals;

// Calls that one rank received, and how often.
class Told {
 public:
  Monitor::OnFailure Callback() {
    return [this](const Status& failure) {
      const std::lock_guard lock(mu_);
      ++times_;
      failure_ = failure;
      changed_.notify_all();
    };
  }
  Status Wait(std::chrono::milliseconds timeout = 20s) {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, timeout, [&] { return times_ > 0; });
    return failure_;
  }
  int times() const {
    const std::lock_guard lock(mu_);
    return times_;
  }

 private:
  mutable std::mutex mu_;
  std::condition_variable changed_;
  int times_ = 0;
  Status failure_;
};

// Ranks as threads that have all come.
struct Group {
  explicit Group(int size, const Monitor::Options& options = {}) : told(size), monitors(size) {
    const auto store = MakeMemoryStore();
    std::vector<std::unique_ptr<Thread>> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.push_back(std::make_unique<Thread>("rank", [this, rank, size, store, options] {
        const auto i = static_cast<size_t>(rank);
        auto made = MakeSocketMonitor(rank, size, store, options, told[i].Callback());
        ASSERT_TRUE(made.ok()) << made.status().message();
        monitors[i] = std::move(*made);
      }));
  }
  ~Group() {
    for (const auto& monitor : monitors)
      if (monitor != nullptr) monitor->Leave();
    // rank 0 last: it waits for the others
    while (!monitors.empty()) monitors.pop_back();
  }

  std::vector<Told> told;
  std::vector<std::unique_ptr<Monitor>> monitors;
};

TEST(MonitorTest, AGroupThatLeavesIsToldOfNoFailure) {
  std::vector<int> times;
  {
    Group group(4);
    std::this_thread::sleep_for(600ms);  // some heartbeats
    for (int rank : {2, 0, 3, 1}) group.monitors[static_cast<size_t>(rank)]->Leave();
    for (const Told& told : group.told) times.push_back(told.times());
  }
  EXPECT_EQ(times, std::vector<int>(4, 0));
}

TEST(MonitorTest, OneRankAloneNeedsNoPeers) {
  Told told;
  auto alone = MakeSocketMonitor(0, 1, MakeMemoryStore(), {}, told.Callback());
  ASSERT_TRUE(alone.ok());
  (*alone)->Fail({Code::kBadData, "a hole in the data"});
  EXPECT_EQ(told.Wait().message(), "rank 0 gave up: a hole in the data");
}

TEST(MonitorTest, WhoGivesUpTellsEverybodyOnceInTheSameWords) {
  for (const size_t culprit : {size_t{0}, size_t{2}}) {
    Group group(4);
    const SteadyTime start = Now();
    group.monitors[culprit]->Fail({Code::kConfig, "the seeds\ndiffer"});
    for (Told& told : group.told) {
      EXPECT_EQ(told.Wait().message(),
                "rank " + std::to_string(culprit) + " gave up: the seeds\\x0adiffer");
      EXPECT_EQ(told.Wait().code(), Code::kConfig);
    }
    EXPECT_LT(SecondsSince(start), 2.0);
    group.monitors[1]->Fail({Code::kInternal, "too late"});
    std::this_thread::sleep_for(50ms);
    for (const Told& told : group.told) EXPECT_EQ(told.times(), 1);
  }
}

TEST(MonitorTest, AMonitorThatGoesWithoutLeaveIsADeath) {
  for (const size_t dead : {size_t{0}, size_t{3}}) {
    Group group(4);
    group.monitors[dead].reset();
    for (size_t rank = 0; rank < 4; ++rank) {
      if (rank == dead) continue;
      const Status failure = group.told[rank].Wait();
      EXPECT_TRUE(failure.message().starts_with("rank " + std::to_string(dead) + " died"))
          << failure.message();
      EXPECT_EQ(failure.code(), Code::kUnavailable);
    }
    EXPECT_EQ(group.told[dead].times(), 0);
  }
}

TEST(MonitorTest, EveryRankCanSayWhatTheOthersDo) {
  Group group(3);
  group.monitors[0]->Report(MakeActivity(7, true, "all_reduce at train.cc:41"));
  group.monitors[2]->Report(MakeActivity(7, true, "all_reduce at train.cc:41"));
  group.monitors[1]->Report(MakeActivity(6, false, ""));
  const std::string expected =
      "rank 1 after collective 6, ranks 0, 2 in collective 7 (all_reduce at train.cc:41)";
  // the others' words arrive with their next beats
  const SteadyTime start = Now();
  while (group.monitors[0]->Describe() != expected && SecondsSince(start) < 20)
    std::this_thread::sleep_for(10ms);
  for (const auto& monitor : group.monitors) EXPECT_EQ(monitor->Describe(), expected);
}

TEST(MonitorTest, DescribeInsideOnFailureDoesNotWait) {
  const auto store = MakeMemoryStore();
  std::atomic<double> seconds{-1};
  Told told;
  std::unique_ptr<Monitor> monitors[2];
  {
    Thread other("rank", [&] {
      monitors[1] = std::move(*MakeSocketMonitor(1, 2, store, {}, [&](const Status& failure) {
        const SteadyTime start = Now();
        EXPECT_FALSE(monitors[1]->Describe().empty());
        monitors[1]->Fail({Code::kInternal, "me too"});
        seconds = SecondsSince(start);
        told.Callback()(failure);
      }));
    });
    monitors[0] = std::move(*MakeSocketMonitor(0, 2, store, {}, nullptr));
  }
  monitors[0]->Fail({Code::kInternal, "x"});
  EXPECT_EQ(told.Wait().message(), "rank 0 gave up: x");
  EXPECT_LT(seconds, 0.2);
  monitors[1].reset();
}

TEST(MonitorTest, SaysWhoDidNotCome) {
  const auto store = MakeMemoryStore();
  Monitor::Options options;
  options.start = 400ms;
  Status others;
  {
    Thread rank2("rank",
                 [&] { others = MakeSocketMonitor(2, 4, store, options, nullptr).status(); });
    const Status first = MakeSocketMonitor(0, 4, store, options, nullptr).status();
    EXPECT_EQ(first.message(),
              "ranks 1, 3 of 4 did not come within 0.4 s: were all of them started?");
    EXPECT_EQ(first.code(), Code::kUnavailable);
  }
  EXPECT_TRUE(others.message().starts_with("ranks 1, 3 of 4 did not come")) << others.message();
  const Status nobody = MakeSocketMonitor(1, 2, MakeMemoryStore(), options, nullptr).status();
  EXPECT_TRUE(nobody.message().starts_with("rank 0 did not come")) << nobody.message();
}

TEST(MonitorTest, RefusesAnotherSizeAndANumberTwice) {
  const auto store = MakeMemoryStore();
  Monitor::Options options;
  options.start = 10s;
  Thread group0("rank",
                [&] { EXPECT_TRUE(MakeSocketMonitor(0, 3, store, options, nullptr).ok()); });
  const Status size = MakeSocketMonitor(1, 4, store, options, nullptr).status();
  EXPECT_EQ(size.code(), Code::kConfig);
  EXPECT_EQ(size.message(), "rank 1 was told of 4 ranks, rank 0 of 3: start all with the same");
  std::atomic<int> refused{0};
  const auto come = [&](int rank) {
    const auto made = MakeSocketMonitor(rank, 3, store, options, nullptr);
    if (made.ok()) return (*made)->Leave();
    EXPECT_EQ(made.status().code(), Code::kConfig);
    EXPECT_EQ(made.status().message(), "rank 1 has come already: two processes have this number");
    ++refused;
  };
  {
    // one of the two is refused while rank 2 keeps the group waiting; then all three are complete
    Thread one("rank", [&] { come(1); }), another("rank", [&] { come(1); });
    while (refused == 0) std::this_thread::sleep_for(1ms);
    come(2);
  }
  EXPECT_EQ(refused, 1);
}

TEST(MonitorTest, BadOptionsAndAddressesAreSaid) {
  Monitor::Options options;
  options.heartbeat_timeout = 400ms;
  EXPECT_EQ(MakeSocketMonitor(0, 2, MakeMemoryStore(), options, nullptr).status().code(),
            Code::kConfig);
  for (const char* address : {"0.0.0.0", "::", "192.0.2.77", "no.such.host.invalid"}) {
    options = {};
    options.address = address;
    const Status status = MakeSocketMonitor(0, 2, MakeMemoryStore(), options, nullptr).status();
    EXPECT_EQ(status.code(), Code::kConfig) << status.message();
    EXPECT_NE(status.message().find(address), std::string::npos) << status.message();
  }
  const auto store = MakeMemoryStore();
  for (const char* text : {"", "1", "70000 00 127.0.0.1", "5 0011 127.0.0.1",
                           "5 0123456789abcdef0123456789abcdeg 127.0.0.1"}) {
    ASSERT_TRUE(store->Set(kMonitorKey, text).ok());
    EXPECT_EQ(MakeSocketMonitor(1, 2, store, {}, nullptr).status().code(), Code::kConfig) << text;
  }
}

// A connection to rank 0 by a process that knows its address.
OwnedFd Stranger(const Endpoint& endpoint) {
  Result<OwnedFd> fd = ConnectTo(endpoint, 5000ms);
  return fd.ok() ? std::move(*fd) : OwnedFd();
}

TEST(MonitorTest, StrangersAndGarbageDoNotDisturbTheStart) {
  SetLogLevel(LogLevel::kError);
  const auto store = MakeMemoryStore();
  Told told[2];
  std::unique_ptr<Monitor> monitors[2];
  Thread rank0("rank", [&] {
    monitors[0] = std::move(*MakeSocketMonitor(0, 2, store, {}, told[0].Callback()));
  });
  const MonitorAddress address = *ParseMonitorAddress(*store->Get(kMonitorKey, 10s));
  std::mt19937_64 random(7);
  std::vector<OwnedFd> strangers;
  for (int i = 0; i < 300; ++i) {
    OwnedFd fd = Stranger(address.endpoint);
    std::string bytes(random() % 5000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 3 == 0) {  // a frame in all but its token
      MonitorFrame hello{.kind = MonitorKind::kHello, .rank = 1};
      hello.number = 2;
      bytes.assign(reinterpret_cast<const char*>(&hello), sizeof hello);
    }
    (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 2 == 0) strangers.push_back(std::move(fd));  // these stay, beyond what rank 0 keeps
  }
  for (int i = 0; i < 200; ++i) strangers.push_back(Stranger(address.endpoint));  // silent ones
  monitors[1] = std::move(*MakeSocketMonitor(1, 2, store, {}, told[1].Callback()));
  rank0.Join();
  // all have come: no other process is let in
  EXPECT_FALSE(ConnectTo(address.endpoint, 1000ms).ok());
  std::this_thread::sleep_for(300ms);
  for (const Told& t : told) EXPECT_EQ(t.times(), 0);
  for (const auto& monitor : monitors) monitor->Leave();
  monitors[1].reset();
  SetLogLevel(LogLevel::kInfo);
}

// One that holds the token and is no rank of this launch.
TEST(MonitorTest, ANumberThatIsNoRanksIsRefused) {
  SetLogLevel(LogLevel::kError);
  const auto store = MakeMemoryStore();
  Told told;
  std::unique_ptr<Monitor> monitors[2];
  Thread rank0("rank", [&] {
    monitors[0] = std::move(*MakeSocketMonitor(0, 2, store, {}, told.Callback()));
  });
  const MonitorAddress address = *ParseMonitorAddress(*store->Get(kMonitorKey, 10s));
  const auto answer = [&](MonitorKind kind, int rank) {
    FrameSocket socket(std::move(*ConnectTo(address.endpoint, 5000ms)));
    MonitorFrame hello{.kind = kind, .rank = rank};
    hello.number = 2;
    hello.token = MonitorProof("", address.token);
    socket.Put(hello);
    socket.Flush();
    for (int i = 0; i < 1000; ++i) {
      if (const auto frame = socket.Receive()) return FrameText(*frame);
      if (socket.closed()) break;
      std::this_thread::sleep_for(5ms);
    }
    EXPECT_TRUE(socket.closed());
    return std::string("closed");
  };
  for (const int rank : {-1, 0, 2, 1 << 30})
    EXPECT_EQ(answer(MonitorKind::kHello, rank),
              "rank " + std::to_string(rank) + ": expected 0 to 1");
  EXPECT_EQ(answer(MonitorKind::kBeat, 1), "closed");
  monitors[1] = std::move(*MakeSocketMonitor(1, 2, store, {}, told.Callback()));
  rank0.Join();
  EXPECT_EQ(told.times(), 0);
  for (const auto& monitor : monitors) monitor->Leave();
  monitors[1].reset();
  SetLogLevel(LogLevel::kInfo);
}

// Whoever holds the token may be broken too: the group fails, rank 0 survives.
TEST(MonitorTest, ARankThatSendsGarbageIsNamed) {
  const auto store = MakeMemoryStore();
  Told told;
  std::unique_ptr<Monitor> monitor;
  Thread rank0("rank",
               [&] { monitor = std::move(*MakeSocketMonitor(0, 2, store, {}, told.Callback())); });
  const MonitorAddress address = *ParseMonitorAddress(*store->Get(kMonitorKey, 10s));
  FrameSocket socket(std::move(*ConnectTo(address.endpoint, 5000ms)));
  MonitorFrame hello{.kind = MonitorKind::kHello, .rank = 1};
  hello.number = 2;
  hello.token = MonitorProof("", address.token);
  socket.Put(hello);
  socket.Flush();
  rank0.Join();
  const std::string garbage(3000, 'g');
  EXPECT_EQ(::send(socket.fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 3000);
  EXPECT_TRUE(told.Wait().message().starts_with("rank 1 sent what is no message"));
  EXPECT_EQ(told.Wait().code(), Code::kConfig);
  monitor->Leave();
}

// Every kind of frame with random fields, also ones only rank 0 may send, in random order.
TEST(MonitorTest, NoFrameOfARankEndsRankZero) {
  std::mt19937_64 random(9);
  for (int trial = 0; trial < 30; ++trial) {
    const auto store = MakeMemoryStore();
    Told told;
    std::unique_ptr<Monitor> monitor;
    Thread rank0(
        "rank", [&] { monitor = std::move(*MakeSocketMonitor(0, 2, store, {}, told.Callback())); });
    const MonitorAddress address = *ParseMonitorAddress(*store->Get(kMonitorKey, 10s));
    FrameSocket socket(std::move(*ConnectTo(address.endpoint, 5000ms)));
    MonitorFrame frame{.kind = MonitorKind::kHello, .rank = 1};
    frame.number = 2;
    frame.token = MonitorProof("", address.token);
    socket.Put(frame);
    socket.Flush();
    rank0.Join();
    for (int i = 0; i < 12; ++i) {
      frame.kind = static_cast<MonitorKind>(random() % 10);
      frame.rank = static_cast<int32_t>(random());
      frame.code = static_cast<int32_t>(random());
      frame.number = random();
      for (char& c : frame.text) c = static_cast<char>(random());  // without an end
      socket.Put(frame);
      socket.Flush();
    }
    // alive: it says what it knows, and ends in order
    EXPECT_FALSE(monitor->Describe().empty());
    monitor->Leave();
  }
}

TEST(MonitorTest, SixtyFourRanksAsThreadsLearnOfOneDeath) {
  constexpr size_t kRanks = 64;
  Group group(kRanks);
  const SteadyTime start = Now();
  group.monitors[41].reset();
  const std::string words = group.told[0].Wait().message();
  EXPECT_TRUE(words.starts_with("rank 41 died; ")) << words;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    if (rank != 41) {
      EXPECT_EQ(group.told[rank].Wait().message(), words);
    }
  }
  EXPECT_LT(SecondsSince(start), 2.0);
}

// ---- ranks as processes ----

// A store that processes share: one file a key.
class FolderStore : public Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Status Set(const std::string& key, std::string_view value) override {
    const auto temporary = folder_ / (key + "." + std::to_string(::getpid()));
    std::ofstream(temporary, std::ios::binary) << value;
    std::filesystem::rename(temporary, folder_ / key);
    return Status::Ok();
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    const SteadyTime deadline = Now() + timeout;
    while (!std::filesystem::exists(folder_ / key)) {
      if (Now() >= deadline) return StoreTimeout(key, timeout);
      std::this_thread::sleep_for(2ms);
    }
    std::ifstream file(folder_ / key, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  Result<int64_t> Add(const std::string&, int64_t) override {
    return Status(Code::kInternal, "not needed here");
  }
  Status Delete(const std::string& key) override {
    std::filesystem::remove(folder_ / key);
    return Status::Ok();
  }

 private:
  const std::filesystem::path folder_;
};

// Ranks as processes, which report on pipes: "ready", then the failure they are told.
class ProcessesTest : public ::testing::Test {
 protected:
  struct Rank {
    pid_t pid = -1;
    int pipe = -1;
    std::string said;
  };

  void Start(int size, const Monitor::Options& options = {}) {
    char name[] = "/tmp/samara-monitor-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      ASSERT_EQ(::pipe(ends), 0);
      const pid_t pid = ::fork();
      if (pid == 0) Live(rank, size, options, ends[1]);
      ::close(ends[1]);
      ranks_.push_back({pid, ends[0], {}});
    }
    for (Rank& rank : ranks_) ASSERT_TRUE(WaitForText(rank, "ready", 60)) << rank.said;
  }

  [[noreturn]] void Live(int rank, int size, const Monitor::Options& options, int out) {
    const auto say = [out](const std::string& text) {
      (void)!::write(out, text.data(), text.size());
    };
    auto monitor = MakeSocketMonitor(rank, size, std::make_shared<FolderStore>(folder_), options,
                                     [&](const Status& failure) {
                                       say(failure.message() + "\n");
                                       ::_exit(static_cast<int>(failure.code()));
                                     });
    say(monitor.ok() ? "ready\n" : monitor.status().message() + "\n");
    for (;;) ::pause();
  }

  // Reads until `text` was said; false after `seconds`.
  bool WaitForText(Rank& rank, const std::string& text, double seconds) {
    const SteadyTime start = Now();
    while (rank.said.find(text) == std::string::npos) {
      const double left = seconds - SecondsSince(start);
      pollfd entry{rank.pipe, POLLIN, 0};
      if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left * 1000) + 1) <= 0) return false;
      char bytes[4096];
      const ssize_t n = ::read(rank.pipe, bytes, sizeof bytes);
      if (n <= 0) return false;
      rank.said.append(bytes, static_cast<size_t>(n));
    }
    return true;
  }

  // The others name `culprit` within `seconds` and exit with 69.
  void ExpectNamed(size_t culprit, const std::string& words, double seconds) {
    const SteadyTime start = Now();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == culprit) continue;
      EXPECT_TRUE(WaitForText(ranks_[rank], words, 20)) << rank << " said: " << ranks_[rank].said;
    }
    EXPECT_LT(SecondsSince(start), seconds);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      int status = 0;
      if (rank == culprit) continue;
      ASSERT_EQ(::waitpid(ranks_[rank].pid, &status, 0), ranks_[rank].pid);
      ranks_[rank].pid = -1;
      EXPECT_EQ(WEXITSTATUS(status), 69);
    }
  }

  void TearDown() override {
    for (const Rank& rank : ranks_) {
      if (rank.pid > 0) {
        ::kill(rank.pid, SIGKILL);
        ::waitpid(rank.pid, nullptr, 0);
      }
      ::close(rank.pipe);
    }
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
  std::vector<Rank> ranks_;
};

TEST_F(ProcessesTest, AKilledRankIsNamedAtOnce) {
  Start(4);
  ::kill(ranks_[2].pid, SIGKILL);
  ExpectNamed(2, "rank 2 died; ", 1.0);
}

TEST_F(ProcessesTest, TheDeathOfRankZeroIsNoticedByAll) {
  Start(4);
  ::kill(ranks_[0].pid, SIGKILL);
  ExpectNamed(0, "rank 0 died", 1.0);
}

TEST_F(ProcessesTest, AFrozenRankIsNamedWithinTwoSeconds) {
  Start(4);
  ::kill(ranks_[3].pid, SIGSTOP);
  ExpectNamed(3, "rank 3 has been silent for 1.5 s; ", 2.0);
  // it learns the same when it wakes up
  ::kill(ranks_[3].pid, SIGCONT);
  EXPECT_TRUE(WaitForText(ranks_[3], "rank 3 has been silent for 1.5 s; ", 20)) << ranks_[3].said;
}

TEST_F(ProcessesTest, AFrozenRankZeroIsNamedWithinTwoSeconds) {
  Start(3);
  ::kill(ranks_[0].pid, SIGSTOP);
  ExpectNamed(0, "rank 0 has been silent for 1.5 s", 2.0);
  ::kill(ranks_[0].pid, SIGCONT);
  EXPECT_TRUE(WaitForText(ranks_[0], "rank 0 has been silent for 1.5 s", 20)) << ranks_[0].said;
}

// All of a group are stopped for longer than silence is borne, as a paused virtual machine is, and
// go on in any order: no rank counts the time in which it was stopped itself as the silence of
// another.
TEST_F(ProcessesTest, AGroupThatWasStoppedAsAWholeGoesOn) {
  Start(3);
  for (const Rank& rank : ranks_) ::kill(rank.pid, SIGSTOP);
  std::this_thread::sleep_for(2500ms);
  for (const Rank& rank : ranks_) ::kill(rank.pid, SIGCONT);
  std::this_thread::sleep_for(2000ms);
  for (const Rank& rank : ranks_) EXPECT_EQ(::waitpid(rank.pid, nullptr, WNOHANG), 0) << rank.said;
  ::kill(ranks_[1].pid, SIGKILL);
  ExpectNamed(1, "rank 1 died; ", 1.0);
}

}  // namespace
}  // namespace samara::monitor_test
