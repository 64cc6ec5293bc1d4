// samara completion: what a shell completes, from the commands and options of this program.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/command.h"
#include "config/experiment.h"
#include "config/presets.h"

namespace samara {
namespace {

// Words that may follow a command; files are completed besides.
std::string WordsOf(const CLI::App& command) {
  std::string words;
  const auto add = [&words](const std::string& word) { words += " " + word; };
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty())
      for (const std::string& name : option->get_lnames()) add("--" + name);
  if (command.get_name() == "train") {
    for (const Preset& preset : Presets()) add(preset.name);
    for (const auto& [field, algorithms] : ExperimentConfig::AllKeys()) add(field.key + "=");
  }
  if (command.get_name() == "list") add("presets envs games algorithms networks keys");
  if (command.get_name() == "new") add("environment preset algorithm");
  if (command.get_name() == "completion") add("bash zsh fish");
  return words;
}

constexpr char kZshFirst[] =
    "#compdef samara\nautoload -Uz compinit bashcompinit\ncompinit\nbashcompinit\n";

// NAMES and CASES stand for those of this program.
constexpr char kScript[] = R"script(_samara() {
  local word="${COMP_WORDS[COMP_CWORD]}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "NAMES --help --version" -- "$word"))
    return
  fi
  case "${COMP_WORDS[1]}" in
CASES  esac
  COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
  case "${COMPREPLY[0]}" in
    *=) compopt -o nospace 2>/dev/null ;;
  esac
}
complete -o filenames -F _samara samara
)script";

// Files are completed by fish itself.
std::string FishScript(const CLI::App& app) {
  std::string script;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string name = command->get_name();
    script += "complete -c samara -n __fish_use_subcommand -f -a " + name + "\n";
    script += "complete -c samara -n '__fish_seen_subcommand_from " + name + "' -a '" +
              WordsOf(*command).substr(1) + "'\n";
  }
  return script;
}

// zsh reads bash's.
std::string Script(const CLI::App& app, const std::string& shell) {
  if (shell == "fish") return FishScript(app);
  std::string names, cases, script = kScript;
  for (const CLI::App* command : app.get_subcommands({})) {
    names += command->get_name() + " ";
    cases += "    " + command->get_name() + ") words=\"" + WordsOf(*command) + "\" ;;\n";
  }
  script.replace(script.find("CASES"), 5, cases);
  script.replace(script.find("NAMES "), 6, names);
  return (shell == "zsh" ? kZshFirst : "") + script;
}

}  // namespace

void AddCompletion(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("completion", "print completions for bash, zsh or fish");
  struct Arguments {
    std::string shell;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  command->add_option("shell", args->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_flag("--json", args->json, "last line: one JSON object, with the script");
  command->callback([=, &app, &invocation] {
    invocation.run = [=, &app] {
      const std::string script = Script(app, args->shell);
      if (args->json)
        PrintJson({{"shell", args->shell}, {"script", script}});
      else
        std::fputs(script.c_str(), stdout);
      return Status::Ok();
    };
  });
}

}  // namespace samara
