#include "cli/man_page.h"

#include <fmt/format.h>

namespace redlite::cli {
namespace {

/// Text in which troff finds no command of its own.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

void describe(std::string& out, const CLI::Option& option) {
  std::string value = option.get_items_expected_max() > 0 ? option.get_type_name() : "";
  out += fmt::format(".TP\n.B {}", escaped(option.get_positional() ? "" : option.get_name(false, true)));
  if (!value.empty()) out += fmt::format("\\fI {}\\fR", escaped(value));
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += fmt::format(" [{}]", option.get_default_str());
  out += fmt::format("\n{}\n", escaped(text));
}

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string out = fmt::format(
      ".TH REDLITE 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nredlite \\- run Mixture-of-Experts models "
      "larger "
      "than memory\n.SH SYNOPSIS\n.B redlite\n.I COMMAND\n[options]\n.SH DESCRIPTION\n{}\n",
      escaped(app.version()), escaped(app.get_description()));
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* c) { return !c->get_name().empty(); })) {
    out += fmt::format(".SH REDLITE {}\n{}.\n", escaped(command->get_name()),
                       escaped(command->get_description()));
    for (const CLI::Option* option : command->get_options()) {
      if (!option->get_description().empty()) describe(out, *option);
    }
  }
  out += ".SH EXIT STATUS\n0: done; 1: it could not be done, and one line says why; 2: wrong usage.\n";
  return out;
}

}  // namespace redlite::cli
