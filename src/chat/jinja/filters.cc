#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/quote.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/sequence_filters.h"
#include "chat/jinja/strings.h"

namespace redlite::chat::jinja {
namespace {

// --- of texts; whatever the value is, its str() is meant

template <Case to>
Value change(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("the filter", std::move(arguments), {});
  return in.text(change_case(in.str(value), to));
}

Value title(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("title", std::move(arguments), {});
  return in.text(title_filter(in.str(value)));
}

Value trim(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("trim", std::move(arguments), {"chars"});
  const Text* characters = p.text(0);
  return in.text(strip(in.str(value), {},
                       characters ? std::optional<std::string_view>(characters->bytes()) : std::nullopt));
}

Value replace_filter(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("replace", std::move(arguments), {"old", "new", "count"}, 2);
  const bool all = !p.get(2) || p.value(2).is_none();
  return in.text(
      replace(in.str(value), in.str(p.value(0)).bytes(), in.str(p.value(1)), all ? -1 : p.integer(2, -1)));
}

Value indent(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("indent", std::move(arguments), {"width", "first", "blank"});
  Text width;
  if (p.get(0) && p.value(0).text()) {
    width = *p.value(0).text();
  } else {
    width = repeat(Text(" "), p.integer(0, 4), in.budget());
  }
  Text text = in.str(value);
  text.append("\n");
  const std::vector<Text> lines = split_lines(text, false);
  Text out;
  if (p.flag(1, false)) out.append(width);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n");
    if (i > 0 && (p.flag(2, false) || !lines[i].empty())) out.append(width);
    out.append(lines[i]);
  }
  return in.text(std::move(out));
}

Value format_filter(Interpreter& in, const Value& value, Arguments arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    raise("format takes values with names or without, not both");
  }
  if (arguments.named.empty()) {
    return percent_format(in.str(value), make_list(std::move(arguments.positional), List::Kind::Tuple),
                          in.budget());
  }
  Dict dict;
  for (auto& [name, named] : arguments.named) dict.set(Text(name), std::move(named));
  return percent_format(in.str(value), make_dict(std::move(dict)), in.budget());
}

Value string(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("string", std::move(arguments), {});
  return value.text() ? value : in.text(in.str(value));
}

Value escape(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("escape", std::move(arguments), {});
  return in.text(escape_html(in.str(value)));
}

Value safe(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("safe", std::move(arguments), {});
  Text text = in.str(value);
  text.set_markup(true);
  return in.text(std::move(text));
}

Value word_count(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("wordcount", std::move(arguments), {});
  const Text text = in.str(value);
  int64_t words = 0;
  bool inside = false;
  for (const char c : text.bytes()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_word = std::isalnum(byte) || c == '_' || byte >= 0x80;
    words += is_word && !inside ? 1 : 0;
    inside = is_word;
  }
  return words;
}

Value tojson(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("tojson", std::move(arguments), {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = p.flag(0, false);
  style.sorted = p.flag(3, false);
  // They lose the marks of what came from outside.
  const auto from_template = [](const Text& text) -> const std::string& {
    if (!text.content().empty()) raise("tojson: the layout comes from the conversation");
    return text.bytes();
  };
  if (p.get(1) && !p.value(1).is_none()) {
    style.indented = true;
    style.between_items = ",";
    if (const Text* text = p.value(1).text()) {
      style.indent = from_template(*text);
    } else {
      style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(p.integer(1, 0), 0, 1000)), ' ');
    }
  }
  if (p.get(2) && !p.value(2).is_none()) {
    const std::vector<Value> separators = in.items(p.value(2));
    if (separators.size() != 2 || !separators[0].text() || !separators[1].text()) {
      raise("tojson: separators are two strings");
    }
    style.between_items = from_template(*separators[0].text());
    style.behind_key = from_template(*separators[1].text());
  }
  return in.text(to_json(value, style, in.budget()));
}

// --- of numbers

