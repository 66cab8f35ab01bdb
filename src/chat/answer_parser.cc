#include "chat/answer_parser.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.h"
#include "chat/tool_schemas.h"

namespace redlite::chat {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFunctionBegin = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameterBegin = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";

// Lookahead is bounded, so that every byte is looked at a bounded number of times. What is longer is no
// markup.
constexpr size_t kMaxCallName = 256;
constexpr size_t kMaxBlanks = 1024;
// Deeper values are not worth the stack of the code that prints them.
constexpr size_t kMaxCallDepth = 256;

bool is_blank(char c) {
  return kJsonBlanks.find(c) != std::string_view::npos;
}

/// The text that a JSON string stands for; empty if it is none.
std::string decode_string(std::string_view quoted) {
  const ordered_json value = ordered_json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? value.get<std::string>() : "";
}

/// Where in a JSON value a scan is.
struct JsonScan {
  size_t depth = 0;
  size_t deepest = 0;
  bool in_string = false;
  bool escaped = false;
};

}  // namespace

struct AnswerParser::Impl {
  Impl(ToolFormat format, Reasoning reasoning, const ordered_json& tools)
      : schemas(format == ToolFormat::None ? ordered_json() : tools) {
    if (reasoning == Reasoning::Open) {
      state = State::Reasoning;
      drop_blanks = true;
    } else {
      state = reasoning == Reasoning::Possible ? State::Start : State::Text;
    }
  }

  enum class State : uint8_t {
    Start,        ///< nothing yet but blanks; <think> may come
    Reasoning,    ///< until </think>
    Text,         ///< until a call
    JsonBody,     ///< a call whose first key is not the name: collected from `body` on
    JsonMembers,  ///< between the members of a call's object, behind the name
    JsonValue,    ///< at the first byte of the arguments, or blanks before it
    JsonStream,   ///< in arguments that are passed on
    JsonScalar,   ///< in arguments that are neither object nor array
    JsonSkip,     ///< in another member's value
    XmlBody,      ///< between parameters
    XmlValue,     ///< in a parameter's value
    CallEnd,      ///< behind a call, before </tool_call>
  };

  /// Whether something stands at a place, as far as the text has come.
  enum class Match : uint8_t { No, Wait, Yes };

  ToolSchemas schemas;
  State state;
  std::string buffer;  ///< what is not used up yet: from `at` on
  size_t at = 0;
  size_t scan = 0;     ///< >= at: up to here a state has looked already
  bool final = false;  ///< nothing more will come
  bool cut_off = false;
  bool unfinished = false;
  std::vector<Delta> out;

  bool drop_blanks = false;  ///< blanks that come next belong to nobody
  bool fresh = true;         ///< there was no text yet
  std::string held;          ///< blanks that go if a call or an end of reasoning follows

  size_t body = 0;  ///< of State::JsonBody
  JsonScan json;
  bool has_arguments = false;
  std::string scalar;

  std::string tool;
  std::string parameter;
  std::set<std::string> given;  ///< parameters so far
  uint8_t types = 0;
  bool value_begun = false;
  bool value_passed_on = false;  ///< a part of it

  // ---- looking ahead

  Match match(size_t place, std::string_view tag) const {
    const std::string_view rest = std::string_view(buffer).substr(std::min(place, buffer.size()));
    if (rest.starts_with(tag)) return Match::Yes;
    return !final && tag.starts_with(rest) ? Match::Wait : Match::No;
  }

  Match match_any(size_t place, std::initializer_list<std::string_view> tags) const {
    Match best = Match::No;
    for (const std::string_view tag : tags) best = std::max(best, match(place, tag));
    return best;
  }

  bool ends_at(size_t place) const { return place >= buffer.size(); }

  size_t skip_blanks(size_t place) const {
    const size_t limit = std::min(buffer.size(), place + kMaxBlanks);
    while (place < limit && is_blank(buffer[place])) ++place;
    return place;
  }

  /// A name from `place` to the first '>': `end` is the place of that.
  Match name_until_bracket(size_t place, size_t& end) const {
    end = buffer.find_first_of(">\n<", place);
    if (end == std::string::npos)
      return final || buffer.size() - place > kMaxCallName ? Match::No : Match::Wait;
    return buffer[end] == '>' && end > place && end - place <= kMaxCallName ? Match::Yes : Match::No;
  }

