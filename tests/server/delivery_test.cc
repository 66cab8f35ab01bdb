// Pieces of an answer on their way to a sink.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/gguf.h"
#include "server/answer_delivery.h"

namespace redlite::server {
namespace {

class Delivery : public testing::Test {
 protected:
  /// A task with tools, or without.
  static Task task_with(bool tools) {
    Task task;
    chat::Conversation conversation;
    conversation.messages = Json::parse(R"([{"role":"user","content":"x"}])");
    if (tools) conversation.tools = Json::parse(R"([{"type":"function","function":{"name":"look"}}])");
    task.prompt = std::move(conversation);
    task.top_logprobs = 0;
    return task;
  }

  /// Delivers a text, a token of its own for each piece of three bytes.
  void deliver(const Task& task, chat::Reasoning reasoning, const std::string& text,
               session::FinishReason reason) {
    AnswerDelivery delivery(task, chat::ToolFormat::Json, reasoning, tokenizer_, answer_);
    for (size_t i = 0; i < text.size(); i += 3) {
      session::Piece piece;
      piece.text = text.substr(i, 3);
      piece.tokens.push_back({.token = 5, .logprob = -1, .top = {}});
      delivery.piece(piece);
    }
    session::Finished end;
    end.reason = reason;
    end.stop = "stop";
    delivery.finished(end);
  }

  const gguf::File file_{REDLITE_DEMO_MODEL};
  const tokenizer::Tokenizer tokenizer_{file_};
  WholeAnswer answer_;
};

constexpr const char* kTwoCalls =
    "I look twice.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 2}}\n</tool_call>";

TEST_F(Delivery, TextBeforeSeveralCalls) {
  deliver(task_with(true), chat::Reasoning::None, kTwoCalls, session::FinishReason::End);
  EXPECT_EQ(answer_.content(), "I look twice.");
  ASSERT_EQ(answer_.calls().size(), 2u);
  EXPECT_EQ(answer_.calls()[0].name, "look");
  EXPECT_EQ(answer_.calls()[0].arguments, "{\"at\": 1}");
  EXPECT_EQ(answer_.calls()[1].arguments, "{\"at\": 2}");
  EXPECT_EQ(answer_.outcome().finish, Finish::ToolCalls);
}

TEST_F(Delivery, WithoutToolsACallIsText) {
  deliver(task_with(false), chat::Reasoning::None, kTwoCalls, session::FinishReason::End);
  EXPECT_EQ(answer_.content(), kTwoCalls);
  EXPECT_TRUE(answer_.calls().empty());
  EXPECT_EQ(answer_.outcome().finish, Finish::End);
}

TEST_F(Delivery, ReasoningIsApartAndCounted) {
  deliver(task_with(false), chat::Reasoning::Open, "abcdef</think>\n\nxyz", session::FinishReason::Stop);
  EXPECT_EQ(answer_.reasoning(), "abcdef");
  EXPECT_EQ(answer_.content(), "xyz");
  EXPECT_GE(answer_.outcome().reasoning_tokens, 2);
  EXPECT_LT(answer_.outcome().reasoning_tokens + static_cast<int>(answer_.logprobs().size()), 8);
  EXPECT_GE(answer_.logprobs().size(), 1u);
  EXPECT_EQ(answer_.outcome().finish, Finish::StopString);
  EXPECT_EQ(answer_.outcome().stop, "stop");
}

TEST_F(Delivery, ACallThatWasCutOffEndsForItsLength) {
  deliver(task_with(true), chat::Reasoning::None, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\"",
          session::FinishReason::Length);
  ASSERT_EQ(answer_.calls().size(), 1u);
  EXPECT_EQ(answer_.outcome().finish, Finish::Length);
}

TEST_F(Delivery, RawPromptsGiveRawAnswers) {
  Task task;
  task.prompt = std::string("x");
  deliver(task, chat::Reasoning::None, "<think>a</think><tool_call>", session::FinishReason::Length);
  EXPECT_EQ(answer_.content(), "<think>a</think><tool_call>");
  EXPECT_EQ(answer_.outcome().finish, Finish::Length);
}

}  // namespace
}  // namespace redlite::server
