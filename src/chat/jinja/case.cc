#include <algorithm>
#include <iterator>

#include "chat/jinja/strings.h"
#include "tokenizer/unicode.h"

namespace redlite::chat::jinja {
namespace {

struct CaseRun {
  uint32_t first, last, stride;
  int32_t difference;
};
struct CaseSeveral {
  uint32_t code_point;
  uint32_t upper[3];  ///< 0 behind the last
};

#include "chat/jinja/case_table.inc"

constexpr uint32_t kSigma = 0x3a3, kFinalSigma = 0x3c2;
constexpr uint32_t kCapitalDottedI = 0x130;  // the one that becomes two in lower case: i and a dot above

template <size_t N>
uint32_t map_one(const CaseRun (&runs)[N], uint32_t c) {
  const auto* run =
      std::partition_point(std::begin(runs), std::end(runs), [&](const CaseRun& r) { return r.last < c; });
  if (run == std::end(runs) || c < run->first || (c - run->first) % run->stride != 0) return c;
  return c + static_cast<uint32_t>(run->difference);
}

void append_lower(std::string& out, uint32_t c) {
  if (c == kCapitalDottedI) {
    out += "i\xcc\x87";
  } else {
    tokenizer::append_utf8(out, map_one(kLowerRuns, c));
  }
}

/// With `title`, only the first of several is a capital: the German sharp s gives Ss.
void append_upper(std::string& out, uint32_t c, bool title) {
  if (title && c >= 0x1c4 && c <= 0x1cc)
    return tokenizer::append_utf8(out, c <= 0x1c6 ? 0x1c5 : c <= 0x1c9 ? 0x1c8 : 0x1cb);
  if (title && c >= 0x1f1 && c <= 0x1f3) return tokenizer::append_utf8(out, 0x1f2);
  const auto* several = std::partition_point(std::begin(kUpperSeveral), std::end(kUpperSeveral),
                                             [&](const CaseSeveral& s) { return s.code_point < c; });
  if (several == std::end(kUpperSeveral) || several->code_point != c) {
    return tokenizer::append_utf8(out, map_one(kUpperRuns, c));
  }
  for (const uint32_t& upper : several->upper) {
    if (upper == 0) break;
    if (title && &upper != several->upper) {
      append_lower(out, upper);
    } else {
      tokenizer::append_utf8(out, upper);
    }
  }
}

}  // namespace

bool is_cased(uint32_t c) {
  return map_one(kLowerRuns, c) != c || map_one(kUpperRuns, c) != c || c == 0xdf;
}

Text change_case(const Text& text, Case to) {
  const std::string_view s = text.bytes();
  Text out;
  std::string piece;
  bool after_cased = false;
  for (size_t at = 0; at < s.size();) {
    const auto [c, bytes] = tokenizer::decode_utf8(s, at);
    const size_t next = at + bytes;
    const bool is_first = at == 0;
    const bool up = to == Case::Upper || (to == Case::Capitalize && is_first) ||
                    (to == Case::Title && !after_cased) || (to == Case::Swap && map_one(kUpperRuns, c) != c);
    piece.clear();
    if (up) {
      append_upper(piece, c, to == Case::Capitalize || to == Case::Title);
    } else if (c == kSigma && after_cased &&
               (next == s.size() || !is_cased(tokenizer::decode_utf8(s, next).value))) {
      tokenizer::append_utf8(piece, kFinalSigma);
    } else {
      append_lower(piece, c);
    }
    // A byte that is no character stays as it is.
    out.append(c == 0xfffd ? s.substr(at, bytes) : std::string_view(piece), text.touches_content(at, next));
    after_cased = is_cased(c);
    at = next;
  }
  return out;
}

Text title_filter(const Text& text) {
  constexpr std::string_view kBetween = "-({[<";
  const std::string_view s = text.bytes();
  const auto between = [&](size_t at) {
    return kBetween.find(s[at]) != kNotFound || is_space(tokenizer::decode_utf8(s, at).value);
  };
  Text out;
  for (size_t at = 0; at < s.size();) {
    const bool separator = between(at);
    const size_t begin = at;
    while (at < s.size() && between(at) == separator) at += tokenizer::decode_utf8(s, at).bytes;
    const Text word = text.slice(begin, at);
    const size_t first = tokenizer::decode_utf8(s, begin).bytes;
    out.append(change_case(word.slice(0, first), Case::Upper));
    out.append(change_case(word.slice(first, word.size()), Case::Lower));
  }
  return out;
}

}  // namespace redlite::chat::jinja
