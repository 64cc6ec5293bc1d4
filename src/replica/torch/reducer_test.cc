// Wrapped optimizers on ranks that are threads: what is averaged, skipped, sent, refused and said.
#include "replica/torch/reducer.h"

#include <atomic>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "replica/torch/replicator_test_util.h"

namespace samara {
namespace {

TEST(ReducerTest, AGradientThatIsNotFiniteIsSkippedOnAllRanks) {
  for (const bool fast : {false, true}) {
    OnRanks<int>(2, fast ? Fast() : Exact(4), [](Replicator& replicator) {
      auto net = PlainMlp();
      auto optimizer =
          replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1), {.clip_norm = 1.0});
      const auto step = [&](bool poison) {
        replicator.Run(
            [&](ReplicaContext& replica, Batch& b) {
              optimizer.zero_grad();
              torch::Tensor loss = torch::nn::functional::cross_entropy(net->forward(b.x), b.y);
              if (poison && replica.replica_id() == 1)
                loss = loss * std::numeric_limits<float>::infinity();
              loss.backward();
              optimizer.step();
            },
            Rows(0, 16));
      };
      step(false);
      const std::string before = optimizer.reducer().ParameterHash();
      step(true);
      EXPECT_EQ(optimizer.reducer().ParameterHash(), before);
      EXPECT_EQ(optimizer.skipped(), 1);
      step(false);
      EXPECT_NE(optimizer.reducer().ParameterHash(), before);
      EXPECT_EQ(optimizer.updates(), 2);
      return 0;
    });
  }
}

TEST(ReducerTest, AnUpdateWithoutAnyGradientIsSaidOnce) {
  for (const bool fast : {false, true}) {
    testing::internal::CaptureStderr();
    OnRanks<int>(2, fast ? Fast() : Exact(4), [](Replicator& replicator) {
      auto net = PlainMlp();
      auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
      const std::string before = optimizer.parameter_hash();
      for (int s = 0; s < 3; ++s) {
        replicator.Run(
            [&](Batch& b) {
              optimizer.zero_grad();
              net->forward(b.x);  // backward() is forgotten
              optimizer.step();
            },
            Rows(0, 16));
      }
      EXPECT_EQ(optimizer.parameter_hash(), before);
      return 0;
    });
    const std::string said = testing::internal::GetCapturedStderr();
    const size_t at = said.find("no parameter has a gradient: expected backward() before step()");
    EXPECT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find("no parameter", at + 1), std::string::npos) << said;
    EXPECT_NE(said.find("reducer_test.cc:"), std::string::npos) << said;
  }
}

TEST(ReducerTest, WholeBatchesThatDifferAreNotMixed) {
  for (const bool fast : {false, true}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(ReplicateThreads(
                  2,
                  [](Replicator& replicator) {
                    auto net = PlainMlp();
                    auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
                    replicator.Run(
                        [&](Batch& b) {
                          net->forward(b.x).sum().backward();
                          optimizer.step();
                        },
                        Rows(0, 16 + 8 * replicator.rank()));  // each reads files of its own
                  },
                  fast ? Fast() : Exact(4)),
              70);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("of a whole batch of 16"), std::string::npos) << said;
    EXPECT_NE(said.find("of a whole batch of 24"), std::string::npos) << said;
  }
}

TEST(ReducerTest, FiveGradientsInARowThatAreNotFiniteEndTheRun) {
  testing::internal::CaptureStderr();
  const int code = ReplicateThreads(
      2,
      [](Replicator& replicator) {
        auto net = PlainMlp();
        auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
        for (int s = 0; s < 100; ++s) {
          replicator.Run(
              [&](Batch& b) {
                (net->forward(b.x).sum() * std::numeric_limits<float>::infinity()).backward();
                optimizer.step();
              },
              Rows(0, 16));
        }
      },
      Exact(4));
  EXPECT_EQ(code, 70);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("5 updates in a row"), std::string::npos);
}

