// samara new: a file or folder of one's own to begin with, which works as it is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/templates.h"
#include "core/files.h"
#include "core/log.h"
#include "core/venv.h"

namespace samara {
namespace {

struct File {
  const char* source;  // of Templates()
  const char* target;  // "{}" is the name
};

struct Kind {
  const char* name;
  const char* about;
  std::vector<File> files;
  // Words of the files that stand for the name: as it is, with '_' for '-', in CamelCase.
  const char *plain, *underscored, *camel;
  bool dashes;       // may be in the name
  const char* next;  // what to do with it; {0} and {1}: the name, in CamelCase
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      {"environment",
       "a task for Gymnasium, in Python: NAME.py",
       {{"templates/my_task.py", "{}.py"}},
       "my_task",
       "",
       "MyTask",
       false,
       "samara check {0}:{1}\nsamara train classic/cartpole-ga env.id={0}:{1}\n"},
      {"preset",
       "a configuration with its keys explained: NAME.toml",
       {{"templates/my-preset.toml", "{}.toml"}},
       "my-preset",
       "",
       "",
       true,
       "samara train {0}.toml\n"},
      {"algorithm",
       "an evolution algorithm in C++, a project on an installed samara: NAME/",
       {{"examples/outside/evolution/CMakeLists.txt", "{}/CMakeLists.txt"},
        {"examples/outside/evolution/main.cc", "{}/main.cc"},
        {"examples/outside/evolution/my.toml", "{}/my.toml"}},
       "my-hill-climber",
       "my_hill_climber",
       "",
       true,
       "cmake --install SAMARA/build --prefix PREFIX\n"
       "cmake -S {0} -B {0}/build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build {0}/build\n"
       "{0}/build/{0} train {0}/my.toml\n"}};
  return kinds;
}

std::string Replaced(std::string text, const std::string& word, const std::string& by) {
  if (word.empty()) return text;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

std::string Underscored(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// "my_task" -> "MyTask"
std::string Camel(const std::string& name) {
  std::string camel;
  bool begins = true;
  for (char c : name) {
    if (c != '_' && c != '-') camel += begins && c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c;
    begins = c == '_' || c == '-';
  }
  return camel;
}

Status CheckName(const Kind& kind, const std::string& name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  const std::string rest = std::string(kLetters) + "0123456789_" + (kind.dashes ? "-" : "");
  if (!name.empty() && name.size() <= 100 && kLetters.find(name[0]) != kLetters.npos &&
      name.find_first_not_of(rest) == name.npos)
    return Status::Ok();
  return {Code::kUsage, fmt::format("{}: expected a name of small letters, digits and '_'{}, which "
                                    "begins with a letter",
                                    Shown(name), kind.dashes ? " or '-'" : "")};
}

std::vector<std::string> ModulesIn(const Path& folder) {
  const auto names = ListFolder(RootedPath::Root(folder));
  return names.ok() ? *names : std::vector<std::string>();
}

// Folders of the active Python in which it looks for modules before it does in the current one.
std::vector<Path> ModuleFolders() {
  std::vector<Path> folders;
  const auto venv = FindVenv();
  if (!venv.ok()) return folders;
  std::error_code failed;
  const Path program = std::filesystem::canonical(*venv / "bin/python", failed);
  for (const std::string& version : ModulesIn(*venv / "lib")) {
    const Path library = program.parent_path().parent_path() / "lib" / version;
    folders.insert(folders.end(),
                   {library, library / "lib-dynload", *venv / "lib" / version / "site-packages"});
  }
  return folders;
}

// kCannotCreate for a word of Python's, and for a name that it has for a module of its own, or of a
// package: that one would be imported.
Status CheckModule(const std::string& name) {
  if (name == "true" || name == "false" || name == "none")
    return {Code::kCannotCreate,
            name + ": its class would be a word of Python's; choose another name"};
  static constexpr std::string_view kBuiltIn[] = {
      "array",  "atexit", "binascii",  "builtins",    "cmath", "errno",
      "fcntl",  "gc",     "itertools", "math",        "posix", "pwd",
      "select", "sys",    "time",      "unicodedata", "zlib"};
  bool taken = std::ranges::count(kBuiltIn, name) > 0;
  for (const Path& folder : ModuleFolders())
    for (const std::string& file : ModulesIn(folder))
      taken = taken || file.substr(0, file.find('.')) == name;
  if (!taken) return Status::Ok();
  return {Code::kCannotCreate,
          fmt::format("{0}: Python has a module of this name, which it would take instead of "
                      "{0}.py; choose another name",
                      name)};
}

std::string TextOf(const Kind& kind, const File& file, const std::string& name) {
  const auto found = std::ranges::find(Templates(), file.source, &Template::path);
  CHECK(found != Templates().end());
  std::string text = Replaced(found->text, kind.plain, name);
  text = Replaced(std::move(text), kind.underscored, Underscored(name));
  return Replaced(std::move(text), kind.camel, Camel(name));
}

struct NewArguments {
  std::string kind, name;
  bool json = false;
};

Status RunNew(const NewArguments& args) {
  const auto kind = std::ranges::find(Kinds(), args.kind, &Kind::name);
  CHECK(kind != Kinds().end());
  RETURN_IF_ERROR(CheckName(*kind, args.name));
  if (args.kind == "environment") RETURN_IF_ERROR(CheckModule(args.name));
  std::vector<std::string> made;
  for (const File& file : kind->files) {
    const std::string path = fmt::format(fmt::runtime(file.target), args.name);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored))
      return {Code::kCannotCreate, path + ": exists; choose another name"};
    made.push_back(path);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const Path path = made[i];
    if (path.has_parent_path()) RETURN_IF_ERROR(CreateFolders(path.parent_path()));
    RETURN_IF_ERROR(WriteFileAtomic(path, TextOf(*kind, kind->files[i], args.name)));
  }
  if (args.json) {
    PrintJson({{"files", made}});
    return Status::Ok();
  }
  for (const std::string& path : made) std::printf("%s\n", path.c_str());
  std::printf("then:\n%s",
              fmt::format(fmt::runtime(kind->next), args.name, Camel(args.name)).c_str());
  return Status::Ok();
}

}  // namespace

void AddNew(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("new", "write a new environment, preset or algorithm");
  auto args = std::make_shared<NewArguments>();
  std::vector<std::string> names;
  std::string about;
  for (const Kind& kind : Kinds()) {
    names.emplace_back(kind.name);
    about += fmt::format("{}{}: {}", about.empty() ? "" : "; ", kind.name, kind.about);
  }
  command->add_option("kind", args->kind, about)->required()->check(CLI::IsMember(names));
  command->add_option("name", args->name, "its name; files are made in the current folder")
      ->required();
  command->add_flag("--json", args->json, "last line: one JSON object");
  command->callback([=, &invocation] { invocation.run = [=] { return RunNew(*args); }; });
}

}  // namespace samara
