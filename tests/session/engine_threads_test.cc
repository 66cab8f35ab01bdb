// What the engine's threads do to each other: ThreadSanitizer runs on these.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "session/fixture.h"
#include "support/temporary_folder.h"

namespace redlite::session {
namespace {

using model::Token;
using redlite::testing::TemporaryFolder;
using ::testing::HasSubstr;

using EngineThreads = SessionTest;

TEST_F(EngineThreads, TheQueueHasLimitsAndTurns) {
  EngineOptions options;
  options.max_queued = 3;
  auto runner = watched(this->runner());
  std::promise<void> gate;
  runner->before_pass = [go = gate.get_future().share()](std::span<const model::Part>) { go.wait(); };
  const auto engine = this->engine(options, std::move(runner));
  const auto from = [&](const char* client) {
    Request asked = request("a b c", 1);
    asked.client = client;
    return asked;
  };
  std::vector<std::shared_ptr<Answer>> answers = {engine->submit(from("a"))};
  ASSERT_TRUE(soon([&] { return engine->statistics().active == 1; }));
  for (int i = 0; i < 3; ++i) answers.push_back(engine->submit(from("a")));
  try {
    engine->submit(from("a"));
    FAIL() << "there is no room";
  } catch (const QueueFull& e) {
    EXPECT_GE(e.retry_after_seconds(), 1);
    EXPECT_THAT(e.what(), HasSubstr("3 requests are waiting already; try again in "));
  }
  for (const char* client : {"b", "c", "d"}) answers.push_back(engine->submit(from(client)));
  EXPECT_THROW(engine->submit(from("e")), QueueFull) << "twice the room is taken";
  EXPECT_EQ(engine->statistics().refused, 2u);
  EXPECT_EQ(engine->statistics().queued, 6);
  gate.set_value();
  for (const auto& answer : answers) EXPECT_EQ(answer->wait().end.reason, FinishReason::Length);
  EXPECT_EQ(engine->statistics().finished, 7u);
  EXPECT_EQ(engine->submit(from("e"))->wait().tokens.size(), 1u);
}

TEST_F(EngineThreads, CancelledInTheQueueItLeavesIt) {
  auto runner = watched(this->runner());
  std::promise<void> gate;
  runner->before_pass = [go = gate.get_future().share()](std::span<const model::Part>) { go.wait(); };
  const auto engine = this->engine({}, std::move(runner));
  const auto first = engine->submit(request("a b c", 1));
  const auto second = engine->submit(request("a b c", 1));
  { const auto dropped = engine->submit(request("a b c", 1)); }  // without a consumer there is no answer
  second->cancel();
  gate.set_value();
  EXPECT_EQ(second->wait().end.reason, FinishReason::Cancelled);
  EXPECT_TRUE(second->done());
  EXPECT_FALSE(second->next());
  EXPECT_EQ(first->wait().end.reason, FinishReason::Length);
  EXPECT_TRUE(soon([&] { return engine->statistics().cancelled == 2; }));
}

TEST_F(EngineThreads, ShutdownGivesGraceThenCancels) {
  const auto engine = this->engine();
  const auto short_one = engine->submit(request(tokens(10), 3));
  engine->shutdown(std::chrono::seconds(30));
  EXPECT_EQ(short_one->wait().end.reason, FinishReason::Length);
  EXPECT_THROW(engine->submit(request(tokens(10), 3)), ShuttingDown);

  const auto other = this->engine();
  const auto endless = other->submit(request(tokens(10), 0));
  const auto waiting = other->submit(request(tokens(10), 0));
  while (!std::holds_alternative<Piece>(endless->next().value())) {
  }
  other->shutdown(std::chrono::milliseconds(0));
  EXPECT_EQ(endless->wait().end.reason, FinishReason::Cancelled);
  EXPECT_EQ(waiting->wait().end.reason, FinishReason::Cancelled);
}

TEST_F(EngineThreads, TellsWhatGoesOn) {
  EngineOptions options;
  cpu::CpuOptions cpu;
  cpu.context = kContext;
  cpu.threads = 2;
  cpu.cache.size = {experts::CacheSize::Kind::Bounded, experts::ExpertCache::full_bytes(model()) / 4};
  auto runner = std::make_unique<cpu::CpuRunner>(model(), cpu);
  options.report = [cpu_runner = runner.get()](RunnerReport& report, bool with_experts) {
    report.cache = cpu_runner->cache_stats();
    if (with_experts)
      report.experts = {model().config().n_layers, model().config().n_experts, cpu_runner->expert_uses()};
  };
  const auto engine = this->engine(options, std::move(runner));
  EXPECT_EQ(engine->expert_map().cells.size(),
            static_cast<size_t>(model().config().n_layers * model().config().n_experts));
  Request asked = request(tokens(100), 20);
  const auto answer = engine->submit(asked);
  std::vector<int> progress;
  while (const std::optional<Event> event = answer->next()) {
    if (const auto* reading = std::get_if<ReadingProgress>(&*event)) progress.push_back(reading->done);
  }
  EXPECT_TRUE(std::ranges::is_sorted(progress));
  EXPECT_EQ(progress.back(), 100);
  EXPECT_TRUE(answer->done());
  ASSERT_TRUE(soon([&] {
    const ExpertMap map = engine->expert_map();
    uint64_t selections = 0, resident = 0;
    for (const experts::ExpertUse& cell : map.cells) {
      selections += cell.hits + cell.misses;
      resident += cell.resident ? 1 : 0;
    }
    return selections > 0 && resident > 0 && resident < map.cells.size();
  }));
  const Statistics s = engine->statistics();
  EXPECT_EQ(s.finished, 1u);
  EXPECT_EQ(s.prompt_tokens, 100u);
  EXPECT_EQ(s.read_tokens, 100u);
  EXPECT_EQ(s.answer_tokens, 20u);
  EXPECT_GT(s.prefill_rate, 0);
  EXPECT_GT(s.decode_rate, 0);
  EXPECT_GT(s.runner.cache.bytes_read, 0u);
  EXPECT_GT(s.resident_bytes, 0u);
}

// Everything at once: many clients, some of whom go away, states that do not all fit, a folder.
TEST_F(EngineThreads, SixtyFourClientsGetTheirAnswers) {
  const TemporaryFolder folder;
  EngineOptions options;
  options.parallel = 4;
  options.max_queued = 12;
  const model::Sequence::StateBytes size = runner()->make_sequence()->state_bytes().value();
  options.state_bytes = size.mark * 20 + size.position * 400;
  options.state_dir = folder.path();
  options.state_dir_bytes = options.state_bytes;
  options.save_after = std::chrono::milliseconds(20);
  const auto engine = this->engine(options);
  constexpr int kKinds = 4, kClients = 64, kTurns = 1;
  std::vector<Request> kinds;
  std::vector<std::vector<Token>> expected;
  for (int kind = 0; kind < kKinds; ++kind) {
    kinds.push_back(request(tokens(30 + 25 * kind, kind / 2), 6 + kind));
    kinds.back().boundaries = {25, 27 + 25 * kind};
    expected.push_back(tokens_of(ask_cold(kinds.back()).first));
  }
  std::atomic<int> finished = 0, aborted = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int turn = 0; turn < kTurns; ++turn) {
        const auto kind = static_cast<size_t>(random() % kKinds);
        Request asked = kinds[kind];
        asked.client = std::to_string(client % 8);
        std::shared_ptr<Answer> answer;
        while (!answer) {
          try {
            answer = engine->submit(asked);
          } catch (const QueueFull&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }
        if (random() % 3 == 0) {
          for (auto events = random() % 6; events > 0; --events) answer->next(std::chrono::milliseconds(200));
          ++aborted;
          continue;  // which drops it
        }
        EXPECT_EQ(tokens_of(answer->wait()), expected[kind]);
        ++finished;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  ASSERT_TRUE(soon([&] { return engine->statistics().active + engine->statistics().queued == 0; }));
  const Statistics s = engine->statistics();
  EXPECT_EQ(finished + aborted, kTurns * kClients);
  EXPECT_EQ(s.requests, static_cast<uint64_t>(kTurns * kClients));
  EXPECT_EQ(s.finished + s.cancelled, s.requests);
  EXPECT_GE(s.finished, static_cast<uint64_t>(finished));
  EXPECT_GT(s.refused, 0u);
  EXPECT_GT(s.cached_tokens, 0u);
  EXPECT_LE(s.state_bytes_in_memory, options.state_bytes);
  EXPECT_LE(s.state_bytes_on_disk, options.state_dir_bytes);
}

}  // namespace
}  // namespace redlite::session
