#include "chat/jinja/template.h"

#include <algorithm>

#include "base/error.h"
#include "chat/jinja/interpreter.h"
#include "chat/jinja/lexer.h"
#include "chat/jinja/parser.h"

namespace redlite::chat::jinja {

struct Template::Impl {
  std::string name;
  std::string source;  ///< normalised
  Program program;

  [[noreturn]] void fail_at(uint32_t offset, const char* reason) const {
    const std::string_view before = std::string_view(source).substr(0, offset);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    fail("{}, line {}, column {}: {}", name, line, column, reason);
  }
};

Template::Template(std::string name, std::string_view source) {
  if (source.size() > kMaxSource) {
    fail("{}: a template of {} bytes; the limit is {}", name, source.size(), kMaxSource);
  }
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(name);
  impl->source = normalise_source(source);
  try {
    impl->program = parse(impl->source);
  } catch (const SyntaxFailure& e) {
    impl->fail_at(e.offset, e.what());
  }
  impl_ = std::move(impl);
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

namespace {

/// Bytes of the texts in a value, and 16 for each value.
uint64_t weight(const nlohmann::ordered_json& json, int depth = 0) {
  uint64_t sum = 16;
  if (json.is_string()) sum += json.get_ref<const std::string&>().size();
  if (json.is_structured() && depth <= Value::kMaxHeight)  // beyond, from_json() refuses it
    for (const auto& item : json) sum += weight(item, depth + 1);
  return sum;
}

}  // namespace

Text Template::render(const Variables& variables) const {
  // A template may look at all of a conversation for each of its messages.
  Budget budget(variables.steps + 64 * weight(variables.content));
  std::vector<Interpreter::Variable> values;
  try {
    for (const auto& [name, value] : variables.trusted) values.push_back({name, Text(value)});
    for (const auto& [name, json] : variables.content.items())
      values.push_back({name, Value::from_json(json, budget)});
  } catch (const Failure& e) {
    fail("{}: {}", impl_->name, e.what());
  }
  Interpreter interpreter(impl_->program, std::move(values), budget, variables.now);
  try {
    return interpreter.run();
  } catch (const Failure& e) {
    impl_->fail_at(interpreter.offset(), e.what());
  }
}

bool Template::reads(std::string_view variable) const {
  const auto& names = impl_->program.names;
  const auto found = std::find(names.begin(), names.end(), variable);
  return found != names.end() && impl_->program.is_read[static_cast<size_t>(found - names.begin())] != 0;
}

}  // namespace redlite::chat::jinja
