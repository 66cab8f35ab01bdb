#include "chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "chat/jinja/strings.h"
#include "tokenizer/unicode.h"

namespace redlite::chat::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool is_name(char c) {
  return is_name_start(c) || is_digit(c);
}

// Longer ones first.
constexpr std::array<std::string_view, 27> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "!"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data_and_tag();
    add(Kind::End, at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] static void fail_at(size_t at, const std::string& reason) {
    throw SyntaxFailure(static_cast<uint32_t>(at), reason);
  }

  Token& add(Kind kind, size_t at, std::string text = {}) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.offset = static_cast<uint32_t>(at);
    token.text = std::move(text);
    return token;
  }

  bool starts_with(std::string_view prefix, size_t at) const {
    return source_.substr(at).starts_with(prefix);
  }

  /// The first {{, {% or {# from `from`.
  size_t find_tag(size_t from) const {
    for (size_t at = source_.find('{', from); at != kNotFound; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != kNotFound) return at;
    }
    return source_.size();
  }

  /// '-', '+' or 0 at `at`.
  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void read_data_and_tag() {
    const size_t begin = at_;
    const size_t tag = find_tag(begin);
    if (tag == source_.size()) {
      add_data(begin, tag);
      at_ = tag;
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(begin, end_of_data(begin, tag, sign, /*is_block=*/kind != '{'));
    at_ = tag + 2 + (sign ? 1 : 0);
    if (kind == '#') {
      read_comment(tag);
    } else if (kind == '{') {
      add(Kind::VariableBegin, tag);
      read_expression(tag, "}}");
    } else if (!read_raw(tag)) {
      add(Kind::BlockBegin, tag);
      read_expression(tag, "%}");
    }
  }

  void add_data(size_t begin, size_t end) {
    if (begin < end) add(Kind::Data, begin, std::string(source_.substr(begin, end - begin)));
  }

  /// Where the data that begins at `begin` ends, before a tag at `tag`.
  size_t end_of_data(size_t begin, size_t tag, char sign, bool is_block) const {
    if (sign == '-') {
      const Text data(std::string(source_.substr(begin, tag - begin)));
      return begin + strip(data, {.left = false}).size();
    }
    if (sign == '+' || !is_block) return tag;
    size_t line = tag;
    while (line > begin && source_[line - 1] != '\n' && is_blank(source_[line - 1])) --line;
    const bool whole_line = line > begin ? source_[line - 1] == '\n' : line_starting_;
    return whole_line ? line : tag;
  }

  /// Moves behind a tag's end at `end` (of its sign, if there is one) and what it takes along.
  void close_tag(size_t end, char sign, bool is_block) {
    at_ = end + (sign ? 3 : 2);
    if (sign == '-') {
      while (at_ < source_.size() && is_blank(source_[at_])) ++at_;
    } else if (sign == 0 && is_block && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void read_comment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == kNotFound) fail_at(tag, "the comment has no end (#})");
    const char sign = end > at_ ? sign_at(end - 1) : '\0';
    close_tag(sign ? end - 1 : end, sign, true);
  }

  size_t skip_blanks(size_t at) const {
    while (at < source_.size() && is_blank(source_[at])) ++at;
    return at;
  }

  /// {% raw %} ... {% endraw %}; false if the tag at `tag` is another one.
  bool read_raw(size_t tag) {
    size_t at = skip_blanks(at_);
    if (!starts_with("raw", at)) return false;
    at = skip_blanks(at + 3);
    const bool strip_behind = starts_with("-%}", at);
    if (!strip_behind && !starts_with("%}", at)) return false;
    at = strip_behind ? skip_blanks(at + 3) : at + 2;
    line_starting_ = source_[at - 1] == '\n';
    for (size_t end = source_.find("{%", at); end != kNotFound; end = source_.find("{%", end + 1)) {
      const char sign = sign_at(end + 2);
      size_t close = skip_blanks(end + 2 + (sign ? 1 : 0));
      if (!starts_with("endraw", close)) continue;
      close = skip_blanks(close + 6);
      const char close_sign = sign_at(close);
      if (!starts_with("%}", close + (close_sign ? 1 : 0))) continue;
      add_data(at, end_of_data(at, end, sign, true));
      close_tag(close, close_sign, true);
      return true;
    }
    fail_at(tag, "the raw block has no end");
  }

  /// The tokens of a tag up to `end`, which does not count inside brackets.
  void read_expression(size_t tag, std::string_view end) {
    std::vector<char> open;
    for (;;) {
      at_ = skip_blanks(at_);
      if (at_ >= source_.size()) fail_at(tag, "the tag has no end (" + std::string(end) + ")");
      if (open.empty() && close_expression(end)) return;
      const char c = source_[at_];
      if (is_name_start(c)) {
        const size_t begin = at_;
        while (at_ < source_.size() && is_name(source_[at_])) ++at_;
        add(Kind::Name, begin, std::string(source_.substr(begin, at_ - begin)));
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '"' || c == '\'') {
        read_string(c);
      } else {
        read_operator(open);
      }
    }
  }

  bool close_expression(std::string_view end) {
    const bool is_block = end == "%}";
    const char sign = sign_at(at_);
    if (sign == '+' && !is_block) return false;
    if (!starts_with(end, at_ + (sign ? 1 : 0))) return false;
    add(is_block ? Kind::BlockEnd : Kind::VariableEnd, at_);
    close_tag(at_, sign, is_block);
    return true;
  }

  void read_operator(std::vector<char>& open) {
    for (const std::string_view op : kOperators) {
      if (op == "!" || !starts_with(op, at_)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) fail_at(at_, fmt::format("'{}' closes nothing", c));
        open.pop_back();
      }
      add(Kind::Operator, at_, std::string(op));
      at_ += op.size();
      return;
    }
    fail_at(at_, "a character that belongs to no expression");
  }

  void read_number() {
    const size_t begin = at_;
    std::string digits;
    int base = 10;
    const auto take = [&](auto&& wanted) {
      while (at_ < source_.size()) {
        const bool underscore = source_[at_] == '_' && at_ + 1 < source_.size() && wanted(source_[at_ + 1]);
        if (!underscore && !wanted(source_[at_])) break;
        if (!underscore) digits += source_[at_];
        ++at_;
      }
    };
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char prefix = static_cast<char>(source_[at_ + 1] | 0x20);
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    }
    if (base != 10) {
      at_ += 2;
      take([&](char c) {
        return base == 16 ? std::isxdigit(static_cast<uint8_t>(c)) != 0 : c >= '0' && c < '0' + base;
      });
    } else {
      take(is_digit);
    }
    bool is_float = false;
    const auto digit_at = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
    // 0.5 is a number, but in x.0.5 the zero is an attribute.
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    if (base == 10 && !after_dot) {
      if (at_ < source_.size() && source_[at_] == '.' && digit_at(at_ + 1)) {
        is_float = true;
        digits += '.';
        ++at_;
        take(is_digit);
      }
      if (at_ < source_.size() && (source_[at_] | 0x20) == 'e') {
        const bool sign = sign_at(at_ + 1) != 0;
        if (digit_at(at_ + 1 + (sign ? 1 : 0))) {
          is_float = true;
          digits += 'e';
          if (sign && source_[at_ + 1] == '-') digits += '-';
          at_ += sign ? 2 : 1;
          take(is_digit);
        }
      }
    }
    Token& token = add(is_float ? Kind::Float : Kind::Integer, begin);
    const char* end = digits.data() + digits.size();
    const auto result = is_float ? std::from_chars(digits.data(), end, token.number)
                                 : std::from_chars(digits.data(), end, token.integer, base);
    if (result.ec != std::errc() || result.ptr != end) fail_at(begin, "the number is too large or malformed");
  }

  void read_string(char quote) {
    const size_t begin = at_++;
    std::string text;
    for (;; ++at_) {
      if (at_ >= source_.size()) fail_at(begin, "the string has no end");
      if (source_[at_] == quote) break;
      if (source_[at_] == '\\') {
        read_escape(text);
      } else {
        text += source_[at_];
      }
    }
    ++at_;
    add(Kind::String, begin, std::move(text));
  }

  /// At a backslash; ends on the last character of the escape.
  void read_escape(std::string& text) {
    const size_t begin = at_++;
    if (at_ >= source_.size()) fail_at(begin, "the string has no end");
    constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[at_];
    if (c == '\n') return;  // joins lines
    if (const size_t simple = kFrom.find(c); simple != kNotFound) {
      text += kTo[simple];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code_point(text, begin, at_ + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
      at_ += c == 'x' ? 2 : c == 'u' ? 4 : 8;
    } else if (c >= '0' && c <= '7') {
      size_t length = 1;
      while (length < 3 && at_ + length < source_.size() && source_[at_ + length] >= '0' &&
             source_[at_ + length] <= '7')
        ++length;
      append_code_point(text, begin, at_, length, 8);
      at_ += length - 1;
    } else if (c == 'N') {
      fail_at(begin, "characters by name (\\N) are not supported");
    } else {
      text += '\\';
      text += c;
    }
  }

  void append_code_point(std::string& text, size_t escape, size_t at, size_t length, int base) {
    uint32_t code = 0;
    const std::string_view digits = source_.substr(std::min(at, source_.size()), length);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (digits.size() != length || result.ec != std::errc() || result.ptr != digits.data() + length ||
        code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      fail_at(escape, "the escape gives no character");
    }
    tokenizer::append_utf8(text, code);
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;  ///< the last tag took a line end along, or there was none yet
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalise_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') continue;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace redlite::chat::jinja
