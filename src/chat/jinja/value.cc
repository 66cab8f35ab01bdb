#include "chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "chat/jinja/loop.h"

namespace redlite::chat::jinja {

Value Value::undefined(std::string reason) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(reason))};
  return value;
}

namespace {

Value convert(const nlohmann::ordered_json& json, Budget& budget, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > Value::kMaxHeight) raise("the request nests more than {} levels deep", Value::kMaxHeight);
  budget.spend();
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{INT64_MAX}) raise("the integer {} is too large", json.dump());
      return json.get<int64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string: {
      const auto& text = json.get_ref<const std::string&>();
      budget.spend_bytes(text.size());
      return Text(text, /*is_content=*/true);
    }
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, budget, depth + 1));
      return make_list(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items())
        dict.set(Text(key, /*is_content=*/true), convert(item, budget, depth + 1));
      return make_dict(std::move(dict));
    }
    default:
      return None();
  }
}

}  // namespace

Value Value::from_json(const nlohmann::ordered_json& json, Budget& budget) {
  return convert(json, budget, 0);
}

int64_t Value::integer() const {
  const bool* flag = std::get_if<bool>(&data_);
  return flag ? int64_t{*flag} : std::get<int64_t>(data_);
}

double Value::number() const {
  return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
}

const std::string& Value::undefined_reason() const {
  static const std::string kUnnamed = "a value that does not exist is used";
  const auto& reason = std::get<Undefined>(data_).reason;
  return reason ? *reason : kUnnamed;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (const Text* t = text()) return !t->empty();
  if (const List* l = list()) return l->kind == List::Kind::Generator || !l->items.empty();
  if (const Dict* d = dict()) return !d->entries().empty();
  return true;
}

std::string_view Value::kind() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (is_bool()) return "a boolean";
  if (is_integer()) return "an integer";
  if (is_float()) return "a float";
  if (text()) return "a string";
  if (dict()) return "a dict";
  if (name_space()) return "a namespace";
  if (callable()) return "a function";
  if (const List* l = list()) {
    switch (l->kind) {
      case List::Kind::List:
        return "a list";
      case List::Kind::Tuple:
        return "a tuple";
      case List::Kind::View:
        return "a view of a dict";
      case List::Kind::Generator:
        return "a generator";
    }
  }
  return "a loop";
}

int Value::height() const {
  if (const List* l = list()) return l->height;
  if (const Dict* d = dict()) return d->height();
  if (const Callable* c = callable()) return c->height;
  if (const Loop* l = loop()) return l->height();
  return 0;
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined() || is_none()) return true;
  if (is_number()) return number() == other.number();
  if (const Text* t = text()) return t->bytes() == other.text()->bytes();
  return list() == other.list() && dict() == other.dict() && name_space() == other.name_space() &&
         callable() == other.callable() && loop() == other.loop();
}

namespace {

int height_above(int below) {
  if (below >= Value::kMaxHeight) raise("a value nests more than {} levels deep", Value::kMaxHeight);
  return below + 1;
}

}  // namespace

Value make_list(std::vector<Value> items, List::Kind kind) {
  auto list = std::make_shared<List>();
  int below = 0;
  for (const Value& item : items) below = std::max(below, item.height());
  list->height = height_above(below);
  list->items = std::move(items);
  list->kind = kind;
  return list;
}

Value make_dict(Dict dict) {
  return std::make_shared<const Dict>(std::move(dict));
}

size_t Dict::index_of(const Value& key) const {
  if (const Text* text = key.text()) {
    const auto found = by_text_.find(text->bytes());
    return found == by_text_.end() ? entries_.size() : found->second;
  }
  for (const size_t i : others_) {
    const Value& other = entries_[i].key;
    if (key.is_number() ? other.is_number() && other.number() == key.number() : other.is_none()) return i;
  }
  return entries_.size();
}

void Dict::set(Value key, Value value) {
  if (!key.text() && !key.is_number() && !key.is_none()) raise("{} cannot be the key of a dict", key.kind());
  height_ = std::max(height_, height_above(value.height()));
  const size_t index = index_of(key);
  if (index < entries_.size()) {
    entries_[index].value = std::move(value);
    return;
  }
  if (const Text* text = key.text()) {
    by_text_.emplace(text->bytes(), index);
  } else {
    others_.push_back(index);
  }
  entries_.push_back({std::move(key), std::move(value)});
}

const Value* Dict::find(std::string_view key) const {
  const auto found = by_text_.find(key);
  return found == by_text_.end() ? nullptr : &entries_[found->second].value;
}

const Value* Dict::find(const Value& key) const {
  if (!key.text() && !key.is_number() && !key.is_none()) raise("{} cannot be the key of a dict", key.kind());
  const size_t index = index_of(key);
  return index < entries_.size() ? &entries_[index].value : nullptr;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (a.is_number() && b.is_number()) {
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.text() && b.text()) {
    budget.spend_bytes(std::min(a.text()->size(), b.text()->size()));
    return a.text()->bytes() == b.text()->bytes();
  }
  if (a.list() && b.list()) {
    const auto& x = a.list()->items;
    const auto& y = b.list()->items;
    if (a.list()->kind != b.list()->kind || x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!equal(x[i], y[i], budget)) return false;
    return true;
  }
  if (a.dict() && b.dict()) {
    if (a.dict()->entries().size() != b.dict()->entries().size()) return false;
    for (const auto& [key, value] : a.dict()->entries()) {
      const Value* other = b.dict()->find(key);
      if (!other || !equal(value, *other, budget)) return false;
    }
    return true;
  }
  return a.same_as(b);
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (a.is_number() && b.is_number()) {
    return a.is_integer() && b.is_integer() ? a.integer() < b.integer() : a.number() < b.number();
  }
  if (a.text() && b.text()) {
    budget.spend_bytes(std::min(a.text()->size(), b.text()->size()));
    return a.text()->bytes() < b.text()->bytes();
  }
  if (a.list() && b.list() && a.list()->kind == b.list()->kind && a.list()->kind != List::Kind::Generator) {
    const auto& x = a.list()->items;
    const auto& y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget);
    return x.size() < y.size();
  }
  if (a.is_undefined()) raise("{}", a.undefined_reason());
  if (b.is_undefined()) raise("{}", b.undefined_reason());
  raise("{} and {} have no order", a.kind(), b.kind());
}

}  // namespace redlite::chat::jinja
