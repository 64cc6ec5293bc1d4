// The device of a network, for torch: streams and the ways of arrays to a device and back.
//
// Nothing here names CUDA: torch's own dispatch reaches a GPU where this build has one. On the CPU
// everything is where it is, and nothing waits.
#pragma once

#include <optional>
#include <vector>

#include "core/device.h"
#include "nn/torch/torch.h"

namespace samara {

torch::Device ToTorch(const Device& device);
// Whether this build has code for GPUs.
bool TorchUsesGpus();
// Sets what torch computes with on GPUs, for the process: float32 as such, without TF32.
// `deterministic`: the same bits from run to run. REQUIRES: before anything was computed on one.
// kUnavailable: torch finds no GPU.
Status ConfigureGpus(bool deterministic);

// Waits until the calling thread's stream is empty.
void Synchronize(const torch::Device& device);

// A stream of higher priority than the one that other threads use; of the CPU none.
class PriorityStream {
 public:
  explicit PriorityStream(const torch::Device& device);
  // The calling thread uses the stream as long as this lives.
  class Use {
   public:
    explicit Use(const PriorityStream& stream);

   private:
    std::optional<c10::StreamGuard> guard_;
  };

 private:
  std::optional<c10::Stream> stream_;
};

// Arrays that the CPU writes and a device receives in one copy. One thread at a time.
class Upload {
 public:
  struct Array {
    std::vector<int64_t> sizes;
    torch::ScalarType type;
  };
  explicit Upload(const torch::Device& device) : device_(device), copied_(device.type()) {}

  // Returns tensors of the CPU to be written, until the next call. Waits until the arrays before
  // them are on the device.
  std::vector<torch::Tensor> Begin(const std::vector<Array>& arrays);
  // Returns the same on the device, until the next call. What computes with them must be enqueued
  // on the calling thread's stream.
  std::vector<torch::Tensor> Send();

 private:
  std::vector<torch::Tensor> Views(const torch::Tensor& bytes) const;

  const torch::Device device_;
  c10::Event copied_;
  std::vector<Array> arrays_;
  torch::Tensor host_, there_;  // bytes, as many as were ever needed
  int64_t bytes_ = 0;           // of these arrays
};

// Tensors of a device that the CPU receives in one copy. One thread at a time.
class Download {
 public:
  // Replaces each tensor by one of the CPU, of the same sizes and type, until the next call;
  // undefined ones stay. Waits. REQUIRES: those of larger types come first.
  void Fetch(const std::vector<torch::Tensor*>& tensors);

 private:
  torch::Tensor host_;  // bytes, as many as were ever needed
};

}  // namespace samara
