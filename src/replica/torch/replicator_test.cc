// The replicator on ranks that are threads: the same bits at any number of ranks, collectives and
// their gradients, batch norm, inputs.
#include "nn/torch/torch.h"
// after the door to torch
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "core/log.h"
#include "core/thread.h"
#include "replica/torch/reducer.h"
#include "replica/torch/replicator_test_util.h"
#include "samara/batch_norm.h"
#include "samara/program.h"
#include "samara/replicator.h"
#include "samara/spectral_norm.h"

namespace samara {
namespace {

struct Quiet : testing::Environment {
  void SetUp() override { SetLogLevel(LogLevel::kWarning); }
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }
};
const auto* const kQuiet = testing::AddGlobalTestEnvironment(new Quiet);

// A step of every replica; the results of all, in the order of their ids.
torch::Tensor AllResults(Replicator& replicator,
                         const std::function<torch::Tensor(ReplicaContext&)>& step) {
  const auto local =
      replicator.Run([&](ReplicaContext& replica) { return replica.AllGather(step(replica)); });
  return local.values.at(0);
}

torch::nn::Sequential Mlp() {
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(),
                               torch::nn::Linear(16, 8), torch::nn::Dropout(0.3),
                               torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                               torch::nn::Linear(8, 3));
}

std::string Train(Replicator& replicator, int steps, const WrapOptions& options = {}) {
  torch::manual_seed(static_cast<uint64_t>(replicator.rank()) + 5);  // made equal by Wrap
  torch::nn::Sequential net = Mlp();
  auto optimizer = replicator.Wrap(
      torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)), *net,
      options);
  for (int s = 0; s < steps; ++s) {
    replicator.Run(
        [&](Batch& batch) {
          optimizer.zero_grad();
          torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y).backward();
          optimizer.step();
        },
        Rows(s * 64, s * 64 + 64));
  }
  std::string hash = optimizer.reducer().ParameterHash();
  for (const torch::Tensor& b : net->buffers())
    if (replicator.rank() == 0) hash += std::to_string(b.sum().item<double>());
  return hash;
}

TEST(ReplicatorTest, TheSameBitsAtAnyNumberOfRanks) {
  std::vector<std::string> hashes;
  for (const int ranks : {1, 2, 4, 8}) {
    const auto all =
        OnRanks<std::string>(ranks, Exact(8), [](Replicator& r) { return Train(r, 12); });
    hashes.push_back(all[0]);
    for (int r = 1; r < ranks; ++r)
      EXPECT_EQ(all[static_cast<size_t>(r)].substr(0, 64), hashes[0].substr(0, 64));
  }
  for (const auto& hash : hashes) EXPECT_EQ(hash, hashes[0]);
  // another number of replicas is another computation
  EXPECT_NE(OnRanks<std::string>(2, Exact(4), [](Replicator& r) { return Train(r, 12); })[0],
            hashes[0]);
}

// Equality with one device on the whole batch, to rounding: without dropout and local batch norm.
std::vector<torch::Tensor> TrainPlain(
    const std::function<void(torch::nn::Sequential&, Batch&)>& step, torch::nn::Sequential& net,
    int steps, int64_t rows) {
  for (int s = 0; s < steps; ++s) {
    Batch batch = Rows(s * rows, (s + 1) * rows);
    step(net, batch);
  }
  return net->parameters();
}

TEST(ReplicatorTest, ReplicasOfPartsEqualOneOfTheWhole) {
  auto reference = PlainMlp();
  torch::optim::Adam adam(reference->parameters(), 0.01);
  TrainPlain(
      [&](torch::nn::Sequential& net, Batch& b) {
        adam.zero_grad();
        torch::nn::functional::cross_entropy(net->forward(b.x), b.y).backward();
        adam.step();
      },
      reference, 10, 30);  // 30 rows on 8 replicas: shares of 3 and 4
  for (const bool fast : {false, true}) {
    for (const bool shard : {false, true}) {
      for (const size_t bucket : {size_t{64}, size_t{1} << 20}) {
        OnRanks<int>(2, fast ? Fast() : Exact(8), [&](Replicator& replicator) {
          auto net = PlainMlp();
          auto optimizer = replicator.Wrap(torch::optim::Adam(net->parameters(), 0.01),
                                           {.shard_state = shard, .bucket_bytes = bucket});
          for (int s = 0; s < 10; ++s) {
            replicator.Run(
                [&](Batch& b) {
                  optimizer.zero_grad();
                  torch::nn::functional::cross_entropy(net->forward(b.x), b.y).backward();
                  optimizer.step();
                },
                Rows(s * 30, s * 30 + 30));
          }
          for (size_t i = 0; i < net->parameters().size(); ++i) {
            EXPECT_TRUE(
                torch::allclose(net->parameters()[i], reference->parameters()[i], 1e-4, 1e-5))
                << "fast " << fast << " shard " << shard;
          }
          if (shard) {
            EXPECT_LT(optimizer.base().state().size(), net->parameters().size());
          }
          return 0;
        });
      }
    }
  }
}

