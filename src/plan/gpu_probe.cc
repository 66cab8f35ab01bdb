#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "bench/measure.h"
#include "bench/workload.h"
#include "engine/sampler.h"
#include "plan/gpu_plan.h"
#include "plan/reuse.h"

namespace redlite::plan {
namespace {

using model::LogitsFor;
using model::Token;

template <typename F>
double seconds_of(const F& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Fewer misses than this say nothing about misses.
constexpr double kFew = 16;
constexpr double kProbeSeconds = 5;
constexpr size_t kShortest = 40, kRepeated = 4;

}  // namespace

GpuProbe probe_gpu(gpu::GpuRunner& runner, const model::Model& model, double bus, int n_prompt, int n_text,
                   MissCurves& curves, const std::function<void(double)>& progress) {
  const model::Config& c = model.config();
  RL_CHECK(n_text >= 8 && n_text <= runner.capacity() && n_prompt <= runner.capacity());
  const bool device = runner.residency() == gpu::Residency::device;
  GpuProbe out;
  out.cache = runner.device_use().cache;
  const std::vector<Token> prompt = bench::random_tokens(n_prompt, c.n_vocab, 1);

  // A prompt whose experts come over the bus in one stream, whichever it uses: with all tokens at once.
  if (curves.prompt.empty() || runner.streams(n_prompt)) {
    // Enough to know which experts random tokens share; where tokens run one by one more would take long.
    const size_t n = runner.streams(n_prompt) ? prompt.size() : std::min<size_t>(prompt.size(), 48);
    const UseRecorder recorder(runner, c.n_layers);
    runner.forward(std::span(prompt).first(n), LogitsFor::Last);
    if (curves.prompt.empty())
      curves.prompt = miss_curve(recorder.uses(), recorder.tokens() / 2, c.n_experts);
  }
  progress(0.2);
  if (runner.streams(n_prompt)) {
    std::vector<double> seconds;
    for (int i = 0; i < 3; ++i) {
      runner.reset();
      seconds.push_back(seconds_of([&] { runner.forward(prompt, LogitsFor::Last); }));
    }
    out.prompt_seconds = bench::median(seconds);
  }
  if (device && runner.streams(n_prompt)) {
    runner.reset();
    runner.set_profile(true);
    runner.forward(prompt, LogitsFor::Last);
    for (const auto& [kernel, stage] : runner.profile()->stages())
      if (kernel != gpu::LoadExperts::kName) out.prompt_kernel_seconds += stage.milliseconds / 1000;
    runner.set_profile(false);
  }
  progress(0.4);

  // A text, written with the router's choices shown, which costs time, and then all of it again without: what
  // the second half misses then, after the first, the curve of the two tells, too, so what is less is
  // prefetch. Its last tokens once more have all experts in their slots.
  runner.reset();
  std::vector<Token> text = bench::random_tokens(1, c.n_vocab, 2);
  Uses uses;
  {
    const UseRecorder recorder(runner, c.n_layers);
    engine::SamplerOptions sampling;
    sampling.temperature = 1;  // greedy text may run in a circle
    engine::Sampler sampler(sampling);
    const auto most = static_cast<size_t>(n_text);
    const auto start = std::chrono::steady_clock::now();
    const auto late = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > kProbeSeconds;
    };
    for (size_t i = 0; i < most && (i < kShortest || !late()); ++i) {
      text.push_back(sampler.sample(runner.forward({&text[i], 1}, LogitsFor::Last)));
      progress(0.4 + 0.4 * static_cast<double>(i) / n_text);
    }
    uses = recorder.uses();
  }
  const size_t n = text.size() - 1, half = n / 2, last = n - kRepeated;
  if (curves.text.empty()) curves.text = miss_curve(uses, half, c.n_experts);
  const auto run = [&](size_t first, size_t end) {
    std::vector<double> seconds;
    for (size_t i = first; i < end; ++i)
      seconds.push_back(seconds_of([&] { runner.forward({&text[i], 1}, LogitsFor::Last); }));
    return seconds;
  };
  runner.reset();
  run(0, half);  // captures graphs, measures costs
  const gpu::GpuRunner::Selections before = runner.selections();
  double seconds = 0;
  for (const double one : run(half, last)) seconds += one;
  const gpu::GpuRunner::Selections after = runner.selections();
  const std::unique_ptr<model::Mark> at_last = runner.mark();
  std::vector<double> resident;
  for (int i = 0; i < 4; ++i) {
    runner.rewind(*at_last);
    const std::vector<double> some = run(last, n);
    if (i > 0) resident.insert(resident.end(), some.begin(), some.end());
  }
  progress(1);

  out.token_seconds = bench::median(resident);
  const auto selected = static_cast<double>(after.all - before.all);
  const double missed = selected - static_cast<double>(after.hits - before.hits);
  const double spent = seconds - static_cast<double>(last - half) * out.token_seconds;
  // No expert comes faster than the bus brings it.
  const double expert_bytes = static_cast<double>(model.expert_bytes()) / c.n_layers / c.n_experts;
  out.miss_seconds = std::max(missed >= kFew ? spent / missed : 0.0, expert_bytes / bus);
  for (auto& tokens : uses) {
    const std::vector<std::vector<int>> once = tokens;
    tokens.insert(tokens.end(), once.begin(), once.begin() + static_cast<ptrdiff_t>(last));
  }
  const double part =
      static_cast<double>(out.cache) / static_cast<double>(gpu::DeviceModel::expert_bytes(model));
  const std::vector<double> again = miss_curve(uses, n + half, c.n_experts);
  const double expected =
      selected * again[std::min(static_cast<size_t>(part * c.n_experts), again.size() - 1)];
  if (expected >= kFew) out.kept = std::min(1.0, missed / expected);
  return out;
}

void predict_gpu(const model::Config& c, uint64_t all, const GpuProbe& probe, const MissCurves& curves,
                 int n_prompt, GpuChoice& choice) {
  const bool resident = choice.residency == gpu::Residency::full;
  const double part = std::min(1.0, static_cast<double>(choice.cache) / static_cast<double>(all));
  const auto slots = static_cast<size_t>(part * c.n_experts);
  const double selections = static_cast<double>(c.n_layers) * c.n_experts_used;
  const auto token = [&](const std::vector<double>& misses) {
    const double missed = resident ? 0 : probe.kept * misses[std::min(slots, misses.size() - 1)];
    return std::pair(missed, probe.token_seconds + missed * selections * probe.miss_seconds);
  };
  const auto [missed, seconds] = token(curves.text);
  choice.hit_rate = 1 - missed;
  choice.decode_tok_s = 1 / seconds;
  if (resident && probe.prompt_kernel_seconds > 0) {
    choice.prefill_tok_s = n_prompt / probe.prompt_kernel_seconds;
  } else if (!resident && n_prompt >= gpu::GpuOptions{}.streamed_from && probe.prompt_seconds > 0) {
    choice.prefill_tok_s = n_prompt / probe.prompt_seconds;
  } else {
    choice.prefill_tok_s = 1 / token(curves.prompt).second;
  }
}

}  // namespace redlite::plan
