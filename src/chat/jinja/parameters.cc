#include <algorithm>

#include "base/quote.h"
#include "chat/jinja/builtins.h"

namespace redlite::chat::jinja {

Parameters::Parameters(std::string_view function, Arguments arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function) {
  std::copy(names.begin(), names.end(), names_.begin());
  if (arguments.positional.size() > names.size()) {
    raise("{}() takes at most {} arguments, {} are given", function, names.size(),
          arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = std::move(arguments.positional[i]);
    given_[i] = true;
  }
  for (auto& [name, value] : arguments.named) {
    const auto index = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (index == names.size()) raise("{}() has no parameter {}", function, quote(name));
    if (given_[index]) raise("{}() is given {} twice", function, quote(name));
    values_[index] = std::move(value);
    given_[index] = true;
  }
  for (size_t i = 0; i < required; ++i)
    if (!given_[i]) raise("{}() is missing its argument '{}'", function, names_[i]);
}

int64_t Parameters::integer(size_t i, int64_t otherwise) const {
  if (!given_[i]) return otherwise;
  if (!values_[i].is_integer()) {
    raise("{}(): '{}' is {}, an integer is wanted", function_, names_[i], values_[i].kind());
  }
  return values_[i].integer();
}

const Text* Parameters::text(size_t i) const {
  if (!given_[i] || values_[i].is_none()) return nullptr;
  if (!values_[i].text())
    raise("{}(): '{}' is {}, a string is wanted", function_, names_[i], values_[i].kind());
  return values_[i].text();
}

}  // namespace redlite::chat::jinja
