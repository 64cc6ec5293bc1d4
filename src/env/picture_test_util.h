// Reads single pixels of an environment's picture, for tests of what is drawn where.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "env/interface.h"

namespace samara {

// The red of a pixel of the present picture: wood has 202, steel 129, ink 30, paper 255.
inline int RedAt(Environment& environment, int64_t y, int64_t x) {
  const EnvironmentSpec& spec = environment.spec();
  std::vector<std::byte> pixels(static_cast<size_t>(spec.render_height * spec.render_width * 3));
  EXPECT_TRUE(environment.Render(pixels));
  return std::to_integer<int>(pixels[static_cast<size_t>((y * spec.render_width + x) * 3)]);
}

}  // namespace samara
