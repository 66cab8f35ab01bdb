#include "chat/jinja/text.h"

#include <algorithm>

#include "chat/jinja/failure.h"

namespace redlite::chat::jinja {

Text::Text(std::string bytes, bool is_content) : bytes_(std::move(bytes)) {
  if (bytes_.size() > kMaxBytes) raise("a text of {} bytes is too long", bytes_.size());
  if (is_content) mark(0, bytes_.size());
}

void Text::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!content_.empty() && content_.back().end == begin) {
    content_.back().end = end;
  } else {
    content_.push_back({begin, end});
  }
}

std::vector<Range>::const_iterator Text::first_behind(size_t at) const {
  return std::partition_point(content_.begin(), content_.end(), [&](const Range& r) { return r.end <= at; });
}

void Text::append(std::string_view bytes, bool is_content) {
  if (bytes.size() > kMaxBytes - bytes_.size()) raise("a text of more than {} MiB", kMaxBytes >> 20);
  const size_t at = bytes_.size();
  bytes_.append(bytes);
  if (is_content) mark(at, bytes_.size());
}

void Text::append(const Text& other, size_t begin, size_t end) {
  const size_t at = bytes_.size();
  append(std::string_view(other.bytes_).substr(begin, end - begin));
  for (auto r = other.first_behind(begin); r != other.content_.end() && r->begin < end; ++r) {
    mark(at + std::max(r->begin, begin) - begin, at + std::min(r->end, end) - begin);
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text out;
  if (begin < end) out.append(*this, begin, end);
  out.is_markup_ = is_markup_;
  return out;
}

bool Text::touches_content(size_t begin, size_t end) const {
  const auto range = first_behind(begin);
  return range != content_.end() && range->begin < end;
}

}  // namespace redlite::chat::jinja
