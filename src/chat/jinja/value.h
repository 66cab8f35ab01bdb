#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "chat/jinja/budget.h"
#include "chat/jinja/text.h"

namespace redlite::chat::jinja {

class Value;
class Loop;
struct List;
class Dict;
struct Namespace;
struct Callable;

/// What a name or attribute gives that does not exist: empty text, false, nothing to iterate over; anything
/// else done with it fails, with this reason.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};

/// A value of the template language, with Python's meaning of every operation. Cheap to copy: what is larger
/// than a number is shared.
///
/// Values cannot hold themselves, and lists and dicts nest at most kMaxHeight deep, so that recursion over a
/// value is bounded; how often a shared part is visited is not, which is why such functions take the Budget.
class Value {
 public:
  static constexpr int kMaxHeight = 128;

  Value() = default;
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  Value(std::shared_ptr<List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Namespace> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Callable> callable) : data_(std::move(callable)) {}
  Value(std::shared_ptr<Loop> loop) : data_(std::move(loop)) {}
  Value(const char*) = delete;  // it would become a bool
  static Value undefined(std::string reason);

  /// JSON as a value whose texts, keys included, are content. Throws Failure for integers beyond 64 bits and
  /// for what nests too deeply.
  static Value from_json(const nlohmann::ordered_json& json, Budget& budget);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  /// True for booleans too, as in Python.
  bool is_integer() const { return is_bool() || std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integer() || is_float(); }

  /// nullptr if the value is of another kind.
  const Text* text() const { return pointer<const Text>(); }
  List* list() const { return pointer<List>(); }
  const Dict* dict() const { return pointer<const Dict>(); }
  Namespace* name_space() const { return pointer<Namespace>(); }
  const Callable* callable() const { return pointer<const Callable>(); }
  Loop* loop() const { return pointer<Loop>(); }
  std::shared_ptr<List> share_list() const { return std::get<std::shared_ptr<List>>(data_); }

  /// Of a number that is_integer(), is_number().
  int64_t integer() const;
  double number() const;
  const std::string& undefined_reason() const;

  bool truth() const;
  /// "a string", "a list", ...: for messages.
  std::string_view kind() const;
  /// Levels of lists and dicts below; 0 for everything else.
  int height() const;
  /// The same object (texts and numbers: equal).
  bool same_as(const Value& other) const;

 private:
  template <typename T>
  T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held ? held->get() : nullptr;
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Callable>,
               std::shared_ptr<Loop>>
      data_;
};

struct List {
  /// Views are what dict.keys() and the like give. Generators are what map, select and the like give: true
  /// even if empty, without a length, and empty once iterated over.
  enum class Kind { List, Tuple, View, Generator };

  std::vector<Value> items;
  Kind kind = Kind::List;
  int height = 0;
};

/// Throws Failure if it would be too high.
Value make_list(std::vector<Value> items, List::Kind kind = List::Kind::List);

/// Keys are texts, numbers, booleans and None, in the order of insertion. Immutable once it is a Value.
class Dict {
 public:
  struct Entry {
    Value key, value;
  };

  /// Replaces the value of a key that is there. Throws Failure for a key that cannot be one.
  void set(Value key, Value value);
  /// nullptr if there is no such key.
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  int height() const { return height_; }

 private:
  size_t index_of(const Value& key) const;

  std::vector<Entry> entries_;
  std::map<std::string_view, size_t> by_text_;  ///< views of the keys
  std::vector<size_t> others_;                  ///< entries whose key is no text
  int height_ = 1;
};

Value make_dict(Dict dict);

struct Namespace {
  std::map<std::string, Value, std::less<>> attributes;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;

struct Callable {
  std::string name;
  std::function<Value(Interpreter&, Arguments)> call;
  int height = 0;  ///< of what the function holds
};

/// Python's ==, and in its order < (numbers, texts, lists; throws Failure for others).
bool equal(const Value& a, const Value& b, Budget& budget);
bool less(const Value& a, const Value& b, Budget& budget);
/// str(value), repr(value).
Text to_text(const Value& value, Budget& budget);
Text to_repr(const Value& value, Budget& budget);
/// Python's repr of a float: the shortest digits that give the same number.
std::string float_repr(double value);

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  bool indented = false;
  std::string indent;  ///< of one level
  std::string between_items = ", ";
  std::string behind_key = ": ";
};
/// Python's json.dumps.
Text to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace redlite::chat::jinja
