#include <algorithm>
#include <map>

#include "base/quote.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"
#include "tokenizer/unicode.h"

namespace redlite::chat::jinja {
namespace {

using Method = Value(Interpreter&, const Value& self, Arguments);
using Methods = std::map<std::string_view, Method*>;

std::vector<Value> as_values(Interpreter& in, std::vector<Text> texts) {
  in.budget().spend(texts.size());
  std::vector<Value> values;
  values.reserve(texts.size());
  for (Text& text : texts) values.emplace_back(std::move(text));
  return values;
}

std::optional<std::string_view> view(const Text* text) {
  return text ? std::optional<std::string_view>(text->bytes()) : std::nullopt;
}

template <bool left, bool right>
Value strip_method(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("strip", std::move(arguments), {"chars"});
  return strip(*self.text(), {left, right}, view(p.text(0)));
}

template <auto function>
Value split_method(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("split", std::move(arguments), {"sep", "maxsplit"});
  return make_list(as_values(in, function(*self.text(), view(p.text(0)), p.integer(1, -1))));
}

Value splitlines(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("splitlines", std::move(arguments), {"keepends"});
  return make_list(as_values(in, split_lines(*self.text(), p.flag(0, false))));
}

template <Case to>
Value case_method(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("the method", std::move(arguments), {});
  return in.text(change_case(*self.text(), to));
}

Value replace_method(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("replace", std::move(arguments), {"old", "new", "count"}, 2);
  if (!p.text(0) || !p.text(1)) raise("replace() needs two strings");
  return in.text(replace(*self.text(), p.text(0)->bytes(), *p.text(1), p.integer(2, -1)));
}

Value join_method(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("join", std::move(arguments), {"items"}, 1);
  Text out;
  bool first = true;
  for (const Value& item : in.items(p.value(0))) {
    if (!item.text()) raise("join() of {}, strings are wanted", item.kind());
    if (!std::exchange(first, false)) out.append(*self.text());
    out.append(*item.text());
  }
  return in.text(std::move(out));
}

/// startswith and endswith, of a string or any of a tuple.
template <bool at_end>
Value affix_method(Interpreter& in, const Value& self, Arguments arguments) {
  const char* name = at_end ? "endswith" : "startswith";
  const Parameters p(name, std::move(arguments), {"affix"}, 1);
  const auto has = [&](const Value& affix) {
    if (!affix.text()) raise("{}() of {}, a string is wanted", name, affix.kind());
    const std::string_view s = self.text()->bytes();
    return at_end ? s.ends_with(affix.text()->bytes()) : s.starts_with(affix.text()->bytes());
  };
  const List* several = p.value(0).list();
  if (!several || several->kind != List::Kind::Tuple) return has(p.value(0));
  const std::vector<Value> affixes = in.items(p.value(0));
  return std::any_of(affixes.begin(), affixes.end(), has);
}

template <bool at_end>
Value remove_affix(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p(at_end ? "removesuffix" : "removeprefix", std::move(arguments), {"affix"}, 1);
  const Text& text = *self.text();
  if (!p.text(0)) raise("removeprefix() and removesuffix() need a string");
  const std::string& affix = p.text(0)->bytes();
  const bool has = at_end ? text.bytes().ends_with(affix) : text.bytes().starts_with(affix);
  if (!has) return self;
  return at_end ? text.slice(0, text.size() - affix.size()) : text.slice(affix.size(), text.size());
}

size_t find_last(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  const std::string reversed(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t at = find(reversed, reversed_needle);
  return at == kNotFound ? kNotFound : text.size() - at - needle.size();
}

/// The position in characters. Where from and to where, which Python's find takes too, are not supported.
template <bool last, bool must_be_there>
Value find_method(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("find", std::move(arguments), {"sub"}, 1);
  if (!p.text(0)) raise("find() and index() need a string");
  const std::string_view text = self.text()->bytes();
  const std::string_view needle = p.text(0)->bytes();
  const size_t at = last ? find_last(text, needle) : find(text, needle);
  if (at == kNotFound && must_be_there) raise("index(): {} does not occur", quote(needle));
  return at == kNotFound ? int64_t{-1} : static_cast<int64_t>(count_characters(text.substr(0, at)));
}

Value count_method(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("count", std::move(arguments), {"sub"}, 1);
  if (!p.text(0)) raise("count() needs a string");
  const std::string_view needle = p.text(0)->bytes();
  const std::string_view text = self.text()->bytes();
  if (needle.empty()) return static_cast<int64_t>(count_characters(text) + 1);
  return static_cast<int64_t>(find_all(text, needle).size());
}

Value partition(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("partition", std::move(arguments), {"sep"}, 1);
  const Text& text = *self.text();
  if (!p.text(0) || p.text(0)->empty()) raise("partition() needs a string that is not empty");
  const size_t at = find(text.bytes(), p.text(0)->bytes());
  if (at == kNotFound) return make_list({self, Text(), Text()}, List::Kind::Tuple);
  const size_t end = at + p.text(0)->size();
  return make_list({text.slice(0, at), text.slice(at, end), text.slice(end, text.size())}, List::Kind::Tuple);
}

Value rpartition(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("rpartition", std::move(arguments), {"sep"}, 1);
  const Text& text = *self.text();
  if (!p.text(0) || p.text(0)->empty()) raise("rpartition() needs a string that is not empty");
  const size_t at = find_last(text.bytes(), p.text(0)->bytes());
  if (at == kNotFound) return make_list({Text(), Text(), self}, List::Kind::Tuple);
  const size_t end = at + p.text(0)->size();
  return make_list({text.slice(0, at), text.slice(at, end), text.slice(end, text.size())}, List::Kind::Tuple);
}

Value format_method(Interpreter& in, const Value& self, Arguments arguments) {
  return in.text(brace_format(in, *self.text(), arguments));
}

template <auto is>
Value every_character(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("the method", std::move(arguments), {});
  const std::string& s = self.text()->bytes();
  for (size_t at = 0; at < s.size();) {
    const auto [c, bytes] = tokenizer::decode_utf8(s, at);
    if (!is(c)) return false;
    at += bytes;
  }
  return !s.empty();
}

bool is_letter(uint32_t c) {
  return tokenizer::classify(c) == tokenizer::CharClass::Letter;
}
/// ASCII's only: which others are digits, Python knows from tables that are not here.
bool is_digit(uint32_t c) {
  if (c >= 0x80 && tokenizer::classify(c) == tokenizer::CharClass::Number) {
    raise("isdigit() of digits other than 0 to 9 is not supported");
  }
  return c >= '0' && c <= '9';
}
bool is_alphanumeric(uint32_t c) {
  return is_letter(c) || tokenizer::classify(c) == tokenizer::CharClass::Number;
}

Value test_as(Interpreter& in, const Value& self, std::string_view test) {
  return in.test(test, self, {});
}

const Methods kTextMethods = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<split>},
    {"rsplit", split_method<rsplit>},
    {"splitlines", splitlines},
    {"upper", case_method<Case::Upper>},
    {"lower", case_method<Case::Lower>},
    {"capitalize", case_method<Case::Capitalize>},
    {"title", case_method<Case::Title>},
    {"swapcase", case_method<Case::Swap>},
    {"replace", replace_method},
    {"join", join_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"find", find_method<false, false>},
    {"rfind", find_method<true, false>},
    {"index", find_method<false, true>},
    {"rindex", find_method<true, true>},
    {"count", count_method},
    {"partition", partition},
    {"rpartition", rpartition},
    {"format", format_method},
    {"isspace", every_character<is_space>},
    {"isalpha", every_character<is_letter>},
    {"isdigit", every_character<is_digit>},
    {"isalnum", every_character<is_alphanumeric>},
    {"islower", [](Interpreter& in, const Value& self, Arguments) { return test_as(in, self, "lower"); }},
    {"isupper", [](Interpreter& in, const Value& self, Arguments) { return test_as(in, self, "upper"); }},
};

Value dict_get(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("get", std::move(arguments), {"key", "default"}, 1);
  const Value* found = self.dict()->find(p.value(0));
  return found ? *found : p.get(1) ? p.value(1) : Value(None());
}

enum class Part { Keys, Values, Items };

template <Part part>
Value dict_view(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("the method", std::move(arguments), {});
  std::vector<Value> out;
  in.budget().spend(self.dict()->entries().size());
  for (const auto& [key, value] : self.dict()->entries()) {
    out.push_back(part == Part::Keys     ? key
                  : part == Part::Values ? value
                                         : make_list({key, value}, List::Kind::Tuple));
  }
  return make_list(std::move(out), List::Kind::View);
}

Value copy(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("copy", std::move(arguments), {});
  return self.dict() ? self : make_list(in.items(self));
}

Value refuse_change(Interpreter&, const Value& self, Arguments) {
  raise("this method changes {}, which templates may not do", self.kind());
}

const Methods kDictMethods = {
    {"get", dict_get},
    {"keys", dict_view<Part::Keys>},
    {"values", dict_view<Part::Values>},
    {"items", dict_view<Part::Items>},
    {"copy", copy},
    {"pop", refuse_change},
    {"popitem", refuse_change},
    {"update", refuse_change},
    {"setdefault", refuse_change},
    {"clear", refuse_change},
};

/// transformers lets no template change a list, others do, and some templates need it to keep a queue of ids.
Value append(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("append", std::move(arguments), {"item"}, 1);
  if (p.value(0).height() > 0 || p.value(0).name_space() || p.value(0).callable()) {
    raise("append() of {} is not supported: only of strings, numbers, booleans and none", p.value(0).kind());
  }
  self.list()->items.push_back(p.value(0));
  return None();
}

Value pop(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters p("pop", std::move(arguments), {"index"});
  auto& items = self.list()->items;
  const auto n = static_cast<int64_t>(items.size());
  int64_t index = p.integer(0, -1);
  if (index < 0) index += n;
  if (index < 0 || index >= n) raise("pop(): the list has no such item");
  Value item = std::move(items[static_cast<size_t>(index)]);
  items.erase(items.begin() + index);
  return item;
}

Value list_index(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("index", std::move(arguments), {"item"}, 1);
  const auto& items = self.list()->items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], p.value(0), in.budget())) return static_cast<int64_t>(i);
  raise("index(): the item is not in the list");
}

