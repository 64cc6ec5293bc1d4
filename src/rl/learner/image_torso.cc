#include "rl/learner/image_torso.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "nn/layer_line.h"
#include "rl/learner/perceptron_rows.h"

namespace samara {

Result<std::unique_ptr<const ImageTorso>> ImageTorso::Split(AgentSetup& setup) {
  const ObservationSpec& observation = setup.environment.observation;
  if (!observation.image()) return std::unique_ptr<const ImageTorso>();
  ASSIGN_OR_RETURN(const InputLayout layout, LayoutOf(observation, setup.stack));
  const std::string line = setup.config.network.text();
  ASSIGN_OR_RETURN(NetworkDescription network,
                   MakeTorso(line, layout.height, layout.width, layout.channels));
  const auto is_conv = [](const Layer& layer) { return layer.kind == Layer::Kind::kConv; };
  const auto dense = std::ranges::find_if_not(network.layers, is_conv);
  for (auto layer = network.layers.begin(); layer != network.layers.end(); ++layer)
    if (dense == network.layers.begin() || !Differentiable(*layer) ||
        (layer >= dense && layer->kind != Layer::Kind::kDense))
      return Status(
          Code::kConfig,
          fmt::format("network {}: {} learns from images with convolutions and dense layers; "
                      "expected a line such as conv 16 8x8/4 relu, conv 32 4x4/2 relu, dense 256 "
                      "relu",
                      line, setup.config.algorithm));
  const std::string behind = LineOfDense({dense, network.layers.end()});
  network.layers.erase(dense, network.layers.end());
  RETURN_IF_ERROR(Finish(network));
  ASSIGN_OR_RETURN(Convolutions net,
                   Convolutions::Make(std::move(network), OpsOf(setup.config.network)));
  std::unique_ptr<const ImageTorso> torso(new ImageTorso(layout, std::move(net)));
  setup.environment.observation = {DType::kFloat32, {static_cast<int64_t>(torso->features())}};
  setup.config.network.layers = behind;
  setup.stack.reset();
  return torso;
}

ImageTorso::ImageTorso(const InputLayout& layout, Convolutions net)
    : layout_(layout), net_(std::make_shared<const Convolutions>(std::move(net))) {
  blocks_.Add("", net_->network().layers.back().name, net_);
}

ImageTorso::Memory ImageTorso::MakeMemory(size_t rows_max, bool backward) const {
  return {.pass = net_->MakePass(rows_max, backward),
          .input = std::vector<std::byte>(layout_.input_bytes()),
          .still = {},
          .mean = {},
          .deviation = {}};
}

void ImageTorso::Evaluate(std::span<const float> parameters, size_t rows, Memory& memory,
                          std::span<float> features) const {
  net_->Forward(parameters, rows, memory.pass);
  for (size_t i = 0; i < rows; ++i)
    net_->CopyOutput(memory.pass, i, features.subspan(i * net_->outputs(), net_->outputs()));
}

// Repeats a frame's statistics for each frame of the stack: all of a pixel stand together.
void ImageTorso::SetStatistics(std::span<const float> statistics, Memory& memory) const {
  const size_t numbers = statistics.size() / 2, depth = layout_.depth();
  const size_t channels = static_cast<size_t>(layout_.channels) / depth;
  CHECK(numbers == 0 || numbers * depth == net_->inputs());
  memory.mean.resize(numbers * depth);
  memory.deviation.resize(numbers * depth);
  size_t k = 0;
  for (size_t pixel = 0; pixel < numbers; pixel += channels)
    for (size_t d = 0; d < depth; ++d)
      for (size_t c = 0; c < channels; ++c, ++k) {
        memory.mean[k] = statistics[pixel + c];
        memory.deviation[k] = statistics[numbers + pixel + c];
      }
}

void ImageTorso::SetInput(size_t i, ImageShift shift, Memory& memory) const {
  const size_t n = net_->inputs();
  float* const to = memory.pass.input.data() + i * n;
  const bool moved = shift != ImageShift();
  if (moved) memory.still.resize(n);
  float* __restrict still = moved ? memory.still.data() : to;
  if (layout_.bytes)
    BytesToUnit(memory.input.data(), {still, n});
  else
    std::memcpy(still, memory.input.data(), n * sizeof(float));
  const float *mean = memory.mean.data(), *deviation = memory.deviation.data();
  for (size_t k = 0; k < memory.mean.size(); ++k)
    still[k] = NormalizedInput(still[k], mean[k], deviation[k]);
  if (moved) layout_.MoveInput(shift, still, to);
}

}  // namespace samara
