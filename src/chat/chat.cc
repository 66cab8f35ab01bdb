#include "chat/chat.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/quote.h"

namespace redlite::chat {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};

void require_chatml(const gguf::File& file) {
  constexpr const char* kKey = "tokenizer.chat_template";
  const std::optional<std::string> source = file.get_string(kKey);
  if (!source) {
    fail("{}: {} is missing: this model was not made for chat; give it a plain prompt", file.path(), kKey);
  }
  if (source->find(kStart) == std::string::npos || source->find(kEnd) == std::string::npos) {
    fail("{}: {} is not ChatML (<|im_start|> ... <|im_end|>), the only kind supported; give a plain prompt",
         file.path(), kKey);
  }
}

}  // namespace

std::string render(const gguf::File& file, const std::vector<Message>& messages) {
  require_chatml(file);
  if (messages.empty()) fail("a conversation needs at least one message");
  std::string out;
  for (const Message& message : messages) {
    if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end()) {
      fail("the role of a message is {}; known: system, user, assistant", quote(message.role));
    }
    out.append(kStart).append(message.role).append("\n").append(message.content).append(kEnd).append("\n");
  }
  return out.append(kStart).append("assistant\n");
}

}  // namespace redlite::chat
