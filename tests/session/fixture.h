#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cpu/cpu_runner.h"
#include "model/tiny_model.h"
#include "session/engine.h"

namespace redlite::session {

/// Lets everything pass and remembers what it saw: the logits of every token, to the bit.
class Recorder final : public engine::TokenFilter {
 public:
  void apply(std::span<float> logits) override { all.emplace_back(logits.begin(), logits.end()); }
  void accept(model::Token /*token*/) override {}

  std::vector<std::vector<float>> all;
};

/// A sequence that cannot go to another place while `broken`.
class WatchedSequence final : public model::Sequence {
 public:
  WatchedSequence(std::unique_ptr<model::Sequence> inner, const std::atomic<bool>& broken)
      : inner_(std::move(inner)), broken_(broken) {}

  int position() const override { return inner_->position(); }
  int capacity() const override { return inner_->capacity(); }
  void reset() override {
    check();
    inner_->reset();
  }
  std::unique_ptr<model::Mark> mark() const override {
    check();
    return inner_->mark();
  }
  void rewind(const model::Mark& mark) override {
    check();
    inner_->rewind(mark);
  }
  std::optional<StateBytes> state_bytes() const override { return inner_->state_bytes(); }
  std::unique_ptr<model::Mark> load_mark(int position, std::span<const std::byte> bytes) const override {
    check();
    return inner_->load_mark(position, bytes);
  }
  void save_positions(int n, std::span<std::byte> out) const override {
    check();
    inner_->save_positions(n, out);
  }
  void load_positions(int n, std::span<const std::byte> bytes) override {
    check();
    inner_->load_positions(n, bytes);
  }
  model::Sequence& inner() { return *inner_; }

 private:
  void check() const {
    if (broken_) fail("the device is gone");
  }

  std::unique_ptr<model::Sequence> inner_;
  const std::atomic<bool>& broken_;
};

/// A runner with a hook into each of its passes: before it, and whenever it asks whether to stop.
class WatchedRunner final : public model::Runner {
 public:
  explicit WatchedRunner(std::unique_ptr<model::Runner> inner) : inner_(std::move(inner)) {}

  std::span<const float> forward(std::span<const model::Token> tokens, model::LogitsFor which) override {
    return inner_->forward(tokens, which);
  }
  int position() const override { return inner_->position(); }
  int capacity() const override { return inner_->capacity(); }
  void reset() override { inner_->reset(); }
  std::unique_ptr<model::Mark> mark() const override { return inner_->mark(); }
  void rewind(const model::Mark& mark) override { inner_->rewind(mark); }
  int most_sequences() const override { return inner_->most_sequences(); }
  std::unique_ptr<model::Sequence> make_sequence() override {
    if (!breakable) return inner_->make_sequence();
    return std::make_unique<WatchedSequence>(inner_->make_sequence(), broken);
  }
  std::string state_format() const override { return inner_->state_format(); }
  std::span<const float> forward_together(std::span<const model::Part> parts) override {
    if (before_pass) before_pass(parts);
    inner_->set_progress(progress_);
    inner_->set_stop([this] {
      if (on_layer) on_layer();
      return stop_ && stop_();
    });
    if (!breakable) return inner_->forward_together(parts);
    std::vector<model::Part> inner_parts(parts.begin(), parts.end());
    for (model::Part& part : inner_parts)
      part.sequence = &static_cast<WatchedSequence&>(*part.sequence).inner();
    return inner_->forward_together(inner_parts);
  }

  std::function<void(std::span<const model::Part> parts)> before_pass;
  std::function<void()> on_layer;
  bool breakable = false;  ///< before a sequence is made: they are WatchedSequences
  std::atomic<bool> broken = false;

 private:
  std::unique_ptr<model::Runner> inner_;
};

inline std::unique_ptr<WatchedRunner> watched(std::unique_ptr<model::Runner> inner) {
  return std::make_unique<WatchedRunner>(std::move(inner));
}

/// Waits for something that another thread does soon.
template <typename Condition>
bool soon(Condition&& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class SessionTest : public ::testing::Test {
 protected:
  static constexpr int kContext = 1024;

  static const model::Model& model() {
    static const model::Model model(REDLITE_DEMO_MODEL);
    return model;
  }
  static const tokenizer::Tokenizer& tokenizer() {
    static const tokenizer::Tokenizer tokenizer(model().file());
    return tokenizer;
  }
  static std::unique_ptr<model::Runner> runner(cpu::KvType kv = cpu::KvType::F32) {
    cpu::CpuOptions options;
    options.context = kContext;
    options.threads = 2;
    options.kv = kv;
    return std::make_unique<cpu::CpuRunner>(model(), options);
  }
  static std::unique_ptr<Engine> engine(EngineOptions options = {},
                                        std::unique_ptr<model::Runner> with = runner()) {
    return std::make_unique<Engine>(model(), tokenizer(), std::move(with), std::move(options));
  }

  static Request request(std::vector<model::Token> prompt, int max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    return request;
  }
  static Request request(std::string_view prompt, int max_tokens) {
    return request(tokenizer().encode_prompt(prompt, true), max_tokens);
  }
  /// A prompt of n tokens; those of the same kind begin alike.
  static std::vector<model::Token> tokens(int n, int kind = 0) {
    std::vector<model::Token> all = redlite::testing::some_tokens(n + kind, model().config().n_vocab);
    all.erase(all.begin(), all.begin() + kind);
    return all;
  }

  static std::vector<model::Token> tokens_of(const WholeAnswer& answer) {
    std::vector<model::Token> tokens;
    for (const AnswerToken& token : answer.tokens) tokens.push_back(token.token);
    return tokens;
  }
  /// Logits of every step.
  using Logits = std::vector<std::vector<float>>;
  static std::pair<WholeAnswer, Logits> ask(Engine& engine, Request request) {
    const auto recorder = std::make_shared<Recorder>();
    request.filter = recorder;
    WholeAnswer answer = engine.submit(std::move(request))->wait();
    return {std::move(answer), recorder->all};
  }
  /// The same, of an engine that has done nothing else and keeps nothing.
  static std::pair<WholeAnswer, Logits> ask_cold(const Request& request) {
    EngineOptions options;
    options.state_bytes = 0;
    return ask(*engine(options), request);
  }
};

}  // namespace redlite::session
