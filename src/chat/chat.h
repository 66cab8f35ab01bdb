#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace redlite::chat {

struct Message {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// Renders a conversation as the model's prompt, ending where the assistant's answer begins. Knows ChatML
/// (<|im_start|>role ... <|im_end|>); a model whose tokenizer.chat_template is of another kind, or has none,
/// throws Error, as does a conversation without messages or with an unknown role. No message is invented (the
/// templates of some models add a default system message). The text is meant for Tokenizer::encode(text,
/// parse_special = true).
std::string render(const gguf::File& file, const std::vector<Message>& messages);

}  // namespace redlite::chat
