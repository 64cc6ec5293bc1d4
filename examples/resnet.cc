// Residual networks with batch norm over all replicas, and the recipe for large batches: learning
// rate by batch, warm-up, blocks that start as the identity, smooth labels, no decay of biases and
// batch norm (He et al., 2016; Goyal et al., 2017).
//
//   resnet [--model resnet20|resnet50] [--cifar FOLDER | --images FOLDER] [--side N] [--steps N]
//   ...
//
// --steps is the whole schedule, 90 epochs of the papers. Without real data it draws digits.
#include <torch/torch.h>

#include <string>
#include <vector>

#include "samara/batch_norm.h"
#include "samara/dataset.h"
#include "samara/program.h"

namespace {

namespace nn = torch::nn;
using samara::Datasets, samara::ReplicaContext, torch::Tensor, torch::optim::SGDOptions;

// A convolution and its batch norm: over all replicas within a step, of fixed statistics without.
struct LayerImpl : nn::Module {
  LayerImpl(int64_t in, int64_t out, int64_t size, int64_t stride)
      : conv(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false)),
        norm(out) {
    register_module("conv", conv);
    register_module("norm", norm);
    nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  }
  Tensor forward(const Tensor& x, ReplicaContext* replica) {
    const Tensor y = conv->forward(x);
    return replica != nullptr ? norm->forward(y, *replica) : norm->forward(y);
  }
  nn::Conv2d conv;
  samara::CrossReplicaBatchNorm norm;
};
TORCH_MODULE(Layer);

// Two layers of 3 x 3, or one of 3 x 3 between two of 1 x 1; next to them the input as it is.
struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t width, int64_t out, int64_t stride, bool bottleneck) {
    if (bottleneck) layers->push_back(Layer(in, width, 1, 1));
    layers->push_back(Layer(bottleneck ? width : in, width, 3, stride));
    Layer last(width, out, bottleneck ? 1 : 3, 1);
    nn::init::zeros_(last->norm->weight);
    layers->push_back(last);
    register_module("layers", layers);
    if (in != out || stride != 1) shortcut = register_module("shortcut", Layer(in, out, 1, stride));
  }
  Tensor forward(const Tensor& x, ReplicaContext* replica) {
    Tensor y = x;
    for (size_t i = 0; i < layers->size(); ++i)
      y = layers->at<LayerImpl>(i).forward(i == 0 ? y : y.relu(), replica);
    return (y + (shortcut ? shortcut->forward(x, replica) : x)).relu();
  }
  nn::ModuleList layers;
  Layer shortcut{nullptr};
};
TORCH_MODULE(Block);

// ResNet-20 with CIFAR's stem, or ResNet-50 with ImageNet's.
struct ResNet : nn::Module {
  ResNet(bool large_, int64_t channels, int64_t classes)
      : large(large_), stem(channels, large ? 64 : 16, large ? 7 : 3, large ? 2 : 1) {
    int64_t width = large ? 64 : 16, in = width;
    for (const int depth : large ? std::vector{3, 4, 6, 3} : std::vector{3, 3, 3}) {
      const int64_t out = large ? 4 * width : width;
      for (int i = 0; i < depth; ++i, in = out)
        blocks->push_back(Block(in, width, out, i == 0 && !blocks->is_empty() ? 2 : 1, large));
      width *= 2;
    }
    register_module("stem", stem);
    register_module("blocks", blocks);
    head = register_module("head", nn::Linear(in, classes));
    nn::init::normal_(head->weight, 0, 0.01);
    nn::init::zeros_(head->bias);
  }
  Tensor forward(const Tensor& images, ReplicaContext* replica) {
    Tensor x = stem->forward(images, replica).relu();
    if (large) x = torch::max_pool2d(x, 3, 2, 1);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x, replica);
    return head->forward(x.mean({2, 3}));
  }
  const bool large;
  Layer stem;
  nn::ModuleList blocks;
  nn::Linear head{nullptr};
};

// 5 of 90 epochs from 0.1 to 0.1 for each 256 samples of the batch; a tenth of it from 30, 60, 80.
double LearningRate(double epoch, int64_t batch) {
  const double peak = 0.1 * batch / 256, start = std::min(0.1, peak);
  if (epoch < 5) return start + (peak - start) * epoch / 5;
  return peak * (epoch < 30 ? 1 : epoch < 60 ? 0.1 : epoch < 80 ? 0.01 : 0.001);
}

}  // namespace

int main(int argc, char** argv) {
  samara::ProgramOptions options;
  std::string model = "resnet20", cifar, images;
  int64_t side = 0;
  const std::vector<samara::ProgramOption> own{
      {"--model", "resnet20|resnet50", "with CIFAR's stem, or with ImageNet's", &model},
      {"--cifar", "FOLDER", "CIFAR-10, binary version", &cifar},
      {"--images", "FOLDER", "JPEG files: train/CLASS/*.jpg, val/CLASS/*.jpg", &images},
      {"--side", "N", "of images: 224 with --images, 32 of drawn ones", &side}};
  return samara::RunProgram(argc, argv, options, own, [&](samara::Replicator& replicator) {
    const Datasets data = !images.empty()  ? Datasets::ImageFolder(images, side > 0 ? side : 224)
                          : !cifar.empty() ? Datasets::Cifar10(cifar)
                                           : Datasets::Digits(3, side > 0 ? side : 32);
    torch::manual_seed(1);
    ResNet net(model == "resnet50", data.train.channels(), data.train.classes());
    std::vector<Tensor> weights, others;
    for (const Tensor& p : net.parameters()) (p.dim() > 1 ? weights : others).push_back(p);
    const auto sgd = SGDOptions(0.1).momentum(0.9).nesterov(true);
    auto decayed = std::make_unique<SGDOptions>(SGDOptions(sgd).weight_decay(1e-4));
    // batch norm's statistics are the rank's, which all its replicas share: they are not wrapped
    auto optimizer =
        replicator.Wrap(torch::optim::SGD({{weights, std::move(decayed)}, {others}}, sgd));
    samara::Checkpoint checkpoint{{{"net", &net}}, {{"sgd", &optimizer}}, {}};
    samara::Load(replicator, options, checkpoint);
    auto input = samara::TrainingInput(replicator, data.train, options.batch, replicator.step(),
                                       options.steps);
    const auto step = [&](ReplicaContext& replica, samara::Samples& batch) {
      optimizer.zero_grad();
      const auto smooth = nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1);
      const Tensor scores = net.forward(batch.images, &replica);
      const Tensor loss = nn::functional::cross_entropy(scores, batch.labels, smooth);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    Tensor loss = samara::Saved(checkpoint, "loss");
    while (samara::Going(replicator, options, replicator.step() < options.steps)) {
      const double epoch = 90.0 * replicator.step() / options.steps;
      samara::SetLearningRate(optimizer, LearningRate(epoch, options.batch));
      loss = replicator.Mean(*replicator.Run(step, input));
      samara::PrintProgress(replicator, options, replicator.step(), loss);
    }
    samara::Save(replicator, options, checkpoint, {{"loss", loss}});
    net.eval();
    const auto scores = [&](const Tensor& x) { return net.forward(x, nullptr); };
    const double accuracy = samara::Accuracy(replicator, data.test, options.batch, scores);
    samara::PrintResult(replicator, options, loss, {&optimizer}, {{"accuracy", accuracy}});
  });
}
