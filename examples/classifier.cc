// A small convolutional network that tells digits apart, under any launcher.
//
//   classifier [--idx FOLDER] [--steps N] [--batch N] [--mode exact|fast] [--out FOLDER] ...
//
// Without MNIST's files it draws digits of its own. Rank 0 prints one JSON object, with the
// accuracy on the test set.
#include <torch/torch.h>

#include <string>

#include "samara/dataset.h"
#include "samara/program.h"
#include "samara/replicator.h"

namespace nn = torch::nn;

int main(int argc, char** argv) {
  samara::ProgramOptions options{.steps = 300, .batch = 64};
  std::string idx;
  const samara::ProgramOption own{"--idx", "FOLDER", "MNIST's four files, unpacked", &idx};
  return samara::RunProgram(argc, argv, options, {own}, [&](samara::Replicator& replicator) {
    const samara::Datasets data =
        idx.empty() ? samara::Datasets::Digits(1, 28) : samara::Datasets::Idx(idx);
    torch::manual_seed(1);
    const int64_t features = 32 * (data.train.height() / 4) * (data.train.width() / 4);
    nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(data.train.channels(), 16, 3).padding(1)),
                       nn::ReLU(), nn::MaxPool2d(2),
                       nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::ReLU(),
                       nn::MaxPool2d(2), nn::Flatten(), nn::Linear(features, 64), nn::ReLU(),
                       nn::Linear(64, data.train.classes()));
    auto optimizer = replicator.Wrap(
        torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)));
    samara::Checkpoint checkpoint{{{"net", net.get()}}, {{"sgd", &optimizer}}, {}};
    samara::Load(replicator, options, checkpoint);

    auto input = samara::TrainingInput(replicator, data.train, options.batch, replicator.step(),
                                       options.steps);
    const auto step = [&](samara::Samples& batch) {
      optimizer.zero_grad();
      const torch::Tensor loss =
          nn::functional::cross_entropy(net->forward(batch.images), batch.labels);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    torch::Tensor loss = samara::Saved(checkpoint, "loss");
    while (samara::Going(replicator, options, replicator.step() < options.steps)) {
      loss = replicator.Mean(*replicator.Run(step, input));
      samara::PrintProgress(replicator, options, replicator.step(), loss);
    }
    samara::Save(replicator, options, checkpoint, {{"loss", loss}});
    const double accuracy =
        samara::Accuracy(replicator, data.test, options.batch,
                         [&](const torch::Tensor& images) { return net->forward(images); });
    samara::PrintResult(replicator, options, loss, {&optimizer}, {{"accuracy", accuracy}});
  });
}
