// SPDX-License-Identifier: Apache-2.0 OR MIT
// samara._native: one Bind function per area, each in its own file.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "core/cpu.h"

void BindRandom(nanobind::module_& m);  // random.cc: the episode's random stream
void BindNoise(nanobind::module_& m);   // noise.cc: the noise of genomes
void BindSlots(nanobind::module_& m);   // slots.cc: waiting for commands, publishing frames
void BindPixels(nanobind::module_& m);  // pixels.cc: Atari preprocessing and its presets

NB_MODULE(_native, m) {
  m.doc() = "The hot loop of samara's actors.";
  nanobind::set_leak_warnings(false);  // of objects that live until the interpreter ends
  m.def(
      "isa", [] { return std::string(samara::Name(samara::ActiveIsa())); },
      "Name of the instruction set in use.");
  BindRandom(m);
  BindPixels(m);
  BindNoise(m);
  BindSlots(m);
}
