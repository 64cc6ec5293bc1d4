// How a replicated program fails: one exception, with the exit code that schedulers act on.
#pragma once

#include <stdexcept>
#include <string>

namespace samara {

// what(): one line: what happened, on which ranks, what to do. After it no other collective of the
// group works; every rank gets one, in the same words where the group is at fault.
class ReplicationError : public std::runtime_error {
 public:
  ReplicationError(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  // 69: a rank died, froze or did not come; 70: ranks called different things, or diverged;
  // 71: no room for a thread or for memory; 73: the ranks' port is another launch's;
  // 78: a configuration that cannot work; 65, 66, 74: files.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

}  // namespace samara
