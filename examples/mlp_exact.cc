// A fixed multilayer perceptron on fixed generated data, under any launcher: the parameters' hash
// is the same on 1, 2, 4 and 8 ranks, threads or processes, and through a stop and a start at
// another number of them.
//
//   mlp_exact [--steps N] [--batch N] [--mode exact|fast] [--threads-as-ranks N] [--out FOLDER]
//
// With --out it saves every 10 steps and goes on from what is there. Rank 0 prints one JSON object.
#include <torch/torch.h>

#include <string>

#include "samara/program.h"
#include "samara/replicator.h"

namespace {

struct Batch {
  torch::Tensor x, y;
};

constexpr int64_t kInputs = 20, kClasses = 5, kSamples = 4096;

// Sample i of an endless data set: points around a centre for each class.
Batch Samples(const std::vector<int64_t>& indices) {
  const auto rows = static_cast<int64_t>(indices.size());
  torch::Tensor x = torch::empty({rows, kInputs}), y = torch::empty({rows}, torch::kInt64);
  for (int64_t r = 0; r < rows; ++r) {
    auto state = static_cast<uint64_t>(indices[static_cast<size_t>(r)]) * 0x9E3779B97F4A7C15 + 1;
    const auto label = static_cast<int64_t>(state >> 40) % kClasses;
    y[r] = label;
    float* row = x[r].data_ptr<float>();
    for (int64_t i = 0; i < kInputs; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const auto noise = static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5F;
      row[i] = noise + static_cast<float>((label * 7 + i * 3) % 5) * 0.2F;
    }
  }
  return {x, y};
}

}  // namespace

int main(int argc, char** argv) {
  samara::ProgramOptions options;
  return samara::RunProgram(argc, argv, options, {}, [&](samara::Replicator& replicator) {
    if (options.batch > kSamples)
      throw samara::ReplicationError(78, "--batch: expected at most " + std::to_string(kSamples));
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(kInputs, 64), torch::nn::ReLU(),
                              torch::nn::Linear(64, 64), torch::nn::ReLU(),
                              torch::nn::Linear(64, kClasses));
    auto optimizer = replicator.Wrap(
        torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)));
    samara::Checkpoint checkpoint{{{"net", net.ptr().get()}}, {{"sgd", &optimizer}}, {}};
    samara::Load(replicator, options, checkpoint);

    const samara::SampleOrder order{.samples = kSamples, .global_batch = options.batch};
    auto input = replicator.MakeInput(
        samara::InputMode::kPerReplica, [&](const samara::InputContext& context) {
          return samara::OrderedPipeline(context, order, 1'000'000, Samples, replicator.step());
        });
    const auto step = [&](Batch& batch) {
      optimizer.zero_grad();
      const torch::Tensor loss =
          torch::nn::functional::cross_entropy(net->forward(batch.x), batch.y);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    torch::Tensor loss = samara::Saved(checkpoint, "loss");
    while (samara::Going(replicator, options, replicator.step() < options.steps)) {
      loss = replicator.Mean(*replicator.Run(step, input));
      if (replicator.step() % 10 == 0 && replicator.step() < options.steps)
        samara::Save(replicator, options, checkpoint, {{"loss", loss}});
    }
    samara::Save(replicator, options, checkpoint, {{"loss", loss}});
    samara::PrintResult(replicator, options, loss, {&optimizer});
  });
}