TEST(ReducerTest, FastModeCountsOnNothing) {
  OnRanks<int>(2, Fast(), [](Replicator& replicator) {
    torch::manual_seed(3);
    torch::nn::Linear used(4, 2), sometimes(4, 2), never(4, 2);
    std::vector<torch::Tensor> parameters;
    for (const auto* l : {&used, &sometimes, &never})
      for (const auto& p : (*l)->parameters()) parameters.push_back(p);
    auto optimizer = replicator.Wrap(
        torch::optim::SGD(parameters, torch::optim::SGDOptions(0.5).weight_decay(0.1)),
        {.bucket_bytes = 32});
    const torch::Tensor at_start = never->weight.detach().clone(),
                        other = sometimes->weight.detach().clone();
    const torch::Tensor x = torch::ones({4, 4});
    for (int s = 0; s < 3; ++s) {
      replicator.Run(
          [&](ReplicaContext& replica, torch::Tensor& part) {
            optimizer.zero_grad();
            torch::Tensor y = used->forward(part).sum();
            // a parameter that has a gradient on one rank only, and on some steps only
            if (replica.replica_id() == 1 && s == 1) y = y + sometimes->forward(part).sum();
            y.backward();
            optimizer.step();
          },
          x);
      EXPECT_EQ(sometimes->weight.detach().equal(other), s == 0) << "no gradient, no weight decay";
    }
    EXPECT_TRUE(never->weight.detach().equal(at_start));
    // replica 1's gradient of the sum over its two rows, weighted by half the samples, and decay
    const torch::Tensor expected = other - 0.5 * (torch::ones({2, 4}) * 2 * 2 / 4 + 0.1 * other);
    EXPECT_TRUE(torch::allclose(sometimes->weight, expected));
    return 0;
  });
}

TEST(ReducerTest, AccumulationSendsOnce) {
  for (const bool fast : {false, true}) {
    OnRanks<int>(2, fast ? Fast() : Exact(2), [](Replicator& replicator) {
      torch::manual_seed(3);
      torch::nn::Linear net(4, 2);
      const torch::Tensor before = net->weight.detach().clone();
      auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 1.0));
      for (int s = 1; s <= 2; ++s) {
        const uint64_t sequence = replicator.state().communicator().sequence();
        replicator.Run([&](ReplicaContext& replica) {
          optimizer.zero_grad();
          const torch::Tensor x = torch::full({1, 4}, replica.replica_id() + 1.0);
          {
            const auto hold = optimizer.NoSync();
            net->forward(x).sum().backward();
          }
          net->forward(x).sum().backward();
          optimizer.step();
        });
        if (s == 2) {
          EXPECT_EQ(replicator.state().communicator().sequence(), sequence + 1);
        }
        EXPECT_TRUE(torch::allclose(net->weight, before - s * 2 * 1.5));
      }
      return 0;
    });
  }
}

TEST(ReducerTest, CompressedAndByBucketComeClose) {
  const auto train = [](const WrapOptions& options) {
    std::vector<torch::Tensor> out;
    OnRanks<int>(2, Fast(), [&](Replicator& replicator) {
      auto net = PlainMlp();
      auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1), options);
      for (int s = 0; s < 5; ++s) {
        replicator.Run(
            [&](Batch& b) {
              optimizer.zero_grad();
              torch::nn::functional::cross_entropy(net->forward(b.x), b.y).backward();
              optimizer.step();
            },
            Rows(s * 16, s * 16 + 16));
      }
      if (replicator.rank() == 0)
        for (const auto& p : net->parameters()) out.push_back(p.detach().clone());
      return 0;
    });
    return out;
  };
  const auto plain = train({});
  const auto bf16 = train({.bf16 = true}),
             bucket = train({.bucket_bytes = 128, .step_by_bucket = true}),
             late = train({.overlap = false});
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::allclose(bf16[i], plain[i], 1e-2, 1e-2));
    EXPECT_FALSE(bf16[i].equal(plain[i]));
    EXPECT_TRUE(bucket[i].equal(plain[i]));
    EXPECT_TRUE(late[i].equal(plain[i]));
  }
}

// Replicas of one rank that wait for messages come to the optimizer's step in another order than
// that of their ids.
TEST(ReducerTest, TheSameBitsWhenMessagesChangeTheOrderOfTurns) {
  const auto train = [](Replicator& replicator) {
    auto net = PlainMlp();
    auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
    for (int s = 0; s < 3; ++s) {
      replicator.Run(
          [&](ReplicaContext& replica, Batch& b) {
            optimizer.zero_grad();
            const int id = replica.replica_id(), n = replica.num_replicas();
            replica.Send(b.x.mean(), (id + 1) % n);
            const torch::Tensor shift = replica.Receive(torch::zeros({}), (id + n - 1) % n);
            torch::nn::functional::cross_entropy(net->forward(b.x + shift), b.y).backward();
            optimizer.step();
          },
          Rows(s * 24, s * 24 + 24));
    }
    return optimizer.parameter_hash();
  };
  const std::string one = OnRanks<std::string>(1, Exact(8), train)[0];
  for (const int ranks : {2, 8}) EXPECT_EQ(OnRanks<std::string>(ranks, Exact(8), train)[0], one);
}

