// One actor process: its life, its control socket and what it prints.
// Thread safety: none; the supervisor's thread owns it. The kernel kills the process when the
// thread that called Spawn ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "fleet/user_traceback.h"

namespace samara {

// Descriptors that the actor finds at fixed numbers (python/samara/actor.py).
enum ActorDescriptors { kActorControl = 3, kActorSegment = 4, kActorBell = 5, kActorPolicies = 6 };
inline constexpr size_t kPacketBytesMax = size_t{1} << 17;  // of one control message

struct ActorCommand {
  std::vector<std::string> program;  // its file, then its arguments
  std::string python_path;           // folder of the package samara, for PYTHONPATH
  std::string name;                  // "actor 3", for the log
  int segment_fd = -1, bell_fd = -1, policies_fd = -1;
};

class ActorProcess {
 public:
  // Starts the program in its own process group with single-threaded numerics.
  static Result<std::unique_ptr<ActorProcess>> Spawn(const ActorCommand& command);
  ~ActorProcess();  // kills what still lives
  ActorProcess(const ActorProcess&) = delete;
  ActorProcess& operator=(const ActorProcess&) = delete;

  // Control socket: whole packets, never blocking. A failed Send shows as gone().
  void Send(std::string_view packet);
  std::optional<std::string> Receive();
  void HangUp();  // the actor ends as soon as it looks

  // Logs what the process printed and keeps its last lines.
  void ReadOutput();
  // True once the process has ended or hung up; cheap, never blocks.
  bool gone();
  // Kills the process group, reaps the process, reads its last words.
  void Kill();
  // Waits for a voluntary end, kills after `grace`.
  void End(std::chrono::milliseconds grace);

  // After Kill or End, on one line: "killed by signal 9 (Killed)", "exit status 3: last line".
  std::string Cause() const;
  // Its output about its end: the user's frames of a traceback, else its last lines, at
  // most 12.
  std::vector<std::string> Explanation() const;
  // True when the process ended by itself (an exit, a crash) and was not killed from outside.
  bool own_fault() const;

  // To poll; -1, which poll passes over, once there is nothing to come.
  int control_fd() const { return hung_up_ ? -1 : control_; }
  int output_fd() const { return output_ended_ ? -1 : output_; }

 private:
  ActorProcess(std::string name, pid_t pid, int control, int output);
  bool Ended() const;

  const std::string name_;
  const pid_t pid_;
  int control_, output_;
  bool hung_up_ = false, output_ended_ = false, reaped_ = false;
  int wait_status_ = 0;
  std::string packet_;  // room for Receive
  std::string partial_line_;
  std::deque<std::string> last_lines_;
  UserTraceback traceback_;
  int lines_logged_ = 0;
};

// The folder of the Python package `samara`: `python/` next to the running program, where the build
// and an archive have it; the one that holds the program too, where pip installed both.
std::string DefaultPythonPath();

}  // namespace samara
