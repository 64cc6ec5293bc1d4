#include "nn/torch/torch_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <numeric>

namespace samara {
namespace {

using torch::Tensor;

constexpr int64_t kAlignment = 64;  // of each array

int64_t BytesOf(const Upload::Array& array) {
  const int64_t bytes =
      c10::multiply_integers(array.sizes) * static_cast<int64_t>(c10::elementSize(array.type));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// `bytes` as a tensor of another type and shape.
Tensor ViewAs(const Tensor& bytes, int64_t at, const std::vector<int64_t>& sizes,
              torch::ScalarType type) {
  const int64_t size = c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
  return bytes.narrow(0, at, size).view(type).view(sizes);
}

// At least `size` bytes; memory of the CPU that `device` copies from or to without another copy.
void Grow(Tensor& bytes, int64_t size, const torch::Device& where, bool pinned) {
  if (bytes.defined() && bytes.numel() >= size) return;
  bytes = torch::empty({size}, torch::dtype(torch::kUInt8).device(where).pinned_memory(pinned));
}

}  // namespace

torch::Device ToTorch(const Device& device) {
  if (!device.cuda) return torch::kCPU;
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(device.ordinal)};
}

bool TorchUsesGpus() {
#ifdef SAMARA_TORCH_GPUS
  return true;
#else
  return false;
#endif
}

Status ConfigureGpus(bool deterministic) {
  if (!torch::cuda::is_available())
    return {
        Code::kUnavailable,
        "run.device=cuda: torch finds no GPU that it can use: NVIDIA's driver may be older than "
        "this build's CUDA; expected a newer driver, or run.device=cpu"};
  at::Context& context = at::globalContext();
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
  if (!deterministic) return Status::Ok();
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);
  return Status::Ok();
}

void Synchronize(const torch::Device& device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

PriorityStream::PriorityStream(const torch::Device& device) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type())
                .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

PriorityStream::Use::Use(const PriorityStream& stream) {
  if (stream.stream_) guard_.emplace(*stream.stream_);
}

std::vector<Tensor> Upload::Views(const Tensor& bytes) const {
  std::vector<Tensor> views;
  int64_t at = 0;
  for (const Array& array : arrays_) {
    views.push_back(ViewAs(bytes, at, array.sizes, array.type));
    at += BytesOf(array);
  }
  return views;
}

std::vector<Tensor> Upload::Begin(const std::vector<Array>& arrays) {
  if (!device_.is_cpu()) copied_.synchronize();
  arrays_ = arrays;
  bytes_ = std::accumulate(arrays.begin(), arrays.end(), int64_t{0},
                           [](int64_t sum, const Array& array) { return sum + BytesOf(array); });
  Grow(host_, bytes_, torch::kCPU, /*pinned=*/!device_.is_cpu());
  return Views(host_);
}

std::vector<Tensor> Upload::Send() {
  if (device_.is_cpu()) return Views(host_);
  Grow(there_, bytes_, device_, /*pinned=*/false);
  there_.narrow(0, 0, bytes_).copy_(host_.narrow(0, 0, bytes_), /*non_blocking=*/true);
  copied_.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return Views(there_);
}

void Download::Fetch(const std::vector<Tensor*>& tensors) {
  std::vector<Tensor> parts;
  for (const Tensor* tensor : tensors)
    if (tensor->defined()) parts.push_back(tensor->contiguous().flatten().view(torch::kUInt8));
  if (parts.empty()) return;
  const Tensor all = torch::cat(parts);
  Grow(host_, all.numel(), torch::kCPU, /*pinned=*/!all.is_cpu());
  host_.narrow(0, 0, all.numel()).copy_(all, /*non_blocking=*/true);
  Synchronize(all.device());
  int64_t at = 0;
  for (Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    const auto bytes = static_cast<int64_t>(tensor->nbytes());
    *tensor = ViewAs(host_, at, tensor->sizes().vec(), tensor->scalar_type());
    at += bytes;
  }
}

}  // namespace samara
