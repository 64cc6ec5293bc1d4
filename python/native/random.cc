// SPDX-License-Identifier: Apache-2.0 OR MIT
// Python's door to the counter-based generator: environments draw from the key of their episode.
#include <nanobind/nanobind.h>

#include <stdexcept>

#include "core/rng.h"

namespace nb = nanobind;

void BindRandom(nb::module_& m) {
  using samara::CounterRng;
  nb::class_<CounterRng>(m, "CounterRng",
                         "Draws of one random stream by index: pure functions of (key, index).")
      .def(nb::init<uint64_t>(), nb::arg("key"))
      .def("bits", &CounterRng::Bits, nb::arg("index"), "Uniform 32 bits.")
      .def("bits64", &CounterRng::Bits64, nb::arg("index"), "Uniform 64 bits; its own sub-stream.")
      .def("uniform", &CounterRng::Uniform, nb::arg("index"), "Uniform on [0, 1), 53 bits.")
      .def(
          "uniform_int",
          [](const CounterRng& rng, uint64_t index, uint64_t n) {
            if (n == 0 || n >> 32 != 0)
              throw std::invalid_argument("uniform_int: expected 0 < n < 2^32");
            return rng.UniformInt(index, n);
          },
          nb::arg("index"), nb::arg("n"), "Uniform on [0, n).");
}
