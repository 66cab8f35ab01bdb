#include "simulate/simulate.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/quote.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cpu/thread_pool.h"
#include "engine/open_runner.h"
#include "machine/disk.h"
#include "machine/memory_bandwidth.h"
#include "plot/line_chart.h"
#include "trace/recorder.h"

namespace redlite::cli {
namespace {

using simulate::Setup;

struct SimulateCommand {
  std::string trace, model, plot;
  std::vector<uint64_t> cache_mib;
  std::vector<std::string> policies, slots, predictors;
  double half_life = Setup().half_life;
  double disk_gb_s = 0, memory_gb_s = 0;
  std::string kv = engine::RunnerOptions().kv;  ///< of the traced run
  bool check = false, json = false;
};

/// One line of the table.
struct Row {
  Setup setup;
  simulate::Result result;
  std::optional<uint64_t> engine_misses;  ///< with --check
};

/// The values whose names were given; `all` has one of each.
template <typename Value, size_t n>
std::vector<Value> named(const std::vector<std::string>& names, const Value (&all)[n]) {
  std::vector<Value> values;
  for (const Value value : all)
    if (std::find(names.begin(), names.end(), simulate::name_of(value)) != names.end())
      values.push_back(value);
  return values;
}

template <typename Value, size_t n>
std::vector<std::string> names(const Value (&all)[n]) {
  std::vector<std::string> texts;
  for (const Value value : all) texts.emplace_back(simulate::name_of(value));
  return texts;
}

/// Eight sizes up to what holds all experts, from what holds one token's.
std::vector<uint64_t> default_sizes(const trace::Trace& trace) {
  const experts::SizeClasses sizes = simulate::size_classes(trace, simulate::Slots::BySize);
  const uint64_t least = (sizes.minimum_bytes(trace.n_used) + kMiB - 1) / kMiB;
  const uint64_t all = (sizes.full_bytes() + kMiB - 1) / kMiB;
  std::vector<uint64_t> mib = {least};
  for (uint64_t eighth = 1; eighth <= 8; ++eighth)
    if (all * eighth / 8 > least) mib.push_back(all * eighth / 8);
  return mib;
}

/// Misses of the engine when it runs what the trace recorded. Throws Error when its router selects others.
uint64_t engine_misses(const trace::Trace& trace, const model::Model& model, cpu::KvType kv,
                       uint64_t cache_bytes) {
  for (const int32_t token : trace.tokens)
    if (token < 0 || token >= model.config().n_vocab)
      fail("{}: the trace has a token {}, which this model has not; it is of another model", model.path(),
           token);
  cpu::CpuOptions options;
  options.context = static_cast<int>(trace.n_tokens());
  options.batch = static_cast<int>(*std::max_element(trace.chunks.begin(), trace.chunks.end()));
  options.cache.size = {experts::CacheSize::Kind::Bounded, cache_bytes};
  options.cache.prefetch = false;
  options.kv = kv;
  cpu::CpuRunner runner(model, options);
  runner.set_tap([&](model::Stage stage, int layer, int first, int width, std::span<const float> ids) {
    if (stage != model::Stage::ExpertIds) return;
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t token = static_cast<size_t>(first) + i / static_cast<size_t>(width);
      if (trace.experts(token, layer)[i % static_cast<size_t>(width)] != static_cast<uint16_t>(ids[i])) {
        fail(
            "{}: selects other experts than the trace for token {} in layer {}; trace this model anew, on "
            "this machine and with the --kv given here",
            model.path(), token, layer);
      }
    }
  });
  std::span<const model::Token> left = trace.tokens;
  for (const uint32_t n : trace.chunks) {
    runner.forward(left.first(n), model::LogitsFor::None);
    left = left.subspan(n);
  }
  return runner.cache_stats().misses;
}

std::string describe(const Setup& setup, const SimulateCommand& c) {
  std::string text(simulate::name_of(setup.policy));
  if (c.slots.size() > 1 || setup.slots != simulate::Slots::BySize)
    text += fmt::format(", {} slots", simulate::name_of(setup.slots));
  if (setup.predictor != simulate::Predictor::None)
    text += fmt::format(", {} ahead", simulate::name_of(setup.predictor));
  return text;
}

void draw(const SimulateCommand& c, const trace::Trace& trace, const std::vector<Row>& rows) {
  plot::LineChart chart;
  chart.title = fmt::format("Experts waited for by a token, of {} it uses", trace.n_layers * trace.n_used);
  chart.x_label = "cache, MiB";
  chart.y_label = "misses a token";
  for (const Row& row : rows) {
    const std::string name = describe(row.setup, c);
    auto curve = std::find_if(chart.curves.begin(), chart.curves.end(),
                              [&](const plot::Curve& other) { return other.name == name; });
    if (curve == chart.curves.end()) curve = chart.curves.insert(curve, {name, {}});
    curve->points.push_back(
        {static_cast<double>(row.setup.cache_bytes) / static_cast<double>(kMiB), row.result.misses});
  }
  const std::string svg = chart.svg();
  write_file_atomically(c.plot, std::as_bytes(std::span(svg)));
}

nlohmann::ordered_json to_json(const Row& row, const trace::Trace& trace) {
  const simulate::Result& r = row.result;
  const experts::CacheStats& s = r.stats;
  nlohmann::ordered_json json = {{"cache_mib", row.setup.cache_bytes / kMiB},
                                 {"policy", simulate::name_of(row.setup.policy)},
                                 {"slots", simulate::name_of(row.setup.slots)},
                                 {"predictor", simulate::name_of(row.setup.predictor)},
                                 {"tokens_counted", r.tokens},
                                 {"misses_per_token", r.misses},
                                 {"hit_rate", 1 - r.misses / (trace.n_layers * trace.n_used)},
                                 {"loads_per_token", r.loads},
                                 {"bytes_read_per_token", r.bytes_read},
                                 {"decode_tok_s", 1 / r.seconds},
                                 {"whole_trace",
                                  {{"hits", s.hits},
                                   {"misses", s.misses},
                                   {"prefetched", s.prefetched},
                                   {"prefetch_useful", s.prefetch_useful},
                                   {"prefetch_late", s.prefetch_late},
                                   {"prefetch_wasted", s.prefetch_wasted},
                                   {"bytes_read", s.bytes_read}}}};
  if (row.engine_misses) json["engine_misses"] = *row.engine_misses;
  return json;
}

void print_table(const std::vector<Row>& rows, const trace::Trace& trace, const simulate::Speeds& speeds,
                 const std::string& speeds_from) {
  fmt::print("{}: {} tokens, {} of {} experts in {} layers; means over {} tokens\n", quote(trace.model),
             trace.n_tokens(), trace.n_used, trace.n_experts, trace.n_layers, rows.front().result.tokens);
  fmt::print("memory {:.1f} GB/s, disk {:.2f} GB/s ({})\n\n", speeds.memory / 1e9, speeds.disk / 1e9,
             speeds_from);
  const bool checked = rows.front().engine_misses.has_value();
  fmt::print("{:>9}  {:<11} {:<8} {:<9} {:>7} {:>9} {:>9} {:>9} {:>8}{}\n", "cache MiB", "policy", "slots",
             "predictor", "hits", "misses/t", "loads/t", "MiB/t", "tok/s",
             checked ? "  misses, engine's" : "");
  for (const Row& row : rows) {
    const simulate::Result& r = row.result;
    fmt::print("{:>9}  {:<11} {:<8} {:<9} {:>5.1f} % {:>9.2f} {:>9.2f} {:>9.2f} {:>8.2f}",
               row.setup.cache_bytes / kMiB, simulate::name_of(row.setup.policy),
               simulate::name_of(row.setup.slots), simulate::name_of(row.setup.predictor),
               100 * (1 - r.misses / (trace.n_layers * trace.n_used)), r.misses, r.loads,
               r.bytes_read / static_cast<double>(kMiB), 1 / r.seconds);
    if (row.engine_misses) {
      fmt::print("  {} {} {}", r.stats.misses,
                 r.stats.misses == *row.engine_misses ? "=" : "!=", *row.engine_misses);
    }
    fmt::print("\n");
  }
}

/// As given, or measured. `from` tells where they come from, for people.
simulate::Speeds speeds_of(const SimulateCommand& c, std::string& from) {
  constexpr double kAssumedDisk = 2e9;
  simulate::Speeds speeds{c.memory_gb_s * 1e9, c.disk_gb_s * 1e9};
  from = speeds.memory > 0 ? "memory as given" : "memory measured";
  if (speeds.memory == 0) speeds.memory = machine::memory_bandwidth(cpu::available_threads());
  if (speeds.disk > 0) {
    from += ", disk as given";
  } else if (!c.model.empty()) {
    speeds.disk = machine::random_read_speed(c.model, 256 << 10, 32, 1).bytes_per_second;
    from += ", disk measured";
  } else {
    speeds.disk = kAssumedDisk;
    from += ", disk assumed: --model FILE measures the file's";
  }
  return speeds;
}

void run(SimulateCommand c) {
  if (!c.plot.empty()) check_output(c.plot, {c.trace, c.model});
  trace::Trace trace = trace::read_trace(c.trace);
  if (trace.n_tokens() == 0) fail("{}: the trace has no tokens", c.trace);
  std::optional<model::Model> model;
  if (!c.model.empty()) {
    const model::Config& config = model.emplace(c.model).config();
    if (config.n_layers != trace.n_layers || config.n_experts != trace.n_experts ||
        config.n_experts_used != trace.n_used)
      fail("{}: {} layers, {} of {} experts; the trace has {}, {} of {}: it is of another model", c.model,
           config.n_layers, config.n_experts_used, config.n_experts, trace.n_layers, trace.n_used,
           trace.n_experts);
    trace.layers = trace::layer_sizes(*model);
    trace.dense_bytes = trace::dense_bytes_of_a_token(*model);
  }
  std::string speeds_from;
  const simulate::Speeds speeds = speeds_of(c, speeds_from);
  if (c.cache_mib.empty()) c.cache_mib = default_sizes(trace);

  std::vector<Row> rows;
  bool equal = true;
  for (const uint64_t mib : c.cache_mib) {
    std::optional<uint64_t> counted;
    if (c.check)
      counted = engine_misses(trace, *model, c.kv == "f16" ? cpu::KvType::F16 : cpu::KvType::F32, mib * kMiB);
    for (const simulate::Policy policy : named(c.policies, simulate::kPolicies)) {
      for (const simulate::Slots slots : named(c.slots, simulate::kSlots)) {
        for (const simulate::Predictor predictor : named(c.predictors, simulate::kPredictors)) {
          const Setup setup{mib * kMiB, policy, slots, predictor, c.half_life};
          rows.push_back({setup, simulate::simulate(trace, setup, speeds), counted});
          if (counted) equal = equal && rows.back().result.stats.misses == *counted;
        }
      }
    }
  }
  if (c.json) {
    nlohmann::ordered_json list = nlohmann::json::array();
    for (const Row& row : rows) list.push_back(to_json(row, trace));
    fmt::print("{}\n", list.dump(2));
  } else {
    print_table(rows, trace, speeds, speeds_from);
  }
  if (!c.plot.empty()) draw(c, trace, rows);
  if (!equal) fail("{}: the engine counted other misses than were predicted", c.trace);
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto c = std::make_shared<SimulateCommand>();
  c->policies = {"lru"};
  c->slots = {"by-size"};
  c->predictors = {"none"};
  CLI::App* command =
      app.add_subcommand("simulate", "Replay a trace through caches of other sizes, policies and predictors");
  command->add_option("trace", c->trace, "what `redlite trace` wrote")->required()->type_name("TRACE");
  command->add_option("--model", c->model, "take the sizes of experts from this file, not from the trace")
      ->type_name("MODEL");
  command->add_option("--cache-mib", c->cache_mib, "sizes of the cache (default: eighths of all experts)")
      ->type_name("N,...")
      ->delimiter(',')
      ->check(in_range<uint64_t>(1, uint64_t{1} << 24));
  const auto choice = [&](const char* name, auto& values, const char* what, const auto& all) {
    command->add_option(name, values, fmt::format("{}: {}", what, fmt::join(names(all), ", ")))
        ->type_name("X,...")
        ->delimiter(',')
        ->check(one_of(names(all)))
        ->capture_default_str();
  };
  choice("--policy", c->policies, "which expert makes room", simulate::kPolicies);
  choice("--slots", c->slots, "a slot size for each size of expert (as the engine has), or one for all",
         simulate::kSlots);
  choice("--predictor", c->predictors, "what is loaded ahead for the next layer", simulate::kPredictors);
  command->add_option("--half-life", c->half_life, "of a use, in tokens, for --policy frequency")
      ->type_name("N")
      ->check(in_range(0.01, 1e6))
      ->capture_default_str();
  command
      ->add_option("--disk-gb-s", c->disk_gb_s,
                   "speed of random reads of experts (default: measured on --model)")
      ->type_name("X")
      ->check(in_range(0.001, 1e6));
  command
      ->add_option("--memory-gb-s", c->memory_gb_s,
                   "speed at which weights are used (default: the memory's, measured: a bound)")
      ->type_name("X")
      ->check(in_range(0.001, 1e6));
  command->add_option("--plot", c->plot, "draw misses over cache size, as SVG")->type_name("FILE");
  CLI::Option* check = command->add_flag(
      "--check", c->check, "run --model in the engine, too, without prefetch, and compare the misses");
  command->add_option("--kv", c->kv, "type of the attention cache in the run that was traced, for --check")
      ->type_name("f32|f16")
      ->check(one_of({"f32", "f16"}))
      ->capture_default_str();
  command->add_flag("--json", c->json, "print an array with one object a simulation");
  command->callback([=] {
    if (c->check && c->model.empty()) throw CLI::ValidationError("--check needs --model");
    if (c->check &&
        (c->policies != std::vector<std::string>{"lru"} || c->slots != std::vector<std::string>{"by-size"} ||
         c->predictors != std::vector<std::string>{"none"}))
      throw CLI::ValidationError(check->get_name() +
                                 " compares what the engine does: lru, by-size, no predictor");
    run(*c);
  });
}

}  // namespace redlite::cli
