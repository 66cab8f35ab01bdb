#include "engine/perplexity.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "cpu/cpu_runner.h"
#include "reference/reference_runner.h"
#include "tokenizer/tokenizer.h"

namespace redlite::engine {
namespace {

using model::Token;

constexpr const char* kText =
    "There was once upon a time a poor widow who lived in a lonely cottage. In front of the cottage was a "
    "garden "
    "wherein stood two rose-trees, one of which bore white and the other red roses. She had two children who "
    "were "
    "like the two rose-trees, and one was called Snow-White, and the other Rose-Red.";

TEST(Perplexity, IsTheMeanOfTheSecondHalvesOfWindowsReadByThemselves) {
  const model::Model model(REDLITE_DEMO_MODEL);
  const tokenizer::Tokenizer tokenizer(model.file());
  const std::vector<Token> tokens = tokenizer.encode(kText, false);
  constexpr int kContext = 16;
  ASSERT_GT(tokens.size(), 3u * kContext);
  const auto n_vocab = static_cast<size_t>(model.config().n_vocab);

  // By the definition: the probability of each token given all before it in its window, one after another.
  reference::ReferenceRunner runner(model, kContext);
  double sum = 0, squares = 0;
  for (size_t w = 0; w < 3; ++w) {
    runner.reset();
    for (size_t i = 0; i + 1 < kContext; ++i) {
      const Token token = tokens[w * kContext + i], next = tokens[w * kContext + i + 1];
      const std::span<const float> logits = runner.forward({&token, 1}, model::LogitsFor::Last);
      double total = 0;
      for (size_t v = 0; v < n_vocab; ++v) total += std::exp(static_cast<double>(logits[v]));
      const double nll = std::log(total) - static_cast<double>(logits[static_cast<size_t>(next)]);
      if (i < kContext / 2) continue;
      sum += nll;
      squares += nll * nll;
    }
  }
  const double n = 3 * (kContext / 2 - 1), mean = sum / n;

  int told = 0;
  const Perplexity result = perplexity(runner, model.config().n_vocab, tokens, kContext, -1, 3,
                                       [&](const Perplexity&, double) { ++told; });
  EXPECT_EQ(result.windows, 3);
  EXPECT_EQ(result.scored, static_cast<int64_t>(n));
  EXPECT_NEAR(result.value, std::exp(mean), 1e-5 * result.value);
  EXPECT_NEAR(result.error, std::exp(mean) * std::sqrt((squares / n - mean * mean) / (n - 1)), 1e-4);
  EXPECT_GE(told, 3);

  cpu::CpuOptions options;
  options.context = kContext;
  cpu::CpuRunner cpu(model, options);
  const Perplexity fast = perplexity(cpu, model.config().n_vocab, tokens, kContext, -1, 3, {});
  EXPECT_NEAR(fast.value, result.value, 0.02 * result.value);
  EXPECT_NE(fast.value, result.value) << "8-bit activations";
  // A BOS in place of the first token is another prompt.
  EXPECT_NE(perplexity(cpu, model.config().n_vocab, tokens, kContext, 5, 3, {}).value, fast.value);
}

TEST(Perplexity, AShortTextIsRefused) {
  const model::Model model(REDLITE_DEMO_MODEL);
  reference::ReferenceRunner runner(model, 16);
  const std::vector<Token> tokens(15, 1);
  EXPECT_THAT([&] { perplexity(runner, model.config().n_vocab, tokens, 16, -1, 0, {}); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("the text has 15 tokens, a window 16")));
}

}  // namespace
}  // namespace redlite::engine
