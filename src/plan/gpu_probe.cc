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

}  // namespace

GpuProbe probe_gpu(gpu::GpuRunner& runner, const model::Model& model, int n_prompt, int n_text,
                   MissCurves& curves, const std::function<void(double)>& progress) {
  const model::Config& c = model.config();
  RL_CHECK(n_text >= 8 && n_text <= runner.capacity() && n_prompt <= runner.capacity());
  const bool device = runner.residency() == gpu::Residency::device;
  GpuProbe out;
  out.cache = runner.device_use().cache;
  const std::vector<Token> prompt = bench::random_tokens(n_prompt, c.n_vocab, 1);

  // A prompt whose experts come over the bus in one stream, whichever it uses: with all tokens at once.
  if (curves.prompt.empty() || (device && runner.streams(n_prompt))) {
    // Enough to know which experts random tokens share; where tokens run one by one more would take long.
    const size_t n = runner.streams(n_prompt) ? prompt.size() : std::min<size_t>(prompt.size(), 48);
    const UseRecorder recorder(runner, c.n_layers);
    runner.forward(std::span(prompt).first(n), LogitsFor::Last);
    if (curves.prompt.empty())
      curves.prompt = miss_curve(recorder.uses(), recorder.tokens() / 2, c.n_experts);
  }
  progress(0.2);
  if (device && runner.streams(n_prompt)) {
    std::vector<double> seconds;
    for (int i = 0; i < 3; ++i) {
      runner.reset();
      seconds.push_back(seconds_of([&] { runner.forward(prompt, LogitsFor::Last); }));
    }
    out.prompt_seconds = bench::median(seconds);
    runner.reset();
    runner.set_profile(true);
    runner.forward(prompt, LogitsFor::Last);
    for (const auto& [kernel, stage] : runner.profile()->stages())
      if (kernel != gpu::LoadExperts::kName) out.prompt_kernel_seconds += stage.milliseconds / 1000;
    runner.set_profile(false);
  }
  progress(0.4);

  // A text, and the second half of it again: what it misses then the curve tells, too, so the rest is
  // prefetch. Its last tokens once more have all experts in their slots.
  runner.reset();
  const auto half = static_cast<size_t>(n_text) / 2, last = static_cast<size_t>(n_text) - 4;
  std::vector<Token> text = bench::random_tokens(1, c.n_vocab, 2);
  std::unique_ptr<model::Mark> at_half, at_last;
  Uses uses;
  {
    const UseRecorder recorder(runner, c.n_layers);
    engine::SamplerOptions sampling;
    sampling.temperature = 1;  // greedy text may run in a circle
    engine::Sampler sampler(sampling);
    for (size_t i = 0; i < static_cast<size_t>(n_text); ++i) {
      if (i == half) at_half = runner.mark();
      if (i == last) at_last = runner.mark();
      text.push_back(sampler.sample(runner.forward({&text[i], 1}, LogitsFor::Last)));
      progress(0.4 + 0.4 * static_cast<double>(i) / n_text);
    }
    uses = recorder.uses();
  }
  if (curves.text.empty()) curves.text = miss_curve(uses, half, c.n_experts);
  const auto run = [&](size_t first, size_t end) {
    std::vector<double> seconds;
    for (size_t i = first; i < end; ++i)
      seconds.push_back(seconds_of([&] { runner.forward({&text[i], 1}, LogitsFor::Last); }));
    return seconds;
  };
  run(static_cast<size_t>(n_text) - 1, static_cast<size_t>(n_text));  // captures graphs, measures costs
  runner.rewind(*at_half);
  const gpu::GpuRunner::Selections before = runner.selections();
  double seconds = 0;
  for (const double one : run(half, static_cast<size_t>(n_text))) seconds += one;
  const gpu::GpuRunner::Selections after = runner.selections();
  std::vector<double> resident;
  for (int i = 0; i < 4; ++i) {
    runner.rewind(*at_last);
    const std::vector<double> some = run(last, static_cast<size_t>(n_text));
    if (i > 0) resident.insert(resident.end(), some.begin(), some.end());
  }
  progress(1);

  out.token_seconds = bench::median(resident);
  const double selected = static_cast<double>(after.all - before.all);
  const double missed = selected - static_cast<double>(after.hits - before.hits);
  const double n_again = static_cast<double>(n_text) - static_cast<double>(half);
  if (missed > 0) out.miss_seconds = std::max(0.0, seconds - n_again * out.token_seconds) / missed;
  for (size_t l = 0; l < uses.size(); ++l)
    uses[l].insert(uses[l].end(), uses[l].begin() + static_cast<ptrdiff_t>(half), uses[l].end());
  const double part =
      static_cast<double>(out.cache) / static_cast<double>(gpu::DeviceModel::expert_bytes(model));
  const std::vector<double> again = miss_curve(uses, static_cast<size_t>(n_text), c.n_experts);
  const double expected = again[std::min(static_cast<size_t>(part * c.n_experts), again.size() - 1)];
  if (expected > 0 && selected > 0) out.kept = std::min(1.0, missed / selected / expected);
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
  } else if (choice.residency == gpu::Residency::device && n_prompt >= gpu::GpuOptions{}.streamed_from &&
             probe.prompt_seconds > 0) {
    choice.prefill_tok_s = n_prompt / probe.prompt_seconds;
  } else {
    choice.prefill_tok_s = 1 / token(curves.prompt).second;
  }
}

}  // namespace redlite::plan
