// Groups of ranks as threads over shared memory: what collectives give, and what happens when a
// rank calls something else, does not come, freezes or dies.
#include "replica/collectives/communicator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <regex>

#include "core/thread.h"
#include "replica/collectives/arena.h"

namespace samara::communicator_test {
namespace {

using namespace std::chrono_literals;

struct Rank {
  int rank, size;
  Communicator& comm;
  Monitor& monitor;
};

struct GroupOptions {
  ArenaOptions arena{};
  CommunicatorOptions comm{.deadline = 20s, .first_deadline = 20s};
  bool records = false;  // failing ranks leave some
};

// Runs `body` on `size` threads of one group. A body that returns false dies: its rank goes without
// a word.
void RunGroup(int size, const std::function<bool(Rank&)>& body, GroupOptions options = {}) {
  options.records ? ::unsetenv("SAMARA_TRACE") : ::setenv("SAMARA_TRACE", "", 1);
  const auto store = MakeMemoryStore();
  const auto hub = MakeMonitorHub(size);
  std::vector<std::unique_ptr<Thread>> threads;
  for (int r = 0; r < size; ++r) {
    threads.push_back(std::make_unique<Thread>("rank" + std::to_string(r), [&, r] {
      auto transport = MakeArenaTransport(r, size, *store, options.arena);
      ASSERT_TRUE(transport.ok()) << transport.status().message();
      Communicator comm(std::move(*transport), options.comm);
      const auto monitor = MakeMemoryMonitor(r, hub, [&](const Status& why) { comm.Abort(why); });
      comm.SetMonitor(monitor.get());
      Rank rank{r, size, comm, *monitor};
      if (body(rank)) monitor->Leave();
    }));
  }
}

template <typename T>
std::span<std::byte> Bytes(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

Status Sum(Rank& rank, std::vector<float>& values, const char* operation = "all_reduce sum",
           Site site = std::source_location::current()) {
  const auto r = static_cast<uint32_t>(rank.rank);
  const Partial mine{{r, r + 1}, Bytes(values)};
  std::vector<float> out(values.size());
  const Status status = rank.comm.AllReduce(
      {operation, "float32[" + std::to_string(values.size()) + "]", site}, ReduceOp::kSum,
      ElementType::kF32, static_cast<uint32_t>(rank.size), {&mine, 1}, Bytes(out));
  if (status.ok()) values = out;
  return status;
}

TEST(CommunicatorTest, AllReduceOfAnySizeIsTheTreesValue) {
  for (const int size : {1, 2, 3, 4, 7}) {
    // 4000 bytes a round: the largest takes many
    RunGroup(size,
             [&](Rank& rank) {
               for (const size_t n : {1U, 5U, 1000U, 20'001U}) {
                 std::vector<float> values(n);
                 for (size_t i = 0; i < n; ++i)
                   values[i] = static_cast<float>(rank.rank + 1) * static_cast<float>(i % 100);
                 EXPECT_TRUE(Sum(rank, values).ok());
                 const auto total = static_cast<float>(size * (size + 1) / 2);
                 for (size_t i = 0; i < n; ++i)
                   EXPECT_EQ(values[i], total * static_cast<float>(i % 100)) << size << " " << n;
               }
               return true;
             },
             {.arena = {.area_bytes = 4032}});
  }
}

// Eight leaves on one, two, four and eight ranks, values whose sum depends on the order.
TEST(CommunicatorTest, TheSameBitsAtAnyNumberOfRanks) {
  for (const uint32_t leaves : {6U, 8U}) {
    for (const size_t n : {3U, 30'000U}) {
      std::vector<std::vector<float>> results;
      std::mutex mu;
      for (uint32_t size = 1; size <= leaves; ++size) {
        if (leaves % size != 0) continue;
        RunGroup(static_cast<int>(size), [&](Rank& rank) {
          const uint32_t each = leaves / size, begin = static_cast<uint32_t>(rank.rank) * each;
          TreeFolder folder(ReduceOp::kSum, ElementType::kF32, leaves, begin, begin + each);
          for (uint32_t leaf = begin; leaf < begin + each; ++leaf) {
            std::mt19937 random(leaf);
            std::vector<float> values(n);
            for (float& v : values) v = std::normal_distribution<float>(0, 1)(random);
            folder.Add(Bytes(values));
          }
          std::vector<float> out(n);
          EXPECT_TRUE(rank.comm
                          .AllReduce({"sum", ""}, ReduceOp::kSum, ElementType::kF32, leaves,
                                     folder.partials(), Bytes(out))
                          .ok());
          std::lock_guard lock(mu);
          results.push_back(out);
          return true;
        });
      }
      for (const auto& result : results)
        EXPECT_EQ(std::memcmp(result.data(), results[0].data(), n * sizeof(float)), 0);
    }
  }
}

TEST(CommunicatorTest, GathersBroadcastsAndExchanges) {
  RunGroup(3,
           [](Rank& rank) {
             for (const size_t n : {0U, 1U, 5000U}) {
               std::vector<uint32_t> mine(n, static_cast<uint32_t>(rank.rank)), all(3 * n);
               EXPECT_TRUE(rank.comm.AllGather({"gather", ""}, Bytes(mine), Bytes(all)).ok());
               for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i / n);
               EXPECT_TRUE(rank.comm.Broadcast({"broadcast", ""}, 2, Bytes(mine)).ok());
               for (const uint32_t x : mine) EXPECT_EQ(x, 2U);
               std::vector<uint32_t> send(3 * n), got(3 * n);
               for (size_t i = 0; i < send.size(); ++i)
                 send[i] = static_cast<uint32_t>(rank.rank) * 10 + static_cast<uint32_t>(i / n);
               EXPECT_TRUE(rank.comm.AllToAll({"exchange", ""}, Bytes(send), Bytes(got)).ok());
               for (size_t i = 0; i < got.size(); ++i)
                 EXPECT_EQ(got[i], (i / n) * 10 + static_cast<size_t>(rank.rank));
               std::vector<std::byte> ragged(n * static_cast<size_t>(rank.rank),
                                             static_cast<std::byte>(rank.rank));
               std::vector<std::vector<std::byte>> theirs;
               EXPECT_TRUE(rank.comm.AllGatherRagged({"ragged", ""}, ragged, theirs).ok());
               for (size_t r = 0; r < 3; ++r)
                 EXPECT_EQ(theirs[r], std::vector<std::byte>(n * r, static_cast<std::byte>(r)));
             }
             EXPECT_TRUE(rank.comm.Barrier({"barrier", ""}).ok());
             return true;
           },
           {.arena = {.area_bytes = 4032}});
}

// Error of each rank; all of them have one.
std::vector<Status> Heard(int size, const std::function<Status(Rank&)>& body,
                          GroupOptions options = {}) {
  std::vector<Status> heard(static_cast<size_t>(size));
  RunGroup(
      size,
      [&](Rank& rank) {
        heard[static_cast<size_t>(rank.rank)] = body(rank);
        return true;
      },
      options);
  return heard;
}

// The same shapes in swapped order.
TEST(CommunicatorTest, SwappedOrderIsNamedOnEveryRankAndNothingIsMixed) {
  const auto heard = Heard(3, [](Rank& rank) {
    std::vector<float> a{1}, b{100};
    Status first, second;
    if (rank.rank != 1) {
      first = Sum(rank, a, "all_reduce sum of a");
      second = Sum(rank, b, "all_reduce sum of b");
    } else {
      first = Sum(rank, b, "all_reduce sum of b");
      second = Sum(rank, a, "all_reduce sum of a");
    }
    EXPECT_EQ(a[0], 1);
    EXPECT_EQ(b[0], 100);
    EXPECT_EQ(second.message(), first.message()) << "the first failure stays";
    return first;
  });
  for (const Status& status : heard) {
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_NE(status.message().find("ranks 0, 2: all_reduce sum of a"), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("rank 1: all_reduce sum of b"), std::string::npos);
    EXPECT_NE(status.message().find("communicator_test.cc:"), std::string::npos);
  }
}

// Other types and counts; the shapes are part of the fingerprint.
TEST(CommunicatorTest, OtherTypesOrCountsAreRefused) {
  for (const bool count : {false, true}) {
    const auto heard = Heard(2, [&](Rank& rank) {
      std::vector<float> values(count && rank.rank == 1 ? 7 : 5, 1.0F);
      const auto r = static_cast<uint32_t>(rank.rank);
      const Partial mine{{r, r + 1}, Bytes(values)};
      std::vector<float> out(values.size());
      const ElementType type = !count && rank.rank == 1 ? ElementType::kI32 : ElementType::kF32;
      return rank.comm.AllReduce(
          {"sum", std::string(Name(type)) + "[" + std::to_string(values.size()) + "]"},
          ReduceOp::kSum, type, 2, {&mine, 1}, Bytes(out));
    });
    for (const Status& status : heard) {
      EXPECT_EQ(status.code(), Code::kInternal);
      EXPECT_NE(status.message().find(count ? "float32[7]" : "int32[5]"), std::string::npos);
    }
  }
}

// Another operation altogether.
TEST(CommunicatorTest, AnotherOperationIsRefusedAtOnce) {
  const auto start = Now();
  const auto heard = Heard(2, [](Rank& rank) {
    std::vector<float> values{1};
    return rank.rank == 0 ? Sum(rank, values)
                          : rank.comm.Broadcast({"broadcast", "float32[1]"}, 0, Bytes(values));
  });
  for (const Status& status : heard) EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_LT(SecondsSince(start), 5);
}

// A rank that does not come is named when the deadline has passed, by all that wait.
TEST(CommunicatorTest, AMissingRankIsNamedAtTheDeadline) {
  const auto heard = Heard(4,
                           [](Rank& rank) {
                             std::vector<float> values{1};
                             EXPECT_TRUE(Sum(rank, values).ok());
                             if (rank.rank == 2) {
                               while (rank.comm.failure().ok()) std::this_thread::sleep_for(1ms);
                               return rank.comm.failure();
                             }
                             return Sum(rank, values);
                           },
                           {.comm = {.deadline = 200ms, .first_deadline = 20s}});
  for (const Status& status : heard) {
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("rank 2 did not come"), std::string::npos) << status.message();
  }
}

// A rank that dies wakes the others at once.
TEST(CommunicatorTest, ADeadRankIsNamedAtOnce) {
  const auto start = Now();
  std::vector<Status> heard(3);
  RunGroup(3, [&](Rank& rank) {
    std::vector<float> values{1};
    EXPECT_TRUE(Sum(rank, values).ok());
    if (rank.rank == 1) return false;
    heard[static_cast<size_t>(rank.rank)] = Sum(rank, values);
    return true;
  });
  for (const int r : {0, 2}) {
    EXPECT_NE(heard[static_cast<size_t>(r)].message().find("rank 1 died"), std::string::npos);
    EXPECT_EQ(heard[static_cast<size_t>(r)].code(), Code::kUnavailable);
  }
  EXPECT_LT(SecondsSince(start), 5);
}

enum class Fault { kDies, kCallsAnother, kFreezes, kNone };
constexpr std::chrono::milliseconds kDeadline = 3s;

struct Told {
  int steps = 0;
  Status status;
  double seconds = 0;  // in the call that failed
};

// 20 steps, after short pauses of each rank's own; the culprit does its fault at step `at`.
std::vector<Told> Steps(int size, Fault fault, int culprit, int at, uint32_t seed) {
  std::vector<Told> told(static_cast<size_t>(size));
  RunGroup(size,
           [&](Rank& rank) {
             std::mt19937 delays(seed * 1000 + static_cast<uint32_t>(rank.rank));
             auto& [step, status, seconds] = told[static_cast<size_t>(rank.rank)];
             for (; step < 20 && status.ok(); ++step) {
               if (delays() % 8 == 0)
                 std::this_thread::sleep_for(std::chrono::microseconds(delays() % 500));
               std::vector<float> values{1, 2};
               const Fault mine = rank.rank == culprit && step == at ? fault : Fault::kNone;
               if (mine == Fault::kDies) return false;
               const SteadyTime start = Now();
               if (mine == Fault::kFreezes) {
                 while (rank.comm.failure().ok()) std::this_thread::sleep_for(1ms);
                 status = rank.comm.failure();
               } else {
                 status = mine == Fault::kCallsAnother ? Sum(rank, values, "something else")
                                                       : Sum(rank, values);
               }
               seconds = SecondsSince(start);
               if (status.ok()) {
                 EXPECT_EQ(values[1], 2.0F * static_cast<float>(size));
               }
             }
             return true;
           },
           {.comm = {.deadline = kDeadline, .first_deadline = 60s}});
  return told;
}

// Error of a rank, whichever of those that noticed it was first to tell the others.
std::string Words(const Status& status) {
  static const std::regex kTeller("^rank [0-9]+ gave up: ");
  return std::regex_replace(status.message(), kTeller, "");
}

// A random rank does a wrong thing at a random step, among many: all go on, or all fail together,
// with the same words about this very rank, and in time.
TEST(CommunicatorTest, ManyRanksAgreeOrFailTogether) {
  const std::map<Fault, std::string> expected{{Fault::kDies, "^rank {} died; "},
                                              {Fault::kCallsAnother, "rank {}: something else of "},
                                              {Fault::kFreezes, "^rank {} did not come to "}};
#ifdef __SANITIZE_THREAD__
  const std::vector<int> sizes{64};  // it makes threads ten times as slow
#else
  const std::vector<int> sizes{64, 256};
#endif
  for (const int size : sizes) {
    uint32_t seed = 0;
    for (const Fault fault : {Fault::kCallsAnother, Fault::kFreezes, Fault::kNone, Fault::kDies}) {
      std::mt19937 random(++seed);
      const int culprit = static_cast<int>(random() % static_cast<unsigned>(size));
      const auto told = Steps(size, fault, culprit, 1 + static_cast<int>(random() % 19), seed);
      if (fault == Fault::kNone) {
        for (const Told& one : told) EXPECT_TRUE(one.status.ok() && one.steps == 20);
        continue;
      }
      const bool dies = fault == Fault::kDies;
      const std::string first = Words(told[dies && culprit == 0 ? 1 : 0].status);
      const std::regex named(
          std::regex_replace(expected.at(fault), std::regex("\\{\\}"), std::to_string(culprit)));
      EXPECT_TRUE(std::regex_search(first, named)) << culprit << ": " << first;
      // the deadline is for ranks that do not come; others are noticed before it
      const double limit = fault == Fault::kFreezes ? 2 : 1;
      for (int r = 0; r < size; ++r) {
        if (r == culprit && dies) continue;
        const Told& one = told[static_cast<size_t>(r)];
        EXPECT_FALSE(one.status.ok()) << r;
        EXPECT_EQ(Words(one.status), first) << r;
        EXPECT_LT(one.seconds, limit * std::chrono::duration<double>(kDeadline).count()) << r;
      }
    }
  }
}

TEST(CommunicatorTest, TheFlightRecorderKnowsWhatWasCalled) {
  RunGroup(2, [](Rank& rank) {
    std::vector<float> values{1};
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Sum(rank, values).ok());
    const auto records = rank.comm.flight().records();
    EXPECT_EQ(records.size(), 3U);
    EXPECT_EQ(records.back().sequence, 2U);
    EXPECT_TRUE(records.back().ended && !records.back().failed);
    EXPECT_NE(records.back().text.find("all_reduce sum of float32[1] at communicator_test.cc:"),
              std::string::npos);
    EXPECT_NE(rank.comm.flight().ChromeTrace(0).find("\"ph\":\"X\""), std::string::npos);
    EXPECT_EQ(rank.comm.flight().ChromeTrace(0).find("replica"), std::string::npos);
    rank.comm.flight().Span("replica 3", "step 12", Now());
    EXPECT_NE(rank.comm.flight().ChromeTrace(0).find("\"tid\":\"replica 3\""), std::string::npos);
    return true;
  });
}

TEST(CommunicatorTest, TheRecordOfAFailureLiesWhereItIsAskedFor) {
  const auto file = [](const std::string& folder, std::optional<std::string> traces) {
    const Path found = FlightFile(folder, 3, [&](const std::string& name) {
      return name == "SAMARA_TRACE" ? traces : std::nullopt;
    });
    return found.string();
  };
  EXPECT_EQ(file("here", std::nullopt), "here/flight-3.json");
  EXPECT_EQ(file("here", ""), "here/flight-3.json");
  EXPECT_EQ(file("", "there"), "there/flight-3.json");
  EXPECT_EQ(file("", ""), "");
  EXPECT_EQ(file("", std::nullopt), std::filesystem::temp_directory_path() /
                                        ("samara-flight-3-" + std::to_string(getpid()) + ".json"));
}

// Unasked: each rank of a group that failed names a file of its own, once.
TEST(CommunicatorTest, AFailureNamesItsRecord) {
  const auto heard =
      Heard(3,
            [](Rank& rank) {
              std::vector<float> values{1};
              EXPECT_TRUE(Sum(rank, values).ok());
              return Sum(rank, values, rank.rank == 1 ? "another" : "all_reduce sum");
            },
            {.records = true});
  for (int r = 0; r < 3; ++r) {
    const Path file = FlightFile("", r, ProcessEnvironment());
    const std::string& said = heard[static_cast<size_t>(r)].message();
    EXPECT_TRUE(said.ends_with("; its last collectives: " + file.string())) << said;
    EXPECT_EQ(said.find("last collectives"), said.rfind("last collectives")) << said;
    const auto text = ReadFile(file);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const auto record = nlohmann::json::parse(*text);
    EXPECT_EQ(record["rank"], r);
    EXPECT_EQ(record["world_size"], 3);
    EXPECT_EQ(record["records"].size(), 2U);
    EXPECT_NE(record["records"][1]["state"], "done");  // another rank may have told this one
    EXPECT_NE(record["error"].get<std::string>().find("ranks call different"), std::string::npos);
    std::filesystem::remove(file);
  }
}

// Nor does one that cannot be written hide why the group failed.
TEST(CommunicatorTest, ARecordThatCannotBeWrittenChangesNothing) {
  const auto heard =
      Heard(2,
            [](Rank& rank) {
              std::vector<float> values{1};
              return Sum(rank, values, rank.rank == 1 ? "another" : "all_reduce sum");
            },
            {.comm = {.deadline = 20s, .flight_folder = "/dev/null/none"}});
  for (const Status& status : heard) {
    EXPECT_NE(status.message().find("ranks call different"), std::string::npos);
    EXPECT_EQ(status.message().find("last collectives"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace samara::communicator_test
