#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_format.h"
#include "tokenizer/tokenizer.h"

namespace redlite::chat {

/// A piece of an answer, in the order in which an API streams them.
struct Delta {
  enum class Kind : uint8_t {
    Reasoning,
    Text,
    Call,       ///< a call begins; `text` is the tool's name, complete
    Arguments,  ///< more of the arguments of the call that began last
  };
  Kind kind;
  std::string text;  ///< never empty

  bool operator==(const Delta&) const = default;
};

/// Takes the markup out of an answer while it is written: reasoning, text and calls of tools.
///
/// - Reasoning is what stands in <think>...</think> at the answer's beginning. Blanks around it go.
/// - Calls are looked for only if the request had tools; otherwise the tags are text. Both formats are
///   understood, whichever the model's is; also arguments before the name, <function=...> without
///   <tool_call>, missing end tags, and a call inside reasoning that was never closed. What only looks like a
///   call (no name follows) is text. Blanks between text and call, and between calls, go.
/// - Arguments are the text of a JSON object, streamed as they come. In the JSON format they are passed on as
///   the model wrote them, valid or not, as OpenAI's API does; but control characters inside strings, which
///   models write often and JSON forbids, are escaped; null or nothing is {}; and an object that was written
///   as a string becomes an object. In the XML format each value becomes what the tool's schema asks for: a
///   string stays one; for other types what is JSON is taken as such (also True, False and None), and what is
///   not becomes a string.
/// - An end tag inside an argument belongs to it unless what follows shows that the argument ended.
/// - An answer that ends within a call leaves its arguments as far as they came: see unfinished_call().
///
/// The same text gives the same deltas, however it is cut into pieces, up to where deltas of one kind are
/// cut. Time is linear in the answer's length; what is held back is a tag, a value that is not a string, or
/// the blanks at the end.
class AnswerParser {
 public:
  /// `tools` as in Conversation: an array or null. Only names and parameters' schemas are used; odd ones are
  /// taken for unknown. `text_or_calls`: an answer with text has no calls, whatever stands in the text.
  AnswerParser(ToolFormat format, Reasoning reasoning, const nlohmann::ordered_json& tools,
               bool text_or_calls = false);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  /// The deltas that this text completes, maybe none.
  std::vector<Delta> push(std::string_view text);
  /// The end. `cut_off`: by a limit, not by the model. Nothing may be pushed afterwards.
  std::vector<Delta> finish(bool cut_off = false);

  /// After finish(): the last call's arguments are not complete.
  bool unfinished_call() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A whole answer.
struct Answer {
  struct Call {
    std::string name;
    std::string arguments;
    bool operator==(const Call&) const = default;
  };
  std::string reasoning;
  std::string text;
  std::vector<Call> calls;

  void add(const Delta& delta);
  bool operator==(const Answer&) const = default;
};

/// Tokens to the text that AnswerParser wants: as StreamDecoder, but with the texts of the tags
/// (<think>, <tool_call> and their ends) also where a vocabulary has them as control tokens. Other control
/// tokens are left out.
class AnswerDecoder {
 public:
  explicit AnswerDecoder(const tokenizer::Tokenizer& tokenizer);
  std::string push(tokenizer::Token token);
  std::string finish();

 private:
  const tokenizer::Tokenizer& tokenizer_;
  tokenizer::StreamDecoder decoder_;
};

/// The bytes that a token adds to an answer, as AnswerDecoder sees it.
std::string answer_piece(const tokenizer::Tokenizer& tokenizer, tokenizer::Token token);

}  // namespace redlite::chat
