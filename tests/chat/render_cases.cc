// Renders templates for the comparison with another engine (templates/): reads one JSON object a line from
// stdin,
// {"template", "variables", "trusted": {name: text}}, and answers each with a line {"text", "content"} or
// {"error"}. `content` has the ranges that came from outside.

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "chat/jinja/template.h"

namespace redlite::chat {
namespace {

nlohmann::ordered_json answer(const nlohmann::ordered_json& question) {
  try {
    const jinja::Template parsed("template", question.at("template").get_ref<const std::string&>());
    jinja::Variables variables;
    variables.content = question.at("variables");
    for (const auto& [name, text] : question.at("trusted").items())
      variables.trusted.emplace_back(name, text);
    variables.now = question.value("now", std::time_t{0});
    const jinja::Text text = parsed.render(variables);
    nlohmann::ordered_json content = nlohmann::ordered_json::array();
    for (const auto& [begin, end] : text.content()) content.push_back({begin, end});
    return {{"text", text.bytes()}, {"content", content}};
  } catch (const Error& e) {
    return {{"error", e.what()}};
  }
}

}  // namespace
}  // namespace redlite::chat

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << redlite::chat::answer(nlohmann::ordered_json::parse(line)).dump() << "\n";
  }
  return 0;
}
