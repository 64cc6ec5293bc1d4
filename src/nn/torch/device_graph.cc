#include "nn/torch/device_graph.h"

#ifdef SAMARA_TORCH_GPUS
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include "core/first_line.h"
#include "core/log.h"
#include "nn/torch/torch_device.h"

namespace samara {

#ifdef SAMARA_TORCH_GPUS

struct DeviceGraph::Recording {
  at::cuda::CUDAGraph graph;
};

namespace {

// Calls what may have been done already.
template <typename F>
void Try(const F& f) {
  try {
    f();
  } catch (const std::exception&) {
  }
}

}  // namespace

// Whether it worked.
bool DeviceGraph::Record(const std::function<void()>& operations) {
  auto recording = std::make_unique<Recording>();
  at::cuda::CUDAGraph& graph = recording->graph;
  const auto memory = at::cuda::graph_pool_handle();
  try {
    // other threads, learners', go on to use the device
    graph.capture_begin(memory, cudaStreamCaptureModeThreadLocal);
    operations();
    graph.capture_end();
  } catch (const std::exception& e) {
    LogWarning("inference is computed without CUDA graphs: " + FirstLine(e.what()));
    // until then the allocator frees nothing
    Try([&] { graph.capture_end(); });
    Try([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), memory); });
    return false;
  }
  recording_ = std::move(recording);
  graph.replay();
  return true;
}

#else

struct DeviceGraph::Recording {};

bool DeviceGraph::Record(const std::function<void()>&) { return false; }

#endif

DeviceGraph::DeviceGraph(const torch::Device& device, bool record)
    : device_(device), records_(record && device.is_cuda()) {}

DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::Run(const std::function<void()>& operations) {
#ifdef SAMARA_TORCH_GPUS
  if (recording_ != nullptr) return recording_->graph.replay();
#endif
  if (records_ && ++calls_ == 2) {
    records_ = Record(operations);
    if (records_) return;
  }
  operations();
}

}  // namespace samara
