// A generative adversarial network: five discriminator steps for each generator step, spectral norm
// and projection in the one, batch norm over replicas in the other (Miyato and Koyama, 2018).
//
//   gan [--cifar FOLDER] [--channels N] [--steps N] [--batch N] ...
//
// --steps are the generator's, which have twice the batch. Without real data it draws digits.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include "samara/batch_norm.h"
#include "samara/dataset.h"
#include "samara/program.h"
#include "samara/spectral_norm.h"

namespace {
namespace nn = torch::nn;
using samara::CrossReplicaBatchNorm, samara::ReplicaContext, samara::SpectralNorm, torch::Tensor;

constexpr int64_t kNoise = 128, kRatio = 5;
struct Latents {
  Tensor noise, labels;
};
// Draws the latents of the whole batch of a step, whatever the number of replicas.
Latents Draw(int64_t step, int64_t rows, int64_t classes) {
  const auto draws = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
  return {torch::randn({rows, kNoise}, draws),
          torch::randint(0, classes, {rows}, draws, torch::kInt64)};
}

// From noise and a class to 32 x 32 pixels. The class scales and shifts what batch norm gives.
struct Generator : nn::Module {
  Generator(int64_t width, int64_t classes)
      : first(register_module("first", nn::Linear(kNoise, 128 * width))),
        layers(register_module("layers", nn::ModuleList())),
        last(register_module("last", nn::Conv2d(nn::Conv2dOptions(width, 3, 3).padding(1)))) {
    for (int64_t n = 8 * width; n > width; n /= 2) {
      const auto twice = nn::ConvTranspose2dOptions(n, n / 2, 4).stride(2).padding(1);
      nn::Embedding table(classes, n);
      nn::init::zeros_(table->weight);
      const nn::ModuleList next(nn::ConvTranspose2d(twice), CrossReplicaBatchNorm(n / 2), table);
      layers->extend(*next);
    }
  }
  Tensor forward(const Latents& z, ReplicaContext& replica) {
    Tensor x = first->forward(z.noise).view({-1, 8 * last->options.in_channels(), 4, 4});
    for (size_t i = 0; i < layers->size(); i += 3) {
      x = layers->at<nn::ConvTranspose2dImpl>(i).forward(x);
      x = layers->at<samara::CrossReplicaBatchNormImpl>(i + 1).forward(x, replica);
      const Tensor rows = layers->at<nn::EmbeddingImpl>(i + 2).forward(z.labels);
      const auto of_class = rows.unsqueeze(2).unsqueeze(3).chunk(2, 1);
      x = (x * (1 + of_class[0]) + of_class[1]).relu();
    }
    return last->forward(x).tanh();
  }
  nn::Linear first;
  nn::ModuleList layers;
  nn::Conv2d last;
};

// How real an image is, for its class and in general, as the table's last row says. Every weight
// has spectral norm.
struct Discriminator : nn::Module {
  Discriminator(int64_t width, int64_t classes)
      : layers(register_module("layers", nn::ModuleList())),
        table(register_module("table", nn::Embedding(classes + 1, 8 * width))),
        table_norm(register_module("table_norm", SpectralNorm(classes + 1))) {
    for (int64_t i = 0, in = 3; i < 7; ++i) {
      const int64_t out = width << i / 2, halve = i % 2;
      const auto conv = nn::Conv2dOptions(in, out, 3 + halve).stride(1 + halve).padding(1);
      layers->extend(*nn::ModuleList(nn::Conv2d(conv), SpectralNorm(out)));
      in = out;
    }
  }
  Tensor forward(Tensor x, const Tensor& labels) {
    for (size_t i = 0; i < layers->size(); i += 2) {
      const auto& conv = layers->at<nn::Conv2dImpl>(i);
      const Tensor weight = layers->at<samara::SpectralNormImpl>(i + 1).forward(conv.weight);
      x = torch::leaky_relu(torch::conv2d(x, weight, conv.bias, conv.options.stride(), 1), 0.1);
    }
    const Tensor rows = table_norm->forward(table->weight);
    return (x.sum({2, 3}) * (rows.index_select(0, labels) + rows[-1])).sum(1);
  }
  nn::ModuleList layers;
  nn::Embedding table;
  SpectralNorm table_norm;
};

}  // namespace

