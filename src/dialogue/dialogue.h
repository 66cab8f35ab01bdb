#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/chat.h"
#include "dialogue/reading.h"
#include "engine/generate.h"
#include "model/model.h"
#include "model/runner.h"
#include "tokenizer/tokenizer.h"

namespace redlite::dialogue {

/// What an answer's text is.
enum class Part : bool { Reasoning, Answer };

/// The conversation and the beginning of an answer are more than the context holds.
class ContextFull : public Error {
 public:
  using Error::Error;
};

struct AnswerOptions {
  int max_tokens = 1 << 24;  ///< the context's end ends an answer, too
  engine::SamplerOptions sampler;
  /// More variables for the template, such as {"enable_thinking": false}.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  /// Looked at between tokens and, while the prompt is read, between layers.
  const std::atomic<bool>* cancel = nullptr;
};

/// What one who waits for an answer is told.
struct AnswerHooks {
  std::function<void(size_t tokens)> reading;  ///< so many tokens will be read now
  std::function<void(double tokens)> read;     ///< so many of them are
  std::function<void(Part part, std::string_view text)> text;
};

struct Answer {
  engine::GenerateResult result;  ///< tokens read anew count as prompt_tokens
  int kept_tokens = 0;            ///< of the conversation, that had not to be read again
  bool context_full = false;      ///< the answer ended where the context does
};

/// A conversation and the state of the runner that has read it. A turn reads what is new and nothing else:
/// the runner goes on from where it stands if the conversation, rendered anew, begins with all it has read
/// (which it compares as text, see Reading); else (a template leaves out the last answer's reasoning, a turn
/// was undone) from the furthest of its marks that does. Marks lie at the end of each turn and of each
/// message that was answered.
class Dialogue {
 public:
  /// The runner is the dialogue's alone, and at its beginning. At most `max_marks` (2 or more) are kept.
  Dialogue(const model::Model& model, const tokenizer::Tokenizer& tokenizer, model::Runner& runner,
           size_t max_marks);

  /// {"role", "content"[, "reasoning_content"]}, a system message only in front.
  const nlohmann::ordered_json& messages() const { return messages_; }
  /// Messages as load_messages() returns them.
  void set_messages(nlohmann::ordered_json messages) { messages_ = std::move(messages); }
  /// The system message; empty: none.
  void set_system(const std::string& text);
  /// Forgets everything but the system message.
  void clear();
  /// Takes back the last message of the user and what followed; false if there is none.
  bool undo();

  /// Has the user's message answered; both are then part of the conversation. An answer that was cancelled
  /// stays as far as it came; if it was cancelled before it began, or on Error (the conversation is longer
  /// than the context, the template refuses it), the conversation is as it was before.
  Answer say(const std::string& text, const AnswerOptions& options, const AnswerHooks& hooks);
  /// Answers the last message of the user anew. Throws Error if there is none.
  Answer answer_again(const AnswerOptions& options, const AnswerHooks& hooks);

  int position() const { return runner_.position(); }
  int capacity() const { return runner_.capacity(); }

 private:
  struct Place {
    size_t tokens;
    std::unique_ptr<model::Mark> mark;
  };

  Answer answer(const AnswerOptions& options, const AnswerHooks& hooks);
  chat::Prompt render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& extra,
                      bool add_generation_prompt) const;
  Reading encode(const chat::Prompt& prompt) const;
  /// Goes back to the furthest place that `prompt` goes on from, of which it returns the number of tokens in
  /// `prompt`.
  size_t rewind_for(const Reading& prompt);
  void rewind_to_place(size_t n_places);
  void add_place();
  /// Where the next turn may have to come back to, in tokens of the prompt: behind the turns before, if the
  /// template renders them as they stand there, and behind the message, where the answer begins.
  std::vector<size_t> stops(const Reading& prompt, const nlohmann::ordered_json& extra) const;
  /// Reads tokens [first, last) of the prompt.
  void read(const Reading& prompt, size_t first, size_t last);

  const model::Model& model_;
  const tokenizer::Tokenizer& tokenizer_;
  const chat::Renderer renderer_;
  model::Runner& runner_;
  size_t max_marks_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  Reading read_;               ///< what the runner has read and written
  std::vector<Place> places_;  ///< by position
};

}  // namespace redlite::dialogue
