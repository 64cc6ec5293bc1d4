#include "replica/torch/gpu_sum.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "replica/collectives/arena.h"
#include "replica/collectives/reduce.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

// `body` on ranks that are threads, linked by shared memory.
void OnRanks(int ranks, const std::function<void(RankGroup& group, std::shared_ptr<Store>)>& body) {
  const auto store = MakeMemoryStore();
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      World world;
      world.rank = r, world.size = ranks;
      RankLinks links;
      links.store = store;
      links.route = [&](const std::shared_ptr<Store>& watched) -> Result<RankRoute> {
        RankRoute route{.transport = nullptr, .address = "127.0.0.1"};
        ASSIGN_OR_RETURN(route.transport,
                         MakeArenaTransport(r, ranks, *watched, {.start = 20'000ms}));
        return route;
      };
      const auto group = RankGroup::Make(world, links, {.deadline = 20'000ms}).ValueOrThrow();
      body(*group, WithPrefix(store, "gpus/"));
    });
  }
}

std::unique_ptr<GpuSum> OverGloo(RankGroup& group, const std::shared_ptr<Store>& store) {
  C10dGroup links =
      MakeGlooGroup(group.rank(), group.size(), store, group.address(), 20'000ms).ValueOrThrow();
  return MakeGpuSum(group, std::move(links), torch::kCPU).ValueOrThrow();
}

std::span<const float> Floats(const torch::Tensor& t) {
  return {t.const_data_ptr<float>(), static_cast<size_t>(t.numel())};
}

// Twelve leaves, on any number of ranks: as the host adds them, twice, in two sizes.
TEST(GpuSumTest, HasTheBitsOfTheHostsTree) {
  constexpr uint32_t kLeaves = 12;
  for (const int64_t numbers : {1, 10'007}) {
    auto generator = at::detail::createCPUGenerator(3);
    const torch::Tensor leaves = torch::randn({kLeaves, numbers}, generator);
    std::vector<Partial> rows;
    for (uint32_t i = 0; i < kLeaves; ++i)
      rows.push_back({{i, i + 1}, std::as_bytes(Floats(leaves[i]))});
    std::vector<float> expected(static_cast<size_t>(numbers));
    FoldTree(ReduceOp::kSum, ElementType::kF32, kLeaves, rows,
             std::as_writable_bytes(std::span(expected)));
    for (const int ranks : {1, 2, 3, 4})
      OnRanks(ranks, [&](RankGroup& group, const std::shared_ptr<Store>& store) {
        const auto sum = OverGloo(group, store);
        const torch::Tensor mine = leaves.chunk(ranks)[static_cast<size_t>(group.rank())];
        for (int round = 0; round < 2; ++round) {
          std::vector<float> out(expected.size());
          const Status status = sum->Sum(Floats(mine), out);
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_EQ(out, expected) << ranks << " ranks";
        }
        sum->Close();
      });
  }
}

TEST(GpuSumTest, EndsWithTheReasonOfARankThatGivesUp) {
  OnRanks(2, [](RankGroup& group, const std::shared_ptr<Store>& store) {
    const auto sum = OverGloo(group, store);
    if (group.rank() == 1)
      return group.communicator().Abort(Status(Code::kUnavailable, "rank 1 gave up"));
    std::vector<float> numbers(4);
    std::jthread end([&] {
      std::this_thread::sleep_for(200ms);
      group.communicator().Abort(Status(Code::kUnavailable, "rank 1 gave up"));
    });
    const SteadyTime start = Now();
    const Status status = sum->Sum(numbers, numbers);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("rank 1 gave up"), std::string::npos) << status.message();
    EXPECT_LT(SecondsSince(start), 5);
  });
}

// Links over which nothing ever arrives.
class Stalled : public c10d::Backend {
 public:
  Stalled(int rank, int size, std::atomic<int>& aborted)
      : c10d::Backend(rank, size), aborted_(aborted) {}
  const std::string getBackendName() const override { return "stalled"; }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor&, at::Tensor&,
                                                 const c10d::AllgatherOptions&) override {
    return c10::make_intrusive<c10d::Work>();
  }
  void abort() override { ++aborted_; }

 private:
  std::atomic<int>& aborted_;
};

TEST(GpuSumTest, AGatherThatStallsEndsWithTheFailureOfARank) {
  static std::atomic<int> aborted = 0;  // groups that are given up are never destroyed
  OnRanks(2, [](RankGroup& group, const std::shared_ptr<Store>&) {
    std::jthread end([&] {
      std::this_thread::sleep_for(200ms);
      group.communicator().Abort(Status(Code::kUnavailable, "rank 1 (10.0.0.2) died"));
    });
    const SteadyTime start = Now();
    const auto links = c10::make_intrusive<Stalled>(group.rank(), group.size(), aborted);
    const Status status = MakeGpuSum(group, C10dGroup(links), torch::kCPU).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("rank 1 (10.0.0.2) died"), std::string::npos);
    EXPECT_LT(SecondsSince(start), 5);
  });
  const SteadyTime start = Now();
  while (aborted < 2 && SecondsSince(start) < 20) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(aborted, 2);
}

TEST(GpuSumTest, RanksWithoutGpusOrOfOneGpuHaveNone) {
  OnRanks(2, [](RankGroup& group, const std::shared_ptr<Store>& store) {
    EXPECT_EQ(MakeGpuSum(group, store, Device{}).ValueOrThrow(), nullptr);
    if (!torch::cuda::is_available()) return;
    EXPECT_EQ(MakeGpuSum(group, store, Device{.cuda = true}).ValueOrThrow(), nullptr);
  });
}

TEST(GpuSumTest, SumsOverNcclOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  OnRanks(1, [](RankGroup& group, const std::shared_ptr<Store>& store) {
    const auto sum = MakeGpuSum(group, store, Device{.cuda = true}).ValueOrThrow();
    ASSERT_NE(sum, nullptr);
    const torch::Tensor mine =
                            torch::arange(12, torch::TensorOptions(torch::kCUDA)).to(torch::kFloat),
                        out = torch::zeros({4}, mine.options());
    // what is added was asked for and is not computed yet
    const torch::Tensor later = mine * 2;
    ASSERT_TRUE(sum->Sum(Floats(later), {out.data_ptr<float>(), 4}).ok());
    EXPECT_TRUE(out.equal(mine.reshape({3, 4}).sum(0) * 2));
    sum->Close();
  });
}

}  // namespace
}  // namespace samara
