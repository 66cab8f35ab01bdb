#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <redlite/redlite.h>

#include <algorithm>
#include <set>

#include "cpu/cpu_runner.h"
#include "engine/generate.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace redlite {
namespace {

using testing::HasSubstr;

class Library : public testing::Test {
 protected:
  static std::string collect(Session::Answer answer, std::vector<Token>& tokens) {
    std::string text;
    while (const auto piece = answer.next()) {
      if (piece->token >= 0) tokens.push_back(piece->token);
      text += piece->text;
    }
    return text;
  }

  Model model_{REDLITE_DEMO_MODEL};
};

TEST_F(Library, TellsWhatTheModelIs) {
  EXPECT_EQ(model_.info().architecture, "qwen3next");
  EXPECT_EQ(model_.info().n_layers, 8);
  EXPECT_EQ(model_.info().n_vocab, 4096);
  EXPECT_EQ(model_.detokenize(model_.tokenize("Once upon a time")), "Once upon a time");
}

TEST_F(Library, AnswersAsTheEngineDoes) {
  const std::vector<Token> prompt = model_.tokenize("Once upon a time");
  const redlite::model::Model model(REDLITE_DEMO_MODEL);
  const tokenizer::Tokenizer tokenizer(model.file());
  cpu::CpuOptions cpu;
  cpu.kv = cpu::KvType::F16;
  cpu::CpuRunner runner(model, cpu);
  engine::GenerateOptions options;
  options.max_tokens = 40;
  std::string expected;
  const engine::GenerateResult result =
      engine::generate(runner, tokenizer, prompt, options, [&](std::string_view text) { expected += text; });
  Session session(model_, {.cache_mib = 4});
  std::vector<Token> tokens;
  EXPECT_EQ(collect(session.generate(prompt, {.max_tokens = 40}), tokens), expected);
  EXPECT_EQ(tokens, result.tokens);
  EXPECT_EQ(session.position(), static_cast<int>(prompt.size() + tokens.size()));
  EXPECT_GT(session.cache_statistics().misses, 0u);
}

TEST_F(Library, GoesOnBehindAnAnswer) {
  const std::vector<Token> prompt = model_.tokenize("Once upon a time"), more = model_.tokenize(" But then");
  Session session(model_);
  std::vector<Token> all = prompt;
  collect(session.generate(prompt, {.max_tokens = 5}), all);
  all.insert(all.end(), more.begin(), more.end());
  const std::span<const float> logits = session.forward(more);
  Session whole(model_);
  const std::span<const float> expected = whole.forward(all);
  EXPECT_TRUE(std::ranges::equal(logits, expected));
  EXPECT_EQ(session.position(), whole.position());
}

TEST_F(Library, EndsAtAStopText) {
  Session session(model_);
  std::vector<Token> tokens;
  const std::string whole =
      collect(session.generate(model_.tokenize("Once upon a time"), {.max_tokens = 40}), tokens);
  session.reset();
  const std::string stop = whole.substr(20, 6);
  Session::Answer answer =
      session.generate(model_.tokenize("Once upon a time"), {.max_tokens = 40, .stop = {stop}});
  std::string text;
  while (const auto piece = answer.next()) text += piece->text;
  EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(answer.finish_reason(), "stop");
}

TEST_F(Library, RecordsRouting) {
  Session session(model_);
  session.record_routing(true);
  session.forward(model_.tokenize("Once upon a time"), true);
  const int tokens = session.position();
  const RoutingTrace trace = session.take_routing();
  const auto per_token = static_cast<size_t>(trace.n_layers * trace.n_experts_used);
  ASSERT_EQ(trace.experts.size(), per_token * static_cast<size_t>(tokens));
  // Each token's experts of a layer are distinct; one forwarded alone has those it had among others.
  for (size_t row = 0; row < trace.experts.size(); row += static_cast<size_t>(trace.n_experts_used)) {
    const std::set<int32_t> ids(
        trace.experts.begin() + static_cast<std::ptrdiff_t>(row),
        trace.experts.begin() + static_cast<std::ptrdiff_t>(row) + trace.n_experts_used);
    EXPECT_EQ(ids.size(), static_cast<size_t>(trace.n_experts_used));
  }
  session.reset();
  for (const Token token : model_.tokenize("Once upon a time")) session.forward({&token, 1});
  EXPECT_EQ(session.take_routing().experts, trace.experts);
}

TEST_F(Library, DequantizesTensors) {
  const std::vector<TensorInfo> tensors = model_.tensors();
  const auto it = std::ranges::find(tensors, "output_norm.weight", &TensorInfo::name);
  ASSERT_NE(it, tensors.end());
  EXPECT_EQ(model_.dequantize(it->name).size(), it->shape.front());
  EXPECT_THAT([&] { model_.dequantize("nothing"); },
              testing::ThrowsMessage<Error>(HasSubstr("no tensor 'nothing'")));
}

TEST_F(Library, RefusesWhatMakesNoSense) {
  EXPECT_THAT([] { Model("/nowhere.gguf"); }, testing::ThrowsMessage<Error>(HasSubstr("/nowhere.gguf")));
  EXPECT_THAT([&] { Session(model_, {.backend = "abacus"}); },
              testing::ThrowsMessage<Error>(HasSubstr("'abacus'")));
  Session session(model_, {.context = 8});
  EXPECT_THAT([&] { session.forward(std::vector<Token>{4096}); },
              testing::ThrowsMessage<Error>(HasSubstr("4096")));
  EXPECT_THAT([&] { session.generate({}); }, testing::ThrowsMessage<Error>(HasSubstr("empty")));
  EXPECT_THROW(model_.chat_prompt_json("{"), Error);
}

}  // namespace
}  // namespace redlite
