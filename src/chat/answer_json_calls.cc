// Calls as JSON, and what ends a call.
#include <algorithm>

#include "chat/answer_parser_impl.h"

namespace redlite::chat {

using nlohmann::ordered_json;

namespace {

// Deeper values are not worth the stack of the code that prints them.
constexpr size_t kMaxCallDepth = 256;

}  // namespace

/// Scans a JSON value from `scan` on until its end (Yes: `scan` lies behind it), until a tag that ends the
/// call (No: `scan` lies at it), or until more is needed. What it passes goes to `sink`, if there is one,
/// with control characters in strings escaped.
Match AnswerParser::Impl::scan_json(std::string* sink) {
  while (!ends_at(scan)) {
    const char c = buffer[scan];
    if (c == '<') {
      const Match m = json.in_string ? tag_ends_string() : match_any(scan, {kToolCallEnd, kToolCallBegin});
      if (m == Match::Wait) return m;
      if (m == Match::Yes) return Match::No;
    }
    ++scan;
    if (sink) {
      if (json.in_string && static_cast<unsigned char>(c) < 0x20) {
        append_json_escaped(*sink, std::string_view(&c, 1));
      } else {
        *sink += c;
      }
    }
    if (json.in_string) {
      if (json.escaped) {
        json.escaped = false;
      } else if (c == '\\') {
        json.escaped = true;
      } else if (c == '"') {
        json.in_string = false;
        if (json.depth == 0) return Match::Yes;
      }
    } else if (c == '"') {
      json.in_string = true;
    } else if (c == '{' || c == '[') {
      json.deepest = std::max(json.deepest, ++json.depth);
    } else if ((c == '}' || c == ']') && --json.depth == 0) {
      return Match::Yes;
    }
  }
  return Match::Wait;
}

/// An end tag inside a string is a part of it, unless nothing but another call follows: then the string was
/// never closed.
Match AnswerParser::Impl::tag_ends_string() const {
  if (const Match m = match(scan, kToolCallEnd); m != Match::Yes) return m;
  const size_t next = skip_blanks(scan + kToolCallEnd.size());
  if (ends_at(next)) return final ? Match::Yes : Match::Wait;
  return match(next, kToolCallBegin);
}

bool AnswerParser::Impl::step_json_body() {
  const Match m = scan_json(nullptr);
  if (m == Match::Wait && !final) return false;
  if (m != Match::Yes || !call_from(std::string_view(buffer).substr(body, scan - body))) {
    state = State::Text;
    emit_free(std::string_view(buffer).substr(at, scan - at));
    at = scan;
  }
  return true;
}

bool AnswerParser::Impl::call_from(std::string_view text) {
  if (json.deepest > kMaxCallDepth) return false;
  ordered_json call = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (call.is_object() && call.contains("function") && call["function"].is_object()) {
    call = ordered_json(call["function"]);
  }
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
  const std::string name = call["name"].get<std::string>();
  if (name.empty()) return false;
  begin_call(name, scan, State::CallEnd);
  const char* key = call.contains("arguments") ? "arguments" : "parameters";
  const ordered_json arguments = call.contains(key) ? call[key] : ordered_json();
  emit_whole_arguments(arguments.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  return true;
}

/// Arguments in one piece, which need not be an object.
void AnswerParser::Impl::emit_whole_arguments(const std::string& text) {
  has_arguments = true;
  if (text.starts_with('"')) {
    const std::string inner = decode_string(text);
    if (ordered_json::parse(inner, nullptr, false).is_object()) return emit(Delta::Kind::Arguments, inner);
  }
  emit(Delta::Kind::Arguments, text.empty() || text == "null" ? "{}" : text);
}

bool AnswerParser::Impl::step_json_members() {
  const size_t place = skip_blanks(at);
  at = scan = place;
  if (ends_at(place)) return false;
  const char c = buffer[place];
  if (c == '"') {
    std::string key;
    size_t end = 0;
    const Match m = key_and_colon(place, key, end);
    if (m == Match::Wait) return false;
    if (m == Match::Yes) {
      at = scan = end;
      const bool arguments = !has_arguments && (key == "arguments" || key == "parameters");
      state = arguments ? State::JsonValue : State::JsonSkip;
      json = {};
      return true;
    }
  } else if (c == '}') {
    if (!has_arguments) emit_whole_arguments("");
    at = place + 1;
    state = State::CallEnd;
    return true;
  } else if (c == '<') {
    const Match m = match_any(place, {kToolCallEnd, kToolCallBegin, kFunctionEnd});
    if (m == Match::Wait) return false;
    if (m == Match::Yes) {
      if (!has_arguments) emit_whole_arguments("");
      state = State::CallEnd;
      return true;
    }
  }
  at = place + 1;  // a comma, or what belongs to nothing
  return true;
}

bool AnswerParser::Impl::step_json_value() {
  const size_t place = skip_blanks(at);
  at = scan = place;
  if (ends_at(place)) return false;
  json = {};
  scalar.clear();
  const char c = buffer[place];
  state = c == '{' || c == '[' ? State::JsonStream : State::JsonScalar;
  return true;
}

bool AnswerParser::Impl::step_json_stream() {
  std::string passed;
  const Match m = scan_json(&passed);
  emit(Delta::Kind::Arguments, passed);
  at = scan;
  if (m == Match::Wait) return false;
  has_arguments = true;
  state = m == Match::Yes ? State::JsonMembers : State::CallEnd;
  return true;
}

/// A string, or anything else up to what cannot belong to a number or a word.
Match AnswerParser::Impl::scan_scalar(std::string* sink) {
  if (json.in_string || (at == scan && !ends_at(scan) && buffer[scan] == '"')) return scan_json(sink);
  const size_t end = std::min(buffer.find_first_of(",}<\n", scan), buffer.size());
  if (sink) *sink += buffer.substr(scan, end - scan);
  scan = end;
  return ends_at(end) ? Match::Wait : Match::Yes;
}

bool AnswerParser::Impl::step_json_scalar() {
  const Match m = scan_scalar(&scalar);
  if (m == Match::Wait) {
    if (final) emit(Delta::Kind::Arguments, scalar);
    return false;
  }
  while (!scalar.empty() && is_blank(scalar.back())) scalar.pop_back();
  emit_whole_arguments(scalar);
  at = scan;
  state = State::JsonMembers;
  return true;
}

bool AnswerParser::Impl::step_json_skip() {
  if (at == scan) at = scan = skip_blanks(at);
  if (ends_at(scan)) return false;
  const char c = buffer[at];
  const Match m = c == '{' || c == '[' ? scan_json(nullptr) : scan_scalar(nullptr);
  if (m == Match::Wait) return false;
  at = scan;
  state = State::JsonMembers;
  return true;
}

bool AnswerParser::Impl::step_call_end() {
  const size_t place = skip_blanks(at);
  at = place;
  if (ends_at(place)) return false;
  if (buffer[place] == '}') {
    at = place + 1;
    return true;
  }
  if (const Match m = match(place, kFunctionEnd); m == Match::Wait) {
    return false;
  } else if (m == Match::Yes) {
    at = place + kFunctionEnd.size();
    return true;
  }
  if (const Match m = match(place, kToolCallEnd); m == Match::Wait) {
    return false;
  } else if (m == Match::Yes) {
    end_call(place + kToolCallEnd.size());
    return true;
  }
  if (buffer[place] == '{' || match(place, kFunctionBegin) != Match::No) {
    const Match m = open_body(place);
    if (m != Match::No) return m == Match::Yes;
  }
  end_call(place);
  return true;
}

}  // namespace redlite::chat
