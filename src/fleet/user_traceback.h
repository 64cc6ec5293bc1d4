// The part of a Python traceback that its reader wrote.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace samara {

// Takes what an actor prints line by line and keeps, of the last traceback in it, the frames
// outside this package and Gymnasium, which are the user's.
class UserTraceback {
 public:
  void Take(std::string_view line);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  bool open_ = false, wanted_ = false;
  std::vector<std::string> lines_;
};

}  // namespace samara
