#include "session/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>
#include <utility>

#include "base/memory.h"
#include "session/fingerprint.h"
#include "session/worker.h"

namespace redlite::session {
namespace {

PromptStates open_states(const model::Model& model, model::Runner& runner, const EngineOptions& options) {
  const model::Config& config = model.config();
  StateShape shape{.fingerprint = {},
                   .mark_bytes = 0,
                   .position_bytes = 0,
                   .capacity = runner.capacity(),
                   .n_vocab = config.n_vocab};
  const std::string format = runner.state_format();
  if (format.empty()) {
    if (!options.state_dir.empty())
      options.log("this backend's states cannot be saved: the state folder is not used");
    return {shape, options.state_bytes, nullptr};
  }
  const model::Sequence::StateBytes bytes = runner.make_sequence()->state_bytes().value();
  shape.mark_bytes = bytes.mark;
  shape.position_bytes = bytes.position;
  if (options.state_dir.empty()) return {shape, options.state_bytes, nullptr};
  const auto hash = fingerprint(model, fmt::format("{}\n{}", options.build, format));
  std::ranges::copy(hash, shape.fingerprint);
  return {shape, options.state_bytes,
          std::make_unique<StateFolder>(options.state_dir, shape, options.state_dir_bytes, options.log)};
}

EngineOptions checked(EngineOptions options) {
  if (options.parallel < 1) fail("{} answers at a time; use at least 1", options.parallel);
  if (options.max_queued < 0) fail("{} requests that may wait; use 0 or more", options.max_queued);
  if (!options.log) options.log = [](const std::string&) {};
  return options;
}

}  // namespace

struct Engine::Impl {
  Impl(const model::Model& m, const tokenizer::Tokenizer& tokenizer, std::unique_ptr<model::Runner> r,
       EngineOptions o)
      : model(m),
        runner(std::move(r)),
        options(checked(std::move(o))),
        capacity(runner->capacity()),
        worker(tokenizer, *runner, open_states(model, *runner, options), options, shared),
        thread([this] { worker.run(); }) {}

  const model::Model& model;
  const std::unique_ptr<model::Runner> runner;
  const EngineOptions options;
  const int capacity;
  const Clock::time_point start = Clock::now();
  Shared shared;
  Worker worker;
  std::mutex joining;
  std::thread thread;
};

Engine::Engine(const model::Model& model, const tokenizer::Tokenizer& tokenizer,
               std::unique_ptr<model::Runner> runner, EngineOptions options)
    : impl_(std::make_unique<Impl>(model, tokenizer, std::move(runner), std::move(options))) {}

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

  Shared& shared = impl_->shared;
  auto job = std::make_shared<Answer::Job>(std::move(request), shared.wake);
  {
    const std::lock_guard lock(shared.mutex);
    if (!shared.accepting) throw ShuttingDown("the server is shutting down");
    // A client that waits for nothing yet gets room that others have not taken.
    const size_t most = static_cast<size_t>(impl_->options.max_queued);
    const size_t room = shared.queue.has(job->request.client) ? most : 2 * most;
    const size_t queued = shared.queue.size();
    const int idle = shared.statistics.parallel - shared.statistics.active;
    if (queued >= room + static_cast<size_t>(std::max(idle, 0))) {
      ++shared.statistics.refused;
      const double turns = static_cast<double>(queued + 1) / shared.statistics.parallel;
      const int seconds = static_cast<int>(std::clamp(std::ceil(turns * shared.request_seconds), 1.0, 120.0));
      throw QueueFull(fmt::format("{} requests are waiting already; try again in {} s", queued, seconds),
                      seconds);
    }
    shared.queue.push(job);
    ++shared.statistics.requests;
  }
  shared.wake->raise();
  return std::make_shared<Answer>(std::move(job));
}

void Engine::shutdown(std::chrono::milliseconds grace) {
  Shared& shared = impl_->shared;
  {
    std::unique_lock lock(shared.mutex);
    shared.accepting = false;
    shared.stop = true;
    shared.ended.wait_for(lock, grace,
                          [&] { return shared.queue.size() == 0 && shared.statistics.active == 0; });
  }
  shared.cancel_all = true;
  shared.wake->raise();
  const std::lock_guard joining(impl_->joining);
  if (impl_->thread.joinable()) impl_->thread.join();
}

int Engine::capacity() const {
  return impl_->capacity;
}

Statistics Engine::statistics() const {
  Statistics now;
  {
    const std::lock_guard lock(impl_->shared.mutex);
    now = impl_->shared.statistics;
    now.queued = static_cast<int>(impl_->shared.queue.size());
  }
  now.uptime_seconds = seconds_since(impl_->start);
  now.resident_bytes = resident_memory();
  now.peak_resident_bytes = peak_resident_memory();
  return now;
}

ExpertMap Engine::expert_map() const {
  Shared& shared = impl_->shared;
  const auto now = Clock::now();
  bool wake = false;
  ExpertMap map;
  {
    const std::lock_guard lock(shared.mutex);
    wake = now - shared.experts_wanted > std::chrono::seconds(5);
    shared.experts_wanted = now;
    map = shared.experts;
  }
  if (wake) shared.wake->raise();
  return map;
}

}  // namespace redlite::session
