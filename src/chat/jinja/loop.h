#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "chat/jinja/value.h"

namespace redlite::chat::jinja {

/// The items of a for loop, and what `loop` says about them. The loop's condition is asked for an item only
/// when the loop, or a look ahead (loop.last, loop.length), comes to it, since a namespace may have changed
/// by then.
class Loop {
 public:
  using Filter = std::function<bool(const Value&)>;
  using Recurse = std::function<Value(Value)>;

  /// `filter` and `recurse` may be empty. `depth` counts recursive loops, from 1.
  Loop(std::vector<Value> items, Filter filter, Recurse recurse, int depth);

  /// Goes to the next item; false at the end.
  bool advance();
  const Value& current() const { return accepted_[index_]; }
  /// Ends the loop's connection to the template: from now on it holds only values.
  void close();

  /// Undefined if there is no such attribute. Not `cycle`, which is a method.
  Value attribute(std::string_view name);
  size_t index0() const { return index_; }
  const Recurse& recurse() const { return recurse_; }
  int depth() const { return depth_; }
  int height() const { return height_; }

 private:
  /// True if there is an item `index`.
  bool fetch(size_t index);

  std::vector<Value> source_;
  size_t next_source_ = 0;
  std::vector<Value> accepted_;
  Filter filter_;
  Recurse recurse_;
  size_t index_ = SIZE_MAX;
  int depth_;
  int height_ = 0;
};

}  // namespace redlite::chat::jinja
