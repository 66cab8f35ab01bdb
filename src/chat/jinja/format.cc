// Python's two ways to format: "%s" % x and "{}".format(x).

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/quote.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"

namespace redlite::chat::jinja {
namespace {

constexpr int kMaxWidth = 1000;

/// A field's layout, of either way.
struct Spec {
  std::string fill = " ";
  char align = 0;  ///< '<', '>', '^', '=', or 0: what the type of the value wants
  char sign = '-';
  bool alternate = false;
  bool commas = false;
  int width = 0;
  int precision = -1;
  char type = 0;
};

int read_number(std::string_view s, size_t& at) {
  int value = 0;
  for (; at < s.size() && s[at] >= '0' && s[at] <= '9'; ++at) {
    value = value * 10 + (s[at] - '0');
    if (value > kMaxWidth) raise("a format wants more than {} characters", kMaxWidth);
  }
  return value;
}

Text pad(Text text, const Spec& spec, char natural, size_t sign_length) {
  const size_t length = count_characters(text.bytes());
  if (length >= static_cast<size_t>(spec.width)) return text;
  const size_t missing = static_cast<size_t>(spec.width) - length;
  const char align = spec.align ? spec.align : natural;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const size_t at = align == '=' ? sign_length : 0;
  Text out = text.slice(0, at);
  for (size_t i = 0; i < left; ++i) out.append(spec.fill);
  out.append(text, at, text.size());
  for (size_t i = left; i < missing; ++i) out.append(spec.fill);
  return out;
}

void insert_commas(std::string& digits) {
  size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  while (end > 3) digits.insert(end -= 3, ",");
}

/// Digits of |value|, without a sign.
std::string float_digits(double value, char type, int precision, bool alternate) {
  const double magnitude = std::fabs(value);
  if (!std::isfinite(magnitude)) return std::isnan(magnitude) ? "nan" : "inf";
  const int digits = precision < 0 ? 6 : precision;
  switch (type) {
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", magnitude, digits);
    case 'e':
      return fmt::format("{:.{}e}", magnitude, digits);
    case 'g':
      return alternate ? fmt::format("{:#.{}g}", magnitude, digits)
                       : fmt::format("{:.{}g}", magnitude, digits);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, digits);
    default:
      raise("the format type '{}' is not supported", type);
  }
}

Text format_number(const Value& value, const Spec& spec) {
  std::string digits;
  bool negative = false;
  std::string_view prefix;
  const bool as_integer =
      value.is_integer() && std::string_view("feg%F").find(spec.type ? spec.type : 'd') == kNotFound;
  if (as_integer) {
    const int64_t integer = value.integer();
    negative = integer < 0;
    const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
    switch (spec.type) {
      case 0:
      case 'd':
        digits = std::to_string(magnitude);
        break;
      case 'x':
        digits = fmt::format("{:x}", magnitude);
        prefix = "0x";
        break;
      case 'X':
        digits = fmt::format("{:X}", magnitude);
        prefix = "0X";
        break;
      case 'o':
        digits = fmt::format("{:o}", magnitude);
        prefix = "0o";
        break;
      case 'b':
        digits = fmt::format("{:b}", magnitude);
        prefix = "0b";
        break;
      default:
        raise("the format type '{}' is not for integers", spec.type);
    }
    if (!spec.alternate) prefix = "";
  } else {
    if (!value.is_number()) raise("the format type '{}' is not for {}", spec.type, value.kind());
    negative = std::signbit(value.number());
    if (spec.type == 0 && spec.precision < 0) {
      digits = float_repr(std::fabs(value.number()));
    } else {
      digits = float_digits(value.number(), spec.type ? spec.type : 'g', spec.precision, spec.alternate);
    }
  }
  if (spec.commas) insert_commas(digits);
  std::string sign;
  if (negative || spec.sign != '-') sign += negative ? '-' : spec.sign;
  sign += prefix;
  return pad(Text(sign + digits), spec, '>', sign.size());
}

Text cut(const Text& text, int characters) {
  if (characters < 0) return text;
  const std::vector<size_t> at = character_positions(text.bytes());
  return text.slice(0, at[std::min(static_cast<size_t>(characters), at.size() - 1)]);
}

}  // namespace

