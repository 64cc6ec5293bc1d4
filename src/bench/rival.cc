// Rivals: scripts of this folder, run by .venv's Python.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "bench/bench.h"
#include "core/venv.h"

namespace samara::bench {

using nlohmann::json;

namespace {

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) != 0;) {
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  return text;
}

}  // namespace

Result<Path> FindScript(const Path& venv, const std::string& script) {
  std::error_code failed;
  const Path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  for (const Path& tree : {program.parent_path().parent_path(), venv.parent_path()}) {
    Path file = tree / "src" / "bench" / script;
    if (std::filesystem::exists(file, failed)) return file;
  }
  return Status(Code::kNoInput,
                fmt::format("src/bench/{}: missing; the rivals need the source tree", script));
}

Result<json> RunRival(const std::string& script, const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const Path venv, FindVenv());
  ASSIGN_OR_RETURN(const Path file, FindScript(venv, script));
  std::vector<std::string> command = {(venv / "bin" / "python").string(), file.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunForJson(std::move(command));
}

Result<json> RunForJson(std::vector<std::string> command) {
  const std::string name = Path(command.size() > 1 ? command[1] : command[0]).filename().string();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return Status(Code::kIoError, std::string("pipe: ") + std::strerror(errno));
  const Result<pid_t> pid = StartChild(std::move(command), ends[1]);
  close(ends[1]);
  std::string text = ReadAll(ends[0]);
  close(ends[0]);
  if (!pid.ok()) return pid.status();
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    const bool killed = WIFSIGNALED(status);
    return Status(Code::kUnavailable,
                  fmt::format("{}: {} {}", name, killed ? "killed by signal" : "exit status",
                              killed ? WTERMSIG(status) : WEXITSTATUS(status)));
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const json last = json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  if (!last.is_object())
    return Status(Code::kUnavailable, name + ": its last line is no JSON object");
  return last;
}

}  // namespace samara::bench
