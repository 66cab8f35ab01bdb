#include "chat/jinja/sequence_filters.h"

#include <algorithm>
#include <charconv>

#include "base/quote.h"
#include "chat/jinja/strings.h"

namespace redlite::chat::jinja {
namespace {

Value length(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("length", std::move(arguments), {});
  if (const Text* text = value.text()) {
    in.budget().spend_bytes(text->size());
    return static_cast<int64_t>(count_characters(text->bytes()));
  }
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->entries().size());
  if (value.is_undefined()) return int64_t{0};
  if (!value.list() || value.list()->kind == List::Kind::Generator) raise("{} has no length", value.kind());
  return static_cast<int64_t>(value.list()->items.size());
}

Value first(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("first", std::move(arguments), {});
  std::vector<Value> items = in.items(value);
  return items.empty() ? Value::undefined("there is no first item") : items.front();
}

Value last(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("last", std::move(arguments), {});
  if (value.list() && value.list()->kind == List::Kind::Generator) raise("a generator cannot be reversed");
  std::vector<Value> items = in.items(value);
  return items.empty() ? Value::undefined("there is no last item") : items.back();
}

Value list(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("list", std::move(arguments), {});
  return make_list(in.items(value));
}

Value items_filter(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("items", std::move(arguments), {});
  std::vector<Value> pairs;
  if (const Dict* dict = value.dict()) {
    in.budget().spend(dict->entries().size());
    for (const auto& [key, item] : dict->entries())
      pairs.push_back(make_list({key, item}, List::Kind::Tuple));
  } else if (!value.is_undefined()) {
    raise("items of {}: a dict is wanted", value.kind());
  }
  return make_list(std::move(pairs), List::Kind::Generator);
}

Value reverse(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("reverse", std::move(arguments), {});
  if (const Text* text = value.text()) {
    const std::vector<size_t> at = character_positions(text->bytes());
    Text out;
    for (size_t i = at.size() - 1; i > 0; --i) out.append(*text, at[i - 1], at[i]);
    return in.text(std::move(out));
  }
  std::vector<Value> items = in.items(value);
  std::reverse(items.begin(), items.end());
  return make_list(std::move(items), List::Kind::Generator);
}

/// What "a.b.0" leads to, or `otherwise` (if it is given) where that is undefined.
Value follow(Interpreter& in, Value value, const Value& path, const Value* otherwise = nullptr) {
  if (path.is_integer()) {
    value = in.item(value, path);
  } else {
    if (!path.text()) raise("an attribute is named by a string, not by {}", path.kind());
    std::string_view rest = path.text()->bytes();
    for (;;) {
      const size_t dot = std::min(rest.find('.'), rest.size());
      const std::string_view name = rest.substr(0, dot);
      int64_t index = 0;
      const auto number = std::from_chars(name.data(), name.data() + name.size(), index);
      const bool is_number =
          !name.empty() && number.ec == std::errc() && number.ptr == name.data() + name.size();
      if (!(value.is_undefined() && otherwise)) {
        value = is_number ? in.item(value, Value(index)) : in.item(value, Text(std::string(name)));
      }
      if (dot == rest.size()) break;
      rest.remove_prefix(dot + 1);
    }
  }
  return value.is_undefined() && otherwise ? *otherwise : value;
}

/// Arguments without the first `n` positional ones.
Arguments behind(Arguments arguments, size_t n) {
  arguments.positional.erase(arguments.positional.begin(),
                             arguments.positional.begin() + static_cast<ptrdiff_t>(n));
  return arguments;
}

const std::string& name_argument(const Arguments& arguments, size_t i, std::string_view what) {
  if (arguments.positional.size() <= i || !arguments.positional[i].text())
    raise("the name of {} is wanted", what);
  return arguments.positional[i].text()->bytes();
}

/// What is false, none included, has no items for map, select and the like.
std::vector<Value> items_if_true(Interpreter& in, const Value& value) {
  return value.truth() ? in.items(value) : std::vector<Value>();
}

Value map(Interpreter& in, const Value& value, Arguments arguments) {
  std::vector<Value> out;
  const auto named = [&](std::string_view name) -> const Value* {
    for (const auto& [key, item] : arguments.named)
      if (key == name) return &item;
    return nullptr;
  };
  if (const Value* attribute = arguments.positional.empty() ? named("attribute") : nullptr) {
    const Value* otherwise = named("default");
    if (arguments.named.size() != (otherwise ? 2 : 1))
      raise("map(attribute=...) takes only a default besides");
    for (const Value& item : items_if_true(in, value)) out.push_back(follow(in, item, *attribute, otherwise));
  } else {
    const std::string name = name_argument(arguments, 0, "a filter");
    const Arguments rest = behind(std::move(arguments), 1);
    for (const Value& item : items_if_true(in, value)) out.push_back(in.filter(name, item, rest));
  }
  return make_list(std::move(out), List::Kind::Generator);
}

/// select and reject, selectattr and rejectattr.
template <bool wanted, bool by_attribute>
Value select(Interpreter& in, const Value& value, Arguments arguments) {
  std::vector<Value> out;
  Value attribute;
  size_t used = 0;
  if (by_attribute) {
    name_argument(arguments, used, "an attribute");
    attribute = arguments.positional[used++];
  }
  std::string test;
  if (arguments.positional.size() > used) test = name_argument(arguments, used++, "a test");
  const Arguments rest = behind(std::move(arguments), used);
  for (Value& item : items_if_true(in, value)) {
    const Value tested = by_attribute ? follow(in, item, attribute) : item;
    if ((test.empty() ? tested.truth() : in.test(test, tested, rest)) == wanted)
      out.push_back(std::move(item));
  }
  return make_list(std::move(out), List::Kind::Generator);
}

Value join_filter(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("join", std::move(arguments), {"d", "attribute"});
  const Text between = p.get(0) ? in.str(p.value(0)) : Text();
  const Value* attribute = p.get(1) && !p.value(1).is_none() ? p.get(1) : nullptr;
  Text out;
  bool is_first = true;
  for (const Value& item : in.items(value)) {
    if (!std::exchange(is_first, false)) out.append(between);
    out.append(in.str(attribute ? follow(in, item, *attribute) : item));
  }
  return in.text(std::move(out));
}

/// What items are ordered by: themselves or an attribute, texts in lower case unless case matters.
class Order {
 public:
  Order(Interpreter& in, const Value* attribute, bool case_sensitive)
      : in_(in),
        attribute_(attribute && !attribute->is_none() ? attribute : nullptr),
        case_sensitive_(case_sensitive) {}

