// SPDX-License-Identifier: Apache-2.0 OR MIT
// Many different networks on a device, each with parameters of its own, and the frame stacks of
// the episodes that they play. The outputs have the bits of the population kernel of the CPU
// (nn/kernel.h), whatever the batch, the GPU or the CPU.
//
// A batch goes through a Lane: its stream, its staging memory, its scratch. Several lanes are in
// flight at a time, so that a lane's copies and the emulation of its environments overlap with
// another one's arithmetic. Thread safety: one thread at a time per lane; a network or stack is
// touched by one lane at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nn/device/accelerator.h"
#include "nn/frame_stack.h"
#include "nn/network.h"

namespace samara {

// One observation: its network, the stack of its episode, and how many frames the stack has seen
// in it before. `input`: the newest frame, or the floats of a vector.
struct DeviceRow {
  uint32_t network = 0, stack = 0, seen = 0;
  const void* input = nullptr;
};

class DevicePopulation {
 public:
  class Lane;
  // How many networks and stacks there is room for. `stack`: of images, whose pixels are bytes or
  // floats; without it inputs are vectors of floats.
  struct Shape {
    std::optional<FrameStackRule> stack;
    uint32_t networks = 1, stacks = 1;
    bool float_frames = false;
  };
  // kConfig: the network has a layer that these kernels do not compute. kNoResources: no room.
  static Result<std::unique_ptr<DevicePopulation>> Make(Accelerator& accelerator,
                                                        const NetworkDescription& network,
                                                        const Shape& shape);
  // Nothing is wrong with the network for a device. kConfig names the layer.
  static Status Supports(const NetworkDescription& network);

  const NetworkDescription& network() const { return network_; }
  Accelerator& accelerator() const { return accelerator_; }
  size_t network_bytes() const { return stride_; }  // of one network
  uint32_t networks() const { return shape_.networks; }
  std::byte* parameters(uint32_t network) const { return networks_.data() + network * stride_; }

  Result<std::unique_ptr<Lane>> MakeLane(uint32_t rows_max);

 private:
  friend class Lane;
  // Where a layer's parameters lie in a network's bytes.
  struct LayerPlace {
    size_t weights = 0, bias = 0, scale = 0;
    uint32_t columns = 0;  // padded
    device::Format format = device::Format::kFloat32;
    device::ConvTask conv = {};  // of a convolution: without what a batch brings
  };
  DevicePopulation(Accelerator& accelerator, NetworkDescription network, Shape shape)
      : accelerator_(accelerator), network_(std::move(network)), shape_(shape) {}
  Status Allocate();
  void PlaceLayers();
  std::vector<device::Segment> Segments() const;

  Accelerator& accelerator_;
  const NetworkDescription network_;
  const Shape shape_;
  std::vector<LayerPlace> places_;
  size_t stride_ = 0;
  uint32_t segment_count_ = 0;
  bool measured_ = false;  // some segment needs its largest magnitude
  size_t widest_ = 0;      // floats of the largest output of a layer
  DeviceBytes networks_, stacks_, segments_;
};

class DevicePopulation::Lane {
 public:
  // Writes canonical parameters, which are host memory, into a network.
  Status Load(uint32_t network, std::span<const float> canonical);
  // Calls `run` for each pass that writes a network, with its task but for where the values come
  // from: for sources of other folders, whose values are the same in both passes.
  void Place(uint32_t network, const std::function<void(const device::PlaceTask&)>& run);
  // Memory of the device for what such a source uploads; valid until the next call.
  Result<std::byte*> LoadScratch(size_t bytes);

  // Evaluates all rows; outputs()[row * output_size] are then what the networks say.
  Status Forward(std::span<const DeviceRow> rows);
  std::span<const float> outputs() const { return {outputs_host_.as<float>(), outputs_}; }
  // The two halves of it, for measurements: what goes to the device, and the arithmetic on what is
  // there.
  void Upload(std::span<const DeviceRow> rows);
  void Compute();
  // The work of Compute, and milliseconds of the device for each layer; the first is the stacks'.
  std::vector<float> MeasureLayers();
  DeviceStream& stream() { return *stream_; }
  // Time from a batch's first copy to its last, summed: where lanes overlap each has its own. Any
  // thread may ask.
  double seconds() const { return seconds_.load(std::memory_order_relaxed); }

 private:
  friend class DevicePopulation;
  Lane(DevicePopulation& population, uint32_t rows_max) : p_(population), rows_max_(rows_max) {}
  Status Allocate();
  void Group(std::span<const DeviceRow> rows);
  void PushFrames();
  void RunLayer(size_t index);
  void RunDense(const DevicePopulation::LayerPlace& place, const Layer& layer, const float* in,
                float* out);
  void RunConv(const DevicePopulation::LayerPlace& place, const float* in, float* out);

  DevicePopulation& p_;
  const uint32_t rows_max_;
  std::unique_ptr<DeviceStream> stream_;
  // host and device: rows, groups, then the rows' inputs
  DeviceBytes staging_host_, staging_;
  size_t groups_at_ = 0, inputs_at_ = 0, input_bytes_ = 0;
  DeviceBytes scratch_[2], outputs_host_, canonical_, magnitudes_, load_scratch_;
  std::atomic<double> seconds_{0};
  uint32_t rows_ = 0, singles_ = 0, groups_ = 0;
  size_t outputs_ = 0;
  std::vector<uint32_t> by_network_;
  std::vector<uint32_t> order_;  // row of each place in the batch
  std::vector<float> sorted_;    // outputs in that order
};

}  // namespace samara
