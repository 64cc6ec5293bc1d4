// SPDX-License-Identifier: Apache-2.0 OR MIT
// samara's noise for Python: with it a genome's parameters can be rebuilt by NumPy.
#include "evo/genome/noise.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

namespace {

namespace nb = nanobind;
using samara::NoiseKind;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

NoiseKind ParseKind(const std::string& name) {
  if (name == "normal") return NoiseKind::kNormal;
  if (name == "quantile8") return NoiseKind::kQuantile8;
  if (name == "table") return NoiseKind::kTable;
  throw nb::value_error(("noise kind '" + name + "': expected normal, quantile8 or table").c_str());
}

// out[:] = e(key)[first : first + len(out)]
void Fill(const std::string& kind_name, uint64_t key, size_t first, const Floats& out) {
  const NoiseKind kind = ParseKind(kind_name);
  const uint64_t size = samara::kNoiseTableSize;
  if (kind == NoiseKind::kTable &&
      (key > size || first > size - key || out.size() > size - key - first)) {
    throw nb::value_error("the slice leaves the noise table of 250000000 values");
  }
  const nb::gil_scoped_release release;
  samara::GetNoise(kind).Fill(key, first, {out.data(), out.size()});
}

}  // namespace

void BindNoise(nb::module_& m) {
  m.def("noise_fill", &Fill, nb::arg("kind"), nb::arg("key"), nb::arg("first"),
        nb::arg("out").noconvert(),
        "out[:] = elements first, first + 1, ... of the noise (kind, key); out: float32 vector. "
        "kind: normal, quantile8, or table, whose slices are drawn again.");
}
