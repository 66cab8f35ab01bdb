#include "chat/answer_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "chat/answer_parser_impl.h"

namespace redlite::chat {

using nlohmann::ordered_json;

void AnswerParser::Impl::emit(Delta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!out.empty() && out.back().kind == kind && kind != Delta::Kind::Call) {
    out.back().text += text;
  } else {
    out.push_back({kind, std::string(text)});
  }
}

void AnswerParser::Impl::emit_free(std::string_view text) {
  const bool reasoning = state == State::Reasoning;
  if (drop_blanks) {
    text.remove_prefix(std::min(text.find_first_not_of(kJsonBlanks), text.size()));
    if (text.empty()) return;
    drop_blanks = false;
  }
  const Delta::Kind kind = reasoning ? Delta::Kind::Reasoning : Delta::Kind::Text;
  if (!reasoning && !calls_possible()) return emit(kind, text);
  const size_t last = text.find_last_not_of(kJsonBlanks);
  if (last == std::string_view::npos) {
    held += text;
    return;
  }
  emit(kind, held);
  emit(kind, text.substr(0, last + 1));
  held = text.substr(last + 1);
  if (!reasoning) {
    fresh = false;
    has_text = true;
  }
}

bool AnswerParser::Impl::step_start() {
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

bool AnswerParser::Impl::step_free() {
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
  if (state == State::Reasoning ? !schemas.empty() : calls_possible()) {
    const Match m = open_call(place);
    if (m == Match::Wait) return false;
    if (m == Match::Yes) return true;
  }
  emit_free("<");
  at = place + 1;
  return true;
}

Match AnswerParser::Impl::open_call(size_t place) {
  if (const Match m = match(place, kToolCallBegin); m == Match::Yes) {
    return open_body(place + kToolCallBegin.size());
  } else if (m == Match::Wait) {
    return m;
  }
  if (!at_line_start()) return Match::No;
  if (const Match m = match(place, kFunctionBegin); m != Match::Yes) return m;
  size_t end = 0;
  if (const Match m = name_until_bracket(place + kFunctionBegin.size(), end); m != Match::Yes) return m;
  const std::string name = buffer.substr(place + kFunctionBegin.size(), end - place - kFunctionBegin.size());
  const size_t next = skip_blanks(end + 1);
  if (!schemas.has(name)) return Match::No;
  if (const Match m = match_any(next, {kParameterBegin, kFunctionEnd}); m != Match::Yes) return m;
  begin_call(name, end + 1, State::XmlBody);
  return Match::Yes;
}

/// What stands in <tool_call>, or where a second call may stand.
Match AnswerParser::Impl::open_body(size_t place) {
  place = skip_blanks(place);
  if (ends_at(place)) return final ? Match::No : Match::Wait;
  if (buffer[place] == '{') return open_json(place);
  if (const Match m = match(place, kFunctionBegin); m != Match::Yes) return m;
  const size_t begin = place + kFunctionBegin.size();
  size_t end = 0;
  if (const Match m = name_until_bracket(begin, end); m != Match::Yes) return m;
  return begin_call_if_taken(buffer.substr(begin, end - begin), end + 1, State::XmlBody);
}

Match AnswerParser::Impl::open_json(size_t place) {
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
Match AnswerParser::Impl::begin_call_if_taken(const std::string& name, size_t next, State next_state) {
  if (name.empty() || (state == State::Reasoning && !schemas.has(name))) return Match::No;
  begin_call(name, next, next_state);
  return Match::Yes;
}

void AnswerParser::Impl::begin_call(const std::string& name, size_t next, State next_state) {
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

void AnswerParser::Impl::end_call(size_t next) {
  at = scan = next;
  held.clear();
  drop_blanks = true;
  state = State::Text;
}

bool AnswerParser::Impl::step() {
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

void AnswerParser::Impl::run() {
  while (step()) {
  }
  const size_t used = std::min(at, buffer.size());
  buffer.erase(0, used);
  at -= used;
  scan -= std::min(scan, used);
  body -= std::min(body, used);
}

void AnswerParser::Impl::end() {
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

AnswerParser::AnswerParser(ToolFormat format, Reasoning reasoning, const ordered_json& tools,
                           bool text_or_calls)
    : impl_(std::make_unique<Impl>(format, reasoning, tools, text_or_calls)) {}
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
