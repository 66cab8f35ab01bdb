#include "chat/jinja/loop.h"

#include <algorithm>

namespace redlite::chat::jinja {

Loop::Loop(std::vector<Value> items, Filter filter, Recurse recurse, int depth)
    : source_(std::move(items)), filter_(std::move(filter)), recurse_(std::move(recurse)), depth_(depth) {
  for (const Value& item : source_) height_ = std::max(height_, item.height() + 1);
  if (!filter_) {
    accepted_ = std::move(source_);
    source_.clear();
  }
}

bool Loop::fetch(size_t index) {
  while (accepted_.size() <= index && next_source_ < source_.size()) {
    Value item = source_[next_source_++];
    if (filter_(item)) accepted_.push_back(std::move(item));
  }
  return index < accepted_.size();
}

bool Loop::advance() {
  if (!fetch(index_ + 1)) return false;  // SIZE_MAX + 1 is 0
  ++index_;
  return true;
}

void Loop::close() {
  next_source_ = source_.size();
  filter_ = nullptr;
  recurse_ = nullptr;
}

Value Loop::attribute(std::string_view name) {
  const auto integer = [](size_t value) { return Value(static_cast<int64_t>(value)); };
  if (name == "index") return integer(index_ + 1);
  if (name == "index0") return integer(index_);
  if (name == "first") return index_ == 0;
  if (name == "last") return !fetch(index_ + 1);
  if (name == "depth") return Value(int64_t{depth_});
  if (name == "depth0") return Value(int64_t{depth_ - 1});
  if (name == "previtem") {
    return index_ > 0 ? accepted_[index_ - 1]
                      : Value::undefined("the first item of a loop has no loop.previtem");
  }
  if (name == "nextitem") {
    return fetch(index_ + 1) ? accepted_[index_ + 1]
                             : Value::undefined("the last item of a loop has no loop.nextitem");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    fetch(SIZE_MAX - 1);
    if (name == "length") return integer(accepted_.size());
    return integer(accepted_.size() - index_ - (name == "revindex0" ? 1 : 0));
  }
  return Value::undefined(fmt::format("loop has no attribute '{}'", name));
}

}  // namespace redlite::chat::jinja