TEST(ReducerTest, ZeroGradDropsWhatWasAccumulated) {
  for (const bool fast : {false, true}) {
    OnRanks<int>(2, fast ? Fast() : Exact(2), [&](Replicator& replicator) {
      torch::manual_seed(3);
      torch::nn::Linear net(4, 2);
      const torch::Tensor before = net->weight.detach().clone();
      auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 1.0));
      replicator.Run([&](ReplicaContext&) {
        {
          const auto hold = optimizer.NoSync();
          net->forward(torch::full({1, 4}, 100.0)).sum().backward();
        }
        optimizer.zero_grad();
        net->forward(torch::ones({1, 4})).sum().backward();
        optimizer.step();
      });
      EXPECT_TRUE(torch::allclose(net->weight, before - 1)) << "fast " << fast;
      return 0;
    });
  }
}

TEST(ReducerTest, AccumulationMayUseOtherParametersInEachPass) {
  for (const bool fast : {false, true}) {
    OnRanks<int>(2, fast ? Fast() : Exact(2), [&](Replicator& replicator) {
      torch::manual_seed(3);
      torch::nn::Linear first(4, 2), second(4, 2);
      const torch::Tensor a = first->weight.detach().clone(), b = second->weight.detach().clone();
      std::vector<torch::Tensor> parameters = first->parameters();
      for (const auto& p : second->parameters()) parameters.push_back(p);
      auto optimizer = replicator.Wrap(torch::optim::SGD(parameters, 1.0), {.bucket_bytes = 32});
      replicator.Run([&](ReplicaContext&) {
        optimizer.zero_grad();
        {
          const auto hold = optimizer.NoSync();
          first->forward(torch::ones({1, 4})).sum().backward();
        }
        second->forward(torch::ones({1, 4})).sum().backward();
        optimizer.step();
      });
      EXPECT_TRUE(torch::allclose(first->weight, a - 1)) << "fast " << fast;
      EXPECT_TRUE(torch::allclose(second->weight, b - 1)) << "fast " << fast;
      return 0;
    });
  }
}

TEST(ReducerTest, ZeroGradCannotTakeBackWhatIsSent) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReplicateThreads(
                1,
                [](Replicator& replicator) {
                  auto net = PlainMlp();
                  auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
                  replicator.Run([&] {
                    net->forward(Rows(0, 4).x).sum().backward();
                    optimizer.zero_grad();
                    optimizer.step();
                  });
                },
                Fast()),
            78);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("zero_grad"), std::string::npos);
}

TEST(ReducerTest, SamplesAreSetBeforeTheyAreSent) {
  torch::nn::Sequential net = PlainMlp();
  const auto run = [&](bool before) {
    return ReplicateThreads(
        1,
        [&](Replicator& replicator) {
          auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
          for (int s = 0; s < 2; ++s) {
            replicator.Run([&](ReplicaContext& replica) {
              if (before) replica.SetSamples(4);
              net->forward(Rows(0, 4).x).sum().backward();
              if (!before) replica.SetSamples(4);
              optimizer.step();
            });
          }
        },
        Fast());
  };
  EXPECT_EQ(run(true), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(false), 78);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("before the backward pass"),
            std::string::npos);
}

// Usual steps on one device between backward() and step().
const std::map<std::string, std::function<void(torch::nn::Sequential&)>> kWrites{
    {"clip_grad_norm_",
     [](auto& net) { torch::nn::utils::clip_grad_norm_(net->parameters(), 0.01); }},
    {"mul_", [](auto& net) { net->parameters()[1].mutable_grad().mul_(0.5); }},
    {"another", [](auto& net) {
       torch::Tensor p = net->parameters()[0];
       p.mutable_grad() = p.grad() * 0.5;
     }}};

TEST(ReducerTest, AGradientWrittenBeforeItIsAveragedIsRefused) {
  for (const auto& [name, write] : kWrites) {
    for (const bool fast : {false, true}) {
      for (const bool overlap : {false, true}) {
        testing::internal::CaptureStderr();
        const int code = ReplicateThreads(
            2,
            [&, &write = write](Replicator& replicator) {
              auto net = PlainMlp();
              auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1),
                                               {.bucket_bytes = 256, .overlap = overlap});
              replicator.Run(
                  [&](Batch& b) {
                    optimizer.zero_grad();
                    net->forward(b.x).square().sum().backward();
                    write(net);
                    optimizer.step();
                  },
                  Rows(0, 16));
            },
            fast ? Fast() : Exact(4));
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(code, 78) << name << " fast " << fast;
        EXPECT_NE(said.find("of the optimizer wrapped at reducer_test.cc:"), std::string::npos)
            << said;
        EXPECT_NE(said.find("{.clip_norm = 1.0}"), std::string::npos) << said;
      }
    }
  }
}