Text percent_format(const Text& format, const Value& values, Budget& budget) {
  const List* several = values.list() && values.list()->kind == List::Kind::Tuple ? values.list() : nullptr;
  size_t used = 0;
  bool by_name = false;
  const auto next = [&]() -> const Value& {
    if (several ? used >= several->items.size() : used > 0)
      raise("there are fewer values than the format has fields");
    return several ? several->items[used++] : (++used, values);
  };
  const std::string_view s = format.bytes();
  Text out;
  for (size_t at = 0; at < s.size();) {
    const size_t field = std::min(s.find('%', at), s.size());
    out.append(format, at, field);
    if (field == s.size()) break;
    at = field + 1;
    Spec spec;
    const Value* named = nullptr;
    if (at < s.size() && s[at] == '(') {
      const size_t end = s.find(')', at);
      if (end == kNotFound || !values.dict()) raise("the format names a value, a dict of values is wanted");
      named = values.dict()->find(s.substr(at + 1, end - at - 1));
      if (!named) raise("there is no value {} for the format", quote(s.substr(at + 1, end - at - 1)));
      at = end + 1;
      by_name = true;
    }
    for (; at < s.size() && std::string_view("-+ 0#").find(s[at]) != kNotFound; ++at) {
      if (s[at] == '-') spec.align = '<';
      if (s[at] == '+' || (s[at] == ' ' && spec.sign != '+')) spec.sign = s[at];
      if (s[at] == '#') spec.alternate = true;
      if (s[at] == '0' && spec.align != '<') {
        spec.fill.assign(1, '0');
        spec.align = '=';
      }
    }
    if (spec.align == '<') spec.fill.assign(1, ' ');
    spec.width = read_number(s, at);
    if (at < s.size() && s[at] == '.') spec.precision = read_number(s, ++at);
    if (at >= s.size()) raise("the format ends within a field");
    const char type = s[at++];
    if (type == '%') {
      out.append("%");
      continue;
    }
    const Value& value = named ? *named : next();
    if (type == 's' || type == 'r') {
      if (spec.fill[0] == '0') spec = Spec{.width = spec.width, .precision = spec.precision};
      const Text text = type == 's' ? to_text(value, budget) : to_repr(value, budget);
      out.append(pad(cut(text, spec.precision), spec, '>', 0));
    } else if (type == 'd' || type == 'i' || type == 'u') {
      if (!value.is_number()) raise("the format wants a number, not {}", value.kind());
      if (value.is_float() && !(std::fabs(value.number()) < 9e18))
        raise("the number is too large for the format");
      spec.type = 'd';
      out.append(format_number(value.is_float() ? Value(static_cast<int64_t>(value.number())) : value, spec));
    } else if (std::string_view("xXofFeg").find(type) != kNotFound) {
      spec.type = type;
      out.append(format_number(value, spec));
    } else {
      raise("the format {} is not supported", quote(s.substr(field, at - field)));
    }
  }
  if (!by_name && !values.dict() && (several ? used < several->items.size() : used == 0)) {
    raise("there are more values than the format has fields");
  }
  budget.spend_bytes(out.size());
  return out;
}