TEST(ReplicatorTest, ShardedStateHasTheSameBits) {
  const auto run = [](Replicator& r) { return Train(r, 6, {.shard_state = r.world_size() > 1}); };
  const auto plain = OnRanks<std::string>(1, Exact(4), run);
  EXPECT_EQ(OnRanks<std::string>(2, Exact(4), run)[0], plain[0]);
  EXPECT_EQ(OnRanks<std::string>(4, Exact(4), run)[0], plain[0]);
}

TEST(ReplicatorTest, CollectivesMeanWhatTheySay) {
  for (const int ranks : {1, 2, 4}) {
    OnRanks<int>(ranks, Exact(4), [&](Replicator& replicator) {
      replicator.Run([&](ReplicaContext& replica) {
        const int id = replica.replica_id();
        const auto own = [&](double v) { return torch::tensor({v, v * 10}); };
        struct Pair {
          torch::Tensor a;
          std::map<std::string, std::vector<torch::Tensor>> b;
        };
        const Pair pair{own(id), {{"k", {own(1), torch::tensor({int64_t{id}})}}}};
        const Pair sum = replica.AllSum(pair);
        EXPECT_TRUE(sum.a.equal(own(6)));
        EXPECT_TRUE(sum.b.at("k")[0].equal(own(4)));
        EXPECT_EQ(sum.b.at("k")[1].item<int64_t>(), 6);
        EXPECT_TRUE(replica.AllMean(own(id)).equal(own(1.5)));
        EXPECT_TRUE(replica.AllMin(own(id + 1)).equal(own(1)));
        EXPECT_TRUE(replica.AllMax(own(id)).equal(own(3)));
        EXPECT_EQ(replica.AllProduct(torch::tensor({id + 1.0})).item<double>(), 24);
        const auto [stacked, flags] =
            replica.AllGather(std::pair(own(id), torch::tensor({id > 1})));
        EXPECT_EQ(stacked.sizes().vec(), (std::vector<int64_t>{4, 2}));
        for (int64_t i = 0; i < 4; ++i) {
          EXPECT_TRUE(stacked[i].equal(own(static_cast<double>(i))));
          EXPECT_EQ(flags[i].item<bool>(), i > 1);
        }
        // replica i gives i rows
        const torch::Tensor ragged = replica.AllGatherAlong(torch::full({2, id}, id), 1);
        EXPECT_TRUE(ragged.equal(torch::tensor({{1, 2, 2, 3, 3, 3}, {1, 2, 2, 3, 3, 3}})));
        EXPECT_TRUE(replica.Broadcast(own(id), 2).equal(own(2)));
        const torch::Tensor part =
            replica.ReduceScatter(torch::arange(8) * (id + 1), ReduceOp::kSum);
        EXPECT_TRUE(part.equal(torch::tensor({2 * id, 2 * id + 1}) * 10));
        const torch::Tensor exchanged = replica.AllToAll(torch::arange(4) + 10 * id);
        EXPECT_TRUE(exchanged.equal(torch::arange(4) * 10 + id));
        // the same of nests
        const auto both = std::pair(torch::arange(4) + id, torch::ones({4, 2}));
        EXPECT_TRUE(replica.AllToAll(both).first.equal(torch::arange(4) + id));
        EXPECT_TRUE(
            replica.ReduceScatter(both, ReduceOp::kSum).second.equal(4 * torch::ones({1, 2})));
        EXPECT_EQ(replica.AllGatherAlong(both, 0).second.size(0), 16);
        // a ring of messages
        for (int round = 0; round < 3; ++round) {
          replica.Send(own(100 * round + id), (id + 1) % 4);
          EXPECT_TRUE(replica.Receive(own(0), (id + 3) % 4).equal(own(100 * round + (id + 3) % 4)));
        }
        // seven items on four replicas; each runs once
        std::vector<int> items{0, 1, 2, 3, 4, 5, 6}, ran;
        const auto squares = replica.MapGather(items, [&](int item) {
          EXPECT_EQ(item % 4, id);
          return std::pair(torch::tensor({item * item}), torch::full({item}, item));
        });
        EXPECT_EQ(squares.size(), 7U);
        for (int i = 0; i < 7; ++i) {
          EXPECT_EQ(squares[static_cast<size_t>(i)].first.item<int>(), i * i);
          EXPECT_EQ(squares[static_cast<size_t>(i)].second.numel(), i);
        }
        EXPECT_EQ(replica
                      .MapReduce(
                          items, [](int i) { return torch::tensor({i}); }, ReduceOp::kSum)
                      .item<int>(),
                  21);
        const torch::Tensor merged = replica.MergeCall(
            [](const std::vector<torch::Tensor>& all) { return torch::stack(all).sum(0); },
            own(id));
        EXPECT_TRUE(merged.equal(own(6)));
        const auto groups = replica.Within({{0, 3}, {2, 1}});
        EXPECT_TRUE(groups.AllReduce(own(id), ReduceOp::kSum).equal(own(3)));
        EXPECT_TRUE(groups.Broadcast(own(id), 0).equal(own(id == 0 || id == 3 ? 0 : 2)));
        EXPECT_EQ(groups.AllGather(own(id)).size(0), 2);
        EXPECT_EQ(groups.index(), id == 0 || id == 2 ? 0 : 1);
      });
      EXPECT_EQ(
          replicator
              .Reduce(
                  PerReplica<torch::Tensor>{
                      replicator.first_replica(),
                      std::vector<torch::Tensor>(static_cast<size_t>(replicator.local_replicas()),
                                                 torch::ones({1}))},
                  ReduceOp::kSum)
              .item<float>(),
          4);
      EXPECT_EQ(replicator.Broadcast(torch::tensor({replicator.rank()})).item<int>(), 0);
      return 0;
    });
  }
}

