#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_buffer.h"
#include "chat/answer_parser.h"
#include "chat/tool_schemas.h"

namespace redlite::chat {

/// Where in a JSON value a scan is.
struct JsonScan {
  size_t depth = 0;
  size_t deepest = 0;
  bool in_string = false;
  bool escaped = false;
};

struct AnswerParser::Impl : AnswerBuffer {
  Impl(ToolFormat format, Reasoning reasoning, const nlohmann::ordered_json& tools, bool text_or_calls)
      : schemas(format == ToolFormat::None ? nlohmann::ordered_json() : tools),
        calls_follow_text(!text_or_calls) {
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

  ToolSchemas schemas;
  bool calls_follow_text;  ///< calls are looked for behind text, too
  State state;
  bool cut_off = false;
  bool unfinished = false;
  std::vector<Delta> out;

  bool drop_blanks = false;  ///< blanks that come next belong to nobody
  bool fresh = true;         ///< there was neither text nor a call yet
  bool has_text = false;
  std::string held;  ///< blanks that go if a call or an end of reasoning follows

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

  // answer_parser.cc: text, reasoning, and where calls begin
  void emit(Delta::Kind kind, std::string_view text);
  void emit_free(std::string_view text);
  bool at_line_start() const { return drop_blanks || fresh || held.find('\n') != std::string::npos; }
  /// What looks like a call is one.
  bool calls_possible() const { return !schemas.empty() && (calls_follow_text || !has_text); }
  bool step_start();
  bool step_free();
  Match open_call(size_t place);
  /// What stands in <tool_call>, or where a second call may stand.
  Match open_body(size_t place);
  Match open_json(size_t place);
  /// Reasoning may speak of calls: only one of a tool that exists ends it.
  Match begin_call_if_taken(const std::string& name, size_t next, State next_state);
  void begin_call(const std::string& name, size_t next, State next_state);
  void end_call(size_t next);
  bool step();
  void run();
  void end();

  // answer_json_calls.cc
  /// Scans a JSON value from `scan` on until its end (Yes: `scan` lies behind it), until a tag that ends the
  /// call (No: `scan` lies at it), or until more is needed. What it passes goes to `sink`, if there is one,
  /// with control characters in strings escaped.
  Match scan_json(std::string* sink);
  /// An end tag inside a string is a part of it, unless nothing but another call follows: then the string was
  /// never closed.
  Match tag_ends_string() const;
  bool step_json_body();
  bool call_from(std::string_view text);
  /// Arguments in one piece, which need not be an object.
  void emit_whole_arguments(const std::string& text);
  bool step_json_members();
  bool step_json_value();
  bool step_json_stream();
  /// A string, or anything else up to what cannot belong to a number or a word.
  Match scan_scalar(std::string* sink);
  bool step_json_scalar();
  bool step_json_skip();
  bool step_call_end();

  // answer_xml_calls.cc
  void close_arguments();
  bool step_xml_body();
  void begin_parameter(const std::string& name, size_t next);
  bool step_xml_value();
  /// `place`, or before the line break in front of it.
  size_t before_line_break(size_t place) const;
  void stream_value(size_t end);
  void end_value(size_t place, size_t next);
  /// Whether the tag at `place` ends the value: only if what follows fits, since values contain tags, too.
  Match value_ends(size_t place, size_t& next) const;
  Match followed_by(size_t place, std::initializer_list<std::string_view> tags) const;
};

}  // namespace redlite::chat
