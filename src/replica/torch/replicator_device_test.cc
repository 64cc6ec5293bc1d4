// The replicator on each kind of device: what it computes there is what torch computes without it
// on the CPU, and the same bits at any number of ranks. With one GPU all replicas share it.
#include "nn/torch/torch.h"
// after the door to torch
#include <gtest/gtest.h>

#include <set>

#include "replica/torch/c10d_collectives.h"
#include "replica/torch/c10d_group.h"
#include "replica/torch/reducer.h"
#include "replica/torch/replicator_test_util.h"
#include "samara/batch_norm.h"

namespace samara {
namespace {

using namespace std::chrono_literals;

Batch RowsOn(const torch::Device& device, int64_t begin, int64_t end) {
  const Batch batch = Rows(begin, end);
  return {batch.x.to(device), batch.y.to(device)};
}

class ReplicatorDeviceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device_.is_cuda() && !torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }

  // Parameters after some steps of momentum on batches of `rows`, as one list of numbers.
  torch::Tensor Train(Replicator& replicator, int64_t rows, const WrapOptions& wrap = {}) const {
    auto net = PlainMlp();
    net->to(device_);
    auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), Rate()), *net, wrap);
    for (int64_t s = 0; s < kSteps; ++s) {
      replicator.Run(
          [&](Batch& batch) {
            optimizer.zero_grad();
            Loss(net, batch).backward();
            optimizer.step();
          },
          RowsOn(device_, s * rows, (s + 1) * rows));
    }
    EXPECT_EQ(net->parameters()[0].device().type(), device_.type());
    return Flat(*net);
  }

  // The same by torch alone, on the CPU.
  static torch::Tensor TrainAlone(int64_t rows) {
    auto net = PlainMlp();
    torch::optim::SGD optimizer(net->parameters(), Rate());
    for (int64_t s = 0; s < kSteps; ++s) {
      optimizer.zero_grad();
      Loss(net, Rows(s * rows, (s + 1) * rows)).backward();
      optimizer.step();
    }
    return Flat(*net);
  }

  static torch::optim::SGDOptions Rate() { return torch::optim::SGDOptions(0.05).momentum(0.9); }
  static torch::Tensor Loss(torch::nn::Sequential& net, const Batch& batch) {
    return torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y);
  }
  static torch::Tensor Flat(const torch::nn::Module& net) {
    std::vector<torch::Tensor> all;
    for (const torch::Tensor& p : net.parameters()) all.push_back(p.detach().cpu().reshape({-1}));
    return torch::cat(all);
  }

  static constexpr int64_t kSteps = 8;
  const torch::Device device_{GetParam()};
};

TEST_P(ReplicatorDeviceTest, ExactModeIsTorchOnTheWholeBatchWithTheSameBitsAtAnyNumberOfRanks) {
  const torch::Tensor expected = TrainAlone(64);
  torch::Tensor first;
  for (const int ranks : {1, 2, 4}) {
    for (const bool shard : {false, true}) {
      const auto all = OnRanks<torch::Tensor>(ranks, Exact(4), [&](Replicator& replicator) {
        return Train(replicator, 64, {.shard_state = shard});
      });
      if (!first.defined()) first = all[0];
      for (const torch::Tensor& one : all) EXPECT_TRUE(one.equal(first));
      EXPECT_TRUE(all[0].allclose(expected, 1e-4, 1e-5)) << (all[0] - expected).abs().max();
    }
  }
}

TEST_P(ReplicatorDeviceTest, FastModeIsTorchOnTheWholeBatch) {
  const torch::Tensor expected = TrainAlone(64);
  for (const int ranks : {1, 2}) {
    const auto all = OnRanks<torch::Tensor>(
        ranks, Fast(), [&](Replicator& replicator) { return Train(replicator, 64); });
    for (const torch::Tensor& one : all) {
      EXPECT_TRUE(one.equal(all[0]));
      EXPECT_TRUE(one.allclose(expected, 1e-4, 1e-5)) << (one - expected).abs().max();
    }
  }
}

TEST_P(ReplicatorDeviceTest, RandomNumbersOfAStepAreItsReplicasAtAnyNumberOfRanks) {
  std::vector<torch::Tensor> drawn;
  for (const int ranks : {1, 2}) {
    const auto all = OnRanks<torch::Tensor>(ranks, Exact(4), [&](Replicator& replicator) {
      const auto results = replicator.Run([&](ReplicaContext& replica) {
        const auto options = torch::TensorOptions(device_);
        const torch::Tensor before = torch::rand({3}, options);
        // others run, and draw, in between
        const torch::Tensor all_before = replica.AllGather(before);
        return torch::cat({all_before, replica.AllGather(torch::rand({3}, options))}).cpu();
      });
      return results.values[0];
    });
    drawn.push_back(all[0]);
  }
  EXPECT_TRUE(drawn[0].equal(drawn[1]));
  const auto values = std::span(drawn[0].data_ptr<float>(), static_cast<size_t>(drawn[0].numel()));
  EXPECT_EQ(std::set<float>(values.begin(), values.end()).size(), 24U);  // no two replicas alike
}

