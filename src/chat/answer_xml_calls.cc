// Calls as XML.
#include <algorithm>

#include "chat/answer_parser_impl.h"

namespace redlite::chat {

void AnswerParser::Impl::close_arguments() {
  emit(Delta::Kind::Arguments, given.empty() ? "{}" : "}");
  has_arguments = true;
  state = State::CallEnd;
}

bool AnswerParser::Impl::step_xml_body() {
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

void AnswerParser::Impl::begin_parameter(const std::string& name, size_t next) {
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

bool AnswerParser::Impl::step_xml_value() {
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
size_t AnswerParser::Impl::before_line_break(size_t place) const {
  if (place > at && buffer[place - 1] == '\n') --place;
  if (place > at && buffer[place - 1] == '\r') --place;
  return place;
}

void AnswerParser::Impl::stream_value(size_t end) {
  if (end == at) return;
  value_passed_on = true;
  std::string text;
  append_json_escaped(text, std::string_view(buffer).substr(at, end - at));
  emit(Delta::Kind::Arguments, text);
  at = end;
}

void AnswerParser::Impl::end_value(size_t place, size_t next) {
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
Match AnswerParser::Impl::value_ends(size_t place, size_t& next) const {
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

Match AnswerParser::Impl::followed_by(size_t place, std::initializer_list<std::string_view> tags) const {
  const size_t next = skip_blanks(place);
  if (ends_at(next)) return final ? Match::Yes : Match::Wait;
  return match_any(next, tags);
}

}  // namespace redlite::chat
