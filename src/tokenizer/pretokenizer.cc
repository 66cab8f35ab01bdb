#include "tokenizer/pretokenizer.h"

#include <cstdint>

#include "tokenizer/unicode.h"

namespace redlite::tokenizer {
namespace {

/// A character, or the end of the text: no length, and neither letter, number nor space.
struct Char {
  uint32_t code = UINT32_MAX;
  size_t bytes = 0;
  CharClass char_class = CharClass::Other;

  bool is_end() const { return bytes == 0; }
  bool is_newline() const { return code == '\r' || code == '\n'; }
  bool is_number() const { return char_class == CharClass::Number; }
  bool is_space() const { return char_class == CharClass::Space; }
  bool is_letter(Pretokenizer kind) const {
    return char_class == CharClass::Letter || (kind == Pretokenizer::Qwen35 && char_class == CharClass::Mark);
  }
  bool is_symbol(Pretokenizer kind) const {
    return !is_end() && !is_space() && !is_number() && !is_letter(kind);
  }
};

Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const CodePoint c = decode_utf8(text, at);
  return {c.value, c.bytes, classify(c.value)};
}

char lower(std::string_view text, size_t at) {
  if (at >= text.size()) return '\0';
  const char c = text[at];
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// The length of 's, 't, 're, 've, 'm, 'll or 'd at `at`, where there is an apostrophe; 0 if none follows.
size_t contraction_length(std::string_view text, size_t at) {
  const char a = lower(text, at + 1);
  const char b = lower(text, at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

/// The end of a run of white space: up to its last newline if it has one; else without its last character
/// when that can lead the next word.
size_t space_end(std::string_view text, size_t begin) {
  size_t end = begin;
  size_t last = begin;
  size_t after_newline = 0;
  Char c = char_at(text, end);
  while (c.is_space()) {
    last = end;
    end += c.bytes;
    if (c.is_newline()) after_newline = end;
    c = char_at(text, end);
  }
  if (after_newline > 0) return after_newline;
  return c.is_end() || last == begin ? end : last;
}

}  // namespace

size_t word_end(Pretokenizer kind, std::string_view text, size_t begin) {
  const Char first = char_at(text, begin);
  if (first.code == '\'') {
    if (const size_t length = contraction_length(text, begin)) return begin + length;
  }

  size_t at = begin + first.bytes;
  if (first.is_number()) return at;

  Char c = char_at(text, at);
  if (!first.is_newline() && (first.is_letter(kind) || c.is_letter(kind))) {
    while (c.is_letter(kind)) {
      at += c.bytes;
      c = char_at(text, at);
    }
    return at;
  }

  if (first.is_symbol(kind) || (first.code == ' ' && c.is_symbol(kind))) {
    while (c.is_symbol(kind)) {
      at += c.bytes;
      c = char_at(text, at);
    }
    while (c.is_newline()) {
      at += c.bytes;
      c = char_at(text, at);
    }
    return at;
  }

  return space_end(text, begin);
}

}  // namespace redlite::tokenizer
