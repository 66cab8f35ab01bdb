#include "session/engine.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "engine/generate.h"
#include "session/fixture.h"

namespace redlite::session {
namespace {

using model::Token;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using EngineTest = SessionTest;

TEST_F(EngineTest, AnswersLikeGenerate) {
  const Request asked = request("Once upon a time", 20);
  std::string text;
  engine::GenerateOptions options;
  options.max_tokens = 20;
  options.ignore_end = true;
  const engine::GenerateResult expected = engine::generate(*runner(), tokenizer(), asked.prompt, options,
                                                           [&](std::string_view piece) { text += piece; });
  const auto engine = this->engine();
  const WholeAnswer answer = engine->submit(asked)->wait();
  EXPECT_EQ(tokens_of(answer), expected.tokens);
  EXPECT_EQ(answer.text, text);
  EXPECT_EQ(answer.end.reason, FinishReason::Length);
  EXPECT_EQ(answer.end.usage.prompt_tokens, static_cast<int>(asked.prompt.size()));
  EXPECT_EQ(answer.end.usage.answer_tokens, 20);
  EXPECT_GT(answer.end.usage.decode_seconds, 0);
}

TEST_F(EngineTest, WrongRequestsAreRefused) {
  const auto engine = this->engine();
  const auto expect = [&](const Request& wrong, const char* what) {
    EXPECT_THAT([&] { engine->submit(wrong); }, ThrowsMessage<Error>(HasSubstr(what)));
  };
  expect({}, "the prompt is empty");
  expect(request(tokens(kContext), 1), "leaves no room");
  Request odd = request("a", 1);
  odd.prompt.push_back(-1);
  expect(odd, "token -1 is outside");
  odd = request("a", 1);
  odd.boundaries = {1, 0};
  expect(odd, "boundaries do not rise");
  odd = request("a", 1);
  odd.stop = {""};
  expect(odd, "a stop string is empty");
  odd = request("a", 1);
  odd.sampler.repeat_penalty = -1;
  expect(odd, "repeat penalty");
  EXPECT_EQ(engine->statistics().requests, 0u);
}

TEST_F(EngineTest, EndsWhereItShould) {
  const auto engine = this->engine();
  Request asked = request("Once upon a time", 40);
  const WholeAnswer whole = engine->submit(asked)->wait();
  const std::string some = whole.text.substr(whole.text.size() / 2, 6);
  asked.stop = {"no such text", some};
  const WholeAnswer cut = engine->submit(asked)->wait();
  EXPECT_EQ(cut.end.reason, FinishReason::Stop);
  EXPECT_EQ(cut.end.stop, some);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(some)));

  asked.stop = {};
  asked.ignore_end = false;
  asked.max_tokens = 150;
  const WholeAnswer ended = engine->submit(asked)->wait();
  EXPECT_EQ(ended.end.usage.answer_tokens, static_cast<int>(ended.tokens.size()));
  EXPECT_EQ(ended.end.reason, ended.tokens.size() == 150 ? FinishReason::Length : FinishReason::End);
  const WholeAnswer full = engine->submit(request(tokens(kContext - 5), 0))->wait();
  EXPECT_EQ(full.end.reason, FinishReason::Length);
  EXPECT_EQ(full.tokens.size(), 5u);
}

TEST_F(EngineTest, LogprobsAreOfTheModelsOwnDistribution) {
  const auto engine = this->engine();
  Request asked = request("Once upon a time", 4);
  asked.top_logprobs = 3;
  const auto [answer, logits] = ask(*engine, asked);
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto& row = logits[i];
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    const auto expected = [&](Token t) { return row[static_cast<size_t>(t)] - std::log(sum); };
    const AnswerToken& told = answer.tokens[i];
    ASSERT_EQ(told.top.size(), 3u);
    EXPECT_EQ(told.top[0].first, told.token) << "greedy";
    EXPECT_NEAR(told.logprob, expected(told.token), 1e-4);
    EXPECT_NEAR(told.top[2].second, expected(told.top[2].first), 1e-4);
    EXPECT_GE(told.top[1].second, told.top[2].second);
  }
}

