#include "replica/torch/c10d_collectives.h"

#include <gtest/gtest.h>

#include <thread>

#include "replica/torch/state.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

// `body` on ranks that are threads, each with its end of a group over Gloo.
void OnGloo(int ranks, const std::function<void(int rank, C10dCollectives& sum)>& body) {
  const auto store = MakeMemoryStore();
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto group = MakeGlooGroup(r, ranks, store, "127.0.0.1", 20'000ms);
      ASSERT_TRUE(group.ok()) << group.status().message();
      EXPECT_EQ((*group)->getBackendName(), "gloo");
      C10dCollectives sum(*group, torch::kCPU);
      body(r, sum);
    });
  }
}

Status Running() { return {}; }

TEST(C10dCollectivesTest, SumsHaveTheSameBitsOnAllRanks) {
  constexpr int kRanks = 3;
  constexpr int64_t kElements = 200'003;
  std::vector<torch::Tensor> in, out(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(r) + 1);
    in.push_back(torch::randn({kElements}, generator));
  }
  OnGloo(kRanks, [&](int r, C10dCollectives& sum) {
    out[static_cast<size_t>(r)] = in[static_cast<size_t>(r)].clone();
    const Status status = sum.Sum(out[static_cast<size_t>(r)], Now() + 20s, Running);
    EXPECT_TRUE(status.ok()) << status.message();
  });
  const torch::Tensor expected =
      in[0].to(torch::kDouble) + in[1].to(torch::kDouble) + in[2].to(torch::kDouble);
  EXPECT_TRUE(torch::allclose(out[0].to(torch::kDouble), expected, 1e-5, 1e-5));
  for (int r = 1; r < kRanks; ++r) EXPECT_TRUE(torch::equal(out[0], out[static_cast<size_t>(r)]));
}

TEST(C10dCollectivesTest, TakesLargeTensorsOfTheTypesThatItSumsExactly) {
  OnGloo(2, [](int, C10dCollectives& sum) {
    EXPECT_TRUE(sum.Takes(torch::zeros({1 << 18})));
    EXPECT_FALSE(sum.Takes(torch::zeros({1 << 10})));
    EXPECT_FALSE(sum.Takes(torch::zeros({1 << 18}, torch::kBFloat16)));
    EXPECT_FALSE(sum.Takes(torch::zeros({1 << 18}, torch::kInt64)));
    EXPECT_FALSE(sum.Takes(torch::zeros({1 << 10, 1 << 10}).t()));
  });
}

TEST(C10dCollectivesTest, ARankThatDoesNotComeEndsItInTime) {
  for (const bool told : {false, true}) {
    OnGloo(2, [&](int r, C10dCollectives& sum) {
      if (r == 1) return std::this_thread::sleep_for(900ms);
      const SteadyTime start = Now();
      const Status status = sum.Sum(torch::ones({1 << 18}), Now() + (told ? 20'000ms : 300ms), [&] {
        return told && SecondsSince(start) > 0.1
                   ? Status(Code::kUnavailable, "rank 1 (10.0.0.2) died")
                   : Status();
      });
      EXPECT_EQ(status.code(), told ? Code::kUnavailable : kDeadlinePassed) << status.message();
      EXPECT_LT(SecondsSince(start), 0.8);
    });
  }
}

TEST(C10dCollectivesTest, WithoutNcclSaysSo) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(GpuId(torch::kCPU), "");
  const auto group = MakeNcclGroup(0, 1, MakeMemoryStore(), 1000ms);
  EXPECT_FALSE(group.ok());
}

TEST(DeviceShareTest, RanksOfAHostShareWhatTheySeeOut) {
  const auto first = [](int devices, int local_rank, int local_size, int locals, int local) {
    World world;
    world.local_rank = local_rank;
    world.local_size = local_size;
    const DeviceShare share = ShareOfDevices(devices, world, locals, local);
    return std::pair(share.first, share.count);
  };
  EXPECT_EQ(first(8, 0, 1, 1, 0), std::pair(0, 8));  // one replica has them all
  EXPECT_EQ(first(8, 0, 1, 4, 3), std::pair(6, 2));  // four replicas of one rank
  EXPECT_EQ(first(8, 5, 8, 1, 0), std::pair(5, 1));  // a rank each, as under torchrun
  EXPECT_EQ(first(8, 1, 2, 2, 1), std::pair(6, 2));
  EXPECT_EQ(first(1, 3, 4, 1, 0), std::pair(0, 1));  // the launcher shows each rank its own
  EXPECT_EQ(first(2, 3, 4, 1, 0), std::pair(1, 1));  // two ranks to a device
}

}  // namespace
}  // namespace samara