// The loss is the sum of the replicas' losses; its gradient at replica k's input against central
// differences, in float64.
TEST(ReplicatorTest, GradientsOfCollectivesAreRight) {
  using Op = std::function<torch::Tensor(ReplicaContext&, const torch::Tensor&)>;
  const std::map<std::string, Op> ops{
      {"sum", [](auto& r, auto& x) { return r.AllSum(x); }},
      {"mean", [](auto& r, auto& x) { return r.AllMean(x); }},
      {"min", [](auto& r, auto& x) { return r.AllMin(x); }},
      {"max", [](auto& r, auto& x) { return r.AllMax(x); }},
      {"product", [](auto& r, auto& x) { return r.AllProduct(x); }},
      {"gather", [](auto& r, auto& x) { return r.AllGather(x); }},
      {"ragged",
       [](auto& r, auto& x) { return r.AllGatherAlong(x.narrow(0, 0, 1 + r.replica_id()), 0); }},
      {"broadcast", [](auto& r, auto& x) { return r.Broadcast(x, 1); }},
      {"scatter", [](auto& r, auto& x) { return r.ReduceScatter(x, ReduceOp::kSum); }},
      {"exchange", [](auto& r, auto& x) { return r.AllToAll(x); }},
      {"sum within",
       [](auto& r, auto& x) {
         return r.Within({{0, 3}, {2, 1}}).AllReduce(x, ReduceOp::kSum);
       }},
      {"mean within",
       [](auto& r, auto& x) {
         return r.Within({{1}, {2, 3, 0}}).AllReduce(x, ReduceOp::kMean);
       }},
      {"gather within",
       [](auto& r, auto& x) {
         return r.Within({{0, 3}, {2, 1}}).AllGather(x);
       }},
      {"broadcast within", [](auto& r, auto& x) {
         return r.Within({{0, 3}, {2, 1}}).Broadcast(x, 1);
       }}};
  constexpr int kReplicas = 4;
  constexpr int64_t kElements = 4;
  const auto input = [](int replica) {
    return torch::sin(torch::arange(kElements, torch::kDouble) * 1.3 + replica * 0.7 + 1);
  };
  for (const auto& [name, op] : ops) {
    for (const int ranks : {1, 2, 4}) {
      OnRanks<int>(ranks, Exact(kReplicas), [&, &op = op, &name = name](Replicator& replicator) {
        // replica k's loss weighs its result by numbers of its own
        const auto loss = [&](ReplicaContext& replica, const torch::Tensor& x) {
          const torch::Tensor y = op(replica, x);
          const torch::Tensor w =
              torch::cos(torch::arange(y.numel(), torch::kDouble) + replica.replica_id())
                  .view(y.sizes());
          return (y * y * w).sum();
        };
        const torch::Tensor gradients = AllResults(replicator, [&](ReplicaContext& replica) {
          torch::Tensor x = input(replica.replica_id()).requires_grad_(true);
          loss(replica, x).backward();
          return x.grad().defined() ? x.grad() : torch::zeros_like(x);
        });
        constexpr double kStep = 1e-6;
        for (int k = 0; k < kReplicas; ++k) {
          for (int64_t e = 0; e < kElements; ++e) {
            double value[2];
            for (int side = 0; side < 2; ++side) {
              value[side] = AllResults(replicator,
                                       [&](ReplicaContext& replica) {
                                         torch::Tensor x = input(replica.replica_id());
                                         if (replica.replica_id() == k)
                                           x[e] += side == 0 ? -kStep : kStep;
                                         return loss(replica, x);
                                       })
                                .sum()
                                .item<double>();
            }
            const double expected = (value[1] - value[0]) / (2 * kStep);
            EXPECT_NEAR(gradients[k][e].item<double>(), expected, 1e-6 + 1e-5 * std::fabs(expected))
                << name << " replica " << k << " element " << e << " ranks " << ranks;
          }
        }
        return 0;
      });
    }
  }
}

