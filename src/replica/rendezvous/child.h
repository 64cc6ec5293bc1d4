// A program started as a process group of its own, which ends with this process, and what it
// prints. Thread safety: none.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "replica/rendezvous/socket.h"

namespace samara {

struct ChildCommand {
  std::vector<std::string> program;    // and its arguments
  std::vector<std::string> variables;  // of its environment, "NAME=value"
  mode_t umask = 077;
  OwnedFd out{}, err{};  // its two outputs; -1: this process's
};

class Child {
 public:
  // Starts `command`; its input is empty. `output`: this process's end of a pipe to an output of
  // the child, not blocking; -1: none. `on_line` takes each line that comes there, without its end;
  // a line of more than 64 KiB comes in parts. kNoInput or kNotPermitted for a program that cannot
  // be started. The thread that calls it must live as long as the child: the kernel kills that with
  // it.
  static Result<std::unique_ptr<Child>> Start(const ChildCommand& command, OwnedFd output,
                                              std::function<void(std::string_view)> on_line);
  ~Child();  // kills what still lives
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool running() const { return pid_ >= 0; }
  int output() const { return output_.get(); }  // to poll; -1 once there is nothing to come
  // To the child and to the processes that it started itself.
  void Signal(int number) const;
  // The wait status, once it has ended.
  std::optional<int> Ended();
  // Reads whole lines; false when there is nothing more now.
  bool ReadLines();
  // Everything that is still to come; REQUIRES: it has ended.
  void ReadRest();

 private:
  Child(pid_t pid, OwnedFd output, std::function<void(std::string_view)> on_line)
      : pid_(pid), output_(std::move(output)), on_line_(std::move(on_line)) {}
  int Reap();
  void TakeLine();

  pid_t pid_;  // -1 once reaped; the group's number too
  OwnedFd output_;
  const std::function<void(std::string_view)> on_line_;
  std::string line_;
};

// Both ends of a pipe for a child's output: ours, which does not block, and the child's.
struct OutputPipe {
  OwnedFd ours, childs;
};
Result<OutputPipe> MakeOutputPipe();

// This process's environment without the variables of which `replaced` says so.
std::vector<std::string> OwnVariables(const std::function<bool(std::string_view name)>& replaced);

// The exit code on which schedulers act: that of the program; 70 when it crashed, 69 when it was
// killed, 75 when it died of the signal by which all were `stopped`. `wait_status`: of waitpid.
int LaunchExitCode(int wait_status, bool stopped);

}  // namespace samara
