// Plays one episode of random observations through a network with random parameters, so that a
// script can compare it with PyTorch.
//
//   network_trace LINE HEIGHT WIDTH CHANNELS OUTPUTS STEPS FOLDER
//
// writes to FOLDER: `policy.safetensors`, the parameters as a policy file has them; `inputs.f32`,
// STEPS rows of [row][column][channel]; `outputs.f32`, STEPS rows of outputs. The inputs are the
// reference batch of virtual batch norm.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/rng.h"
#include "nn/kernel.h"
#include "nn/safetensors.h"
#include "nn/torch_layout.h"

namespace samara {
namespace {

std::vector<float> Uniform(uint64_t key, size_t n) {
  const CounterRng rng(key);
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(2 * rng.Uniform(i) - 1);
  return x;
}

std::vector<float> Parameters(const NetworkDescription& network) {
  std::vector<float> theta = Uniform(1, network.parameter_count);
  for (const TensorSlice& slice : Tensors(network)) {
    const auto scale = static_cast<float>(slice.bias ? 0.5 : 1.7 / std::sqrt(slice.fan_in));
    for (size_t i = 0; i < slice.count; ++i) {
      float& value = theta[slice.offset + i];
      value = slice.initial == 1 ? std::abs(value) : value * scale;
    }
  }
  return theta;
}

Status Write(const Path& file, std::span<const float> values) {
  return WriteFileAtomic(file, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

Status Trace(const NetworkDescription& network, size_t steps, const Path& folder) {
  std::vector<float> theta = Parameters(network);
  const PopulationKernel kernel(network);
  const auto workspace = kernel.MakeWorkspace();
  const std::vector<float> inputs = Uniform(2, steps * network.input_size());
  if (network.needs_reference()) {
    std::vector<const float*> reference;
    for (size_t t = 0; t < steps; ++t)
      reference.push_back(inputs.data() + t * network.input_size());
    kernel.ComputeStatistics(reference, *workspace, theta);
  }
  AlignedFloats packed(kernel.packed_size()), state(kernel.state_size());
  kernel.Pack(theta, packed.span());
  std::vector<float> outputs(steps * network.output_size());
  for (size_t t = 0; t < steps; ++t)
    kernel.Forward(packed.data(), inputs.data() + t * network.input_size(), *workspace,
                   outputs.data() + t * network.output_size(), state.data());
  Safetensors policy;
  for (const TorchTensor& t : ToTorchLayout(network, theta))
    policy.tensors[t.name] = Tensor::OfFloats(t.shape, t.values);
  ASSIGN_OR_RETURN(const std::string bytes, FormatSafetensors(policy));
  RETURN_IF_ERROR(WriteFileAtomic(folder / "policy.safetensors", bytes));
  RETURN_IF_ERROR(Write(folder / "inputs.f32", inputs));
  return Write(folder / "outputs.f32", outputs);
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  using namespace samara;
  if (argc != 8)
    return std::fprintf(stderr, "usage: network_trace LINE H W C OUTPUTS STEPS DIR\n"), 64;
  const auto number = [argv](int i) { return std::stoll(argv[i]); };
  const auto network = MakeNetwork(argv[1], number(2), number(3), number(4), number(5));
  const Status status =
      network.ok() ? Trace(*network, static_cast<size_t>(number(6)), argv[7]) : network.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
