#include "plan/probe.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "bench/workload.h"
#include "engine/sampler.h"
#include "experts/cache.h"
#include "plan/reuse.h"

namespace redlite::plan {
namespace {

using model::LogitsFor;
using model::Token;

constexpr int kPrompt = 32, kLeastText = 40, kMostText = 160, kTwice = 8, kSame = 128;
constexpr double kTextSeconds = 5;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What a runner had done at some moment; the difference of two is what happened between.
struct Moment {
  double time, experts, stall, bytes_read;

  explicit Moment(const cpu::CpuRunner& runner)
      : time(seconds_now()),
        experts(runner.stage_times().experts),
        stall(runner.cache_stats().stall_seconds),
        bytes_read(static_cast<double>(runner.cache_stats().bytes_read)) {}
  Moment operator-(const Moment& from) const {
    Moment out = *this;
    out.time -= from.time;
    out.experts -= from.experts;
    out.stall -= from.stall;
    out.bytes_read -= from.bytes_read;
    return out;
  }
};

}  // namespace

int probe_context() {
  return 1 + kPrompt + kMostText + kSame;
}

Probe probe(const model::Model& model, cpu::CpuOptions options, uint64_t cache_bytes,
            double disk_bytes_per_second, const std::function<void(double)>& progress) {
  const model::Config& c = model.config();
  options.context = probe_context();
  options.cache.size = {experts::CacheSize::Kind::Bounded, cache_bytes};
  cpu::CpuRunner runner(model, options);
  const UseRecorder recorder(runner, c.n_layers);
  const Uses& uses = recorder.uses();
  const auto layers = static_cast<double>(c.n_layers);
  const auto done = [&](double part) {
    if (progress) progress(part);
  };
  Probe out;

  // Dense weights come into memory with the first token.
  const Token zero = 0;
  runner.forward({&zero, 1}, LogitsFor::None);
  done(0.15);

  const std::vector<Token> prompt = bench::random_tokens(kPrompt, c.n_vocab, 1);
  Moment start(runner);
  std::span<const float> logits = runner.forward(prompt, LogitsFor::Last);
  const Moment random = Moment(runner) - start;
  done(0.5);
  const double distinct = layers * distinct_uses(uses, 1, recorder.tokens());
  out.spread = spread_of(distinct / layers, kPrompt, c.n_experts_used, c.n_experts);

  // A text at temperature 1, for greedy text may run in a circle; long enough that most experts that it comes
  // back to have been seen, if that does not take too long.
  engine::SamplerOptions sampling;
  sampling.temperature = 1;
  engine::Sampler sampler(sampling);
  const size_t before_text = recorder.tokens();
  std::vector<Token> text;
  std::vector<double> text_seconds;
  std::unique_ptr<model::Mark> mark;
  const double text_start = seconds_now();
  for (int left = kMostText; left > 0; --left) {
    const int n = kMostText - left;
    if (left > kTwice && n >= kLeastText - kTwice && seconds_now() - text_start > kTextSeconds) left = kTwice;
    if (left == kTwice) mark = runner.mark();
    text.push_back(sampler.sample(logits));
    const double one = seconds_now();
    logits = runner.forward({&text.back(), 1}, LogitsFor::Last);
    text_seconds.push_back(seconds_now() - one);
  }
  done(0.8);
  const size_t half = text.size() / 2;
  out.misses = miss_curve(uses, before_text + half, c.n_experts);

  // The same tokens again: now their experts are in memory.
  runner.rewind(*mark);
  std::vector<double> seconds;
  double experts = 0;
  for (const Token token : std::span(text).last(kTwice)) {
    start = Moment(runner);
    runner.forward({&token, 1}, LogitsFor::Last);
    const Moment one = Moment(runner) - start;
    seconds.push_back(one.time - one.stall);
    experts += (one.experts - one.stall) / kTwice;
  }
  std::ranges::sort(seconds);
  out.token_seconds = (seconds[kTwice / 2 - 1] + seconds[kTwice / 2]) / 2;
  done(0.85);

  // What the text's second half took beyond that are its misses, less what prefetch saved of them.
  const double selections = layers * c.n_experts_used;
  const double part =
      static_cast<double>(cache_bytes) / static_cast<double>(experts::ExpertCache::full_bytes(model));
  const auto slots = std::min(static_cast<size_t>(part * c.n_experts), out.misses.size() - 1);
  const double missed = out.misses[slots] * selections * static_cast<double>(text.size() - half);
  const double spent =
      std::accumulate(text_seconds.begin() + static_cast<ptrdiff_t>(half), text_seconds.end(),
                      -static_cast<double>(text.size() - half) * out.token_seconds);
  const double expert_bytes = static_cast<double>(model.expert_bytes()) / (layers * c.n_experts);
  out.miss_seconds = missed >= 1 ? std::max(spent, 0.0) / missed : expert_bytes / disk_bytes_per_second;

  // One token over and over: a prompt's dense work, with few experts of many tokens.
  const size_t before = recorder.tokens();
  const std::vector<Token> same(kSame, text.back());
  start = Moment(runner);
  runner.forward(same, LogitsFor::Last);
  const Moment repeated = Moment(runner) - start;
  done(1);
  const double shared = layers * distinct_uses(uses, before, recorder.tokens());
  out.prompt_token_seconds = (repeated.time - repeated.experts) / kSame;
  // Two runs, two unknowns: seconds = experts used * a + selections * b.
  const double in_prompt = repeated.experts - repeated.stall;
  const double a = (kSame * experts - in_prompt) / (kSame * selections - shared);
  out.expert_seconds = std::clamp(a, 0.0, experts / selections);
  out.expert_token_seconds = experts / selections - out.expert_seconds;

  const double computed = kPrompt * out.prompt_token_seconds + distinct * out.expert_seconds +
                          kPrompt * selections * out.expert_token_seconds;
  // A prompt that had to wait for its experts says how fast they come; another one, how fast at least.
  const double came = random.bytes_read / random.time;
  out.miss_bytes_per_second = random.time > 1.2 * computed ? came : std::max(disk_bytes_per_second, came);
  return out;
}

}  // namespace redlite::plan
