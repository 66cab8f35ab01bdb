#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/quote.h"
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
    const auto same_name = [&](const CLI::App* other) { return other->get_name() == *topic; };
    const std::vector<CLI::App*> found = app.get_subcommands(same_name);
    if (found.empty()) fail("there is no command {}; `redlite help` lists them", quote(*topic));
    fmt::print("{}", found.front()->help());
  });
}

}  // namespace redlite::cli
