#include "fleet/user_traceback.h"

#include <algorithm>

namespace samara {
namespace {

constexpr std::string_view kNotTheUsers[] = {"/python/samara/", "-packages/samara/",
                                             "-packages/gymnasium/", "/importlib/", "<frozen "};

bool IsUsers(std::string_view frame) {
  return std::ranges::none_of(
      kNotTheUsers, [frame](std::string_view part) { return frame.find(part) != frame.npos; });
}

}  // namespace

void UserTraceback::Take(std::string_view line) {
  constexpr size_t kLinesMax = 40;  // of a recursion without end
  const bool full = lines_.size() >= kLinesMax;
  if (line.starts_with("Traceback (most recent")) {
    lines_.clear();
    open_ = true;
  } else if (open_ && line.starts_with("  File ")) {
    wanted_ = !full && IsUsers(line);
    if (wanted_) lines_.emplace_back(line);
  } else if (open_ && line.starts_with("    ")) {
    if (wanted_ && line.find_first_not_of(" ~^") != line.npos) lines_.emplace_back(line);
  } else if (open_) {
    open_ = line.starts_with("  ");  // "  [Previous line repeated 990 more times]"
  }
}

}  // namespace samara
