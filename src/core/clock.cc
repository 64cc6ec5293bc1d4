// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/clock.h"

#include <ctime>

namespace samara {

std::string WallTimeIso() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace samara