Value list_count(Interpreter& in, const Value& self, Arguments arguments) {
  const Parameters p("count", std::move(arguments), {"item"}, 1);
  int64_t n = 0;
  for (const Value& item : self.list()->items) n += equal(item, p.value(0), in.budget()) ? 1 : 0;
  return n;
}

const Methods kListMethods = {
    {"append", append},
    {"pop", pop},
    {"index", list_index},
    {"count", list_count},
    {"copy", copy},
    {"insert", refuse_change},
    {"extend", refuse_change},
    {"remove", refuse_change},
    {"reverse", refuse_change},
    {"sort", refuse_change},
    {"clear", refuse_change},
};

const Methods kTupleMethods = {{"index", list_index}, {"count", list_count}};

const Methods kNone;

const Methods& methods_of(const Value& self) {
  if (self.text()) return kTextMethods;
  if (self.dict()) return kDictMethods;
  if (const List* list = self.list()) {
    if (list->kind == List::Kind::List) return kListMethods;
    if (list->kind == List::Kind::Tuple) return kTupleMethods;
  }
  return kNone;
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  return methods_of(self).count(name) > 0;
}

Value call_method(Interpreter& in, const Value& self, std::string_view name, Arguments arguments) {
  if (self.text()) in.budget().spend_bytes(self.text()->size());
  if (self.list() && name == "pop") in.budget().spend(self.list()->items.size() / 16);
  return methods_of(self).at(name)(in, self, std::move(arguments));
}

}  // namespace redlite::chat::jinja