TEST(ReplicatorTest, ResultsKeepTheirStructure) {
  for (const int ranks : {1, 2}) {
    OnRanks<int>(ranks, Exact(4), [](Replicator& replicator) {
      replicator.Run([](ReplicaContext& replica) {
        const std::vector<int> items{0, 1, 2, 3, 4};
        struct Result {
          std::map<std::string, torch::Tensor> named;
          std::optional<torch::Tensor> odd;
          std::vector<std::pair<torch::Tensor, std::array<torch::Tensor, 1>>> pairs;
          std::tuple<torch::Tensor> last;
        };
        const auto results = replica.MapGather(items, [](int i) {
          const torch::Tensor value = torch::tensor({i});
          Result result{{{"x:" + std::to_string(i), value}, {"", value}}, {}, {}, {value}};
          if (i % 2 == 1) result.odd = value;
          for (int k = 0; k < i; ++k) result.pairs.push_back({value, {torch::tensor({k})}});
          return result;
        });
        for (int i = 0; i < 5; ++i) {
          const Result& result = results.at(static_cast<size_t>(i));
          EXPECT_EQ(result.named.size(), 2U);
          EXPECT_EQ(result.named.at("x:" + std::to_string(i)).item<int>(), i);
          EXPECT_EQ(result.odd.has_value(), i % 2 == 1);
          ASSERT_EQ(result.pairs.size(), static_cast<size_t>(i));
          if (i > 0) {
            EXPECT_EQ(result.pairs.back().second[0].item<int>(), i - 1);
          }
          EXPECT_EQ(std::get<0>(result.last).item<int>(), i);
        }
        using Named = std::map<std::string, torch::Tensor>;
        const auto twice = [](const std::vector<torch::Tensor>& all) {
          PerReplica<Named> each;
          for (const torch::Tensor& x : all) each.values.push_back({{"twice", x * 2}});
          return each;
        };
        const torch::Tensor mine = torch::tensor({replica.replica_id()});
        const Named own = replica.MergeCall(twice, mine);
        EXPECT_EQ(own.at("twice").item<int>(), 2 * replica.replica_id());
        const auto one = [](const std::vector<torch::Tensor>& all) { return all; };
        EXPECT_EQ(replica.MergeCall(one, mine).at(3).item<int>(), 3);
      });
      return 0;
    });
  }
}

TEST(ReplicatorTest, TiesShareTheGradientOfAnExtremum) {
  OnRanks<int>(2, Exact(4), [](Replicator& replicator) {
    const torch::Tensor g = AllResults(replicator, [](ReplicaContext& replica) {
      // replicas 1 and 2 hold the largest
      torch::Tensor x =
          torch::tensor({replica.replica_id() % 3 == 0 ? 1.0 : 5.0}).requires_grad_(true);
      replica.AllMax(x).sum().backward();
      return x.grad().clone();
    });
    EXPECT_TRUE(g.view(-1).equal(torch::tensor({0.0F, 2.0F, 2.0F, 0.0F}).to(g.scalar_type())));
    return 0;
  });
}

// Plain batch norm on the whole batch, forward, backward and running statistics; shares of a batch
// that are unequal, one of them empty, and values with a large mean.
TEST(BatchNormTest, EqualsOneDeviceOnTheWholeBatch) {
  for (const int64_t rows : {16, 3}) {
    for (const double offset : {0.0, 1000.0}) {
      torch::manual_seed(1);
      const torch::Tensor x = torch::randn({rows, 4, 5}, torch::kDouble) + offset;
      const torch::Tensor w = torch::randn({rows, 4, 5}, torch::kDouble);
      torch::nn::BatchNorm1d plain(4);
      plain->to(torch::kDouble);
      torch::Tensor whole = x.clone().requires_grad_(true);
      const torch::Tensor y = plain->forward(whole);
      (y * w).sum().backward();
      for (const int ranks : {1, 2, 4}) {
        OnRanks<int>(ranks, Exact(4), [&](Replicator& replicator) {
          CrossReplicaBatchNorm norm(4);
          norm->to(torch::kDouble);
          struct Part {
            torch::Tensor x, w, y, g;
          };
          replicator.Run(
              [&](ReplicaContext& replica, Part& part) {
                replica.SetSamples(
                    1);  // the loss is a sum: gradients of unequal weight are the optimizer's
                torch::Tensor mine = part.x.clone().requires_grad_(true);
                const torch::Tensor out = norm->forward(mine, replica);
                EXPECT_TRUE(torch::allclose(out, part.y, 1e-8, 1e-8));
                (out * part.w).sum().backward();
                EXPECT_TRUE(torch::allclose(mine.grad(), part.g, 1e-6, 1e-8))
                    << rows << " " << offset;
              },
              Part{x, w, y.detach(), whole.grad()});
          if (replicator.rank() == 0) {
            EXPECT_TRUE(torch::allclose(norm->running_mean, plain->running_mean));
            EXPECT_TRUE(torch::allclose(norm->running_var, plain->running_var));
          }
          return 0;
        });
      }
    }
  }
}

