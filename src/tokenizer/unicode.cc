#include "tokenizer/unicode.h"

#include <iterator>
#include <vector>

namespace redlite::tokenizer {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kReplacement = 0xFFFD;

struct Range {
  uint32_t first;
  CharClass char_class;
};

constexpr CharClass O = CharClass::Other;
constexpr CharClass L = CharClass::Letter;
constexpr CharClass M = CharClass::Mark;
constexpr CharClass N = CharClass::Number;
constexpr CharClass W = CharClass::Space;
constexpr Range kRanges[] = {
#include "tokenizer/unicode_table.inc"
};

std::vector<CharClass> make_classes() {
  std::vector<CharClass> classes(kCodePoints);
  for (size_t i = 0; i < std::size(kRanges); ++i) {
    const uint32_t end = i + 1 < std::size(kRanges) ? kRanges[i + 1].first : kCodePoints;
    for (uint32_t c = kRanges[i].first; c < end; ++c) classes[c] = kRanges[i].char_class;
  }
  return classes;
}

uint32_t byte_at(std::string_view text, size_t i) {
  return static_cast<uint8_t>(text[i]);
}

bool is_continuation(uint32_t byte) {
  return (byte & 0xC0) == 0x80;
}

uint32_t encoded_length(uint32_t code_point) {
  if (code_point < 0x80) return 1;
  if (code_point < 0x800) return 2;
  return code_point < 0x10000 ? 3 : 4;
}

}  // namespace

CharClass classify(uint32_t code_point) {
  static const std::vector<CharClass> classes = make_classes();
  return code_point < kCodePoints ? classes[code_point] : CharClass::Other;
}

CodePoint decode_utf8(std::string_view text, size_t offset) {
  const uint32_t lead = byte_at(text, offset);
  if (lead < 0x80) return {lead, 1};
  const uint32_t length = lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 0;
  if (length == 0 || length > text.size() - offset) return {kReplacement, 1};
  uint32_t value = lead & (0x7Fu >> length);
  for (uint32_t i = 1; i < length; ++i) {
    const uint32_t byte = byte_at(text, offset + i);
    if (!is_continuation(byte)) return {kReplacement, 1};
    value = value << 6 | (byte & 0x3F);
  }
  if (value >= kCodePoints) return {kReplacement, 1};
  return {value, length};
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto push = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  switch (encoded_length(code_point)) {
    case 1:
      push(code_point);
      break;
    case 2:
      push(0xC0 | code_point >> 6);
      push(0x80 | (code_point & 0x3F));
      break;
    case 3:
      push(0xE0 | code_point >> 12);
      push(0x80 | (code_point >> 6 & 0x3F));
      push(0x80 | (code_point & 0x3F));
      break;
    default:
      push(0xF0 | code_point >> 18);
      push(0x80 | (code_point >> 12 & 0x3F));
      push(0x80 | (code_point >> 6 & 0x3F));
      push(0x80 | (code_point & 0x3F));
  }
}

std::string_view repair_utf8(std::string_view text, std::string& storage) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text, at);
    if (encoded_length(c.value) != c.bytes) break;
    at += c.bytes;
  }
  if (at == text.size()) return text;
  storage.assign(text.substr(0, at));
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text, at);
    append_utf8(storage, c.value);
    at += c.bytes;
  }
  return storage;
}

size_t well_formed_prefix(std::string_view bytes, bool& complete) {
  complete = false;
  if (bytes.empty()) return 0;
  const uint32_t lead = byte_at(bytes, 0);
  if (lead < 0x80) {
    complete = true;
    return 1;
  }
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
  const uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t have = 1;
  while (have < length && have < bytes.size()) {
    const uint32_t byte = byte_at(bytes, have);
    if (have == 1 ? byte < low || byte > high : !is_continuation(byte)) break;
    ++have;
  }
  complete = have == length;
  return have;
}

}  // namespace redlite::tokenizer
