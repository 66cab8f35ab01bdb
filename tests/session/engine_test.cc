#include "session/engine.h"

#include <gmock/gmock.h>

#include "cpu/cpu_runner.h"
#include "engine/generate.h"
#include "model/tiny_model.h"

namespace redlite::session {
namespace {

using model::Token;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class EngineTest : public ::testing::Test {
 protected:
  static std::unique_ptr<model::Runner> runner() {
    cpu::CpuOptions options;
    options.context = 512;
    options.threads = 2;
    return std::make_unique<cpu::CpuRunner>(model(), options);
  }
  static const model::Model& model() {
    static const model::Model model(REDLITE_DEMO_MODEL);
    return model;
  }
  static const tokenizer::Tokenizer& tokenizer() {
    static const tokenizer::Tokenizer tokenizer(model().file());
    return tokenizer;
  }
  static Request request(std::string_view prompt, int max_tokens) {
    Request request;
    request.prompt = tokenizer().encode_prompt(prompt, true);
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    return request;
  }
  static std::vector<Token> tokens_of(const WholeAnswer& answer) {
    std::vector<Token> tokens;
    for (const AnswerToken& token : answer.tokens) tokens.push_back(token.token);
    return tokens;
  }
};

TEST_F(EngineTest, AnswersLikeGenerate) {
  const Request asked = request("Once upon a time", 20);
  std::string text;
  engine::GenerateOptions options;
  options.max_tokens = 20;
  options.ignore_end = true;
  const engine::GenerateResult expected = engine::generate(*runner(), tokenizer(), asked.prompt, options,
                                                           [&](std::string_view piece) { text += piece; });

  Engine engine(model(), tokenizer(), runner(), {});
  const WholeAnswer answer = engine.submit(asked)->wait();
  EXPECT_EQ(tokens_of(answer), expected.tokens);
  EXPECT_EQ(answer.text, text);
  EXPECT_EQ(answer.end.reason, FinishReason::Length);
  EXPECT_EQ(answer.end.usage.prompt_tokens, static_cast<int>(asked.prompt.size()));
  EXPECT_EQ(answer.end.usage.answer_tokens, 20);
}

TEST_F(EngineTest, WrongRequestsAreRefused) {
  Engine engine(model(), tokenizer(), runner(), {});
  EXPECT_THAT([&] { engine.submit({}); }, ThrowsMessage<Error>(HasSubstr("the prompt is empty")));
  Request long_one = request("a", 1);
  long_one.prompt.resize(512, long_one.prompt[0]);
  EXPECT_THAT([&] { engine.submit(long_one); }, ThrowsMessage<Error>(HasSubstr("leaves no room")));
  Request odd = request("a", 1);
  odd.prompt.push_back(-1);
  EXPECT_THAT([&] { engine.submit(odd); }, ThrowsMessage<Error>(HasSubstr("token -1 is outside")));
}

}  // namespace
}  // namespace redlite::session
