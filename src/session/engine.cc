#include "session/engine.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/memory.h"
#include "session/answer_writer.h"
#include "session/fair_queue.h"
#include "session/job.h"

namespace redlite::session {

struct Engine::Impl {
  Impl(const model::Model& m, const tokenizer::Tokenizer& t, std::unique_ptr<model::Runner> r,
       EngineOptions o)
      : model(m), tokenizer(t), runner(std::move(r)), options(std::move(o)), capacity(runner->capacity()) {
    statistics.parallel = options.parallel;
  }

  void work();
  void answer(Answer::Job& job);
  void publish();
  void end(Answer::Job& job, Event event);

  const model::Model& model;
  const tokenizer::Tokenizer& tokenizer;
  std::unique_ptr<model::Runner> runner;
  const EngineOptions options;
  const int capacity;
  const Clock::time_point start = Clock::now();

  std::shared_ptr<WakeUp> wake = std::make_shared<WakeUp>();
  std::mutex mutex;  ///< of what follows
  FairQueue queue;
  Statistics statistics;
  ExpertMap experts;
  bool accepting = true;
  bool stop = false;  ///< the thread is to end when it has nothing to do
  std::atomic<bool> cancel_all{false};

  std::mutex joining;
  std::thread thread;
};

void Engine::Impl::work() {
  for (;;) {
    std::shared_ptr<Answer::Job> job;
    {
      const std::lock_guard lock(mutex);
      job = queue.pop();
      statistics.active = job ? 1 : 0;
      if (!job && stop) return;
    }
    if (job) {
      try {
        answer(*job);
      } catch (const std::exception& e) {
        end(*job, Failed{e.what()});
      }
      publish();
      continue;
    }
    std::unique_lock lock(wake->mutex);
    wake->changed.wait(lock, [&] { return std::exchange(wake->raised, false); });
  }
}

void Engine::Impl::answer(Answer::Job& job) {
  const Request& request = job.request;
  Usage usage;
  usage.prompt_tokens = static_cast<int>(request.prompt.size());
  usage.queue_seconds = seconds_since(job.submitted);
  const auto stopped = [&] { return job.cancelled() || cancel_all; };
  const auto finish = [&](Finished end, Clock::time_point decode, int tokens) {
    end.usage = usage;
    end.usage.answer_tokens = tokens;
    end.usage.decode_seconds = seconds_since(decode);
    this->end(job, std::move(end));
  };
  if (stopped()) return finish({FinishReason::Cancelled, {}, {}}, Clock::now(), 0);

  AnswerWriter writer(tokenizer, request, capacity - usage.prompt_tokens);
  const Clock::time_point prefill = Clock::now();
  job.send(ReadingProgress{0, usage.prompt_tokens, 0});
  runner->reset();
  std::span<const float> logits = runner->forward(request.prompt, model::LogitsFor::Last);
  job.send(ReadingProgress{usage.prompt_tokens, usage.prompt_tokens, 0});
  usage.prefill_seconds = seconds_since(prefill);
  const Clock::time_point decode = Clock::now();
  for (;;) {
    if (stopped()) return finish({FinishReason::Cancelled, {}, {}}, decode, writer.tokens());
    AnswerWriter::Step step = writer.step(logits);
    if (!step.piece.tokens.empty() || !step.piece.text.empty()) job.send(std::move(step.piece));
    if (step.end) return finish(std::move(*step.end), decode, writer.tokens());
    logits = runner->forward({&*step.next, 1}, model::LogitsFor::Last);
    publish();
  }
}

void Engine::Impl::end(Answer::Job& job, Event event) {
  {
    const std::lock_guard lock(mutex);
    if (const auto* finished = std::get_if<Finished>(&event)) {
      ++(finished->reason == FinishReason::Cancelled ? statistics.cancelled : statistics.finished);
      statistics.prompt_tokens += finished->usage.prompt_tokens;
      statistics.read_tokens += finished->usage.prompt_tokens;
      statistics.answer_tokens += finished->usage.answer_tokens;
      statistics.prefill_seconds += finished->usage.prefill_seconds;
      statistics.decode_seconds += finished->usage.decode_seconds;
    } else {
      ++statistics.failed;
    }
  }
  job.send(std::move(event));
}

void Engine::Impl::publish() {
  if (!options.report) return;
  RunnerReport report;
  options.report(report, true);
  const std::lock_guard lock(mutex);
  experts = std::move(report.experts);
  report.experts = {};
  statistics.runner = std::move(report);
}

Engine::Engine(const model::Model& model, const tokenizer::Tokenizer& tokenizer,
               std::unique_ptr<model::Runner> runner, EngineOptions options)
    : impl_(std::make_unique<Impl>(model, tokenizer, std::move(runner), std::move(options))) {
  impl_->publish();
  impl_->thread = std::thread([impl = impl_.get()] { impl->work(); });
}

Engine::~Engine() {
  shutdown(std::chrono::milliseconds(0));
}

std::shared_ptr<Answer> Engine::submit(Request request) {
  const int n_vocab = impl_->model.config().n_vocab;
  const size_t n = request.prompt.size();
  if (n == 0) fail("the prompt is empty: give at least one token");
  if (n >= static_cast<size_t>(impl_->capacity)) {
    fail(
        "a prompt of {} tokens leaves no room for an answer in a context of {}; use a larger context or a "
        "shorter prompt",
        n, impl_->capacity);
  }
  for (const model::Token token : request.prompt) {
    if (token < 0 || token >= n_vocab)
      fail("token {} is outside the vocabulary: ids are 0 to {}", token, n_vocab - 1);
  }
  if (!std::ranges::is_sorted(request.boundaries)) fail("the prompt's boundaries do not rise");
  for (const std::string& stop : request.stop) {
    if (stop.empty()) fail("a stop string is empty");
  }
  const engine::Sampler check(request.sampler);

  auto job = std::make_shared<Answer::Job>(std::move(request), impl_->wake);
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->accepting) throw ShuttingDown("the server is shutting down");
    const size_t most = static_cast<size_t>(impl_->options.max_queued);
    const size_t room = impl_->queue.has(job->request.client) ? most : 2 * most;
    if (impl_->queue.size() >= room) {
      ++impl_->statistics.refused;
      throw QueueFull(fmt::format("{} requests are waiting already; try again later", impl_->queue.size()),
                      1);
    }
    impl_->queue.push(job);
    ++impl_->statistics.requests;
  }
  impl_->wake->raise();
  return std::make_shared<Answer>(std::move(job));
}

void Engine::shutdown(std::chrono::milliseconds grace) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->accepting = false;
    impl_->stop = true;
  }
  const std::lock_guard joining(impl_->joining);
  if (!impl_->thread.joinable()) return;
  const Clock::time_point end = Clock::now() + grace;
  for (;;) {
    const Statistics now = statistics();
    if ((now.queued == 0 && now.active == 0) || Clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  impl_->cancel_all = true;
  impl_->wake->raise();
  impl_->thread.join();
}

int Engine::capacity() const {
  return impl_->capacity;
}

Statistics Engine::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  Statistics now = impl_->statistics;
  now.uptime_seconds = seconds_since(impl_->start);
  now.queued = static_cast<int>(impl_->queue.size());
  now.resident_bytes = resident_memory();
  now.peak_resident_bytes = peak_resident_memory();
  return now;
}

ExpertMap Engine::expert_map() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->experts;
}

}  // namespace redlite::session
