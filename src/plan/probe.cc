#include "plan/probe.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "bench/counters.h"
#include "bench/workload.h"
#include "experts/cache.h"
#include "plan/reuse.h"

namespace redlite::plan {
namespace {

using model::LogitsFor;
using model::Token;

constexpr int kShortPrompt = 32, kLeastPrompt = 128, kMostPrompt = 512;  ///< tokens of the prompts
constexpr int kLeastText = 40, kMostText = 192;
constexpr double kPromptSeconds = 2.5, kTextSeconds = 6;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What a pass took, and what of it was waiting for experts.
struct Pass {
  double seconds = 0, stall = 0, bytes_read = 0;
  double computed() const { return seconds - stall; }
};

class Prober {
 public:
  Prober(const model::Model& model, cpu::CpuRunner& runner, bool bounded)
      : model_(model), runner_(runner), bounded_(bounded), recorder_(runner, model.config().n_layers) {}

  const Uses& uses() const { return recorder_.uses(); }
  size_t tokens() const { return recorder_.tokens(); }

  Pass run(std::span<const Token> tokens) {
    const experts::CacheStats before = runner_.cache_stats();
    const double start = seconds_now();
    logits_ = runner_.forward(tokens, LogitsFor::Last);
    const double seconds = seconds_now() - start;
    const experts::CacheStats after = runner_.cache_stats();
    return {seconds, after.stall_seconds - before.stall_seconds,
            static_cast<double>(after.bytes_read - before.bytes_read)};
  }

  /// Of random tokens, other ones each time, as a cache must not know them. Of three passes the first is not
  /// counted, nor of two through a cache, which is new to its memory; where they take long there are no more.
  Pass prompt(int n) {
    const size_t least = bounded_ ? 2 : 1;
    std::vector<Pass> passes;
    const double start = seconds_now();
    do {
      runner_.reset();
      passes.push_back(run(bench::random_tokens(n, model_.config().n_vocab, ++seed_)));
    } while (passes.size() < 3 && (passes.size() < least || seconds_now() - start < kPromptSeconds));
    if (passes.size() > 1) passes.erase(passes.begin());
    Pass mean;
    const auto count = static_cast<double>(passes.size());
    for (const Pass& pass : passes) {
      mean.seconds += pass.seconds / count;
      mean.stall += pass.stall / count;
      mean.bytes_read += pass.bytes_read / count;
    }
    return mean;
  }

  std::span<const float> logits() const { return logits_; }
  double distinct_of_last(int n) const {
    return distinct_uses(uses(), tokens() - static_cast<size_t>(n), tokens());
  }

 private:
  const model::Model& model_;
  cpu::CpuRunner& runner_;
  bool bounded_;
  UseRecorder recorder_;
  uint32_t seed_ = 0;
  std::span<const float> logits_;
};

/// How fast prompts compute: two lengths, two unknowns. Of the longer one, which is the likelier, the sum is
/// right in any case.
void fit_prompts(const Pass& few, const Pass& many, int n_many, double distinct_few, double distinct_many,
                 Probe& out) {
  const double shared =
      n_many * distinct_few - kShortPrompt * distinct_many;  // 0: no two tokens share an expert
  const double a =
      shared > 0 ? (many.computed() * distinct_few - few.computed() * distinct_many) / shared : 0;
  out.prompt_token_seconds = std::clamp(a, 0.0, many.computed() / n_many);
  out.expert_seconds = (many.computed() - n_many * out.prompt_token_seconds) / distinct_many;
}

}  // namespace

Probe probe(const model::Model& model, cpu::CpuOptions options, std::optional<uint64_t> cache_bytes,
            int n_prompt, double disk_bytes_per_second, const std::function<void(double)>& progress) {
  const model::Config& c = model.config();
  const int n_long = std::clamp(n_prompt, kLeastPrompt, kMostPrompt);
  options.context = std::max(n_long, kMostText);
  if (cache_bytes) options.cache.size = {experts::CacheSize::Kind::Bounded, *cache_bytes};
  cpu::CpuRunner runner(model, options);
  Prober prober(model, runner, cache_bytes.has_value());
  const auto layers = static_cast<double>(c.n_layers);
  const auto done = [&](double part) {
    if (progress) progress(part);
  };
  Probe out;
  if (cache_bytes)
    out.part = std::min(1.0, static_cast<double>(*cache_bytes) /
                                 static_cast<double>(experts::ExpertCache::full_bytes(model)));

  // Dense weights come into memory with the first token, and into huge pages by a thread that takes a core.
  const Token zero = 0;
  prober.run({&zero, 1});
  runner.wait_for_weight_pages();
  done(0.15);

  const Pass few = prober.prompt(kShortPrompt);
  const double distinct_few = layers * prober.distinct_of_last(kShortPrompt);
  done(0.25);
  const Pass many = prober.prompt(n_long);
  const double distinct_many = layers * prober.distinct_of_last(n_long);
  done(0.6);
  fit_prompts(few, many, n_long, distinct_few, distinct_many, out);
  out.spread = spread_of(distinct_many / layers, n_long, c.n_experts_used, c.n_experts);
  // A prompt that had to wait for its experts says how fast they come; another one, how fast at least.
  const double came = many.bytes_read / many.seconds;
  out.miss_bytes_per_second = many.stall > 0.1 * many.seconds ? came : std::max(disk_bytes_per_second, came);

  // The benchmark's text, after a prompt as there; its first half only fills the cache.
  runner.reset();
  const size_t before_text = prober.tokens();
  bench::Writer writer(c.n_vocab);
  Token token = writer.first();
  std::vector<double> seconds;
  std::vector<bench::Counters> counted = {bench::counters_of(runner)};
  const double start = seconds_now();
  while (seconds.size() < kMostText &&
         (seconds.size() < kLeastText || seconds_now() - start < kTextSeconds)) {
    seconds.push_back(prober.run({&token, 1}).seconds);
    counted.push_back(bench::counters_of(runner));
    token = writer.next(prober.logits());
    done(0.6 + 0.4 * static_cast<double>(seconds.size()) / kMostText);
  }
  const size_t n = seconds.size(), half = n / 2;
  out.token_seconds = std::accumulate(seconds.begin() + static_cast<ptrdiff_t>(half), seconds.end(), 0.0) /
                      static_cast<double>(n - half);
  out.hit_rate = static_cast<double>(counted[n].hits - counted[half].hits) /
                 static_cast<double>(counted[n].selections - counted[half].selections);
  out.misses = miss_curve(prober.uses(), before_text + half, c.n_experts);
  return out;
}

}  // namespace redlite::plan
