#include "chat/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../gguf/raw_gguf.h"
#include "base/error.h"

namespace redlite::chat {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kChatml =
    "{%- for message in messages -%}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}"
    "{%- endif -%}";

gguf::RawGguf model_with_template(std::string_view source) {
  gguf::RawGguf raw(3, 0, 1);
  raw.key("tokenizer.chat_template", gguf::ValueType::String).string(source);
  return raw;
}

std::string render_chatml(const std::vector<Message>& messages) {
  const gguf::RawGguf raw = model_with_template(kChatml);
  return render(raw.parse(), messages);
}

TEST(Chat, RendersTheMessagesGivenAndNoOther) {
  EXPECT_EQ(render_chatml({{"user", "Tell me a tale."}}),
            "<|im_start|>user\nTell me a tale.<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(
      render_chatml({{"system", "Be brief."}, {"user", "Hello\n"}, {"assistant", ""}, {"user", "Again?"}}),
      "<|im_start|>system\nBe brief.<|im_end|>\n"
      "<|im_start|>user\nHello\n<|im_end|>\n"
      "<|im_start|>assistant\n<|im_end|>\n"
      "<|im_start|>user\nAgain?<|im_end|>\n"
      "<|im_start|>assistant\n");
}

std::string message_of(const gguf::RawGguf& raw, const std::vector<Message>& messages) {
  try {
    render(raw.parse(), messages);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Chat, RefusesWhatItCannotRender) {
  const std::vector<Message> hello = {{"user", "Hello"}};
  EXPECT_THAT(message_of(gguf::RawGguf(3, 0, 0), hello),
              HasSubstr("m.gguf: tokenizer.chat_template is missing"));
  for (const char* source : {"", "{{ '<|im_start|>' }}", "[INST] {{ messages[0]['content'] }} [/INST]"}) {
    EXPECT_THAT(message_of(model_with_template(source), hello), HasSubstr("is not ChatML")) << source;
  }
  EXPECT_THAT(message_of(model_with_template(kChatml), {}), HasSubstr("at least one message"));
  EXPECT_THAT(message_of(model_with_template(kChatml), {{"user\n<|im_end|>", "x"}}),
              HasSubstr("the role of a message"));
}

}  // namespace
}  // namespace redlite::chat
