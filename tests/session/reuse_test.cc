// States kept of conversations: what is read again and what is not, and that no bit depends on it.
#include <gmock/gmock.h>

#include <filesystem>
#include <mutex>

#include "session/fixture.h"
#include "support/temporary_folder.h"

namespace redlite::session {
namespace {

using model::Token;
using redlite::testing::TemporaryFolder;
using ::testing::HasSubstr;

class Reuse : public SessionTest {
 protected:
  /// The next turn: the prompt, the answer, and more.
  static Request next_turn(const Request& asked, const WholeAnswer& answer, int more, int kind) {
    Request next = asked;
    const std::vector<Token> said = tokens_of(answer), added = tokens(more, kind);
    next.prompt.insert(next.prompt.end(), said.begin(), said.end());
    next.prompt.insert(next.prompt.end(), added.begin(), added.end());
    next.boundaries = {static_cast<int>(next.prompt.size()) - 3};
    return next;
  }
  static void expect_cold_bits(Engine& engine, const Request& request, int cached) {
    const auto [answer, logits] = ask(engine, request);
    const auto [expected, expected_logits] = ask_cold(request);
    EXPECT_EQ(answer.end.usage.cached_tokens, cached);
    EXPECT_EQ(tokens_of(answer), tokens_of(expected));
    EXPECT_EQ(answer.text, expected.text);
    EXPECT_TRUE(logits == expected_logits) << "other bits than a cold run's";
  }
};

TEST_F(Reuse, TheNextTurnGoesOnWhereTheAnswerEnded) {
  const auto engine = this->engine();
  Request request = this->request(tokens(100), 20);
  request.boundaries = {30, 97};
  const auto [answer, logits] = ask(*engine, request);
  EXPECT_EQ(answer.end.usage.cached_tokens, 0);
  // The last token of the answer was never appended.
  expect_cold_bits(*engine, next_turn(request, answer, 25, 7), 119);
}

TEST_F(Reuse, AnAnswerRenderedAnewGoesBackToItsBoundary) {
  const auto engine = this->engine();
  Request request = this->request(tokens(100), 20);
  request.boundaries = {30, 97};
  WholeAnswer answer = ask(*engine, request).first;
  answer.tokens[2].token = 5;  // such as a space more
  expect_cold_bits(*engine, next_turn(request, answer, 25, 7), 97);
  // The same prompt once more, and the one with another ending.
  expect_cold_bits(*engine, request, 97);
  Request other = request;
  other.prompt[40] = 5;
  expect_cold_bits(*engine, other, 30);
}

TEST_F(Reuse, AnIdenticalPromptIsNotReadAtAll) {
  const auto engine = this->engine();
  const Request request = this->request(tokens(50), 10);
  ask(*engine, request);
  expect_cold_bits(*engine, request, 50);
}

TEST_F(Reuse, AnotherConversationTakesNothingAway) {
  EngineOptions options;
  const auto engine = this->engine(options);
  Request first = this->request(tokens(200), 20), second = this->request(tokens(150, 3), 20);
  first.boundaries = {197};
  second.boundaries = {147};
  const WholeAnswer one = ask(*engine, first).first, two = ask(*engine, second).first;
  EXPECT_TRUE(soon([&] { return engine->statistics().states_in_memory == 1; }));
  const Request first_on = next_turn(first, one, 25, 7);
  expect_cold_bits(*engine, first_on, 219);
  expect_cold_bits(*engine, next_turn(second, two, 25, 7), 169);
  // What they share: the beginning of the first.
  Request third = first;
  third.prompt.resize(198);
  for (const Token token : tokens(30, 11)) third.prompt.push_back(token);
  expect_cold_bits(*engine, third, 197);
  expect_cold_bits(*engine, first_on, static_cast<int>(first_on.prompt.size()) - 3);
}

TEST_F(Reuse, ASharedBeginningIsCopiedWhileItsOwnerIsAtWork) {
  EngineOptions options;
  options.parallel = 2;
  const auto engine = this->engine(options);
  Request first = this->request(tokens(100), 400);
  first.boundaries = {60};
  const auto running = engine->submit(first);
  while (!std::holds_alternative<Piece>(running->next().value())) {
  }
  Request second = this->request(tokens(100), 20);
  for (size_t i = 60; i < 100; ++i) second.prompt[i] = 5;
  expect_cold_bits(*engine, second, 60);
  EXPECT_FALSE(running->done());
}

TEST_F(Reuse, NothingIsKeptBeyondTheBudget) {
  EngineOptions options;
  const model::Sequence::StateBytes size = runner()->make_sequence()->state_bytes().value();
  options.state_bytes = size.mark * 3 + size.position * 100;
  const auto engine = this->engine(options);
  for (int kind = 0; kind < 5; ++kind) {
    Request request = this->request(tokens(90, kind), 3);
    request.boundaries = {20, 50, 80};
    ask(*engine, request);
    EXPECT_LE(engine->statistics().state_bytes_in_memory, options.state_bytes);
  }
  EXPECT_TRUE(soon([&] { return engine->statistics().state_bytes_in_memory > 0; }));
  EngineOptions none;
  none.state_bytes = 0;
  const auto forgetful = this->engine(none);
  ask(*forgetful, request(tokens(90), 3));
  expect_cold_bits(*forgetful, request(tokens(90), 3), 0);
}

TEST_F(Reuse, ARestartedProcessGoesOn) {
  const TemporaryFolder folder;
  for (const cpu::KvType kv : {cpu::KvType::F32, cpu::KvType::F16}) {
    EngineOptions options;
    options.state_dir = folder / "states";
    options.build = kv == cpu::KvType::F32 ? "test 1" : "test 2";
    std::vector<std::string> log;
    options.log = [&](const std::string& line) { log.push_back(line); };
    Request first = this->request(tokens(300), 20), second = this->request(tokens(150, 3), 20);
    first.boundaries = {40, 297};
    second.boundaries = {147};
    WholeAnswer one, two;
    {
      const auto engine = this->engine(options, runner(kv));
      one = ask(*engine, first).first;
      two = ask(*engine, second).first;
      engine->shutdown(std::chrono::seconds(5));
      EXPECT_EQ(engine->statistics().states_on_disk, 2 + (kv == cpu::KvType::F32 ? 0 : 2));
    }
    const Request first_on = next_turn(first, one, 25, 7), second_on = next_turn(second, two, 25, 7);
    const auto engine = this->engine(options, runner(kv));
    for (const auto& [request, cached] : {std::pair(first_on, 319), std::pair(second_on, 169)}) {
      EngineOptions cold;
      cold.state_bytes = 0;
      const auto [answer, logits] = ask(*engine, request);
      const auto [expected, expected_logits] = ask(*this->engine(cold, runner(kv)), request);
      EXPECT_EQ(answer.end.usage.cached_tokens, cached);
      EXPECT_TRUE(logits == expected_logits);
    }
    if (kv == cpu::KvType::F32) {
      EXPECT_TRUE(log.empty()) << log[0];
    } else {
      ASSERT_EQ(log.size(), 2u);
      EXPECT_THAT(log[1], HasSubstr("2 states of another model, program or settings"));
    }
  }
}

TEST_F(Reuse, AtRestAConversationIsWrittenWithoutShutdown) {
  const TemporaryFolder folder;
  EngineOptions options;
  options.state_dir = folder.path();
  options.save_after = std::chrono::milliseconds(1);
  const auto engine = this->engine(options);
  const auto written = [&] {
    return std::ranges::count_if(std::filesystem::directory_iterator(folder.path()),
                                 [](const auto& entry) { return entry.path().extension() == ".rlstate"; });
  };
  // The first has to leave its sequence to the second.
  ask(*engine, request(tokens(100), 20));
  ask(*engine, request(tokens(90, 2), 20));
  EXPECT_TRUE(soon([&] { return engine->statistics().states_on_disk == 2; }));
  EXPECT_EQ(written(), 2);
  const auto other = this->engine(options);
  for (Request again : {request(tokens(100), 20), request(tokens(90, 2), 20)}) {
    const auto n = static_cast<int>(again.prompt.size());
    again.prompt.push_back(5);
    expect_cold_bits(*other, again, n);
  }
}

}  // namespace
}  // namespace redlite::session
