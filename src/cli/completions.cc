#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"

namespace redlite::cli {
namespace {

/// "cpu|cuda" as "cpu cuda"; "" where a value is not one of a few words.
std::string choices(const CLI::Option& option) {
  std::string words = option.get_type_name();
  // Placeholders such as N stand in capitals.
  const bool few = words.find('|') != std::string::npos &&
                   words.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") > words.size();
  if (!few) return "";
  std::ranges::replace(words, '|', ' ');
  return words;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

/// A description's first sentence with nothing in it that a shell would take for its own.
std::string plain(std::string text) {
  text = text.substr(0, text.find('\n'));
  std::erase_if(text, [](char c) { return std::string_view("'\"`$\\[]").find(c) != std::string_view::npos; });
  std::ranges::replace(text, ':', ',');
  return text;
}

/// "--backend", "-n": an option's names with their dashes.
std::vector<std::string> names(const CLI::Option& option) {
  std::vector<std::string> all;
  for (const std::string& name : option.get_snames()) all.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) all.push_back("--" + name);
  return all;
}

/// Commands and, for each, the options that have names and the commands within it.
struct Command {
  const CLI::App* app;
  std::vector<const CLI::Option*> options;
  std::vector<const CLI::App*> within;
};
std::vector<const CLI::App*> named_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* c) { return !c->get_name().empty(); });
}
std::vector<Command> commands(const CLI::App& app) {
  std::vector<Command> all;
  for (const CLI::App* command : named_commands(app)) {
    Command& one = all.emplace_back(Command{command, {}, named_commands(*command)});
    for (const CLI::Option* option :
         command->get_options([](const CLI::Option* o) { return !o->get_positional(); }))
      one.options.push_back(option);
  }
  return all;
}

std::string bash(const CLI::App& app) {
  std::string all, options, values, inner;
  for (const auto& [command, its, within] : commands(app)) {
    all += command->get_name() + " ";
    std::string flags;
    for (const CLI::Option* option : its) {
      for (const std::string& name : names(*option)) {
        flags += name + " ";
        if (const std::string words = choices(*option); !words.empty())
          values += fmt::format("    '{} {}') words='{}' ;;\n", command->get_name(), name, words);
      }
    }
    options += fmt::format("    {}) words='{}' ;;\n", command->get_name(), flags);
    std::string words;
    for (const CLI::App* one : within) words += one->get_name() + " ";
    if (!words.empty()) inner += fmt::format("    '2 {}') also='{}' ;;\n", command->get_name(), words);
  }
  return fmt::format(R"(# bash completion for redlite; `redlite completions bash` writes it
_redlite() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words= also=
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W '{0}' -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}} $previous" in
    'help '*) words='{0}' ;;
{1}  esac
  if [ -z "$words" ] && [ "${{current#-}}" != "$current" ]; then
    case "${{COMP_WORDS[1]}}" in
{2}    esac
  fi
  case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
{3}  esac
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -W "$also" -- "$current"; compgen -f -- "$current")  # names with spaces stay one
  fi
}}
complete -F _redlite redlite
)",
                     all, values, options, inner);
}

std::string zsh(const CLI::App& app) {
  std::string all, cases;
  for (const auto& [command, its, within] : commands(app)) {
    all += fmt::format("    '{}:{}'\n", command->get_name(), plain(command->get_description()));
    cases += fmt::format("    {}) _arguments", command->get_name());
    for (const CLI::Option* option : its) {
      const std::string words = choices(*option);
      for (const std::string& name : names(*option)) {
        cases += fmt::format(" \\\n      '{}[{}]", name, plain(option->get_description()));
        if (!words.empty()) {
          cases += fmt::format(":value:({})", words);
        } else if (takes_value(*option)) {
          cases += ":value:_files";
        }
        cases += "'";
      }
    }
    std::string words;
    for (const CLI::App* one : within) words += (words.empty() ? "" : " ") + one->get_name();
    if (!words.empty())
      cases +=
          fmt::format(" \\\n      '1: :_alternative \"commands:command:({})\" files:file:_files'", words);
    cases += " \\\n      '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef redlite
# zsh completion for redlite; `redlite completions zsh` writes it
_redlite() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
}}
_redlite "$@"
)",
                     all, cases);
}

std::string fish(const CLI::App& app) {
  std::string out = "# fish completion for redlite; `redlite completions fish` writes it\n";
  for (const auto& [command, its, within] : commands(app)) {
    const std::string name = command->get_name();
    out += fmt::format("complete -c redlite -n __fish_use_subcommand -f -a {} -d '{}'\n", name,
                       plain(command->get_description()));
    for (const CLI::App* one : within)
      out += fmt::format("complete -c redlite -n '__fish_seen_subcommand_from {}' -a {} -d '{}'\n", name,
                         one->get_name(), plain(one->get_description()));
    for (const CLI::Option* option : its) {
      out += fmt::format("complete -c redlite -n '__fish_seen_subcommand_from {}'", name);
      for (const std::string& n : option->get_snames()) out += " -s " + n;
      for (const std::string& n : option->get_lnames()) out += " -l " + n;
      if (const std::string words = choices(*option); !words.empty()) {
        out += fmt::format(" -x -a '{}'", words);
      } else if (takes_value(*option)) {
        out += " -r";
      }
      out += fmt::format(" -d '{}'\n", plain(option->get_description()));
    }
  }
  return out;
}

}  // namespace

void add_completions(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completions", "Print completions for a shell");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(one_of({"bash", "zsh", "fish"}));
  command->callback([&app, shell] {
    const auto write = *shell == "bash" ? bash : *shell == "zsh" ? zsh : fish;
    fmt::print("{}", write(app));
  });
}

}  // namespace redlite::cli