// The whole chain, with an uneven batch: gradients of a mean loss through batch norm and a wrapped
// optimizer are those of one device.
TEST(BatchNormTest, UnevenBatchesTrainLikeOneDevice) {
  const Batch batch = Rows(0, 10);  // on 4 replicas: 2, 3, 2, 3
  torch::manual_seed(3);
  torch::nn::Linear a(6, 4), b(4, 3);
  torch::nn::BatchNorm1d plain(4);
  torch::nn::functional::cross_entropy(b->forward(plain->forward(a->forward(batch.x))), batch.y)
      .backward();
  OnRanks<int>(2, Exact(4), [&](Replicator& replicator) {
    torch::manual_seed(3);
    torch::nn::Linear c(6, 4), d(4, 3);
    CrossReplicaBatchNorm norm(4);
    std::vector<torch::Tensor> parameters = c->parameters();
    for (const auto& p : d->parameters()) parameters.push_back(p);
    const std::vector<torch::Tensor> before{c->weight.detach().clone(), d->weight.detach().clone()};
    auto optimizer = replicator.Wrap(torch::optim::SGD(parameters, 1.0));
    replicator.Run(
        [&](ReplicaContext& replica, Batch& part) {
          optimizer.zero_grad();
          torch::nn::functional::cross_entropy(
              d->forward(norm->forward(c->forward(part.x), replica)), part.y)
              .backward();
          optimizer.step();
        },
        batch);
    EXPECT_TRUE(torch::allclose(before[0] - c->weight, a->weight.grad(), 1e-4, 1e-6));
    EXPECT_TRUE(torch::allclose(before[1] - d->weight, b->weight.grad(), 1e-4, 1e-6));
    return 0;
  });
}

TEST(ReplicatorTest, InputsGiveEverySampleOnceAndEndTogether) {
  constexpr int64_t kSamples = 37, kBatch = 10;
  for (const InputMode mode : {InputMode::kPerReplica, InputMode::kPerWorker, InputMode::kSingle}) {
    for (const int ranks : {1, 2, 4}) {
      std::mutex mu;
      std::multiset<int64_t> seen;
      OnRanks<int>(ranks, Exact(4), [&](Replicator& replicator) {
        const SampleOrder order{.samples = kSamples, .global_batch = kBatch};
        auto input = replicator.MakeInput(
            mode,
            [&](const InputContext& context) {
              // one pipeline of several replicas' batches goes round them
              const auto each = context.num_replicas / context.num_input_pipelines;
              return Pipeline<torch::Tensor>(
                  [=, n = int64_t{0}]() mutable -> std::optional<torch::Tensor> {
                    const int64_t step = n / each;
                    if (step >= order.StepsPerEpoch()) return std::nullopt;
                    const auto replica =
                        static_cast<int>(context.input_pipeline_id * each + n++ % each);
                    return torch::tensor(order.Indices(step, replica, context.num_replicas));
                  });
            },
            {.prefetch = 3});
        int steps = 0;
        while (replicator.Run(
            [&](ReplicaContext& replica, torch::Tensor& indices) {
              EXPECT_EQ(replica.samples(), indices.size(0));
              std::lock_guard lock(mu);
              for (int64_t i = 0; i < indices.size(0); ++i) seen.insert(indices[i].item<int64_t>());
            },
            input)) {
          ++steps;
        }
        EXPECT_EQ(steps, 4);
        return 0;
      });
      EXPECT_EQ(seen.size(), 37U);
      EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 37U);
    }
  }
}

TEST(ReplicatorTest, PipelinesThatEndAtDifferentTimesEndTogether) {
  OnRanks<int>(2, Exact(4), [](Replicator& replicator) {
    auto net = PlainMlp();
    auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
    // replica i has i + 1 batches
    auto input = replicator.MakeInput(InputMode::kPerReplica, [](const InputContext& context) {
      return Pipeline<Batch>(
          [left = context.input_pipeline_id + 1]() mutable -> std::optional<Batch> {
            if (left-- == 0) return std::nullopt;
            return Rows(left * 4, left * 4 + 4);
          });
    });
    int64_t steps = 0;
    const auto step = [&](Batch& b) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(b.x), b.y).backward();
      optimizer.step();
    };
    while (replicator.Run(step, input)) ++steps;
    EXPECT_EQ(steps, 4);
    EXPECT_EQ(optimizer.updates(), 4) << "batches without rows spoil no update";
    for (const auto& p : net->parameters()) EXPECT_TRUE(p.isfinite().all().item<bool>());
    return 0;
  });
}

TEST(ReplicatorTest, AnInputWithoutAFirstBatchGetsOnesWithoutRows) {
  for (const InputMode mode : {InputMode::kPerReplica, InputMode::kPerWorker, InputMode::kSingle}) {
    OnRanks<int>(4, Exact(4), [&](Replicator& replicator) {
      auto input = replicator.MakeInput(mode, [](const InputContext& context) {
        // the last pipeline alone has batches: three
        const bool has = context.input_pipeline_id == context.num_input_pipelines - 1;
        return Pipeline<Batch>([left = has ? 3 : 0]() mutable -> std::optional<Batch> {
          if (left-- <= 0) return std::nullopt;
          return Rows(0, 5);
        });
      });
      int steps = 0;
      int64_t rows = 0;
      while (const auto sizes = replicator.Run(
                 [](Batch& b) {
                   EXPECT_EQ(b.x.size(1), 6);
                   EXPECT_EQ(b.y.scalar_type(), torch::kInt64);
                   return torch::tensor(b.x.size(0));
                 },
                 input)) {
        rows += replicator.Reduce(*sizes, ReduceOp::kSum).item<int64_t>();
        ++steps;
      }
      EXPECT_EQ(rows, 15);
      EXPECT_EQ(steps, mode == InputMode::kSingle ? 1 : 3);
      return 0;
    });
  }
}

