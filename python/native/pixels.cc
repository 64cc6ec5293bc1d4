// SPDX-License-Identifier: Apache-2.0 OR MIT
// Python's door to the pixel kernels.
#include "nn/pixels.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>

#include "env/atari_preset.h"

namespace nb = nanobind;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Frame = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;

samara::IsaLevel LevelOf(const std::string& name) {
  if (name.empty()) return samara::ActiveIsa();
  for (const samara::IsaLevel level : samara::AvailableIsaLevels()) {
    if (samara::Name(level) == name) return level;
  }
  throw std::invalid_argument("isa " + name + ": this CPU has no such level");
}

class Kernel {
 public:
  Kernel(const std::string& pooling, const std::string& gray, const std::string& resize, int height,
         int width, int out_height, int out_width, const Bytes& palette, const Bytes& grays,
         const std::string& isa) {
    auto made = samara::PixelKernel::Make(
        {pooling, gray, resize, height, width, out_height, out_width},
        {palette.data(), palette.size()}, {grays.data(), grays.size()}, LevelOf(isa));
    if (!made.ok()) throw std::invalid_argument(made.status().message());
    kernel_ = std::move(*made);
  }

  void Run(const Frame& a, const Frame& b, const Output& out) {
    const auto& rule = kernel_->rule();
    const auto is = [](const auto& array, int rows, int columns) {
      return array.shape(0) == static_cast<size_t>(rows) &&
             array.shape(1) == static_cast<size_t>(columns);
    };
    const nb::dlpack::dtype wanted =
        kernel_->float_output() ? nb::dtype<float>() : nb::dtype<uint8_t>();
    if (!is(a, rule.height, rule.width) || !is(b, rule.height, rule.width) ||
        !is(out, rule.out_height, rule.out_width) || out.dtype() != wanted) {
      throw std::invalid_argument("PixelKernel.run: frames or output of another shape or type");
    }
    kernel_->Run(a.data(), b.data(), out.data());
  }

 private:
  std::unique_ptr<samara::PixelKernel> kernel_;
};

}  // namespace

void BindPixels(nb::module_& m) {
  nb::class_<Kernel>(m, "PixelKernel",
                     "Two raw frames of palette indices to one observation (src/nn/pixels.h).")
      .def(nb::init<const std::string&, const std::string&, const std::string&, int, int, int, int,
                    const Bytes&, const Bytes&, const std::string&>(),
           nb::arg("pooling"), nb::arg("gray"), nb::arg("resize"), nb::arg("height"),
           nb::arg("width"), nb::arg("out_height"), nb::arg("out_width"), nb::arg("palette"),
           nb::arg("grays"), nb::arg("isa") = "")
      .def("run", &Kernel::Run, nb::arg("a"), nb::arg("b"), nb::arg("out").noconvert(),
           "Pools, turns gray and resizes frames a and b into `out`.");
  m.def(
      "atari_preset",
      [](const std::string& name) {
        const auto preset = samara::FindAtariPreset(name);
        if (!preset.ok()) throw std::invalid_argument(preset.status().message());
        return preset->ToJson();
      },
      nb::arg("name"), "The preset as JSON; ValueError with the nearest name when unknown.");
  m.def(
      "isa_levels",
      [] {
        std::vector<std::string> names;
        for (const samara::IsaLevel level : samara::AvailableIsaLevels()) {
          names.emplace_back(samara::Name(level));
        }
        return names;
      },
      "Every instruction set that this CPU can run, lowest first.");
}
