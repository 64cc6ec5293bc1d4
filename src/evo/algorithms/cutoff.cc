#include "evo/algorithms/cutoff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "core/parse_number.h"

namespace samara {
namespace {

constexpr std::string_view kAdaptive = "adaptive:";
constexpr int64_t kLimitMax = 1'000'000'000;

template <typename T>
bool Read(std::string_view text, T& value) {
  const auto number = ParseNumber<T>(text);
  value = number.value_or(value);
  return number.has_value();
}

// The next part before a comma, taken off `text`.
std::string_view Part(std::string_view& text) {
  const size_t comma = std::min(text.find(','), text.size());
  const std::string_view part = text.substr(0, comma);
  text.remove_prefix(std::min(comma + 1, text.size()));
  return part;
}

}  // namespace

Result<Cutoff> Cutoff::Parse(std::string_view text) {
  const Status bad(Code::kConfig,
                   fmt::format("es.cutoff={}: expected env_default, a number of steps, or "
                               "adaptive:START,THRESHOLD,RATIO,MAX such as "
                               "adaptive:100,0.5,2,1000",
                               Shown(text)));
  Cutoff cutoff;
  if (text == "env_default") return cutoff;
  if (!text.starts_with(kAdaptive)) {
    if (!Read(text, cutoff.start) || cutoff.start < 1 || cutoff.start > kLimitMax) return bad;
    cutoff.max = cutoff.start;
    return cutoff;
  }
  text.remove_prefix(kAdaptive.size());
  if (std::ranges::count(text, ',') != 3 || !Read(Part(text), cutoff.start) ||
      !Read(Part(text), cutoff.threshold) || !Read(Part(text), cutoff.ratio) ||
      !Read(Part(text), cutoff.max))
    return bad;
  const bool numbers = std::isfinite(cutoff.threshold) && std::isfinite(cutoff.ratio);
  if (!numbers || cutoff.start < 1 || cutoff.max < cutoff.start || cutoff.max > kLimitMax ||
      cutoff.threshold < 0 || cutoff.threshold > 1 || cutoff.ratio < 1 || cutoff.ratio > 1e6)
    return bad;
  return cutoff;
}

int64_t Cutoff::Next(int64_t limit, uint64_t reached, uint64_t episodes) const {
  if (static_cast<double>(reached) < threshold * static_cast<double>(episodes)) return limit;
  return std::min(max, static_cast<int64_t>(ratio * static_cast<double>(limit)));
}

}  // namespace samara
