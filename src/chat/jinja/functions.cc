#include <array>
#include <ctime>

#include "base/quote.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"

namespace redlite::chat::jinja {
namespace {

Value make_namespace(Interpreter& in, Arguments arguments) {
  if (arguments.positional.size() > 1) raise("namespace() takes at most one dict");
  Value value = in.make_namespace();
  auto& attributes = value.name_space()->attributes;
  if (!arguments.positional.empty()) {
    const Dict* dict = arguments.positional[0].dict();
    if (!dict) raise("namespace() of {}, a dict is wanted", arguments.positional[0].kind());
    in.budget().spend(dict->entries().size());
    for (const auto& [key, item] : dict->entries())
      if (key.text()) attributes.insert_or_assign(key.text()->bytes(), item);
  }
  for (auto& [name, item] : arguments.named) attributes.insert_or_assign(name, std::move(item));
  return value;
}

Value make_dict_value(Interpreter& in, Arguments arguments) {
  if (arguments.positional.size() > 1) raise("dict() takes at most one dict");
  Dict out;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (const Dict* dict = from.dict()) {
      in.budget().spend(dict->entries().size());
      for (const auto& [key, item] : dict->entries()) out.set(key, item);
    } else {
      for (const Value& pair : in.items(from)) {
        std::vector<Value> both = in.items(pair);
        if (both.size() != 2) raise("dict() of items that are no pairs");
        out.set(both[0], both[1]);
      }
    }
  }
  // Names may come from outside by way of **; those that the template writes cannot be control tokens anyway.
  for (auto& [name, item] : arguments.named) out.set(Text(name, /*is_content=*/true), std::move(item));
  return make_dict(std::move(out));
}

Value range(Interpreter& in, Arguments arguments) {
  const size_t n = arguments.positional.size();
  const Parameters p("range", std::move(arguments), {"start", "stop", "step"}, 1);
  const int64_t start = n > 1 ? p.integer(0, 0) : 0;
  const int64_t stop = n > 1 ? p.integer(1, 0) : p.integer(0, 0);
  const int64_t step = p.integer(2, 1);
  if (step == 0) raise("range() by steps of 0");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    in.budget().spend(2);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(std::move(items));
}

Value raise_exception(Interpreter& in, Arguments arguments) {
  const Parameters p("raise_exception", std::move(arguments), {"message"}, 1);
  raise("the template refuses this conversation: {}", quote(in.str(p.value(0)).bytes(), 300));
}

Value strftime_now(Interpreter& in, Arguments arguments) {
  const Parameters p("strftime_now", std::move(arguments), {"format"}, 1);
  const Text* format = p.text(0);
  if (!format) raise("strftime_now() without a format");
  const std::time_t now = in.now();
  std::tm local{};
  if (!::localtime_r(&now, &local)) raise("the time is out of range");
  Text out;
  const std::string& s = format->bytes();
  for (size_t at = 0; at < s.size();) {
    const size_t field = std::min(s.find('%', at), s.size());
    out.append(*format, at, field);
    if (field == s.size()) break;
    at = field + 1;
    const bool unpadded = at < s.size() && s[at] == '-';
    if (unpadded) ++at;
    if (at >= s.size() || std::string_view("aAwdbBmyYHIMSjpUWcxXZzeDFTRGuVhnt%").find(s[at]) == kNotFound) {
      raise("strftime_now(): the format {} is not supported", quote(s));
    }
    const std::array<char, 4> one = {'%', unpadded ? '-' : s[at], unpadded ? s[at] : '\0', '\0'};
    std::array<char, 128> buffer{};
    const size_t length = std::strftime(buffer.data(), buffer.size(), one.data(), &local);
    out.append(std::string_view(buffer.data(), length), format->touches_content(field, at + 1));
    ++at;
  }
  return in.text(std::move(out));
}

}  // namespace

std::vector<Interpreter::Variable> global_functions() {
  const auto function = [](const char* name,
                           Value (*call)(Interpreter&, Arguments)) -> Interpreter::Variable {
    return {name, std::make_shared<const Callable>(Callable{name, call, 0})};
  };
  return {function("namespace", make_namespace), function("dict", make_dict_value), function("range", range),
          function("raise_exception", raise_exception), function("strftime_now", strftime_now)};
}

}  // namespace redlite::chat::jinja
