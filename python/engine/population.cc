// SPDX-License-Identifier: Apache-2.0 OR MIT
// The population kernel (nn/kernel.h) for NumPy arrays and torch tensors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/thread.h"
#include "engine/refuse.h"
#include "nn/kernel.h"
#include "nn/torch_layout.h"

namespace nb = nanobind;

namespace samara {
namespace {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::span<const float> SpanOf(const Floats& floats) { return {floats.data(), floats.size()}; }

// Individuals of one network, each with parameters of its own.
class Population {
 public:
  Population(const std::string& network, int64_t height, int64_t width, int64_t channels,
             int64_t outputs)
      : kernel_(MakeNetwork(network, height, width, channels, outputs).ValueOrThrow()) {}

  const NetworkDescription& network() const { return kernel_.network(); }
  size_t individuals() const { return packed_.size(); }
  size_t state_size() const { return kernel_.state_size(); }

  // [individuals][parameter_count], canonical.
  void Load(const Floats& parameters) {
    const size_t each = network().parameter_count;
    if (parameters.ndim() != 2 || parameters.shape(1) != each)
      Refuse("parameters: expected one row of " + std::to_string(each) + " for each individual");
    const std::span<const float> all = SpanOf(parameters);
    if (!std::ranges::all_of(all, [](float x) { return std::isfinite(x); }))
      Refuse("parameters: expected finite numbers");
    const nb::gil_scoped_release release;
    packed_.clear();
    for (size_t i = 0; i < all.size() / std::max<size_t>(1, each); ++i) {
      packed_.emplace_back(kernel_.packed_size());
      kernel_.Pack(all.subspan(i * each, each), packed_.back().span());
    }
  }

  // One observation for each individual; `states` [individuals][state_size()] move on.
  void Forward(const Floats& inputs, const Matrix& outputs, const Matrix& states,
               uint32_t threads) {
    const size_t n = individuals(), in = inputs.size() / std::max<size_t>(1, n);
    if (inputs.shape(0) != n || inputs.size() != n * in || in != network().input_size() ||
        outputs.shape(0) != n || outputs.shape(1) != network().output_size() ||
        states.shape(0) != n || states.shape(1) != state_size())
      Refuse("expected one observation of " + std::to_string(network().input_size()) +
             " numbers for each of " + std::to_string(n) + " individuals");
    const nb::gil_scoped_release release;
    threads = static_cast<uint32_t>(std::clamp<size_t>(threads, 1, std::max<size_t>(1, n)));
    workspaces_.resize(std::max<size_t>(workspaces_.size(), threads));
    const auto part = [&](size_t t) {
      Run(t, n * t / threads, n * (t + 1) / threads, inputs.data(), outputs.data(), states.data());
    };
    ThreadGroup others(nullptr);  // joined when it leaves this block
    ThrowIfError(others.Start("kernel ", threads - 1, [&](size_t t) { part(t + 1); }));
    part(0);
  }

 private:
  void Run(size_t thread, size_t first, size_t end, const float* inputs, float* outputs,
           float* states) {
    auto& workspace = workspaces_[thread];
    if (workspace == nullptr) workspace = kernel_.MakeWorkspace();
    const size_t in = network().input_size(), out = network().output_size(), state = state_size();
    for (size_t i = first; i < end; ++i)
      kernel_.Forward(packed_[i].data(), inputs + i * in, *workspace, outputs + i * out,
                      state > 0 ? states + i * state : nullptr);
  }

  PopulationKernel kernel_;
  std::vector<AlignedFloats> packed_;
  std::vector<std::unique_ptr<PopulationKernel::Workspace>> workspaces_;  // by thread
};

// One canonical vector as tensors in PyTorch's names and layout.
nb::dict ToTorch(const Population& population, const Floats& canonical) {
  if (canonical.size() != population.network().parameter_count)
    Refuse("expected " + std::to_string(population.network().parameter_count) + " parameters");
  nb::dict tensors;
  for (const TorchTensor& tensor : ToTorchLayout(population.network(), SpanOf(canonical)))
    tensors[tensor.name.c_str()] = nb::make_tuple(tensor.shape, tensor.values);
  return tensors;
}

std::vector<float> FromTorch(const Population& population, const nb::dict& tensors) {
  std::vector<TorchTensor> read;
  for (const auto& [name, value] : tensors) {
    const auto array = nb::cast<Floats>(value);
    TorchTensor& tensor = read.emplace_back();
    tensor.name = nb::cast<std::string>(name);
    for (size_t d = 0; d < array.ndim(); ++d)
      tensor.shape.push_back(static_cast<int64_t>(array.shape(d)));
    tensor.values.assign(array.data(), array.data() + array.size());
  }
  return FromTorchLayout(population.network(), read).ValueOrThrow();
}

}  // namespace
}  // namespace samara

void BindPopulation(nb::module_& m) {
  using samara::Population;
  nb::class_<Population>(m, "Population", "Many networks of one shape; samara.PopulationKernel.")
      .def(nb::init<const std::string&, int64_t, int64_t, int64_t, int64_t>())
      .def_prop_ro("parameter_count",
                   [](const Population& p) { return p.network().parameter_count; })
      .def_prop_ro("individuals", &Population::individuals)
      .def_prop_ro("state_size", &Population::state_size)
      .def("load", &Population::Load)
      .def("forward", &Population::Forward)
      .def("to_torch", &samara::ToTorch)
      .def("from_torch", &samara::FromTorch);
}