TEST(ReplicatorTest, ShuffledOrderIsAPermutationOfItsOwn) {
  const SampleOrder order{.samples = 1000, .global_batch = 128};
  std::set<int64_t> first, second;
  std::vector<int64_t> a, b;
  for (int64_t s = 0; s < order.StepsPerEpoch(); ++s) {
    for (const int64_t i : order.Indices(s, 0, 1)) a.push_back(i);
    for (const int64_t i : order.Indices(s + order.StepsPerEpoch(), 0, 1)) b.push_back(i);
  }
  first.insert(a.begin(), a.end());
  EXPECT_EQ(first.size(), 1000U);
  EXPECT_EQ(*first.rbegin(), 999);
  EXPECT_NE(a, b) << "each epoch has its own order";
  EXPECT_FALSE(std::is_sorted(a.begin(), a.end()));
  // shares of replicas make up the whole batch
  std::vector<int64_t> joined;
  for (int r = 0; r < 3; ++r)
    for (const int64_t i : order.Indices(2, r, 3)) joined.push_back(i);
  EXPECT_EQ(joined, order.Indices(2, 0, 1));
}

// An error is named on every rank, and ends all of them.
std::string Failure(int ranks, const ReplicatorOptions& options, int expected_code,
                    const std::function<void(ReplicaContext&)>& step) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReplicateThreads(
                ranks, [&](Replicator& r) { r.Run(step); }, options),
            expected_code);
  return testing::internal::GetCapturedStderr();
}

TEST(ReplicatorTest, ARankOrAReplicaWhoseThreadCannotStartEndsAll) {
  // ranks first; then the replicas of the two ranks
  for (int n = 1; n <= 6; ++n) {
    TEST_FailNthThread(n);
    testing::internal::CaptureStderr();
    const int code = ReplicateThreads(
        2, [](Replicator& r) { r.Run([](ReplicaContext&) {}); }, Exact(4));
    const std::string says = testing::internal::GetCapturedStderr();
    EXPECT_FALSE(TEST_ThreadFailurePending());
    // rank 0 says 69 when rank 1 is the one that fails
    EXPECT_TRUE(code == 71 || (n > 2 && code == 69)) << n << ": " << code;
    EXPECT_NE(says.find("cannot start thread"), std::string::npos) << n << says;
  }
}

TEST(ReplicatorTest, WrongCallsAreNamed) {
  for (const int ranks : {1, 2, 4}) {
    // branching on the replica's id around a collective
    const std::string swapped = Failure(ranks, Exact(4), 70, [](ReplicaContext& replica) {
      const torch::Tensor a = torch::ones({3}), b = torch::ones({3});
      if (replica.replica_id() == 2) {
        replica.AllMax(b);
        replica.AllSum(a);
      } else {
        replica.AllSum(a);
        replica.AllMax(b);
      }
    });
    EXPECT_NE(swapped.find("all_reduce sum of float32[3] at replicator_test.cc:"),
              std::string::npos)
        << swapped;
    EXPECT_NE(swapped.find("all_reduce max of float32[3] at replicator_test.cc:"),
              std::string::npos)
        << swapped;
    const std::string count = Failure(ranks, Exact(4), 70, [](ReplicaContext& replica) {
      replica.AllSum(torch::ones({replica.replica_id() == 3 ? 5 : 4}));
    });
    EXPECT_NE(count.find("float32[5]"), std::string::npos) << count;
    const std::string type = Failure(ranks, Exact(4), 70, [](ReplicaContext& replica) {
      replica.AllSum(torch::ones({4}, replica.replica_id() == 0 ? torch::kInt32 : torch::kFloat32));
    });
    EXPECT_NE(type.find("int32[4]"), std::string::npos) << type;
    const std::string source = Failure(ranks, Exact(4), 70, [](ReplicaContext& replica) {
      replica.Broadcast(torch::ones({4}), replica.replica_id() / 2);
    });
    EXPECT_NE(source.find("broadcast from 1"), std::string::npos) << source;
    const std::string thrown = Failure(ranks, Exact(4), 70, [](ReplicaContext& replica) {
      if (replica.replica_id() == 1) throw std::runtime_error("no luck today");
      replica.AllSum(torch::ones({4}));
    });
    EXPECT_NE(thrown.find("no luck today"), std::string::npos) << thrown;
  }
  const std::string early = Failure(1, Exact(4), 70, [](ReplicaContext& replica) {
    if (replica.replica_id() != 1) replica.AllSum(torch::ones({4}));
  });
  EXPECT_NE(early.find("ended its step"), std::string::npos) << early;
  ReplicatorOptions soon = Fast();
  soon.deadline_s = 0.3;
  const std::string missing = Failure(4, soon, 69, [](ReplicaContext& replica) {
    replica.AllSum(torch::ones({4}));
    if (replica.replica_id() != 1)
      replica.AllSum(torch::ones({4}));
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
  });
  EXPECT_NE(missing.find("rank 1 did not come to all_reduce sum"), std::string::npos) << missing;
  EXPECT_NE(Failure(1, Exact(4), 78,
                    [](ReplicaContext& r) { r.AllMean(torch::ones({1}, torch::kInt64)); })
                .find("the mean of int64[1]"),
            std::string::npos);
}

