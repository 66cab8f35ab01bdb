#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"

namespace redlite::cli {

void add_help(CLI::App& app) {
  auto topic = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Show this help, or a command's");
  command->add_option("command", *topic, "name of a command")->type_name("COMMAND");
  command->callback([&app, topic] {
    if (topic->empty()) {
      fmt::print("{}", app.help());
      return;
    }
    const CLI::App* about = app.get_subcommand_no_throw(*topic);
    if (!about) fail("there is no command '{}'; `redlite help` lists them", *topic);
    fmt::print("{}", about->help());
  });
}

}  // namespace redlite::cli
