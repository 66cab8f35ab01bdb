#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace redlite::chat::jinja {

using tokenizer::Range;

/// A string that remembers which of its bytes came from outside the template ("content": messages, tools,
/// arguments of the request). Every operation on strings carries the marks along, so that the finished prompt
/// says which bytes may stand for control tokens and which may not.
class Text {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  Text() = default;
  explicit Text(std::string bytes, bool is_content = false);

  const std::string& bytes() const { return bytes_; }
  /// In order, not empty, not adjacent.
  const std::vector<Range>& content() const { return content_; }
  /// What the filters safe and escape give: HTML, which escapes what + joins to it.
  bool is_markup() const { return is_markup_; }
  void set_markup(bool is_markup) { is_markup_ = is_markup; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  /// All throw Failure when the text would exceed kMaxBytes.
  void append(const Text& other) { append(other, 0, other.size()); }
  /// The bytes begin to end of another text (not of this one).
  void append(const Text& other, size_t begin, size_t end);
  void append(std::string_view bytes, bool is_content = false);

  /// Markup as well if this is.
  Text slice(size_t begin, size_t end) const;
  /// True if any of these bytes is content.
  bool touches_content(size_t begin, size_t end) const;

  std::string release_bytes() { return std::move(bytes_); }
  std::vector<Range> release_content() { return std::move(content_); }

 private:
  void mark(size_t begin, size_t end);
  /// The first range that ends behind `at`.
  std::vector<Range>::const_iterator first_behind(size_t at) const;

  std::string bytes_;
  std::vector<Range> content_;
  bool is_markup_ = false;
};

}  // namespace redlite::chat::jinja