TEST(ReplicatorTest, WrongCallsOfOneRankNameTheReplicas) {
  const auto step = [](ReplicaContext& replica) {
    if (replica.replica_id() == 6)
      replica.AllMax(torch::ones({3}));
    else if (replica.replica_id() != 7)
      replica.AllSum(torch::ones({3}));
  };
  const std::string one = Failure(1, Exact(8), 70, step);
  EXPECT_NE(one.find("replicas 0, 1, 2, 3, 4, 5: all_reduce sum"), std::string::npos) << one;
  const std::string two = Failure(2, Exact(8), 70, step);
  EXPECT_NE(two.find("replicas 4, 5: all_reduce sum"), std::string::npos) << two;
  EXPECT_NE(two.find("replica 6: all_reduce max"), std::string::npos) << two;
  EXPECT_NE(two.find("replica 7: ended its step"), std::string::npos) << two;
}

TEST(ReplicatorTest, WhatWouldBeSilentlyWrongIsRefused) {
  const auto refused = [](const std::function<void(ReplicaContext&)>& step,
                          const std::string& words) {
    const std::string said = Failure(2, Exact(2), 78, step);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  const auto x = [] { return torch::ones({2}).requires_grad_(true); };
  refused(
      [&](ReplicaContext& r) {
        r.Within({{0, 1}}).AllReduce(x(), ReduceOp::kMin);
      },
      "all_reduce min within sub-groups of float32[2], which requires a gradient");
  refused([&](ReplicaContext& r) { r.Send(x(), 1 - r.replica_id()); },
          "send of float32[2], which requires a gradient");
  refused(
      [&](ReplicaContext& r) {
        const torch::NoGradGuard none;
        r.Send(x(), 1 - r.replica_id());
        r.Receive(torch::ones({3}, torch::kInt64), 1 - r.replica_id());
      },
      "expected int64[3]");
  const auto too_few = [](const std::vector<torch::Tensor>& all) {
    return PerReplica<torch::Tensor>{0, {all[0]}};
  };
  refused([&](ReplicaContext& r) { r.MergeCall(too_few, torch::ones({1})); },
          "values for 1 replicas: expected one for each of 2");
  for (const int device : {-1, 99})
    refused([&](ReplicaContext& r) { r.logical_device(device); },
            "logical device " + std::to_string(device) + ": this replica has 1");
  refused(
      [&](ReplicaContext& r) {
        // within autograd
        torch::Tensor z = r.AllSum(x());
        z.register_hook([](const torch::Tensor&) -> torch::Tensor {
          throw ReplicationError(78, "from a backward pass");
        });
        z.sum().backward();
      },
      "from a backward pass");
}

TEST(ReplicatorTest, ARankThatGivesUpTellsItsCode) {
  for (const int code : {65, 70, 78}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(ReplicateThreads(
                  2,
                  [&](Replicator& replicator) {
                    if (replicator.rank() == 1 && code == 70) throw std::runtime_error("no luck");
                    if (replicator.rank() == 1) throw ReplicationError(code, "no luck");
                    replicator.Barrier();
                  },
                  Exact(2)),
              code);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("rank 1 gave up"), std::string::npos);
  }
}

TEST(ReplicatorTest, AnExceptionThatLeavesMainIsOneLineAndItsCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [](const std::function<void(Replicator&)>& program) {
    // its own thread: gtest catches what leaves the statement
    std::thread([&] {
      auto replicator = Replicator::FromEnvironment(Exact(4));
      program(replicator);
    }).join();
  };
  EXPECT_EXIT(
      end([](Replicator& replicator) {
        replicator.Run([](ReplicaContext& r) { r.AllMean(torch::ones({1}, torch::kInt64)); });
      }),
      testing::ExitedWithCode(78), "samara: the mean of int64");
  EXPECT_EXIT(end([](Replicator&) { throw std::runtime_error("no luck\ntoday"); }),
              testing::ExitedWithCode(70), "samara: no luck\n$");
  EXPECT_EXIT(std::thread([] { Replicator::FromEnvironment(Exact(0)); }).join(),
              testing::ExitedWithCode(78), "samara: 0 replicas on 1 ranks");
}