TEST_P(ReplicatorDeviceTest, CollectivesReturnToTheDevice) {
  OnRanks<int>(2, Exact(4), [&](Replicator& replicator) {
    replicator.Run([&](ReplicaContext& replica) {
      const int id = replica.replica_id();
      const auto own = [&](double v) { return torch::tensor({v, v * 10}).to(device_); };
      const auto expect = [&](const torch::Tensor& got, const torch::Tensor& wanted) {
        EXPECT_EQ(got.device().type(), device_.type());
        EXPECT_TRUE(got.cpu().equal(wanted.cpu())) << got;
      };
      expect(replica.AllSum(own(id)), own(6));
      expect(replica.AllMax(own(id)), own(3));
      expect(replica.AllProduct(own(id + 1)), torch::tensor({24.0, 240000.0}));
      expect(replica.AllGather(own(id)).select(1, 0), torch::tensor({0.0, 1.0, 2.0, 3.0}));
      expect(replica.Broadcast(own(id), 2), own(2));
      expect(replica.AllToAll((torch::arange(4) + 10 * id).to(device_)),
             torch::arange(4) * 10 + id);
      expect(replica.Within({{0, 3}, {2, 1}}).AllReduce(own(id), ReduceOp::kSum), own(3));
      replica.Send(own(id), (id + 1) % 4);
      expect(replica.Receive(own(0), (id + 3) % 4), own((id + 3) % 4));
      // d(sum of all replicas' losses) / dx
      torch::Tensor x = own(id + 1).requires_grad_();
      (replica.AllSum(x) * own(id)).sum().backward();
      expect(x.grad(), own(6));
    });
    return 0;
  });
}

TEST_P(ReplicatorDeviceTest, BatchNormOfPartsIsThatOfTheWholeBatch) {
  torch::nn::BatchNorm1d reference(6);
  const torch::Tensor expected = reference->forward(Rows(0, 64).x);
  OnRanks<int>(2, Exact(4), [&](Replicator& replicator) {
    CrossReplicaBatchNorm norm(6);
    norm->to(device_);
    replicator.Run(
        [&](ReplicaContext& replica, Batch& batch) {
          const torch::Tensor part = norm->forward(batch.x, replica).cpu();
          const torch::Tensor wanted = expected.narrow(0, 16 * replica.replica_id(), 16);
          EXPECT_TRUE(part.allclose(wanted, 1e-4, 1e-5)) << (part - wanted).abs().max();
        },
        RowsOn(device_, 0, 64));
    EXPECT_TRUE(norm->running_var.cpu().allclose(reference->running_var, 1e-4, 1e-5));
    return 0;
  });
}

INSTANTIATE_TEST_SUITE_P(, ReplicatorDeviceTest, testing::Values("cpu", "cuda"),
                         [](const auto& test) { return std::string(test.param); });

TEST(NcclTest, AGroupOfOneRankSumsInPlaceOnTheGpusStream) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const torch::Device device(torch::kCUDA, 0);
  EXPECT_EQ(GpuId(device).size(), 16U);
  auto group = MakeNcclGroup(0, 1, MakeMemoryStore(), 60'000ms);
  ASSERT_TRUE(group.ok()) << group.status().message();
  EXPECT_EQ((*group)->getBackendName(), "nccl");
  C10dCollectives sum(*group, torch::kCUDA);
  const torch::Tensor whole =
      torch::arange(1 << 22, torch::TensorOptions(device)).to(torch::kFloat);
  EXPECT_TRUE(sum.Takes(whole));
  EXPECT_TRUE(sum.Takes(whole.to(torch::kBFloat16)));
  EXPECT_FALSE(sum.Takes(whole.cpu()));
  EXPECT_FALSE(sum.Takes(whole.reshape({1 << 11, 1 << 11}).t()));
  for (int round = 0; round < 3; ++round) {
    // what is summed was asked for and is not computed yet
    torch::Tensor data = whole * (round + 2);
    const Status status = sum.Sum(data, Now() + 60s, [] { return Status(); });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(data.equal(whole * (round + 2)));
  }
}

}  // namespace
}  // namespace samara
