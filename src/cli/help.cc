#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/quote.h"
#include "cli/commands.h"
#include "cli/man_page.h"

namespace redlite::cli {

void add_help(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Show this help, or a command's");
  command->add_option("command", *topic, "name of a command")->type_name("COMMAND");
  auto man = std::make_shared<bool>(false);
  command->add_flag("--man", *man, "print the manual page redlite(1) instead");
  command->callback([&app, topic, man] {
    if (*man) {
      fmt::print("{}", man_page(app));
      return;
    }
    const auto show = [&](const CLI::App* about, const std::string& name) {
      // Not App::help(): during a parse that shows the help of the command being run, which is this one.
      fmt::print("{}", app.get_formatter()->make_help(about, name, CLI::AppFormatMode::Normal));
    };
    if (topic->empty()) return show(&app, "redlite");
    const auto same_name = [&](const CLI::App* other) { return other->get_name() == *topic; };
    const std::vector<CLI::App*> found = app.get_subcommands(same_name);
    if (found.empty()) fail("there is no command {}; `redlite help` lists them", quote(*topic));
    show(found.front(), "redlite " + *topic);
  });
}

}  // namespace redlite::cli
