#include "chat/jinja/strings.h"

#include <algorithm>
#include <cstring>

#include "chat/jinja/failure.h"
#include "tokenizer/unicode.h"

namespace redlite::chat::jinja {

using tokenizer::CodePoint;
using tokenizer::decode_utf8;

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

size_t count_characters(std::string_view text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).bytes) ++n;
  return n;
}

std::vector<size_t> character_positions(std::string_view text) {
  std::vector<size_t> positions;
  positions.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).bytes) positions.push_back(at);
  positions.push_back(text.size());
  return positions;
}

size_t find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return kNotFound;
  if (needle.empty()) return from;
  const void* found = ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : kNotFound;
}

std::vector<size_t> find_all(std::string_view text, std::string_view needle) {
  std::vector<size_t> found;
  for (size_t at = find(text, needle); at != kNotFound; at = find(text, needle, at + needle.size()))
    found.push_back(at);
  return found;
}

namespace {

/// The start of the character that ends at `end` (> 0).
size_t previous(std::string_view text, size_t end) {
  for (size_t bytes = std::min<size_t>(4, end); bytes > 1; --bytes)
    if (decode_utf8(text, end - bytes).bytes == bytes) return end - bytes;
  return end - 1;
}

}  // namespace

Text strip(const Text& text, Sides sides, std::optional<std::string_view> characters) {
  const std::string_view s = text.bytes();
  const auto strippable = [&](size_t begin, size_t end) {
    if (!characters) return is_space(decode_utf8(s, begin).value);
    const std::string_view wanted = s.substr(begin, end - begin);
    for (size_t at = 0; at < characters->size();) {
      const size_t bytes = decode_utf8(*characters, at).bytes;
      if (characters->substr(at, bytes) == wanted) return true;
      at += bytes;
    }
    return false;
  };
  size_t begin = 0, end = s.size();
  while (sides.left && begin < end) {
    const size_t next = begin + decode_utf8(s, begin).bytes;
    if (!strippable(begin, next)) break;
    begin = next;
  }
  while (sides.right && begin < end) {
    const size_t last = previous(s, end);
    if (!strippable(last, end)) break;
    end = last;
  }
  return text.slice(begin, end);
}

namespace {

bool space_at(std::string_view s, size_t at, size_t& bytes) {
  const CodePoint c = decode_utf8(s, at);
  bytes = c.bytes;
  return is_space(c.value);
}

std::vector<Text> split_words(const Text& text, int64_t limit) {
  const std::string_view s = text.bytes();
  std::vector<Text> words;
  size_t bytes = 0;
  for (size_t at = 0; at < s.size();) {
    if (space_at(s, at, bytes)) {
      at += bytes;
      continue;
    }
    if (limit >= 0 && words.size() >= static_cast<size_t>(limit)) {
      words.push_back(text.slice(at, s.size()));
      break;
    }
    size_t end = at;
    while (end < s.size() && !space_at(s, end, bytes)) end += bytes;
    words.push_back(text.slice(at, end));
    at = end;
  }
  return words;
}

std::vector<Text> rsplit_words(const Text& text, int64_t limit) {
  const std::string_view s = text.bytes();
  std::vector<Text> words;
  size_t bytes = 0;
  for (size_t end = s.size(); end > 0;) {
    const size_t last = previous(s, end);
    if (space_at(s, last, bytes)) {
      end = last;
      continue;
    }
    if (limit >= 0 && words.size() >= static_cast<size_t>(limit)) {
      words.push_back(text.slice(0, end));
      break;
    }
    size_t begin = last;
    while (begin > 0 && !space_at(s, previous(s, begin), bytes)) begin = previous(s, begin);
    words.push_back(text.slice(begin, end));
    end = begin;
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::vector<Text> cut(const Text& text, const std::vector<size_t>& at, size_t separator_bytes) {
  std::vector<Text> parts;
  size_t begin = 0;
  for (const size_t end : at) {
    parts.push_back(text.slice(begin, end));
    begin = end + separator_bytes;
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

}  // namespace

std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit) {
  if (!separator) return split_words(text, limit);
  if (separator->empty()) raise("split() by an empty string");
  std::vector<size_t> at = find_all(text.bytes(), *separator);
  if (limit >= 0 && at.size() > static_cast<size_t>(limit)) at.resize(static_cast<size_t>(limit));
  return cut(text, at, separator->size());
}

std::vector<Text> rsplit(const Text& text, std::optional<std::string_view> separator, int64_t limit) {
  if (!separator) return rsplit_words(text, limit);
  if (separator->empty()) raise("rsplit() by an empty string");
  // From the right, so that "aaa" is cut by "aa" behind its first character: search in the reverse.
  const std::string reversed(text.bytes().rbegin(), text.bytes().rend());
  const std::string reversed_separator(separator->rbegin(), separator->rend());
  std::vector<size_t> at = find_all(reversed, reversed_separator);
  if (limit >= 0 && at.size() > static_cast<size_t>(limit)) at.resize(static_cast<size_t>(limit));
  for (size_t& position : at) position = text.size() - position - separator->size();
  std::reverse(at.begin(), at.end());
  return cut(text, at, separator->size());
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const std::string_view s = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < s.size();) {
    const CodePoint c = decode_utf8(s, at);
    const bool ends = (c.value >= 0x0a && c.value <= 0x0d) || (c.value >= 0x1c && c.value <= 0x1e) ||
                      c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    size_t next = at + c.bytes;
    if (ends) {
      if (c.value == '\r' && next < s.size() && s[next] == '\n') ++next;
      lines.push_back(text.slice(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < s.size()) lines.push_back(text.slice(begin, s.size()));
  return lines;
}

Text replace(const Text& text, std::string_view from, const Text& to, int64_t limit) {
  Text out;
  std::vector<size_t> at = from.empty() ? character_positions(text.bytes()) : find_all(text.bytes(), from);
  if (limit >= 0 && at.size() > static_cast<size_t>(limit)) at.resize(static_cast<size_t>(limit));
  size_t begin = 0;
  for (const size_t end : at) {
    out.append(text, begin, end);
    out.append(to);
    begin = end + from.size();
  }
  out.append(text, begin, text.size());
  return out;
}

Text join(const Text& separator, const std::vector<Text>& parts) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(parts[i]);
  }
  return out;
}

Text escape_html(const Text& text) {
  if (text.is_markup()) return text;
  constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  Text out = text;
  for (const auto& [from, to] : kEntities) out = replace(out, from, Text(std::string(to)), -1);
  out.set_markup(true);
  return out;
}

Text repeat(const Text& text, int64_t times, Budget& budget) {
  Text out;
  if (text.empty()) return out;
  for (int64_t i = 0; i < times; ++i) {
    budget.spend();
    out.append(text);
  }
  return out;
}

}  // namespace redlite::chat::jinja
