#include "constrain/regex_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "constrain/grammar.h"
#include "tokenizer/unicode.h"

namespace redlite::constrain {
namespace {

constexpr size_t kMaxPattern = 4096;
constexpr int kMaxNesting = 64;

CodePoints one(uint32_t low, uint32_t high) {
  CodePoints out;
  out.add(low, high);
  return out;
}

CodePoints digits() {
  return one('0', '9');
}

CodePoints word_characters() {
  CodePoints out = digits();
  out.add('A', 'Z');
  out.add('_', '_');
  out.add('a', 'z');
  return out;
}

CodePoints line_ends() {
  CodePoints out = one('\n', '\n');
  out.add('\r', '\r');
  out.add(0x2028, 0x2029);
  return out;
}

CodePoints white_space() {
  CodePoints out = one('\t', '\r');
  for (const uint32_t c : {0x20u, 0xa0u, 0x1680u, 0x202fu, 0x205fu, 0x3000u, 0xfeffu}) out.add(c, c);
  out.add(0x2000, 0x200a);
  out.add(0x2028, 0x2029);
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {
    if (pattern.size() > kMaxPattern) fail("a pattern of more than {} bytes", kMaxPattern);
  }

  RegexTree parse() {
    RegexTree out = choice();
    if (at_ < text_.size()) wrong("an unmatched )");
    return out;
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    fail("{} at byte {} of {}", what, at_, quote(text_));
  }

  bool more() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  uint32_t take_code_point() {
    const tokenizer::CodePoint c = tokenizer::decode_utf8(text_, at_);
    at_ += c.bytes;
    return c.value;
  }

  RegexTree choice() {
    if (++depth_ > kMaxNesting) wrong("groups nested too deeply");
    std::vector<RegexTree> branches;
    do {
      branches.push_back(sequence());
    } while (take("|"));
    --depth_;
    if (branches.size() == 1) return std::move(branches[0]);
    return {RegexTree::Kind::Choice, {}, std::move(branches)};
  }

  RegexTree sequence() {
    RegexTree out{RegexTree::Kind::Sequence, {}, {}};
    while (more() && peek() != '|' && peek() != ')') out.parts.push_back(repeated());
    return out;
  }

  RegexTree repeated() {
    RegexTree what = atom();
    const bool anchor = what.kind == RegexTree::Kind::Begin || what.kind == RegexTree::Kind::End;
    uint32_t min = 0, max = kNoLimit;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!bounds(min, max)) {
      return what;
    }
    if (anchor) wrong("nothing to repeat");
    take("?");  // which match is found first does not matter
    if (more() && (peek() == '*' || peek() == '+' || peek() == '?')) wrong("nothing to repeat");
    RegexTree out{RegexTree::Kind::Repeat, {}, {}, min, max};
    out.parts.push_back(std::move(what));
    return out;
  }

  /// {n}, {n,} or {n,m}; anything else in braces is text.
  bool bounds(uint32_t& min, uint32_t& max) {
    const size_t start = at_;
    if (!take("{")) return false;
    const std::optional<uint32_t> low = number();
    if (low) {
      min = max = *low;
      if (take(",")) max = number().value_or(kNoLimit);
      if (take("}")) {
        if (max < min) wrong("a repeat of more than its most");
        return true;
      }
    }
    at_ = start;
    return false;
  }

