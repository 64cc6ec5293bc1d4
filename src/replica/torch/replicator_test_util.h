// Programs on ranks that are threads, and what they train, for tests.
#pragma once

#include "nn/torch/torch.h"
// after the door to torch
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "samara/replicator.h"

namespace samara {

inline ReplicatorOptions Exact(int replicas) {
  ReplicatorOptions options;
  options.mode = ReplicationMode::kExact;
  options.replicas = replicas;
  options.deadline_s = 20;
  return options;
}
inline ReplicatorOptions Fast() {
  ReplicatorOptions options;
  options.mode = ReplicationMode::kFast;
  options.deadline_s = 20;
  return options;
}

// Runs on every rank; what they give, by rank. A failure of one fails the test.
template <typename T>
std::vector<T> OnRanks(int ranks, const ReplicatorOptions& options,
                       const std::function<T(Replicator&)>& program) {
  std::vector<T> results(static_cast<size_t>(ranks));
  EXPECT_EQ(ReplicateThreads(
                ranks,
                [&](Replicator& replicator) {
                  results[static_cast<size_t>(replicator.rank())] = program(replicator);
                },
                options),
            0);
  return results;
}

struct Batch {
  torch::Tensor x, y;
};

// Rows that depend on nothing but their number.
inline Batch Rows(int64_t begin, int64_t end) {
  torch::Tensor x = torch::empty({end - begin, 6}), y = torch::empty({end - begin}, torch::kInt64);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < 6; ++j)
      x[i - begin][j] = std::sin(static_cast<double>(i * 7 + j * 13)) * 3;
    y[i - begin] = i % 3;
  }
  return {x, y};
}

inline torch::nn::Sequential PlainMlp() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(),
                               torch::nn::Linear(16, 3));
}

}  // namespace samara