TEST(ReducerTest, OneReplicaAloneMayWriteItsGradients) {
  for (const auto& [name, write] : kWrites) {
    auto plain = PlainMlp();
    torch::optim::SGD sgd(plain->parameters(), 0.1);
    const auto step = [&write = write](torch::nn::Sequential& net, auto& optimizer, Batch& b) {
      optimizer.zero_grad();
      net->forward(b.x).square().mean().backward();
      write(net);
      optimizer.step();
    };
    Batch batch = Rows(0, 15);
    for (int s = 0; s < 3; ++s) step(plain, sgd, batch);
    for (const bool fast : {false, true}) {
      OnRanks<int>(1, fast ? Fast() : Exact(1), [&, &name = name](Replicator& replicator) {
        auto net = PlainMlp();
        auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
        for (int s = 0; s < 3; ++s)
          replicator.Run([&](Batch& b) { step(net, optimizer, b); }, batch);
        for (size_t i = 0; i < net->parameters().size(); ++i)
          EXPECT_TRUE(fast ? torch::equal(net->parameters()[i], plain->parameters()[i])
                           : torch::allclose(net->parameters()[i], plain->parameters()[i]))
              << name << " fast " << fast;
        return 0;
      });
    }
  }
}

TEST(ReducerTest, GradientsMayBeWrittenBeforeTheLastPassAndByHand) {
  for (const bool fast : {false, true}) {
    for (const bool to_none : {false, true}) {
      OnRanks<int>(2, fast ? Fast() : Exact(2), [&](Replicator& replicator) {
        torch::manual_seed(3);
        torch::nn::Linear net(4, 2), other(4, 2), by_hand(4, 2);
        const torch::Tensor before = net->weight.detach().clone(),
                            hand = by_hand->weight.detach().clone();
        std::vector<torch::Tensor> parameters{net->weight, other->weight, by_hand->weight};
        auto optimizer = replicator.Wrap(torch::optim::SGD(parameters, 1.0));
        replicator.Run([&](ReplicaContext& replica) {
          const double id = replica.replica_id();
          {
            const auto hold = optimizer.NoSync();
            (net->forward(torch::full({1, 4}, 2.0)).sum() +
             other->forward(torch::ones({1, 4})).sum())
                .backward();
          }
          net->weight.mutable_grad().mul_(0.5);
          other->zero_grad(to_none);
          net->forward(torch::full({1, 4}, id)).sum().backward();
          const torch::Tensor made = torch::full({2, 4}, id * 2);
          if (by_hand->weight.grad().defined())
            by_hand->weight.mutable_grad().copy_(made);
          else
            by_hand->weight.mutable_grad() = made;
          EXPECT_TRUE(net->weight.grad().equal(torch::full({2, 4}, 1 + id)))
              << "what the backward passes left is there to be read";
          optimizer.step();
        });
        EXPECT_TRUE(torch::allclose(net->weight, before - 1.5)) << "fast " << fast;
        EXPECT_TRUE(torch::allclose(by_hand->weight, hand - 1)) << "fast " << fast;
        return 0;
      });
    }
  }
}

TEST(ReducerTest, ParametersOfHalfPrecisionAreRefused) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(ReplicateThreads(
                  1,
                  [&](Replicator& replicator) {
                    auto net = PlainMlp();
                    net->to(type);
                    replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
                  },
                  Exact(2)),
              78);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("expected float32 or float64"),
              std::string::npos);
  }
}

TEST(ReducerTest, AnOptimizerWaitsForItsReductionsBeforeItGoes) {
  for (const bool fails : {false, true}) {
    std::atomic<bool> reached{false}, waited{false};
    const int code = ReplicateThreads(
        1,
        [&](Replicator& replicator) {
          {
            auto net = PlainMlp();
            auto optimizer = replicator.Wrap(torch::optim::SGD(net->parameters(), 0.1));
            replicator.Run([&] {
              replicator.state().background().Post([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                reached = true;
                if (fails) throw std::runtime_error("no luck today");
              });
              net->forward(Rows(0, 4).x).sum().backward();
            });
          }
          waited = reached.load();
        },
        Fast());
    EXPECT_TRUE(waited);
    EXPECT_EQ(code, fails ? 70 : 0) << "the next collective tells what the background has met";
  }
}

}  // namespace
}  // namespace samara