TEST(ReplicatorTest, ParametersThatDivergeAreFoundAtTheNextCheck) {
  for (const int step : {1, 2, 3}) {
    ReplicatorOptions options = Fast();
    options.check_every = 2;
    testing::internal::CaptureStderr();
    EXPECT_EQ(ReplicateThreads(
                  3,
                  [&](Replicator& replicator) {
                    auto net = PlainMlp();
                    auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
                    for (int s = 1; s <= 5; ++s) {
                      if (s == step && replicator.rank() == 1) {
                        const torch::NoGradGuard none;
                        net->parameters()[0][0] += 1e-3;
                      }
                      replicator.Run(
                          [&](Batch& b) {
                            net->forward(b.x).square().sum().backward();
                            optimizer.step();
                          },
                          Rows(0, 12));
                    }
                  },
                  options),
              70);
    const std::string said = testing::internal::GetCapturedStderr(),
                      words = "after update " + std::to_string(step == 3 ? 4 : 2) +
                              " is not the same on all ranks: rank 1 differs from the other 2";
    EXPECT_NE(said.find(words), std::string::npos) << said;
  }
}

// State of one rank in which a bit changes, and the name of the difference.
struct Flip {
  std::string what, named;
};

TEST(ReplicatorTest, WhatTheRanksDoNotAgreeOnIsNeitherSavedNorTheResult) {
  std::string folder = testing::TempDir() + "/agreed-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const Flip flips[] = {{"parameter", "module.net.0.weight"},
                        {"momentum", "optimizer.sgd.0.momentum_buffer"},
                        {"spectral norm", "module.net.3.u"},
                        {"result", "hash of the parameters at the end"}};
  for (const auto& [what, named] : flips) {
    for (const int culprit : {0, 2}) {
      const std::string file = folder + "/" + what + std::to_string(culprit);
      const auto train = [&, &what = what](Replicator& replicator) {
        auto net = PlainMlp();
        net->push_back(SpectralNorm(3));
        auto optimizer = replicator.Wrap(
            torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
            *net);
        const Checkpoint checkpoint{{{"net", net.get()}}, {{"sgd", &optimizer}}, {}};
        const auto flip = [&](const std::string& mine, const torch::Tensor& tensor) {
          if (what != mine || replicator.rank() != culprit) return;
          auto* const bits = static_cast<uint32_t*>(tensor.data_ptr());
          *bits ^= 1;
        };
        replicator.Run(
            [&](Batch& b) {
              net[0]->as<torch::nn::Linear>()->forward(b.x).square().sum().backward();
              optimizer.step();
            },
            Rows(0, 12));
        const auto& weight = net[0]->as<torch::nn::Linear>()->weight;
        flip("parameter", weight);
        flip("spectral norm", net[3]->as<SpectralNorm>()->u);
        auto& state = *optimizer.base().state().at(weight.unsafeGetTensorImpl());
        flip("momentum", static_cast<torch::optim::SGDParamState&>(state).momentum_buffer());
        Save(replicator, file, checkpoint);
        flip("result", weight);
        PrintResult(replicator, {}, torch::zeros({}), {&optimizer});
      };
      testing::internal::CaptureStderr();
      EXPECT_EQ(ReplicateThreads(3, train, Exact(3)), 70);
      const std::string said = testing::internal::GetCapturedStderr(),
                        words = named + " is not the same on all ranks: rank " +
                                std::to_string(culprit) + " differs from the other 2";
      EXPECT_NE(said.find(words), std::string::npos) << said;
      EXPECT_EQ(std::filesystem::exists(file), what == "result");
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(ReplicatorTest, OnlyAFailureLeavesAFlightRecord) {
  const auto record = [](bool fail) {
    std::string folder = testing::TempDir() + "/flight-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    ReplicatorOptions options = Exact(4);
    options.trace = folder;
    testing::internal::CaptureStderr();
    const int code = ReplicateThreads(
        2,
        [&](Replicator& replicator) {
          replicator.Run([&](ReplicaContext& replica) {
            replica.AllSum(torch::ones({4}));
            if (fail) throw std::runtime_error("no luck today");
          });
        },
        options);
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, fail ? 70 : 0);
    return std::filesystem::exists(folder + "/flight-0.json");
  };
  EXPECT_FALSE(record(false));
  EXPECT_TRUE(record(true));
}

TEST(ReplicatorTest, AMessageThatCameIsNotKept) {
  OnRanks<int>(2, Exact(2), [](Replicator& replicator) {
    replicator.Run([&](ReplicaContext& replica) {
      for (int i = 0; i < 3; ++i) {
        if (replica.replica_id() == 0) replica.Send(torch::full({2}, 1.0 * i), 1);
        if (replica.replica_id() == 1) {
          EXPECT_TRUE(replica.Receive(torch::zeros({2}), 0).equal(torch::full({2}, 1.0 * i)));
          const std::string key = "mail/0/1/" + std::to_string(i);
          EXPECT_FALSE(replicator.state().TEST_store().Get(key, std::chrono::milliseconds(1)).ok());
        }
      }
    });
    return 0;
  });
}

}  // namespace
}  // namespace samara
