// Values as text: str(), repr() and JSON, as Python writes them.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/jinja/value.h"
#include "tokenizer/unicode.h"

namespace redlite::chat::jinja {

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[64];
  const auto scientific = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  const std::string_view text(digits, static_cast<size_t>(scientific.ptr - digits));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_begin = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
  std::string out(digits, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

namespace {

std::string number_repr(const Value& value) {
  if (value.is_bool()) return value.integer() ? "True" : "False";
  return value.is_integer() ? std::to_string(value.integer()) : float_repr(value.number());
}

/// Python escapes what it finds not printable. Unassigned code points, which it escapes too, are not known
/// here.
bool is_printable(uint32_t c) {
  return !(c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || c == 0x1680 || c == 0x180e ||
           (c >= 0x2000 && c <= 0x200f) || (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f) ||
           c == 0x3000 || (c >= 0xd800 && c <= 0xf8ff) || c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb) ||
           (c & 0xfffe) == 0xfffe || c >= 0xe0000);
}

std::string escape_code_point(uint32_t c) {
  if (c < 0x100) return fmt::format("\\x{:02x}", c);
  return c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
}

/// Writes a text between quotes; `escape` gives what stands for a character, "" for itself.
template <typename Escape>
void append_escaped(Text& out, const Text& text, std::string_view quotes, const Escape& escape) {
  const std::string_view s = text.bytes();
  out.append(quotes);
  size_t plain = 0;
  for (size_t at = 0; at < s.size();) {
    const auto [c, bytes] = tokenizer::decode_utf8(s, at);
    const std::string escaped = escape(c);
    if (!escaped.empty()) {
      out.append(text, plain, at);
      out.append(escaped, text.touches_content(at, at + bytes));
      plain = at + bytes;
    }
    at += bytes;
  }
  out.append(text, plain, s.size());
  out.append(quotes);
}

void append_text_repr(Text& out, const Text& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  append_escaped(out, text, std::string_view(&quote, 1), [&](uint32_t c) -> std::string {
    if (c == static_cast<uint32_t>(quote) || c == '\\') return {'\\', static_cast<char>(c)};
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    return is_printable(c) ? "" : escape_code_point(c);
  });
}

void append_repr(Text& out, const Value& value, Budget& budget) {
  budget.spend();
  if (value.is_undefined()) {
    out.append("Undefined");
  } else if (value.is_none()) {
    out.append("None");
  } else if (value.is_number()) {
    out.append(number_repr(value));
  } else if (const Text* text = value.text()) {
    budget.spend_bytes(text->size());
    append_text_repr(out, *text);
  } else if (const Dict* dict = value.dict()) {
    out.append("{");
    for (const auto& entry : dict->entries()) {
      if (&entry != dict->entries().data()) out.append(", ");
      append_repr(out, entry.key, budget);
      out.append(": ");
      append_repr(out, entry.value, budget);
    }
    out.append("}");
  } else if (const List* list = value.list();
             list && (list->kind == List::Kind::List || list->kind == List::Kind::Tuple)) {
    const bool tuple = list->kind == List::Kind::Tuple;
    out.append(tuple ? "(" : "[");
    for (const Value& item : list->items) {
      if (&item != list->items.data()) out.append(", ");
      append_repr(out, item, budget);
    }
    out.append(tuple ? (list->items.size() == 1 ? ",)" : ")") : "]");
  } else {
    raise("{} cannot be written as text", value.kind());
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value, int depth) {
    budget_.spend();
    if (value.is_none()) {
      out.append("null");
    } else if (value.is_number()) {
      out.append(number(value));
    } else if (const Text* text = value.text()) {
      write_text(*text);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, depth);
    } else if (const List* list = value.list();
               list && (list->kind == List::Kind::List || list->kind == List::Kind::Tuple)) {
      if (list->items.empty()) return out.append("[]");
      out.append("[");
      for (const Value& item : list->items) {
        separate(&item == list->items.data(), depth + 1);
        write(item, depth + 1);
      }
      end(depth, "]");
    } else if (value.is_undefined()) {
      raise("tojson: {}", value.undefined_reason());
    } else {
      raise("tojson: {} cannot be written as JSON", value.kind());
    }
  }

  Text out;

 private:
  static std::string number(const Value& value) {
    if (value.is_bool()) return value.integer() ? "true" : "false";
    if (value.is_integer()) return std::to_string(value.integer());
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() < 0 ? "-Infinity" : "Infinity";
    return float_repr(value.number());
  }

  void write_text(const Text& text) {
    budget_.spend_bytes(text.size());
    append_escaped(out, text, "\"", [&](uint32_t c) -> std::string {
      switch (c) {
        case '"':
          return "\\\"";
        case '\\':
          return "\\\\";
        case '\n':
          return "\\n";
        case '\r':
          return "\\r";
        case '\t':
          return "\\t";
        case '\b':
          return "\\b";
        case '\f':
          return "\\f";
        default:
          break;
      }
      if (c >= 0x20 && (c < 0x7f || !style_.ascii)) return "";
      if (c < 0x10000) return fmt::format("\\u{:04x}", c);
      return fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    });
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.entries().empty()) return out.append("{}");
    std::vector<const Dict::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sorted) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(a->key, b->key, budget_); });
    }
    out.append("{");
    for (const auto* entry : entries) {
      separate(entry == entries.front(), depth + 1);
      if (const Text* key = entry->key.text()) {
        write_text(*key);
      } else {
        out.append("\"");
        out.append(entry->key.is_none() ? "null" : number(entry->key));
        out.append("\"");
      }
      out.append(style_.behind_key);
      write(entry->value, depth + 1);
    }
    end(depth, "}");
  }

  void separate(bool first, int depth) {
    if (!first) out.append(style_.between_items);
    new_line(depth);
  }

  void new_line(int depth) {
    if (!style_.indented) return;
    out.append("\n");
    for (int i = 0; i < depth; ++i) out.append(style_.indent);
  }

  void end(int depth, std::string_view bracket) {
    new_line(depth);
    out.append(bracket);
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

Text to_text(const Value& value, Budget& budget) {
  if (value.is_undefined()) return Text();
  if (const Text* text = value.text()) {
    budget.spend_bytes(text->size());
    return *text;
  }
  return to_repr(value, budget);
}

Text to_repr(const Value& value, Budget& budget) {
  Text out;
  append_repr(out, value, budget);
  return out;
}

Text to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace redlite::chat::jinja