/// Of a text without white space around it and with single underscores between digits; false if it is none.
template <typename T, typename... Base>
bool parse_number(const Text& text, T& out, Base... base) {
  const Text stripped = strip(text, {});
  std::string digits;
  for (const char c : stripped.bytes()) {
    if (c == '_' && (digits.empty() || digits.back() == '_')) return false;
    digits += c;
  }
  if (digits.ends_with('_')) return false;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const char* begin =
      digits.data() + (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-' ? 1 : 0);
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(begin, end, out, base...);
  return begin != end && result.ptr == end &&
                 (result.ec == std::errc() || result.ec == std::errc::result_out_of_range)
             ? (result.ec == std::errc() || (raise("the number {} is too large", quote(digits)), false))
             : false;
}

bool fits_integer(double value) {
  return std::fabs(value) < 9.2e18;
}

Value to_integer(Interpreter&, const Value& value, Arguments arguments) {
  const Parameters p("int", std::move(arguments), {"default", "base"});
  if (value.is_undefined()) raise("{}", value.undefined_reason());
  if (value.is_integer()) return value.integer();
  if (value.is_float() && std::isfinite(value.number())) {
    if (!fits_integer(value.number())) raise("the number is too large for an integer");
    return static_cast<int64_t>(value.number());
  }
  Value otherwise = p.get(0) ? p.value(0) : Value(int64_t{0});
  if (!value.text()) return otherwise;
  const int64_t base = p.integer(1, 10);
  if (base < 2 || base > 36) raise("int: the base {} is not supported", base);
  int64_t integer = 0;
  if (parse_number(*value.text(), integer, static_cast<int>(base))) return integer;
  double number = 0;
  if (parse_number(*value.text(), number) && std::isfinite(number) && fits_integer(number)) {
    return static_cast<int64_t>(number);
  }
  return otherwise;
}

Value to_float(Interpreter&, const Value& value, Arguments arguments) {
  const Parameters p("float", std::move(arguments), {"default"});
  if (value.is_undefined()) raise("{}", value.undefined_reason());
  if (value.is_number()) return value.number();
  double number = 0;
  if (value.text() && parse_number(*value.text(), number)) return number;
  return p.get(0) ? p.value(0) : Value(0.0);
}

Value absolute(Interpreter& in, const Value& value, Arguments arguments) {
  const Parameters p("abs", std::move(arguments), {});
  if (!value.is_number()) raise("abs of {}", value.kind());
  if (value.is_float()) return std::fabs(value.number());
  return value.integer() < 0 ? arithmetic(Operator::Subtract, int64_t{0}, value, in.budget())
                             : value.integer();
}

Value round_filter(Interpreter&, const Value& value, Arguments arguments) {
  const Parameters p("round", std::move(arguments), {"precision", "method"});
  if (!value.is_number()) raise("round of {}", value.kind());
  const int64_t precision = p.integer(0, 0);
  const std::string method = p.text(1) ? p.text(1)->bytes() : "common";
  if (precision < 0 || precision > 300) raise("round: the precision {} is not supported", precision);
  if (!std::isfinite(value.number())) raise("round of a number that is not finite");
  if (method == "common") {
    // Decimal digits of the exact value, ties to even, as Python rounds.
    const std::string digits = fmt::format("{:.{}f}", value.number(), precision);
    double rounded = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
    return value.is_integer() ? Value(value.integer()) : Value(rounded);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(value.number() * scale) / scale;
  if (method == "floor") return std::floor(value.number() * scale) / scale;
  raise("round: the method {} is not known", quote(method));
}

// --- of any value

Value default_filter(Interpreter&, const Value& value, Arguments arguments) {
  const Parameters p("default", std::move(arguments), {"default_value", "boolean"});
  if (!value.is_undefined() && (!p.flag(1, false) || value.truth())) return value;
  return p.get(0) ? p.value(0) : Value(Text());
}

using Filters = std::map<std::string_view, FilterFunction>;

Filters all_filters() {
  Filters filters = {
      {"lower", change<Case::Lower>},
      {"upper", change<Case::Upper>},
      {"capitalize", change<Case::Capitalize>},
      {"title", title},
      {"trim", trim},
      {"replace", replace_filter},
      {"indent", indent},
      {"format", format_filter},
      {"string", string},
      {"safe", safe},
      {"escape", escape},
      {"e", escape},
      {"wordcount", word_count},
      {"tojson", tojson},
      {"int", to_integer},
      {"float", to_float},
      {"abs", absolute},
      {"round", round_filter},
      {"default", default_filter},
      {"d", default_filter},
  };
  for (const auto& [name, function] : sequence_filters()) filters.emplace(name, function);
  return filters;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  static const Filters kFilters = all_filters();
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace redlite::chat::jinja
