// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/device/population.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/check.h"
#include "nn/kernel_choice.h"

namespace samara {
namespace {

using device::Format;

constexpr size_t kAlignment = 256;           // of networks and of what lies in them
constexpr size_t kSharedWanted = 56 * 1024;  // of a convolution's block: four are side by side
constexpr uint32_t kConvThreads = 256, kWarp = 32;

size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
size_t U(int64_t n) { return static_cast<size_t>(n); }
uint32_t U32(int64_t n) { return static_cast<uint32_t>(n); }

bool IsConv(const Layer& layer) { return layer.kind == Layer::Kind::kConv; }

uint32_t ColumnsOf(const Layer& layer, Format format) {
  // whole loads of 16 bytes; a convolution's threads take eight channels
  const size_t columns = IsConv(layer) ? device::kTileChannels : 16 / kernel::WeightBytes(format);
  return static_cast<uint32_t>(RoundUp(U(layer.out), columns));
}

// Sets what a block of `rows` rows of the output needs of shared memory.
void SetTile(uint32_t rows, Format format, device::ConvTask& task) {
  const size_t height = (rows - 1) * task.stride + task.kernel;
  const size_t width = (task.out_width - 1) * task.stride + task.kernel;
  const size_t inputs = size_t{task.kernel} * task.kernel * task.in_channels;
  task.tile_rows = rows;
  task.weights_at = RoundUp(height * width * task.pixel * sizeof(float), 16);
  task.shared_size = task.weights_at + (inputs > device::kConvRows ? 2 : 1) * device::kConvRows *
                                           task.columns * kernel::WeightBytes(format);
}

uint32_t Threads(const device::ConvTask& task) {
  const size_t groups = RoundUp(size_t{task.tile_rows} * task.out_width, device::kTilePixels);
  return static_cast<uint32_t>(groups / device::kTilePixels *
                               (task.columns / device::kTileChannels));
}

device::ConvTask ConvOf(const Layer& layer, Format format) {
  device::ConvTask task{};
  task.in_height = U32(layer.in_height), task.in_width = U32(layer.in_width);
  task.in_channels = U32(layer.in), task.kernel = U32(layer.kernel);
  task.stride = U32(layer.stride), task.pad_rows = U32(layer.pad_before);
  task.pad_columns = U32(layer.pad_before_columns);
  task.out_height = U32(layer.out_height), task.out_width = U32(layer.out_width);
  task.out_channels = U32(layer.out), task.columns = ColumnsOf(layer, format);
  task.format = format, task.pixel = task.in_channels;
  task.activation = KernelActivation(layer.activation);
  // of what fits the rows that leave the fewest threads without work, and of these the most
  uint32_t best = 1, fewest = UINT32_MAX;
  for (uint32_t rows = 1; rows <= task.out_height; ++rows) {
    SetTile(rows, format, task);
    if (task.shared_size > kSharedWanted || Threads(task) > kConvThreads) break;
    const uint32_t blocks = (task.out_height + rows - 1) / rows;
    const uint32_t threads = blocks * static_cast<uint32_t>(RoundUp(Threads(task), kWarp));
    if (threads <= fewest) best = rows, fewest = threads;
  }
  SetTile(best, format, task);
  return task;
}

}  // namespace

Status DevicePopulation::Supports(const NetworkDescription& network) {
  const auto refuse = [&](const Layer& layer, const std::string& why) {
    return Status(Code::kConfig, "network " + network.name + ", layer " + layer.name + ": " + why +
                                     ", which run.device=cpu computes and a GPU does not");
  };
  for (const Layer& layer : network.layers) {
    if (&layer == &network.layers.front() && !IsConv(layer) && network.height * network.width > 1)
      return refuse(layer, "dense on an image");
    if (layer.recurrent()) return refuse(layer, "recurrent");
    if (layer.has_statistics()) return refuse(layer, "normalized by a reference batch");
    if (layer.kind == Layer::Kind::kDiagonal) return refuse(layer, "diagonal");
    if (layer.kind == Layer::Kind::kResidual) return refuse(layer, "residual");
    if (!layer.bias) return refuse(layer, "without bias");
    if (IsConv(layer)) {
      const device::ConvTask task = ConvOf(layer, Format::kFloat32);
      if (task.shared_size > device::kSharedMax || Threads(task) > kConvThreads)
        return refuse(layer, "one row of its output needs " + std::to_string(task.shared_size) +
                                 " bytes at a time, more than 96 kB, or over 256 threads");
    }
  }
  return Status::Ok();
}

Result<std::unique_ptr<DevicePopulation>> DevicePopulation::Make(Accelerator& accelerator,
                                                                 const NetworkDescription& network,
                                                                 const Shape& shape) {
  RETURN_IF_ERROR(Supports(network));
  auto population =
      std::unique_ptr<DevicePopulation>(new DevicePopulation(accelerator, network, shape));
  population->PlaceLayers();
  RETURN_IF_ERROR(population->Allocate());
  return population;
}

void DevicePopulation::PlaceLayers() {
  const auto reserve = [this](size_t bytes) {
    return std::exchange(stride_, stride_ + RoundUp(bytes, kAlignment));
  };
  for (size_t i = 0; i < network_.layers.size(); ++i) {
    const Layer& layer = network_.layers[i];
    LayerPlace place;
    place.format = KernelFormat(StorageOf(network_, i));
    place.columns = ColumnsOf(layer, place.format);
    const size_t rows = U(layer.fan_in());
    place.weights = reserve(rows * place.columns * kernel::WeightBytes(place.format));
    place.bias = reserve(place.columns * sizeof(float));
    if (place.format == Format::kInt8) place.scale = reserve(sizeof(float)), measured_ = true;
    if (IsConv(layer)) place.conv = ConvOf(layer, place.format);
    places_.push_back(place);
    widest_ = std::max(widest_, layer.output_size());
  }
}

std::vector<device::Segment> DevicePopulation::Segments() const {
  std::vector<device::Segment> segments;
  for (size_t i = 0; i < network_.layers.size(); ++i) {
    const Layer& layer = network_.layers[i];
    const DevicePopulation::LayerPlace& place = places_[i];
    segments.push_back({.first = layer.weight_offset,
                        .count = layer.weight_count,
                        .to = place.weights,
                        .columns = U32(layer.out),
                        .padded = place.columns,
                        .format = place.format,
                        .scale = place.scale});
    segments.push_back({.first = layer.bias_offset,
                        .count = U(layer.out),
                        .to = place.bias,
                        .columns = U32(layer.out),
                        .padded = place.columns,
                        .format = Format::kFloat32,
                        .scale = 0});
  }
  return segments;
}

Status DevicePopulation::Allocate() {
  const std::vector<device::Segment> segments = Segments();
  segment_count_ = static_cast<uint32_t>(segments.size());
  ASSIGN_OR_RETURN(networks_, accelerator_.Allocate(stride_ * shape_.networks));
  ASSIGN_OR_RETURN(segments_, accelerator_.Allocate(segments.size() * sizeof(segments[0])));
  if (shape_.stack) {
    const size_t pixel = shape_.float_frames ? sizeof(float) : 1;
    ASSIGN_OR_RETURN(stacks_, accelerator_.Allocate(shape_.stacks * network_.input_size() * pixel));
  }
  ASSIGN_OR_RETURN(const auto stream, accelerator_.MakeStream());
  stream->Upload(segments_.data(), segments.data(), segments_.size());
  stream->Zero(networks_.data(), networks_.size());  // the padding is read
  return stream->Synchronize();
}

Result<std::unique_ptr<DevicePopulation::Lane>> DevicePopulation::MakeLane(uint32_t rows_max) {
  auto lane = std::unique_ptr<Lane>(new Lane(*this, rows_max));
  RETURN_IF_ERROR(lane->Allocate());
  return lane;
}

Status DevicePopulation::Lane::Allocate() {
  Accelerator& accelerator = p_.accelerator_;
  ASSIGN_OR_RETURN(stream_, accelerator.MakeStream());
  groups_at_ = RoundUp(rows_max_ * sizeof(device::Row), kAlignment);
  inputs_at_ = groups_at_ + RoundUp(rows_max_ * sizeof(device::Group), kAlignment);
  const bool floats = !p_.shape_.stack || p_.shape_.float_frames;
  const size_t depth = p_.shape_.stack ? U(p_.shape_.stack->depth) : 1;
  input_bytes_ = p_.network_.input_size() / depth * (floats ? sizeof(float) : 1);
  const size_t bytes = inputs_at_ + rows_max_ * input_bytes_;
  ASSIGN_OR_RETURN(staging_host_, accelerator.AllocateHost(bytes));
  ASSIGN_OR_RETURN(staging_, accelerator.Allocate(bytes));
  for (DeviceBytes& scratch : scratch_) {
    ASSIGN_OR_RETURN(scratch, accelerator.Allocate(rows_max_ * p_.widest_ * sizeof(float)));
  }
  ASSIGN_OR_RETURN(outputs_host_,
                   accelerator.AllocateHost(rows_max_ * p_.network_.output_size() * sizeof(float)));
  ASSIGN_OR_RETURN(magnitudes_, accelerator.Allocate(p_.segment_count_ * sizeof(float)));
  ASSIGN_OR_RETURN(canonical_, accelerator.Allocate(p_.network_.parameter_count * sizeof(float)));
  return Status::Ok();
}

void DevicePopulation::Lane::Place(uint32_t network,
                                   const std::function<void(const device::PlaceTask&)>& run) {
  CHECK(network < p_.shape_.networks);
  device::PlaceTask task{.segments = p_.segments_.as<device::Segment>(),
                         .segment_count = p_.segment_count_,
                         .magnitudes = magnitudes_.as<float>(),
                         .measure = true,
                         .canonical = nullptr,
                         .size = p_.network_.parameter_count,
                         .network = p_.networks_.as<unsigned char>() + network * p_.stride_};
  if (p_.measured_) {
    stream_->Zero(magnitudes_.data(), magnitudes_.size());
    run(task);
  }
  task.measure = false;
  run(task);
}

Result<std::byte*> DevicePopulation::Lane::LoadScratch(size_t bytes) {
  if (load_scratch_.size() < bytes) {
    ASSIGN_OR_RETURN(load_scratch_, p_.accelerator_.Allocate(2 * bytes));
  }
  return load_scratch_.data();
}

Status DevicePopulation::Lane::Load(uint32_t network, std::span<const float> canonical) {
  CHECK_EQ(canonical.size(), p_.network_.parameter_count);
  stream_->Upload(canonical_.data(), canonical.data(), canonical.size_bytes());
  Place(network, [this](device::PlaceTask task) {
    task.canonical = canonical_.as<float>();
    stream_->Run(task);
  });
  return stream_->Synchronize();
}

// Rows of one network become groups, the networks with one row first; staging order is that of the
// groups, so that a group's rows follow each other.
void DevicePopulation::Lane::Group(std::span<const DeviceRow> rows) {
  by_network_.resize(rows.size());
  std::iota(by_network_.begin(), by_network_.end(), 0);
  std::ranges::sort(by_network_, {}, [&](uint32_t i) { return std::pair(rows[i].network, i); });
  auto* groups = reinterpret_cast<device::Group*>(staging_host_.data() + groups_at_);
  order_.clear();
  groups_ = 0;
  for (const bool single : {true, false}) {
    for (size_t i = 0, end = 0; i < by_network_.size(); i = end) {
      const uint32_t network = rows[by_network_[i]].network;
      while (end < by_network_.size() && rows[by_network_[end]].network == network) ++end;
      if ((end - i == 1) != single) continue;
      for (size_t part = i; part < end; part += device::kGroupMax)
        groups[groups_++] = {network, static_cast<uint32_t>(order_.size() + part - i),
                             static_cast<uint32_t>(std::min<size_t>(device::kGroupMax, end - part)),
                             0};
      for (size_t k = i; k < end; ++k) order_.push_back(by_network_[k]);
    }
    if (single) singles_ = groups_;
  }
}

void DevicePopulation::Lane::Upload(std::span<const DeviceRow> rows) {
  CHECK(!rows.empty() && rows.size() <= rows_max_);
  rows_ = static_cast<uint32_t>(rows.size());
  Group(rows);
  auto* staged = staging_host_.as<device::Row>();
  for (uint32_t i = 0; i < rows_; ++i) {
    const DeviceRow& row = rows[order_[i]];
    staged[i] = {row.network, row.stack, row.seen, 0};
    std::memcpy(staging_host_.data() + inputs_at_ + i * input_bytes_, row.input, input_bytes_);
  }
  stream_->Upload(staging_.data(), staging_host_.data(), inputs_at_ + rows_ * input_bytes_);
}

void DevicePopulation::Lane::RunConv(const DevicePopulation::LayerPlace& place, const float* in,
                                     float* out) {
  device::ConvTask task = place.conv;
  task.rows = staging_.as<device::Row>(), task.count = rows_;
  task.networks = {p_.networks_.as<unsigned char>(), p_.stride_};
  task.weights = place.weights, task.bias = place.bias;
  if (in != nullptr)
    task.in = in;
  else if (p_.shape_.float_frames)
    task.float_stacks = p_.stacks_.as<float>();
  else
    task.byte_stacks = p_.stacks_.as<unsigned char>();
  task.out = out;
  stream_->Run(task);
}

void DevicePopulation::Lane::RunDense(const DevicePopulation::LayerPlace& place, const Layer& layer,
                                      const float* in, float* out) {
  const auto* groups = reinterpret_cast<const device::Group*>(staging_.data() + groups_at_);
  device::DenseTask task{.groups = groups,
                         .count = singles_,
                         .shared = 1,
                         .networks = {p_.networks_.as<unsigned char>(), p_.stride_},
                         .weights = place.weights,
                         .bias = place.bias,
                         .scale = place.scale,
                         .format = place.format,
                         .in = in,
                         .out = out,
                         .inputs = U32(layer.fan_in()),
                         .outputs = U32(layer.out),
                         .columns = place.columns,
                         .activation = KernelActivation(layer.activation)};
  if (singles_ > 0) stream_->Run(task);
  task.groups += singles_, task.count = groups_ - singles_, task.shared = device::kGroupMax;
  if (task.count > 0) stream_->Run(task);
}

void DevicePopulation::Lane::PushFrames() {
  const FrameStackRule& rule = *p_.shape_.stack;
  stream_->Run(device::PushTask{
      .rows = staging_.as<device::Row>(),
      .count = rows_,
      .frames = staging_.data() + inputs_at_,
      .stacks = p_.stacks_.data(),
      .floats = p_.shape_.float_frames,
      .pixels = static_cast<uint32_t>(input_bytes_ / (p_.shape_.float_frames ? sizeof(float) : 1)),
      .depth = U32(rule.depth),
      .newest_first = rule.order == StackOrder::kNewestFirst,
      .at_reset = rule.at_reset == StackReset::kRepeat  ? device::PushTask::AtReset::kRepeat
                  : rule.at_reset == StackReset::kZeros ? device::PushTask::AtReset::kZeros
                                                        : device::PushTask::AtReset::kFront});
}

void DevicePopulation::Lane::RunLayer(size_t index) {
  const Layer& layer = p_.network_.layers[index];
  // null: the stacks
  const float* in = index > 0         ? scratch_[(index - 1) % 2].as<float>()
                    : p_.shape_.stack ? nullptr
                                      : reinterpret_cast<float*>(staging_.data() + inputs_at_);
  auto* out = scratch_[index % 2].as<float>();
  IsConv(layer) ? RunConv(p_.places_[index], in, out) : RunDense(p_.places_[index], layer, in, out);
}

void DevicePopulation::Lane::Compute() {
  if (p_.shape_.stack) PushFrames();
  for (size_t i = 0; i < p_.network_.layers.size(); ++i) RunLayer(i);
}

std::vector<float> DevicePopulation::Lane::MeasureLayers() {
  std::vector<float> milliseconds;
  stream_->Start();
  if (p_.shape_.stack) PushFrames();
  milliseconds.push_back(stream_->Stop());
  for (size_t i = 0; i < p_.network_.layers.size(); ++i) {
    stream_->Start();
    RunLayer(i);
    milliseconds.push_back(stream_->Stop());
  }
  return milliseconds;
}

Status DevicePopulation::Lane::Forward(std::span<const DeviceRow> rows) {
  stream_->Start();
  Upload(rows);
  Compute();
  const size_t size = p_.network_.output_size();
  outputs_ = rows_ * size;
  const DeviceBytes& last = scratch_[(p_.network_.layers.size() - 1) % 2];
  stream_->Download(outputs_host_.data(), last.data(), outputs_ * sizeof(float));
  seconds_.store(seconds() + 1e-3 * stream_->Stop(), std::memory_order_relaxed);
  RETURN_IF_ERROR(stream_->Synchronize());
  // back to the rows' own order
  auto* outputs = outputs_host_.as<float>();
  sorted_.assign(outputs, outputs + outputs_);
  for (uint32_t i = 0; i < rows_; ++i)
    std::copy_n(sorted_.data() + i * size, size, outputs + order_[i] * size);
  return Status::Ok();
}

}  // namespace samara