int main(int argc, char** argv) {
  samara::ProgramOptions options{.batch = 64};
  std::string cifar;
  int64_t width = 64;
  const std::vector<samara::ProgramOption> own{
      {"--cifar", "FOLDER", "CIFAR-10, binary version", &cifar},
      {"--channels", "N", "of both networks where they are narrowest", &width}};
  return samara::RunProgram(argc, argv, options, own, [&](samara::Replicator& replicator) {
    const samara::Dataset data = cifar.empty() ? samara::Datasets::Digits(3, 32).train
                                               : samara::Datasets::Cifar10(cifar, false).train;
    torch::manual_seed(1);
    Generator g(width, data.classes());
    Discriminator d(width, data.classes());
    const auto beta = torch::optim::AdamOptions(2e-4).betas({0.0, 0.9});
    auto adam_g = replicator.Wrap(torch::optim::Adam(g.parameters(), beta));
    auto adam_d = replicator.Wrap(torch::optim::Adam(d.parameters(), beta), d);  // and buffers
    samara::Checkpoint checkpoint{{{"g", &g}, {"d", &d}}, {{"g", &adam_g}, {"d", &adam_d}}, {}};
    samara::Load(replicator, options, checkpoint);
    int64_t done = replicator.step() / (kRatio + 1);
    auto input = samara::TrainingInput(replicator, data, options.batch, done * kRatio,
                                       options.steps * kRatio);
    Latents drawn;
    const auto d_step = [&](ReplicaContext& replica, samara::Samples& real) {
      adam_d.zero_grad();
      const auto share = replicator.ShareOf(samara::Flatten(drawn), replica.replica_id());
      const Latents z = samara::Unflatten(drawn, share);
      const Tensor images = torch::cat({real.images, g.forward(z, replica).detach()});
      const auto scores = d.forward(images, torch::cat({real.labels, z.labels})).chunk(2);
      const Tensor loss = (1 - scores[0]).relu().mean() + (1 + scores[1]).relu().mean();
      loss.backward();
      adam_d.step();
      return loss.detach();
    };
    const auto g_step = [&](ReplicaContext& replica, Latents& z) {
      adam_g.zero_grad();
      const Tensor loss = -d.forward(g.forward(z, replica), z.labels).mean();
      loss.backward();
      adam_g.step();
      return loss.detach();
    };
    Tensor d_loss = samara::Saved(checkpoint, "loss"), g_loss = samara::Saved(checkpoint, "g_loss");
    for (; samara::Going(replicator, options, done < options.steps); ++done) {
      const double left = 1.0 * (options.steps - done) / options.steps;
      for (auto* adam : {&adam_g, &adam_d}) samara::SetLearningRate(*adam, 2e-4 * left);
      for (int64_t i = 0; i < kRatio; ++i) {
        drawn = Draw(replicator.step(), options.batch, data.classes());
        d_loss = replicator.Mean(*replicator.Run(d_step, input));
      }
      // the generator's backward pass leaves no gradients in the discriminator
      for (Tensor& p : d.parameters()) p.requires_grad_(false);
      drawn = Draw(replicator.step(), 2 * options.batch, data.classes());
      g_loss = replicator.Mean(replicator.Run(g_step, drawn));
      for (Tensor& p : d.parameters()) p.requires_grad_(true);
      samara::PrintProgress(replicator, options, done + 1, d_loss);
    }
    samara::Save(replicator, options, checkpoint, {{"loss", d_loss}, {"g_loss", g_loss}});
    samara::PrintResult(replicator, options, d_loss, {&adam_g, &adam_d},
                        {{"generator_loss", g_loss.item<double>()}});
  });
}
