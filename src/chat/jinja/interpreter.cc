#include "chat/jinja/interpreter.h"

#include <algorithm>
#include <map>

#include "base/quote.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/loop.h"
#include "chat/jinja/strings.h"

namespace redlite::chat::jinja {

Interpreter::Interpreter(const Program& program, std::vector<Variable> variables, Budget& budget,
                         std::time_t now)
    : program_(program), budget_(budget), now_(now) {
  const auto globals = std::make_shared<Scope>();
  std::map<std::string_view, Symbol> symbols;
  for (size_t i = 0; i < program.names.size(); ++i) symbols.emplace(program.names[i], static_cast<Symbol>(i));
  const auto define = [&](Variable& variable) {
    const auto found = symbols.find(variable.name);
    if (found != symbols.end()) globals->variables[found->second] = std::move(variable.value);
  };
  std::vector<Variable> functions = global_functions();
  std::for_each(functions.begin(), functions.end(), define);
  std::for_each(variables.begin(), variables.end(), define);
  scope_ = std::make_shared<Scope>();
  scope_->parent = globals;
}

Interpreter::~Interpreter() {
  for (const auto& scope : closures_) scope->variables.clear();
  for (const auto& name_space : namespaces_) name_space->attributes.clear();
}

Value Interpreter::text(Text text) {
  budget_.spend_bytes(text.size());
  return text;
}

Value Interpreter::make_namespace() {
  return namespaces_.emplace_back(std::make_shared<Namespace>());
}

std::vector<Value> Interpreter::items(const Value& value) {
  if (List* list = value.list()) {
    budget_.spend(list->items.size());
    if (list->kind == List::Kind::Generator) return std::exchange(list->items, {});
    return list->items;
  }
  std::vector<Value> out;
  if (const Dict* dict = value.dict()) {
    budget_.spend(dict->entries().size());
    for (const auto& entry : dict->entries()) out.push_back(entry.key);
  } else if (const Text* text = value.text()) {
    const std::vector<size_t> at = character_positions(text->bytes());
    budget_.spend(at.size());
    for (size_t i = 0; i + 1 < at.size(); ++i) out.emplace_back(text->slice(at[i], at[i + 1]));
  } else if (!value.is_undefined()) {
    raise("{} cannot be iterated over", value.kind());
  }
  return out;
}

Value Interpreter::attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) raise("{}", value.undefined_reason());
  if (const Namespace* name_space = value.name_space()) {
    const auto found = name_space->attributes.find(name);
    if (found != name_space->attributes.end()) return found->second;
  } else if (Loop* loop = value.loop()) {
    if (name != "cycle") return loop->attribute(name);
    return std::make_shared<const Callable>(
        Callable{"cycle",
                 [value](Interpreter&, Arguments arguments) {
                   if (arguments.positional.empty()) raise("loop.cycle() needs values");
                   return arguments.positional[value.loop()->index0() % arguments.positional.size()];
                 },
                 value.height() + 1});
  } else if (has_method(value, name)) {
    return std::make_shared<const Callable>(
        Callable{std::string(name),
                 [value, method = std::string(name)](Interpreter& in, Arguments arguments) {
                   return call_method(in, value, method, std::move(arguments));
                 },
                 value.height() + 1});
  } else if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return Value::undefined(fmt::format("{} has no attribute {}", value.kind(), quote(name)));
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) raise("{}", value.undefined_reason());
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->find(key)) return *found;
  }
  if (key.is_integer()) {
    int64_t index = key.integer();
    if (const List* list = value.list(); list && list->kind <= List::Kind::Tuple) {
      const auto n = static_cast<int64_t>(list->items.size());
      if (index < 0) index += n;
      if (index >= 0 && index < n) return list->items[static_cast<size_t>(index)];
    } else if (const Text* text = value.text()) {
      budget_.spend_bytes(text->size());
      const std::vector<size_t> at = character_positions(text->bytes());
      const auto n = static_cast<int64_t>(at.size()) - 1;
      if (index < 0) index += n;
      if (index >= 0 && index < n) {
        return text->slice(at[static_cast<size_t>(index)], at[static_cast<size_t>(index) + 1]);
      }
    }
    return Value::undefined(fmt::format("{} has no item {}", value.kind(), key.integer()));
  }
  if (const Text* name = key.text()) return attribute(value, name->bytes());
  return Value::undefined(fmt::format("{} has no item of that kind ({})", value.kind(), key.kind()));
}

bool Interpreter::contains(const Value& container, const Value& value) {
  if (const Text* text = container.text()) {
    if (!value.text()) raise("'in' a string: a string is wanted on the left, not {}", value.kind());
    budget_.spend_bytes(text->size());
    return find(text->bytes(), value.text()->bytes()) != kNotFound;
  }
  if (const Dict* dict = container.dict()) return dict->find(value) != nullptr;
  if (List* list = container.list()) {
    const bool found = std::any_of(list->items.begin(), list->items.end(),
                                   [&](const Value& item) { return equal(item, value, budget_); });
    if (list->kind == List::Kind::Generator) list->items.clear();
    return found;
  }
  if (container.is_undefined()) return false;
  raise("'in' needs a string, a list or a dict on the right, not {}", container.kind());
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (const Loop* loop = callee.loop()) {
    if (!loop->recurse()) raise("loop() is called, but the loop is not recursive");
    if (arguments.positional.size() != 1 || !arguments.named.empty()) raise("loop() takes one argument");
    return loop->recurse()(arguments.positional[0]);
  }
  if (callee.is_undefined()) raise("{}", callee.undefined_reason());
  if (!callee.callable()) raise("{} cannot be called", callee.kind());
  return callee.callable()->call(*this, std::move(arguments));
}

Value Interpreter::filter(std::string_view name, const Value& value, Arguments arguments) {
  const FilterFunction function = find_filter(name);
  if (!function) raise("there is no filter {}", quote(name));
  return function(*this, value, std::move(arguments));
}

bool Interpreter::test(std::string_view name, const Value& value, Arguments arguments) {
  const TestFunction function = find_test(name);
  if (!function) raise("there is no test {}", quote(name));
  return function(*this, value, std::move(arguments));
}

Text Interpreter::run() {
  Text out;
  out_ = &out;
  execute(program_.body);
  return out;
}

}  // namespace redlite::chat::jinja
