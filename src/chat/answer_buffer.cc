#include "chat/answer_buffer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "chat/tool_schemas.h"

namespace redlite::chat {

bool is_blank(char c) {
  return kJsonBlanks.find(c) != std::string_view::npos;
}

std::string decode_string(std::string_view quoted) {
  const auto value = nlohmann::ordered_json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? value.get<std::string>() : "";
}

Match AnswerBuffer::match(size_t place, std::string_view tag) const {
  const std::string_view rest = std::string_view(buffer).substr(std::min(place, buffer.size()));
  if (rest.starts_with(tag)) return Match::Yes;
  return !final && tag.starts_with(rest) ? Match::Wait : Match::No;
}

Match AnswerBuffer::match_any(size_t place, std::initializer_list<std::string_view> tags) const {
  Match best = Match::No;
  for (const std::string_view tag : tags) best = std::max(best, match(place, tag));
  return best;
}

size_t AnswerBuffer::skip_blanks(size_t place) const {
  const size_t limit = std::min(buffer.size(), place + kMaxBlanks);
  while (place < limit && is_blank(buffer[place])) ++place;
  return place;
}

/// A name from `place` to the first '>': `end` is the place of that.
Match AnswerBuffer::name_until_bracket(size_t place, size_t& end) const {
  end = buffer.find_first_of(">\n<", place);
  if (end == std::string::npos)
    return final || buffer.size() - place > kMaxCallName ? Match::No : Match::Wait;
  return buffer[end] == '>' && end > place && end - place <= kMaxCallName ? Match::Yes : Match::No;
}

/// A short JSON string at `place`: `end` lies behind it.
Match AnswerBuffer::short_string(size_t place, size_t& end) const {
  if (ends_at(place)) return final ? Match::No : Match::Wait;
  if (buffer[place] != '"') return Match::No;
  for (end = place + 1; end < buffer.size() && end - place <= kMaxCallName; ++end) {
    if (buffer[end] == '\\') {
      ++end;
    } else if (buffer[end] == '"') {
      ++end;
      return Match::Yes;
    }
  }
  return final || end - place > kMaxCallName ? Match::No : Match::Wait;
}

/// A short JSON string and a colon behind it: `end` lies behind both.
Match AnswerBuffer::key_and_colon(size_t place, std::string& key, size_t& end) const {
  if (const Match m = short_string(place, end); m != Match::Yes) return m;
  key = decode_string(std::string_view(buffer).substr(place, end - place));
  end = skip_blanks(end);
  if (ends_at(end)) return final ? Match::No : Match::Wait;
  return buffer[end++] == ':' ? Match::Yes : Match::No;
}

}  // namespace redlite::chat