  Value key(const Value& item) const {
    Value key = attribute_ ? follow(in_, item, *attribute_) : item;
    if (key.text() && !case_sensitive_) key = in_.text(change_case(*key.text(), Case::Lower));
    return key;
  }

 private:
  Interpreter& in_;
  const Value* attribute_;
  bool case_sensitive_;
};

struct Keyed {
  Value key, item;
};

void sort_keyed(Interpreter& in, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key, in.budget()) : less(a.key, b.key, in.budget());
  });
}

Value unkeyed(std::vector<Keyed> items) {
  std::vector<Value> out;
  out.reserve(items.size());
  for (Keyed& keyed : items) out.push_back(std::move(keyed.item));
  return make_list(std::move(out));
}

Value sort(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  if (p.text(2) && p.text(2)->bytes().find(',') != std::string::npos)
    raise("sort by several attributes is not supported");
  const Order order(in, p.get(2), p.flag(1, false));
  std::vector<Keyed> keyed;
  for (const Value& item : in.items(value)) keyed.push_back({order.key(item), item});
  sort_keyed(in, keyed, p.flag(0, false));
  return unkeyed(std::move(keyed));
}

Value dictsort(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  if (!value.dict()) raise("dictsort of {}: a dict is wanted", value.kind());
  const std::string by = p.text(1) ? p.text(1)->bytes() : "key";
  if (by != "key" && by != "value") raise("dictsort by {}: 'key' or 'value' is wanted", quote(by));
  const Order order(in, nullptr, p.flag(0, false));
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.dict()->entries())
    keyed.push_back({order.key(by == "key" ? key : item), make_list({key, item}, List::Kind::Tuple)});
  sort_keyed(in, keyed, p.flag(2, false));
  return unkeyed(std::move(keyed));
}

Value unique(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("unique", std::move(arguments), {"case_sensitive", "attribute"});
  const Order order(in, p.get(1), p.flag(0, false));
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : in.items(value)) {
    Value key = order.key(item);
    if (seen.find(key)) continue;
    seen.set(std::move(key), None());
    out.push_back(item);
  }
  return make_list(std::move(out), List::Kind::Generator);
}

template <bool largest>
Value extreme(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p(largest ? "max" : "min", std::move(arguments), {"case_sensitive", "attribute"});
  const Order order(in, p.get(1), p.flag(0, false));
  std::vector<Value> items = in.items(value);
  if (items.empty()) return Value::undefined("an empty sequence has no smallest or largest item");
  Value best = items[0], best_key = order.key(best);
  for (const Value& item : items) {
    Value key = order.key(item);
    if (largest ? less(best_key, key, in.budget()) : less(key, best_key, in.budget())) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best;
}

Value sum(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("sum", std::move(arguments), {"attribute", "start"});
  Value total = p.get(1) ? p.value(1) : Value(int64_t{0});
  for (const Value& item : in.items(value)) {
    const bool whole = !p.get(0) || p.value(0).is_none();
    total = arithmetic(Operator::Add, total, whole ? item : follow(in, item, p.value(0)), in.budget());
  }
  return total;
}

Value batch(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("batch", std::move(arguments), {"linecount", "fill_with"}, 1);
  const int64_t count = p.integer(0, 0);
  if (count < 1) raise("batch by {}", count);
  std::vector<Value> batches, current;
  for (Value& item : in.items(value)) {
    current.push_back(std::move(item));
    if (current.size() == static_cast<size_t>(count))
      batches.push_back(make_list(std::exchange(current, {})));
  }
  if (!current.empty()) {
    while (p.get(1) && !p.value(1).is_none() && current.size() < static_cast<size_t>(count)) {
      in.budget().spend();
      current.push_back(p.value(1));
    }
    batches.push_back(make_list(std::move(current)));
  }
  return make_list(std::move(batches), List::Kind::Generator);
}

}  // namespace

std::vector<std::pair<std::string_view, FilterFunction>> sequence_filters() {
  return {
      {"length", length},
      {"count", length},
      {"first", first},
      {"last", last},
      {"list", list},
      {"items", items_filter},
      {"reverse", reverse},
      {"map", map},
      {"select", select<true, false>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<false, true>},
      {"join", join_filter},
      {"sort", sort},
      {"dictsort", dictsort},
      {"unique", unique},
      {"min", extreme<false>},
      {"max", extreme<true>},
      {"sum", sum},
      {"batch", batch},
  };
}

}  // namespace redlite::chat::jinja
