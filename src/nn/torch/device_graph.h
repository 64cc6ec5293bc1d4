// Operations on a device, recorded once and then launched by one call instead of one call each (a
// CUDA graph): small networks take less time on a GPU than their kernels take to be launched.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "nn/torch/torch.h"

namespace samara {

// Thread safety: one thread at a time, with the same stream that is not the default one.
class DeviceGraph {
 public:
  // `record`: false computes the operations at every call, as on a CPU.
  DeviceGraph(const torch::Device& device, bool record);
  ~DeviceGraph();

  // Enqueues `operations` on the calling thread's stream: the first call by calling them, so that
  // libraries choose how to compute them; the second by recording them; from then on without
  // calling them. What they read and write stays where it was at the second call, and tensors that
  // they leave behind then have the newest values after every later call. REQUIRES: they are the
  // same at every call and do not wait for the device. Operations that cannot be recorded are
  // computed by calling them at every call.
  void Run(const std::function<void()>& operations);
  bool recorded() const { return recording_ != nullptr; }

 private:
  struct Recording;
  bool Record(const std::function<void()>& operations);

  const torch::Device device_;
  bool records_;
  uint64_t calls_ = 0;
  std::unique_ptr<Recording> recording_;
};

}  // namespace samara