  /// A short JSON string at `place`: `end` lies behind it.
  Match short_string(size_t place, size_t& end) const {
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
  Match key_and_colon(size_t place, std::string& key, size_t& end) const {
    if (const Match m = short_string(place, end); m != Match::Yes) return m;
    key = decode_string(std::string_view(buffer).substr(place, end - place));
    end = skip_blanks(end);
    if (ends_at(end)) return final ? Match::No : Match::Wait;
    return buffer[end++] == ':' ? Match::Yes : Match::No;
  }

  // ---- text and reasoning

  void emit(Delta::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (!out.empty() && out.back().kind == kind && kind != Delta::Kind::Call) {
      out.back().text += text;
    } else {
      out.push_back({kind, std::string(text)});
    }
  }

  void emit_free(std::string_view text) {
    const bool reasoning = state == State::Reasoning;
    if (drop_blanks) {
      text.remove_prefix(std::min(text.find_first_not_of(kJsonBlanks), text.size()));
      if (text.empty()) return;
      drop_blanks = false;
    }
    const Delta::Kind kind = reasoning ? Delta::Kind::Reasoning : Delta::Kind::Text;
    if (!reasoning && schemas.empty()) return emit(kind, text);  // no call can follow
    const size_t last = text.find_last_not_of(kJsonBlanks);
    if (last == std::string_view::npos) {
      held += text;
      return;
    }
    emit(kind, held);
    emit(kind, text.substr(0, last + 1));
    held = text.substr(last + 1);
    if (!reasoning) fresh = false;
  }

  bool at_line_start() const { return drop_blanks || fresh || held.find('\n') != std::string::npos; }

  bool step_start() {
    const size_t place = skip_blanks(at);
    const Match m = ends_at(place) && !final ? Match::Wait : match(place, kThinkBegin);
    if (m == Match::Wait) return false;
    state = State::Text;
    if (m == Match::Yes) {
      state = State::Reasoning;
      drop_blanks = true;
      at = place + kThinkBegin.size();
    }
    return true;
  }

  bool step_free() {
    const size_t place = std::min(buffer.find('<', at), buffer.size());
    emit_free(std::string_view(buffer).substr(at, place - at));
    at = place;
    if (ends_at(place)) return false;
    if (state == State::Reasoning) {
      const Match m = match(place, kThinkEnd);
      if (m == Match::Wait) return false;
      if (m == Match::Yes) {
        at = place + kThinkEnd.size();
        held.clear();
        drop_blanks = true;
        state = State::Text;
        return true;
      }
    }
    if (!schemas.empty()) {
      const Match m = open_call(place);
      if (m == Match::Wait) return false;
      if (m == Match::Yes) return true;
    }
    emit_free("<");
    at = place + 1;
    return true;
  }

  // ---- the beginnings of calls

  Match open_call(size_t place) {
    if (const Match m = match(place, kToolCallBegin); m == Match::Yes) {
      return open_body(place + kToolCallBegin.size());
    } else if (m == Match::Wait) {
      return m;
    }
    if (!at_line_start()) return Match::No;
    if (const Match m = match(place, kFunctionBegin); m != Match::Yes) return m;
    size_t end = 0;
    if (const Match m = name_until_bracket(place + kFunctionBegin.size(), end); m != Match::Yes) return m;
    const std::string name =
        buffer.substr(place + kFunctionBegin.size(), end - place - kFunctionBegin.size());
    const size_t next = skip_blanks(end + 1);
    if (!schemas.has(name)) return Match::No;
    if (const Match m = match_any(next, {kParameterBegin, kFunctionEnd}); m != Match::Yes) return m;
    begin_call(name, end + 1, State::XmlBody);
    return Match::Yes;
  }

  /// What stands in <tool_call>, or where a second call may stand.
  Match open_body(size_t place) {
    place = skip_blanks(place);
    if (ends_at(place)) return final ? Match::No : Match::Wait;
    if (buffer[place] == '{') return open_json(place);
    if (const Match m = match(place, kFunctionBegin); m != Match::Yes) return m;
    const size_t begin = place + kFunctionBegin.size();
    size_t end = 0;
    if (const Match m = name_until_bracket(begin, end); m != Match::Yes) return m;
    return begin_call_if_taken(buffer.substr(begin, end - begin), end + 1, State::XmlBody);
  }

  Match open_json(size_t place) {
    std::string key;
    size_t end = 0;
    if (const Match m = key_and_colon(skip_blanks(place + 1), key, end); m != Match::Yes) return m;
    if (key != "name") {
      if (state == State::Reasoning) return Match::No;
      scan = body = place;
      json = {};
      state = State::JsonBody;
      return Match::Yes;
    }
    const size_t begin = skip_blanks(end);
    if (const Match m = short_string(begin, end); m != Match::Yes) return m;
    return begin_call_if_taken(decode_string(std::string_view(buffer).substr(begin, end - begin)), end,
                               State::JsonMembers);
  }

  /// Reasoning may speak of calls: only one of a tool that exists ends it.
  Match begin_call_if_taken(const std::string& name, size_t next, State next_state) {
    if (name.empty() || (state == State::Reasoning && !schemas.has(name))) return Match::No;
    begin_call(name, next, next_state);
    return Match::Yes;
  }

  void begin_call(const std::string& name, size_t next, State next_state) {
    held.clear();
    drop_blanks = false;
    fresh = false;
    emit(Delta::Kind::Call, name);
    tool = name;
    given.clear();
    has_arguments = false;
    at = scan = next;
    state = next_state;
  }

  void end_call(size_t next) {
    at = scan = next;
    held.clear();
    drop_blanks = true;
    state = State::Text;
  }

  // ---- calls in JSON

  /// Scans a JSON value from `scan` on until its end (Yes: `scan` lies behind it), until a tag that ends the
  /// call (No: `scan` lies at it), or until more is needed. What it passes goes to `sink`, if there is one,
  /// with control characters in strings escaped.
  Match scan_json(std::string* sink) {
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
  Match tag_ends_string() const {
    if (const Match m = match(scan, kToolCallEnd); m != Match::Yes) return m;
    const size_t next = skip_blanks(scan + kToolCallEnd.size());
    if (ends_at(next)) return final ? Match::Yes : Match::Wait;
    return match(next, kToolCallBegin);
  }

  bool step_json_body() {
    const Match m = scan_json(nullptr);
    if (m == Match::Wait && !final) return false;
    if (m != Match::Yes || !call_from(std::string_view(buffer).substr(body, scan - body))) {
      state = State::Text;
      emit_free(std::string_view(buffer).substr(at, scan - at));
      at = scan;
    }
    return true;
  }

  bool call_from(std::string_view text) {
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
  void emit_whole_arguments(const std::string& text) {
    has_arguments = true;
    if (text.starts_with('"')) {
      const std::string inner = decode_string(text);
      if (ordered_json::parse(inner, nullptr, false).is_object()) return emit(Delta::Kind::Arguments, inner);
    }
    emit(Delta::Kind::Arguments, text.empty() || text == "null" ? "{}" : text);
  }

  bool step_json_members() {
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

  bool step_json_value() {
    const size_t place = skip_blanks(at);
    at = scan = place;
    if (ends_at(place)) return false;
    json = {};
    scalar.clear();
    const char c = buffer[place];
    state = c == '{' || c == '[' ? State::JsonStream : State::JsonScalar;
    return true;
  }

  bool step_json_stream() {
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
  Match scan_scalar(std::string* sink) {
    if (json.in_string || (at == scan && !ends_at(scan) && buffer[scan] == '"')) return scan_json(sink);
    const size_t end = std::min(buffer.find_first_of(",}<\n", scan), buffer.size());
    if (sink) *sink += buffer.substr(scan, end - scan);
    scan = end;
    return ends_at(end) ? Match::Wait : Match::Yes;
  }

  bool step_json_scalar() {
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

  bool step_json_skip() {
    if (at == scan) at = scan = skip_blanks(at);
    if (ends_at(scan)) return false;
    const char c = buffer[at];
    const Match m = c == '{' || c == '[' ? scan_json(nullptr) : scan_scalar(nullptr);
    if (m == Match::Wait) return false;
    at = scan;
    state = State::JsonMembers;
    return true;
  }

  bool step_call_end() {
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

  // ---- calls in XML

  void close_arguments() {
    emit(Delta::Kind::Arguments, given.empty() ? "{}" : "}");
    has_arguments = true;
    state = State::CallEnd;
  }

  bool step_xml_body() {
    const size_t place = skip_blanks(at);
    at = scan = place;
    if (ends_at(place)) return false;
    if (buffer[place] == '{' && given.empty()) {
      state = State::JsonValue;
      return true;
    }
    if (const Match m = match(place, kParameterBegin); m == Match::Wait) {
      return false;
    } else if (m == Match::Yes) {
      const size_t begin = place + kParameterBegin.size();
      size_t end = 0;
      const Match named = name_until_bracket(begin, end);
      if (named == Match::Wait) return false;
      if (named == Match::Yes) {
        begin_parameter(buffer.substr(begin, end - begin), end + 1);
        return true;
      }
    }
    const Match m = match_any(place, {kFunctionEnd, kToolCallEnd, kToolCallBegin});
    if (m == Match::Wait) return false;
    if (m == Match::Yes) {
      close_arguments();
    } else {
      at = place + 1;  // belongs to nothing
    }
    return true;
  }

  void begin_parameter(const std::string& name, size_t next) {
    std::string head = given.empty() ? "{\"" : ",\"";
    append_json_escaped(head, name);
    head += "\":";
    parameter = name;
    given.insert(name);
    types = schemas.types(tool, name);
    if (types == kString) head += '"';
    emit(Delta::Kind::Arguments, head);
    at = scan = next;
    value_begun = value_passed_on = false;
    state = State::XmlValue;
  }

  bool step_xml_value() {
    if (!value_begun) {  // the line break behind the tag is no part of the value
      if (const Match m = match_any(at, {"\n", "\r\n"}); m == Match::Wait) {
        return false;
      } else if (m == Match::Yes) {
        at += buffer[at] == '\r' ? 2 : 1;
      }
      scan = at;
      value_begun = true;
    }
    const size_t place = std::min(buffer.find('<', scan), buffer.size());
    scan = place;
    if (!ends_at(place)) {
      size_t next = place;
      const Match m = value_ends(place, next);
      if (m == Match::Yes) {
        end_value(place, next);
        return true;
      }
      if (m == Match::No) {
        scan = place + 1;
        return true;
      }
    }
    if (types == kString) stream_value(final ? place : before_line_break(place));
    return false;
  }

  /// `place`, or before the line break in front of it.
  size_t before_line_break(size_t place) const {
    if (place > at && buffer[place - 1] == '\n') --place;
    if (place > at && buffer[place - 1] == '\r') --place;
    return place;
  }

  void stream_value(size_t end) {
    if (end == at) return;
    value_passed_on = true;
    std::string text;
    append_json_escaped(text, std::string_view(buffer).substr(at, end - at));
    emit(Delta::Kind::Arguments, text);
    at = end;
  }

  void end_value(size_t place, size_t next) {
    const size_t end = place > at && buffer[place - 1] == '\n' ? before_line_break(place) : place;
    if (types == kString) {
      stream_value(end);
      emit(Delta::Kind::Arguments, "\"");
    } else {
      emit(Delta::Kind::Arguments, argument_as_json(std::string_view(buffer).substr(at, end - at), types));
    }
    at = scan = next;
    state = State::XmlBody;
  }

  /// Whether the tag at `place` ends the value: only if what follows fits, since values contain tags, too.
  Match value_ends(size_t place, size_t& next) const {
    if (const Match m = match(place, kParameterEnd); m != Match::No) {
      next = place + kParameterEnd.size();
      return m == Match::Wait
                 ? m
                 : followed_by(next, {kParameterBegin, kFunctionEnd, kToolCallEnd, kToolCallBegin});
    }
    if (const Match m = match(place, kFunctionEnd); m != Match::No) {  // </parameter> was forgotten
      return m == Match::Wait ? m : followed_by(place + kFunctionEnd.size(), {kToolCallEnd, kToolCallBegin});
    }
    if (const Match m = match(place, kToolCallEnd); m != Match::No) {
      return m == Match::Wait ? m : followed_by(place + kToolCallEnd.size(), {kToolCallBegin});
    }
    const bool at_line_start_of_value = place > at ? buffer[place - 1] == '\n' : !value_passed_on;
    if (!at_line_start_of_value) return Match::No;
    if (const Match m = match(place, kParameterBegin); m != Match::Yes) return m;
    size_t end = 0;
    const size_t begin = place + kParameterBegin.size();
    if (const Match m = name_until_bracket(begin, end); m != Match::Yes) return m;
    const std::string name = buffer.substr(begin, end - begin);
    return schemas.has(tool, name) && !given.contains(name) ? Match::Yes : Match::No;
  }

  Match followed_by(size_t place, std::initializer_list<std::string_view> tags) const {
    const size_t next = skip_blanks(place);
    if (ends_at(next)) return final ? Match::Yes : Match::Wait;
    return match_any(next, tags);
  }

  // ---- all together

  bool step() {
    switch (state) {
      case State::Start:
        return step_start();
      case State::Reasoning:
      case State::Text:
        return step_free();
      case State::JsonBody:
        return step_json_body();
      case State::JsonMembers:
        return step_json_members();
      case State::JsonValue:
        return step_json_value();
      case State::JsonStream:
        return step_json_stream();
      case State::JsonScalar:
        return step_json_scalar();
      case State::JsonSkip:
        return step_json_skip();
      case State::XmlBody:
        return step_xml_body();
      case State::XmlValue:
        return step_xml_value();
      case State::CallEnd:
        return step_call_end();
    }
    return false;
  }

  void run() {
    while (step()) {
    }
    const size_t used = std::min(at, buffer.size());
    buffer.erase(0, used);
    at -= used;
    scan -= std::min(scan, used);
    body -= std::min(body, used);
  }

  void end() {
    switch (state) {
      case State::Text:
        emit(Delta::Kind::Text, held);
        break;
      case State::JsonMembers:
        if (!has_arguments && !cut_off) emit_whole_arguments("");
        unfinished = !has_arguments;
        break;
      case State::XmlBody:
        if (!cut_off) close_arguments();
        unfinished = cut_off;
        break;
      case State::JsonValue:
      case State::JsonStream:
      case State::JsonScalar:
      case State::XmlValue:
        unfinished = true;
        break;
      case State::JsonSkip:
        unfinished = !has_arguments;
        break;
      default:
        break;
    }
  }
};

AnswerParser::AnswerParser(ToolFormat format, Reasoning reasoning, const ordered_json& tools)
    : impl_(std::make_unique<Impl>(format, reasoning, tools)) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

std::vector<Delta> AnswerParser::push(std::string_view text) {
  RL_CHECK(!impl_->final, "push after finish");
  impl_->buffer += text;
  impl_->run();
  return std::exchange(impl_->out, {});
}

std::vector<Delta> AnswerParser::finish(bool cut_off) {
  RL_CHECK(!impl_->final, "finish twice");
  impl_->final = true;
  impl_->cut_off = cut_off;
  impl_->run();
  impl_->end();
  return std::exchange(impl_->out, {});
}

bool AnswerParser::unfinished_call() const {
  return impl_->unfinished;
}

void Answer::add(const Delta& delta) {
  switch (delta.kind) {
    case Delta::Kind::Reasoning:
      reasoning += delta.text;
      break;
    case Delta::Kind::Text:
      text += delta.text;
      break;
    case Delta::Kind::Call:
      calls.push_back({delta.text, ""});
      break;
    case Delta::Kind::Arguments:
      calls.back().arguments += delta.text;
      break;
  }
}

std::string answer_piece(const tokenizer::Tokenizer& tokenizer, tokenizer::Token token) {
  std::string piece = tokenizer.piece(token);
  if (!piece.empty()) return piece;
  piece = tokenizer.piece(token, /*special=*/true);
  constexpr std::array kTags = {kThinkBegin, kThinkEnd, kToolCallBegin, kToolCallEnd};
  return std::find(kTags.begin(), kTags.end(), piece) != kTags.end() ? piece : "";
}

AnswerDecoder::AnswerDecoder(const tokenizer::Tokenizer& tokenizer)
    : tokenizer_(tokenizer), decoder_(tokenizer) {}

std::string AnswerDecoder::push(tokenizer::Token token) {
  return decoder_.push_bytes(answer_piece(tokenizer_, token));
}

std::string AnswerDecoder::finish() {
  return decoder_.finish();
}

}  // namespace redlite::chat
