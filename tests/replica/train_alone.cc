// A training loop for one device, as somebody writes it who has never heard of replicas.
#include <torch/torch.h>

#include <iostream>

struct Batch {
  torch::Tensor x, y;
};

struct Net : torch::nn::Module {
  Net() {
    register_module("in", in);
    register_module("dropout", dropout);
    register_module("out", out);
    scale = register_parameter("scale", torch::ones({32}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(dropout(torch::relu(in(x)) * scale)); }
  torch::nn::Linear in{12, 32}, out{32, 4};
  torch::nn::Dropout dropout{0.1};
  torch::Tensor scale;
};

int main() {
  torch::manual_seed(7);
  const torch::Tensor centres = 2 * torch::randn({4, 12});
  const torch::Tensor labels = torch::randint(4, {480}, torch::kInt64);
  const torch::Tensor points = centres.index({labels}) + torch::randn({480, 12});

  Net model;
  auto optimizer = torch::optim::AdamW(model.parameters(), 0.01);

  const auto step = [&](const Batch& batch) {
    optimizer.zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(model.forward(batch.x), batch.y);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };

  torch::Tensor loss;
  for (int i = 0; i < 40; ++i) {
    const int64_t first = i % 10 * 48;
    const Batch batch{points.narrow(0, first, 48), labels.narrow(0, first, 48)};
    loss = step(batch);
  }

  model.eval();
  const torch::NoGradGuard none;
  const torch::Tensor right = model.forward(points).argmax(1).eq(labels);
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& p : model.parameters()) weights.push_back(p.reshape({-1}));
  const torch::Tensor flat = torch::cat(weights);
  std::ostringstream line;  // one write, so that lines of several ranks stay whole
  line << std::hexfloat << loss.item<float>() << ' ' << right.sum().item<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) line << ' ' << flat[i].item<float>();
  line << '\n';
  std::cout << line.str() << std::flush;
  return 0;
}
