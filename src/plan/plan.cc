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

/// Runs a choice as the benchmark does. What it did better another time stays: all else that a machine does
/// only slows it down, and a small model is run in a blink.
void measure_choice(const model::Model& model, const Options& options, Choice& choice) {
  const Length length{options.prompt};
  Options run = options;
  run.context = length.context();
  cpu::CpuRunner runner(model, cpu_options(run, choice));
  const Speeds speeds = measure(model, runner, options.kv == cpu::KvType::F16 ? 2 : 4, length,
                                [&] { return bench::counters_of(runner); });
  choice.prefill_tok_s = std::max(choice.prefill_tok_s, speeds.prefill_tok_s);
  choice.decode_tok_s = std::max(choice.decode_tok_s, speeds.decode_tok_s);
  choice.hit_rate = speeds.hit_rate;
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

void predict(const Shape& shape, int n_prompt, const Probe& probe, Choice& choice) {
  const double selections = static_cast<double>(shape.n_layers) * shape.n_used;
  const double part =
      choice.cache_mib
          ? std::min(1.0, static_cast<double>(choice.cache) / static_cast<double>(shape.full_bytes))
          : 1;
  const auto slots = std::min(static_cast<size_t>(part * shape.n_experts), probe.misses.size() - 1);
  const double missed = choice.cache_mib ? probe.misses[slots] : 0;
  choice.hit_rate = 1 - missed;
  choice.decode_tok_s = 1 / (probe.token_seconds + missed * selections * probe.miss_seconds);

  const double distinct = distinct_of(probe.spread, n_prompt, shape.n_used) * shape.n_layers;
  const double computed = n_prompt * probe.prompt_token_seconds + distinct * probe.expert_seconds +
                          n_prompt * selections * probe.expert_token_seconds;
  const double read = (1 - part) * distinct * shape.expert_bytes / probe.miss_bytes_per_second;
  choice.prefill_tok_s = n_prompt / std::max(computed, read);
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
    // Twice, unless the machine is so busy that once took long.
    constexpr std::chrono::seconds kLong{10};
    const auto start = std::chrono::steady_clock::now();
    const size_t n = plan.choices.size();
    for (size_t i = 0; i < 2 * n; ++i) {
      if (i == n && std::chrono::steady_clock::now() - start > kLong) break;
      report("running the model", static_cast<double>(i) / static_cast<double>(2 * n));
      measure_choice(model, options, plan.choices[i % n]);
    }
  } else {
    // What eight tokens use fits into a quarter, unless the model has few experts.
    const uint64_t wanted =
        std::max(experts::ExpertCache::full_bytes(model) / 4, 8 * experts::ExpertCache::minimum_bytes(model));
    uint64_t largest = 0;
    for (const Choice& choice : plan.choices)
      if (choice.fits) largest = std::max(largest, choice.cache);
    cpu::CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.kv = options.kv;
    const model::Config& c = model.config();
    const Shape shape{c.n_layers, c.n_experts, c.n_experts_used,
                      static_cast<double>(model.expert_bytes()) / c.n_layers / c.n_experts,
                      experts::ExpertCache::full_bytes(model)};
    const Probe result =
        probe(model, cpu, std::min({wanted, largest, experts::ExpertCache::full_bytes(model)}),
              plan.disk.bytes_per_second, [&](double part) { report("running the model", part); });
    for (Choice& choice : plan.choices)
      if (choice.fits) predict(shape, options.prompt, result, choice);
  }
  plan.recommendation = recommended(plan.choices);
  return plan;
}

}  // namespace redlite::plan