namespace {

Spec read_spec(std::string_view s) {
  Spec spec;
  const std::vector<size_t> at_character = character_positions(s);
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t at = 0;
  if (at_character.size() > 2 && is_align(s[at_character[1]])) {
    spec.fill = s.substr(0, at_character[1]);
    spec.align = s[at_character[1]];
    at = at_character[1] + 1;
  } else if (!s.empty() && is_align(s[0])) {
    spec.align = s[0];
    at = 1;
  }
  const auto take = [&](char c) {
    if (at >= s.size() || s[at] != c) return false;
    ++at;
    return true;
  };
  if (at < s.size() && (s[at] == '+' || s[at] == '-' || s[at] == ' ')) spec.sign = s[at++];
  spec.alternate = take('#');
  if (take('0') && !spec.align) {
    spec.fill.assign(1, '0');
    spec.align = '=';
  }
  spec.width = read_number(s, at);
  spec.commas = take(',');
  if (take('.')) spec.precision = read_number(s, at);
  if (at < s.size()) spec.type = s[at++];
  if (at != s.size()) raise("the format {} is not supported", quote(s));
  return spec;
}

Text format_value(Interpreter& in, const Value& value, std::string_view text_spec) {
  const Spec spec = read_spec(text_spec);
  if (value.is_number() && !(value.is_bool() && text_spec.empty())) return format_number(value, spec);
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' ||
      (!text_spec.empty() && !value.text() && !value.is_bool())) {
    raise("the format {} is not for {}", quote(text_spec), value.kind());
  }
  return pad(cut(in.str(value), spec.precision), spec, '<', 0);
}

/// "name", "0", "" and what follows with . and [].
Value field_value(Interpreter& in, std::string_view field, const Arguments& arguments, size_t& automatic) {
  size_t at = std::min(field.find_first_of(".["), field.size());
  const std::string_view first = field.substr(0, at);
  Value value;
  const bool is_number = !first.empty() && first.find_first_not_of("0123456789") == kNotFound;
  if (first.empty() || is_number) {
    size_t digits = 0;
    const size_t index = first.empty() ? automatic++ : static_cast<size_t>(read_number(first, digits));
    if (index >= arguments.positional.size()) raise("format() has no value number {}", index);
    value = arguments.positional[index];
  } else {
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& a) { return a.first == first; });
    if (named == arguments.named.end()) raise("format() has no value {}", quote(first));
    value = named->second;
  }
  while (at < field.size()) {
    const bool bracket = field[at] == '[';
    const size_t end =
        std::min(bracket ? field.find(']', at) : field.find_first_of(".[", at + 1), field.size());
    const std::string_view name = field.substr(at + 1, end - at - 1);
    size_t digits = 0;
    if (!name.empty() && name.find_first_not_of("0123456789") == kNotFound) {
      value = in.item(value, Value(int64_t{read_number(name, digits)}));
    } else {
      value = bracket ? in.item(value, Text(std::string(name))) : in.attribute(value, name);
    }
    if (value.is_undefined()) raise("{}", value.undefined_reason());
    at = end + (bracket ? 1 : 0);
  }
  return value;
}

}  // namespace

Text brace_format(Interpreter& in, const Text& format, const Arguments& arguments) {
  const std::string_view s = format.bytes();
  Text out;
  size_t automatic = 0;
  for (size_t at = 0; at < s.size();) {
    const size_t brace = std::min(s.find_first_of("{}", at), s.size());
    out.append(format, at, brace);
    if (brace == s.size()) break;
    if (brace + 1 < s.size() && s[brace + 1] == s[brace]) {
      out.append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t end = s.find('}', brace);
    if (s[brace] == '}' || end == kNotFound) raise("format(): a brace without its pair");
    std::string_view field = s.substr(brace + 1, end - brace - 1);
    if (field.find('{') != kNotFound) raise("format(): fields within fields are not supported");
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : "";
    field = field.substr(0, colon);
    // A character to fill up with would lose its mark.
    if (!spec.empty() && format.touches_content(end - spec.size(), end)) {
      raise("format(): the layout comes from the conversation");
    }
    const size_t conversion = field.find('!');
    Value value = field_value(in, field.substr(0, conversion), arguments, automatic);
    if (conversion != kNotFound) {
      const std::string_view kind = field.substr(conversion + 1);
      if (kind != "s" && kind != "r") raise("format(): the conversion {} is not supported", quote(kind));
      value = kind == "s" ? in.str(value) : to_repr(value, in.budget());
    }
    out.append(format_value(in, value, spec));
    at = end + 1;
  }
  return out;
}

}  // namespace redlite::chat::jinja
