#include "plan/plan.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/memory.h"
#include "bench/counters.h"
#include "bench/traffic.h"
#include "cpu/kernels.h"
#include "cpu/thread_pool.h"
#include "engine/open_runner.h"
#include "experts/cache.h"
#include "experts/layout.h"
#include "machine/memory_bandwidth.h"
#include "plan/measure.h"
#include "plan/probe.h"
#include "plan/reuse.h"

namespace redlite::plan {
namespace {

/// What ExpertCache::auto_size() leaves for others.
constexpr uint64_t kReserve = 512 * kMiB;

cpu::CpuOptions cpu_options(const Options& options, const Choice& choice) {
  cpu::CpuOptions cpu;
  cpu.context = options.context;
  cpu.threads = options.threads;
  cpu.kv = options.kv;
  if (choice.cache_mib) cpu.cache.size = {experts::CacheSize::Kind::Bounded, *choice.cache_mib * kMiB};
  return cpu;
}

Choice choice_of(const model::Model& model, const Options& options, std::optional<uint64_t> cache_mib,
                 uint64_t available) {
  Choice choice;
  choice.cache_mib = cache_mib;
  const cpu::CpuRunner::Memory memory = cpu::CpuRunner::memory_needed(model, cpu_options(options, choice));
  choice.cache = cache_mib ? *cache_mib * kMiB : experts::ExpertCache::full_bytes(model);
  choice.dense = memory.dense;
  choice.state = memory.state;
  choice.scratch = memory.scratch;
  choice.program = engine::MemoryBudget::kProgram;
  choice.fits = choice.total() + kReserve <= available;
  return choice;
}

/// Runs a choice as the benchmark does.
Speeds measure_choice(const model::Model& model, const Options& options, const Choice& choice) {
  const Length length{options.prompt, 64, 3};
  Options run = options;
  run.context = length.context();
  cpu::CpuRunner runner(model, cpu_options(run, choice));
  runner.wait_for_weight_pages();  // by a thread that takes a core
  return measure(model, runner, options.kv == cpu::KvType::F16 ? 2 : 4, length,
                 [&] { return bench::counters_of(runner); });
}

/// Twice, unless the machine is so busy that once took long: a machine's speed varies from moment to moment,
/// and what follows this plan has it as it is in the mean.
void measure_all(const model::Model& model, const Options& options, const Report& report, Plan& plan) {
  constexpr std::chrono::seconds kLong{10};
  const auto start = std::chrono::steady_clock::now();
  const size_t n = plan.choices.size();
  size_t times = 0;
  while (times == 0 || (times == 1 && std::chrono::steady_clock::now() - start < kLong)) {
    for (size_t i = 0; i < n; ++i) {
      report("running the model", static_cast<double>(times * n + i) / static_cast<double>(2 * n));
      Choice& choice = plan.choices[i];
      const Speeds speeds = measure_choice(model, options, choice);
      choice.prefill_tok_s += speeds.prefill_tok_s;
      choice.decode_tok_s += speeds.decode_tok_s;
      choice.hit_rate = speeds.hit_rate;
    }
    ++times;
  }
  for (Choice& choice : plan.choices) {
    choice.prefill_tok_s /= static_cast<double>(times);
    choice.decode_tok_s /= static_cast<double>(times);
  }
}

/// Runs the model with a cache of the least size, of the largest that fits, and with all experts mapped if
/// they fit; all else follows.
void predict_all(const model::Model& model, const Options& options, const Report& report, Plan& plan) {
  const model::Config& c = model.config();
  const uint64_t full = experts::ExpertCache::full_bytes(model);
  const Shape shape{c.n_layers, c.n_experts, c.n_experts_used,
                    static_cast<double>(model.expert_bytes()) / c.n_layers / c.n_experts, full};
  std::vector<uint64_t> caches;  // largest first
  for (const Choice& choice : plan.choices)
    if (choice.fits && choice.cache_mib) caches.push_back(choice.cache);
  const bool fits = plan.choices.front().fits;  // all of them
  const double steps = (caches.empty() ? 0 : caches.front() == caches.back() ? 1 : 2) + (fits ? 1 : 0);
  double step = 0;
  const auto run = [&](std::optional<uint64_t> cache) {
    cpu::CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.kv = options.kv;
    Probe result = probe(model, cpu, cache, options.prompt, plan.disk.bytes_per_second,
                         [&](double part) { report("running the model", (step + part) / steps); });
    ++step;
    return result;
  };
  Probes probes;
  if (!caches.empty()) {
    probes.least = run(caches.back());
    probes.most = caches.front() == caches.back() ? probes.least : run(caches.front());
  }
  if (fits) probes.mapped = run(std::nullopt);
  if (caches.empty()) probes.least = *probes.mapped;
  for (Choice& choice : plan.choices)
    if (choice.fits) predict(shape, options.prompt, probes, choice);
}

}  // namespace

std::vector<Choice> choices_for(const model::Model& model, const Options& options, uint64_t available) {
  const uint64_t full = experts::ExpertCache::full_bytes(model) / kMiB;
  const uint64_t least = experts::ExpertCache::minimum_bytes(model) / kMiB + 1;
  std::vector<Choice> choices = {choice_of(model, options, std::nullopt, available)};
  std::vector<uint64_t> sizes;
  for (const int eighths : {6, 4, 3, 2, 1}) sizes.push_back(full * static_cast<uint64_t>(eighths) / 8);
  // The most that is left, if that is not all.
  const uint64_t other = choice_of(model, options, least, available).total() - least * kMiB + kReserve;
  if (!choices.front().fits && available > other) sizes.push_back((available - other) / kMiB);
  std::ranges::sort(sizes, std::greater<>());
  for (const uint64_t size : sizes)
    if (size >= least && size < full && choices.back().cache_mib != size)
      choices.push_back(choice_of(model, options, size, available));
  if (choices.size() == 1 && least < full) choices.push_back(choice_of(model, options, least, available));
  return choices;
}

void predict(const Shape& shape, int n_prompt, const Probes& probes, Choice& choice) {
  const Probe &least = probes.least, &most = probes.most;
  // A long prompt is read in chunks, each of which needs its experts.
  const int batch = cpu::CpuOptions{}.batch;
  const int n_chunks = (n_prompt + batch - 1) / batch;
  const double distinct =
      distinct_of(least.spread, std::min(n_prompt, batch), shape.n_used) * shape.n_layers * n_chunks;
  const auto computed = [&](const Probe& p) {
    return n_prompt * p.prompt_token_seconds + distinct * p.expert_seconds;
  };
  if (!choice.cache_mib) {
    choice.hit_rate = 1;
    const Probe& mapped = probes.mapped.value();
    choice.decode_tok_s = 1 / mapped.token_seconds;
    choice.prefill_tok_s = n_prompt / computed(mapped);
    return;
  }
  // Between the probes all goes with what is missed; what prefetch leaves of that, too.
  const auto between = [](double at_least, double at_most, double where) {
    return at_most + (at_least - at_most) * where;
  };
  const double part =
      std::min(1.0, static_cast<double>(choice.cache) / static_cast<double>(shape.full_bytes));
  const auto missed = [&](double p) { return least.misses[static_cast<size_t>(p * shape.n_experts)]; };
  const double range = missed(least.part) - missed(most.part);
  const double where = range > 0 ? std::clamp((missed(part) - missed(most.part)) / range, 0.0, 1.0) : 0;
  choice.hit_rate = between(least.hit_rate, most.hit_rate, where);
  choice.decode_tok_s = 1 / between(least.token_seconds, most.token_seconds, where);

  // What is read costs the computation something even where nothing waits for it.
  const double width = most.part - least.part;
  const double at = width > 0 ? std::clamp((most.part - part) / width, 0.0, 1.0) : 0;
  const double read = (1 - part) * distinct * shape.expert_bytes / least.miss_bytes_per_second;
  choice.prefill_tok_s = n_prompt / std::max(between(computed(least), computed(most), at), read);
}

void check(const model::Model& model, const Options& options) {
  const int most = model.config().context_length;
  if (options.context > most) fail("--context {}: the model's is {}", options.context, most);
  if (options.prompt > options.context)
    fail("--prompt {} does not fit into a context of {}", options.prompt, options.context);
}

Plan make_plan(const model::Model& model, const Options& options, const Report& report) {
  Plan plan;
  plan.threads = options.threads > 0 ? options.threads : cpu::available_threads();
  plan.kernels = cpu::best_kernels().name;
  plan.available = available_memory();
  plan.kv_per_position = bench::Traffic(model, options.kv == cpu::KvType::F16 ? 2 : 4).kv_per_position();
  plan.choices = choices_for(model, options, plan.available);
  report("memory", 0);
  plan.memory_bandwidth = machine::memory_bandwidth(plan.threads, 6, 512 * kMiB);
  report("disk", 0);
  plan.disk_block = experts::read_size(model);
  const File& file = model.file().shards()[model.experts().front().gate.shard].file();
  plan.disk = machine::random_read_speed(file.path(), plan.disk_block, 32, /*seconds=*/0.5);

  const auto runs = [](const Choice& choice) { return choice.fits; };
  if (std::ranges::none_of(plan.choices, runs)) return plan;
  plan.measured = model.dense_bytes() + model.expert_bytes() <= kSmall && plan.choices.front().fits;
  if (plan.measured) {
    measure_all(model, options, report, plan);
  } else {
    predict_all(model, options, report, plan);
  }
  plan.recommendation = recommended(plan.choices);
  return plan;
}

}  // namespace redlite::plan
