// samara token, samara certificates: what a learner process and its remote actors know each other
// by.
#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/command.h"
#include "core/arguments.h"
#include "core/files.h"
#include "core/leave.h"
#include "fleet/remote/address.h"
#include "storage/run_folder.h"

namespace samara {
namespace {

Status RunToken(const std::string& file, bool json) {
  RETURN_IF_ERROR(CheckOutputFile(file));
  RETURN_IF_ERROR(WriteToken(file));
  if (json)
    PrintJson({{"file", file}});
  else
    std::printf("token: %s (mode 0600; give it to both sides as --token-file)\n", file.c_str());
  return Status::Ok();
}

// Runs openssl in `folder` without a shell.
Status OpenSsl(const Path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "openssl");
  const std::vector<char*> argv = NullTerminated(arguments);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "openssl.log",
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, "openssl", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return {Code::kNoInput, "the program openssl does not start: install Debian's `openssl`"};
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return {Code::kConfig,
          "openssl refused: see " + (folder / "openssl.log").string() + " (are the names right?)"};
}

bool IsNumeric(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Returns whether a text is the name of a host: labels of letters, digits, - and _, joined by dots;
// the first may be a star.
bool IsName(const std::string& host) {
  static const std::regex name(
      R"((\*\.)?[[:alnum:]_]([\w-]*[[:alnum:]])?(\.[[:alnum:]_]([\w-]*[[:alnum:]])?)*)");
  // figures and dots only are an address, or the attempt at one
  return host.size() <= 253 && host.find_first_not_of("0123456789.") != std::string::npos &&
         std::regex_match(host, name);
}

Status MakeCertificates(const Path& folder, const std::vector<std::string>& hosts, int days) {
  std::string names;
  for (const std::string& host : hosts) {
    if (!IsName(host) && !IsNumeric(host))
      return {Code::kConfig, "--host '" + host + "': expected a host name or an address"};
    names += (names.empty() ? "" : ",") + std::string(IsNumeric(host) ? "IP:" : "DNS:") + host;
  }
  RETURN_IF_ERROR(MustBeNew(folder));
  RETURN_IF_ERROR(MakeFolder(folder));
  const RemovedOnLeave half_made(RootedPath(folder).path());  // without a slash at its end
  const auto request = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"req",
                                          "-x509",
                                          "-newkey",
                                          "ec",
                                          "-sha256",
                                          "-pkeyopt",
                                          "ec_paramgen_curve:P-256",
                                          "-noenc",
                                          "-days",
                                          std::to_string(days),
                                          "-subj",
                                          "/CN=samara " + name,
                                          "-keyout",
                                          name + ".key",
                                          "-out",
                                          name + ".pem"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return OpenSsl(folder, arguments);
  };
  RETURN_IF_ERROR(request("ca", {"-addext", "keyUsage=critical,keyCertSign"}));
  const std::vector<std::string> signed_by_ca = {
      "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"};
  auto engine = signed_by_ca, actor = signed_by_ca;
  engine.insert(engine.end(),
                {"-addext", "subjectAltName=" + names, "-addext", "extendedKeyUsage=serverAuth"});
  actor.insert(actor.end(), {"-addext", "subjectAltName=URI:samara:role:actor", "-addext",
                             "extendedKeyUsage=clientAuth"});
  RETURN_IF_ERROR(request("engine", engine));
  RETURN_IF_ERROR(request("actor", actor));
  std::error_code ignored;
  std::filesystem::remove(folder / "openssl.log", ignored);
  return {};
}

Status RunCertificates(const std::string& folder, const std::vector<std::string>& hosts, int days,
                       bool json) {
  RETURN_IF_ERROR(MakeCertificates(folder, hosts, days));
  if (json) {
    PrintJson({{"folder", folder}, {"hosts", hosts}, {"days", days}});
    return Status::Ok();
  }
  std::printf(
      "%s: learner process: --certificate engine.pem --key engine.key --client-ca ca.pem; actors: "
      "--certificate actor.pem --key actor.key --ca ca.pem. Copy ca.key to neither.\n",
      folder.c_str());
  return Status::Ok();
}

}  // namespace

void AddToken(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("token", "make a token file for remote actors");
  auto file = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command->add_option("file", *file, "a new file")->required();
  command->add_flag("--json", *json, "last line: one JSON object");
  command->callback([=, &invocation] { invocation.run = [=] { return RunToken(*file, *json); }; });
}

void AddCertificates(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("certificates", "make TLS certificates for a learner and its actors");
  auto folder = std::make_shared<std::string>();
  auto hosts = std::make_shared<std::vector<std::string>>();
  auto days = std::make_shared<int>(365);
  auto json = std::make_shared<bool>(false);
  command->add_option("folder", *folder, "folder to create")->required();
  command->add_option("--host", *hosts, "host names and addresses that actors pass to --connect")
      ->required();
  command->add_option("--days", *days, "days until the certificates expire")
      ->capture_default_str()
      ->check(CLI::Range(1, 3650));
  command->add_flag("--json", *json, "last line: one JSON object");
  command->callback([=, &invocation] {
    invocation.run = [=] { return RunCertificates(*folder, *hosts, *days, *json); };
  });
}

}  // namespace samara