/// Lets the tokens of a list pass, one after another.
class OnlyThese final : public engine::TokenFilter {
 public:
  explicit OnlyThese(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  void apply(std::span<float> logits) override {
    const float kept = logits[static_cast<size_t>(tokens_[next_])];
    std::ranges::fill(logits, -INFINITY);
    logits[static_cast<size_t>(tokens_[next_])] = kept;
  }
  void accept(Token token) override {
    EXPECT_EQ(token, tokens_[next_]);
    ++next_;
  }

 private:
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

TEST_F(EngineTest, AFilterSaysWhatComesNext) {
  const auto engine = this->engine();
  Request asked = request("Once upon a time", 40);
  asked.ignore_end = false;
  asked.filter = std::make_shared<OnlyThese>(std::vector<Token>{40, 50, 60, tokenizer().eos()});
  const WholeAnswer answer = engine->submit(asked)->wait();
  EXPECT_THAT(tokens_of(answer), ElementsAre(40, 50, 60));
  EXPECT_EQ(answer.end.reason, FinishReason::End);
}

// Alone or together, beginning and ending at any time: the same bits.
TEST_F(EngineTest, AnswersTogetherAreThoseAlone) {
  EngineOptions options;
  options.parallel = 4;
  const auto engine = this->engine(options);
  std::vector<Request> requests;
  for (int i = 0; i < 7; ++i) {
    requests.push_back(request(tokens(10 + 60 * (i % 3), i), 15 + 5 * i));
    requests.back().sampler.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    requests.back().sampler.seed = static_cast<uint32_t>(i);
  }
  std::vector<std::shared_ptr<Recorder>> recorders;
  std::vector<std::shared_ptr<Answer>> answers;
  for (Request request : requests) {
    recorders.push_back(std::make_shared<Recorder>());
    request.filter = recorders.back();
    answers.push_back(engine->submit(std::move(request)));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [expected, expected_logits] = ask_cold(requests[i]);
    EXPECT_EQ(tokens_of(answers[i]->wait()), tokens_of(expected)) << i;
    EXPECT_TRUE(recorders[i]->all == expected_logits) << i;
  }
  const Statistics s = engine->statistics();
  EXPECT_EQ(s.finished, 7u);
  EXPECT_EQ(s.parallel, 4);
  EXPECT_LT(s.decode_passes, s.answer_tokens) << "they were not computed together";
}

// A long prompt is read in pieces, between which the others go on.
TEST_F(EngineTest, ALongPromptHoldsUpNobody) {
  EngineOptions options;
  options.parallel = 2;
  auto runner = watched(this->runner());
  std::mutex mutex;
  std::vector<int> sizes;  // of passes
  runner->before_pass = [&](std::span<const model::Part> parts) {
    const std::lock_guard lock(mutex);
    sizes.push_back(static_cast<int>(parts[0].tokens.size()));
    // Slow ones, so that the other answer is not at its end before the prompt is.
    std::this_thread::sleep_for(std::chrono::milliseconds(parts[0].tokens.size() > 1 ? 300 : 4));
  };
  const auto engine = this->engine(options, std::move(runner));
  const auto quick = engine->submit(request(tokens(20), 600));
  while (!std::holds_alternative<Piece>(quick->next().value())) {
  }
  const auto slow = engine->submit(request(tokens(900, 1), 1));
  slow->wait();
  const std::lock_guard lock(mutex);
  const auto pieces = std::ranges::count_if(sizes, [](int n) { return n > 1; });
  EXPECT_GE(pieces, 3);
  const auto first = std::ranges::find_if(sizes.begin() + 1, sizes.end(), [](int n) { return n > 1; });
  const auto last = std::ranges::find_if(sizes.rbegin(), sizes.rend(), [](int n) { return n > 1; }).base();
  EXPECT_GT(std::count(first, last, 1), 2 * (pieces - 2)) << "decode passes between the pieces";
}

// At every layer of every pass: the end comes at once, and the state stays whole.
TEST_F(EngineTest, CancelledAnywhereItStopsAtOnce) {
  Request asked = request(tokens(60), 4);
  asked.boundaries = {25, 57};
  const auto [expected, expected_logits] = ask_cold(asked);
  const int layers = model().config().n_layers;
  const int points = layers * (3 + 1 + 3);  // pieces up to the boundaries and the end, then tokens
  auto runner = watched(this->runner());
  WatchedRunner& watch = *runner;
  std::atomic<int> left = -1;
  std::atomic<int> after = 0;  // layers computed after the cancellation
  std::mutex mutex;
  std::shared_ptr<Answer> current;
  watch.on_layer = [&] {
    if (left == 0) {
      ++after;
    } else if (left > 0 && --left == 0) {
      const std::lock_guard lock(mutex);
      current->cancel();
    }
  };
  const auto engine = this->engine({}, std::move(runner));
  int cancelled = 0;
  for (int point = 1; point <= points; point += 3) {
    {
      const std::lock_guard lock(mutex);
      left = point;
      after = 0;
      current = engine->submit(asked);
    }
    const WholeAnswer answer = current->wait();
    if (answer.end.reason == FinishReason::Cancelled) {
      ++cancelled;
      EXPECT_EQ(after, 0) << "layers too many";
    }
    left = -1;
    const auto [again, logits] = ask(*engine, asked);
    ASSERT_EQ(tokens_of(again), tokens_of(expected)) << "after a cancellation at " << point;
    ASSERT_TRUE(logits == expected_logits) << "after a cancellation at " << point;
    asked.prompt.back() = 5 + point % 3;  // another prompt, so that something is left to read
    asked.prompt[40] = 5 + point % 7;
    const auto cold = ask_cold(asked);
    ASSERT_EQ(tokens_of(ask(*engine, asked).first), tokens_of(cold.first));
    asked.prompt = tokens(60);
  }
  EXPECT_GT(cancelled, 5);
}

TEST_F(EngineTest, ADeviceThatIsGoneFailsRequestsAndNotTheServer) {
  auto runner = watched(this->runner());
  runner->breakable = true;
  std::atomic<bool>& broken = runner->broken;
  runner->on_layer = [&] {
    if (broken) fail("a pass failed");
  };
  const auto engine = this->engine({}, std::move(runner));
  Request asked = request(tokens(60), 10);
  const std::vector<model::Token> expected = tokens_of(ask(*engine, asked).first);
  broken = true;
  asked.prompt.push_back(5);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(engine->submit(asked)->wait(), Error) << i;
  broken = false;
  asked.prompt.pop_back();
  EXPECT_EQ(tokens_of(ask(*engine, asked).first), expected);
  EXPECT_EQ(engine->statistics().failed, 3u);
}

TEST_F(EngineTest, AFailedPassFailsItsRequestsOnly) {
  auto runner = watched(this->runner());
  std::atomic<int> passes = 0;
  runner->on_layer = [&] {
    if (passes == 1) fail("no such expert");
  };
  std::atomic<bool> failing = false;
  runner->before_pass = [&](std::span<const model::Part>) { passes = failing ? 1 : 0; };
  const auto engine = this->engine({}, std::move(runner));
  Request asked = request(tokens(60), 10);
  const auto [expected, expected_logits] = ask(*engine, asked);
  failing = true;
  asked.prompt.push_back(5);
  EXPECT_THAT([&] { engine->submit(asked)->wait(); }, ThrowsMessage<Error>("no such expert"));
  failing = false;
  asked.prompt.pop_back();
  const auto [again, logits] = ask(*engine, asked);
  EXPECT_TRUE(logits == expected_logits);
  EXPECT_EQ(engine->statistics().failed, 1u);
}

}  // namespace
}  // namespace redlite::session