  std::optional<uint32_t> number() {
    const size_t start = at_;
    uint32_t out = 0;
    while (more() && peek() >= '0' && peek() <= '9') {
      out = out * 10 + static_cast<uint32_t>(text_[at_++] - '0');
      if (out > 100'000) wrong("a repeat that is too large");
    }
    return at_ == start ? std::nullopt : std::optional(out);
  }

  RegexTree atom() {
    if (take("^")) return {RegexTree::Kind::Begin, {}, {}};
    if (take("$")) return {RegexTree::Kind::End, {}, {}};
    if (take(".")) return characters(line_ends().complement());
    if (take("[")) return characters(bracket());
    if (take("(")) {
      if (take("?")) {
        const bool named = !take(":");
        if (named && (!take("<") || (more() && (peek() == '=' || peek() == '!'))))
          wrong("look-around is not supported");
        if (named) {
          const size_t end = text_.find('>', at_);
          if (end == std::string_view::npos) wrong("a group's name that does not end");
          at_ = end + 1;
        }
      }
      RegexTree inner = choice();
      if (!take(")")) wrong("a group that does not end");
      return inner;
    }
    if (peek() == '*' || peek() == '+' || peek() == '?') wrong("nothing to repeat");
    if (take("\\")) return characters(escape(/*in_bracket=*/false));
    const uint32_t c = take_code_point();
    return characters(one(c, c));
  }

  static RegexTree characters(CodePoints set) { return {RegexTree::Kind::Class, std::move(set), {}}; }

  CodePoints bracket() {
    const bool negated = take("^");
    CodePoints out;
    while (!take("]")) {
      if (!more()) wrong("a [ that does not end");
      const CodePoints low = class_atom();
      if (text_.substr(at_).starts_with("-") && !text_.substr(at_).starts_with("-]") && is_single(low)) {
        const size_t dash = at_++;
        if (!more()) wrong("a [ that does not end");
        const CodePoints high = class_atom();
        if (is_single(high)) {
          if (first(high) < first(low)) wrong("a range that ends before it begins");
          out.add(first(low), first(high));
          continue;
        }
        at_ = dash;  // a class of characters bounds nothing: the dash is one
      }
      out.add(low);
    }
    return negated ? out.complement() : out.intersect(CodePoints::all());
  }

  static bool is_single(const CodePoints& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
  }
  static uint32_t first(const CodePoints& set) { return set.ranges()[0].first; }

  CodePoints class_atom() {
    if (take("\\")) return escape(/*in_bracket=*/true);
    const uint32_t c = take_code_point();
    return one(c, c);
  }

  uint32_t hex(size_t n_digits) {
    uint32_t out = 0;
    for (size_t i = 0; i < n_digits; ++i) {
      const char c = more() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) wrong("a hexadecimal digit is missing");
      out = out * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return out;
  }

  uint32_t unicode_escape() {
    if (take("{")) {
      uint32_t out = 0;
      while (!take("}")) {
        out = out * 16 + hex(1);
        if (out > kLastCodePoint) wrong("no such character");
      }
      return out;
    }
    const uint32_t high = hex(4);
    if (high >= kFirstSurrogate && high <= 0xdbff && take("\\u")) {
      const uint32_t low = hex(4);
      if (low < 0xdc00 || low > kLastSurrogate) wrong("half of a surrogate pair");
      return 0x10000 + ((high - kFirstSurrogate) << 10) + (low - 0xdc00);
    }
    return high;
  }

  CodePoints escape(bool in_bracket) {
    if (!more()) wrong("a \\ at the end");
    const char c = text_[at_++];
    uint32_t single = 0;
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return white_space();
      case 'S':
        return white_space().complement();
      case 't':
        single = '\t';
        break;
      case 'n':
        single = '\n';
        break;
      case 'r':
        single = '\r';
        break;
      case 'v':
        single = '\v';
        break;
      case 'f':
        single = '\f';
        break;
      case 'x':
        single = hex(2);
        break;
      case 'u':
        single = unicode_escape();
        break;
      case '0':
        if (more() && peek() >= '0' && peek() <= '9') wrong("an octal escape is not supported");
        break;
      case 'b':
        if (!in_bracket) wrong("a word boundary is not supported");
        single = '\b';
        break;
      default:
        if (c >= '1' && c <= '9') wrong("a back reference is not supported");
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) wrong("an escape that is not supported");
        --at_;
        single = take_code_point();
    }
    return one(single, single);
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

RegexTree parse_regex(std::string_view pattern) {
  return Parser(pattern).parse();
}

}  // namespace redlite::constrain
