// Data sets as tensors, and what programs make of them on ranks that are threads.
#include "nn/torch/torch.h"
// after the door to torch
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "data/interface.h"
#include "data/workers.h"
#include "samara/dataset.h"
#include "samara/error.h"

namespace samara {
namespace {

// Sample i of epoch e: one pixel of value i and one of value e, class i mod 7; 13 cannot be read.
struct NumberedImages : ImageSource {
  int64_t size() const override { return 29; }
  ImageShape shape() const override { return {.channels = 1, .height = 1, .width = 2}; }
  int classes() const override { return 7; }
  Result<int> Read(int64_t index, int64_t epoch, std::span<uint8_t> pixels) const override {
    if (index == 13 && epoch == 99) return Status(Code::kBadData, "13 is broken");
    if (index == 11 && epoch == 99) return Status(Code::kNoInput, "11 is missing");
    pixels[0] = static_cast<uint8_t>(index);
    pixels[1] = static_cast<uint8_t>(epoch);
    return static_cast<int>(index % 7);
  }
};

Dataset NumbersOn(int threads) {
  return {std::make_shared<NumberedImages>(), std::make_shared<Workers>(threads)};
}

int64_t PixelOf(const torch::Tensor& value) {
  return std::lround((value.item<double>() + 1) * 127.5);
}

TEST(DatasetTest, SamplesComeInTheOrderAskedFor) {
  for (const int threads : {0, 3}) {
    const Dataset data = NumbersOn(threads);
    const std::vector<int64_t> indices{28, 0, 5, 5, 14};
    const Samples samples = data.Read(indices, 3);
    EXPECT_EQ(samples.images.sizes(), (std::vector<int64_t>{5, 1, 1, 2}));
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(PixelOf(samples.images[i][0][0][0]), indices[static_cast<size_t>(i)]);
      EXPECT_EQ(PixelOf(samples.images[i][0][0][1]), 3);
      EXPECT_EQ(samples.labels[i].item<int64_t>(), indices[static_cast<size_t>(i)] % 7);
    }
    EXPECT_EQ(data.Read({}, 0).images.size(0), 0);
  }
}

TEST(DatasetTest, TheFirstFailureIsTheOneToldWhateverTheThreads) {
  for (const int threads : {0, 1, 4}) {
    for (int i = 0; i < 20; ++i) {
      try {
        NumbersOn(threads).Read({1, 13, 11, 13}, 99);
        FAIL() << "not refused";
      } catch (const ReplicationError& error) {
        EXPECT_STREQ(error.what(), "13 is broken");
        EXPECT_EQ(error.exit_code(), 65);
      }
    }
  }
}

// Over all replicas each step has the same samples at any number of ranks, in later epochs too, and
// starts in the middle where it is told to.
TEST(DatasetTest, TrainingInputsAreTheSameAtAnyNumberOfRanks) {
  std::vector<std::vector<int64_t>> expected;
  for (const int ranks : {1, 2, 4}) {
    for (const int64_t first : {0, 4}) {
      std::vector<std::vector<int64_t>> steps;
      ReplicatorOptions options;
      options.replicas = 4;
      const int code = ReplicateThreads(
          ranks,
          [&](Replicator& replicator) {
            auto input = TrainingInput(replicator, NumbersOn(2), 8, first, 7);
            while (const auto all = replicator.Run(
                       [](ReplicaContext& replica, Samples& samples) {
                         return replica.AllGather(samples.images);
                       },
                       input)) {
              if (!replicator.IsMain()) continue;
              const torch::Tensor flat = all->values[0].reshape({-1, 2});
              steps.emplace_back();
              for (int64_t i = 0; i < flat.size(0); ++i)
                steps.back().push_back(PixelOf(flat[i][0]) * 10 + PixelOf(flat[i][1]));
            }
          },
          options);
      EXPECT_EQ(code, 0);
      if (expected.empty()) expected = steps;
      ASSERT_EQ(steps.size(), static_cast<size_t>(7 - first));
      for (size_t s = 0; s < steps.size(); ++s)
        EXPECT_EQ(steps[s], expected[s + static_cast<size_t>(first)]);
    }
  }
  // three batches of 8 make an epoch of 24 different samples, and the next one is another order
  std::set<int64_t> epoch;
  for (size_t s = 0; s < 3; ++s) epoch.insert(expected[s].begin(), expected[s].end());
  EXPECT_EQ(epoch.size(), 24U);
  for (const int64_t number : epoch) EXPECT_EQ(number % 10, 0);
  for (const int64_t number : expected[4]) EXPECT_EQ(number % 10, 1);
}

TEST(DatasetTest, AccuracyCountsEverySampleOnce) {
  for (const int ranks : {1, 2, 4}) {
    ReplicatorOptions options;
    options.replicas = 4;
    const int code = ReplicateThreads(
        ranks,
        [&](Replicator& replicator) {
          replicator.SetStep(17);
          // right for the pixels below 10: of 29 samples those
          const auto scores = [](const torch::Tensor& images) {
            const torch::Tensor index =
                ((images.select(3, 0).reshape({-1}) + 1) * 127.5).round().to(torch::kInt64);
            const torch::Tensor answer = torch::where(index < 10, index % 7, (index + 1) % 7);
            return torch::one_hot(answer, 7).to(torch::kFloat);
          };
          EXPECT_DOUBLE_EQ(Accuracy(replicator, NumbersOn(0), 6, scores), 10.0 / 29);
          EXPECT_EQ(replicator.step(), 17);
        },
        options);
    EXPECT_EQ(code, 0);
  }
}

TEST(DatasetTest, WhatCannotWorkIsRefused) {
  const auto code_of = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const ReplicationError& error) {
      return error.exit_code();
    }
    return 0;
  };
  EXPECT_EQ(code_of([] { Datasets::Idx("/nowhere"); }), 66);
  EXPECT_EQ(code_of([] { Datasets::Cifar10("/nowhere"); }), 66);
  EXPECT_EQ(code_of([] { Datasets::ImageFolder("/nowhere", 0); }), 78);
  EXPECT_EQ(code_of([] { Datasets::Digits(3, 8); }), 78);
  EXPECT_EQ(code_of([] {
              const SampleOrder order{.samples = 29, .global_batch = 30, .drop_last = true};
              ReadInOrder({}, NumbersOn(0), order, 0, 1);
            }),
            78);
}

}  // namespace
}  // namespace samara
