#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"
#include "bench/counters.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cpu/thread_pool.h"
#include "engine/open_runner.h"
#include "experts/cache.h"
#include "experts/layout.h"
#include "gpu/copy_speed.h"
#include "gpu/device_model.h"
#include "machine/describe.h"
#include "machine/disk.h"
#include "machine/memory_bandwidth.h"
#include "model/model.h"

namespace redlite::cli {
namespace {

struct BenchCommand {
  std::string model;
  std::vector<int> prefill{64, 512}, decode{64}, depth{0};
  std::vector<std::string> cache_mib{"auto"};
  int repetitions = 5;
  std::string against;
  bool json = false;
  engine::RunnerOptions runner;

  std::vector<bench::Test> tests_at(int at) const {
    std::vector<bench::Test> tests;
    for (const int n : prefill) tests.push_back({bench::TestKind::Prefill, n, at});
    for (const int n : decode) tests.push_back({bench::TestKind::Decode, n, at});
    return tests;
  }
};

/// Shows what is being done as a bar on stderr.
class Bar final : public bench::Watcher {
 public:
  void set_cache(const std::string& cache) { cache_ = cache; }
  void begin(const std::string& what, uint64_t tokens) override {
    bar_.emplace(fmt::format("{} ({})", what, cache_), tokens, ProgressUnit::Tokens);
  }
  void reach(double tokens) override { bar_->reach(tokens); }
  void end() override { bar_.reset(); }

 private:
  std::string cache_;
  std::optional<Progress> bar_;
};

class BenchRun {
 public:
  explicit BenchRun(const BenchCommand& command)
      : c_(command),
        rival_(c_.against.empty() ? nullptr : std::make_unique<bench::Rival>(c_.against)),
        bench_(c_.repetitions, rival_.get(), bar_) {}

  void run() {
    check_lengths();
    warm_up_rival();
    for (const std::string& size : c_.cache_mib) run_with_cache(size);
  }

 private:
  int64_t context() const {
    int64_t tokens = 0;
    for (const int at : c_.depth)
      tokens = std::max(tokens, at + bench::Bench::tokens_needed(c_.tests_at(at), c_.repetitions));
    return tokens;
  }

  void check_lengths() const {
    const int most = model::Model(c_.model).config().context_length;
    if (context() > most)
      fail(
          "{}: depth and tests come to {} tokens, the model's context is {}; use a smaller --depth, "
          "--prefill, "
          "--decode or --repetitions",
          c_.model, context(), most);
  }

  void warm_up_rival() {
    if (!rival_) return;
    std::vector<bench::Test> all;
    for (const int at : c_.depth) {
      const std::vector<bench::Test> tests = c_.tests_at(at);
      all.insert(all.end(), tests.begin(), tests.end());
    }
    rival_->warm_up(all);
  }

  void measure_bandwidth() {
    const double now = c_.runner.backend == "cuda" ? gpu::memory_bandwidth(*gpu::open_cuda())
                                                   : machine::memory_bandwidth(threads());
    bandwidth_ = std::max(bandwidth_, now);
  }

  int threads() const { return c_.runner.threads > 0 ? c_.runner.threads : cpu::available_threads(); }

  /// One cache size. Bandwidth is measured before and after, when the runner's memory is free, as on a shared
  /// machine it changes within seconds; the best of the run counts.
  void run_with_cache(const std::string& size) {
    measure_bandwidth();
    std::vector<Row> rows = measure_with_cache(size);
    measure_bandwidth();
    for (Row& row : rows) {
      row.setting.memory_bandwidth = bandwidth_;
      print(row);
    }
  }

  /// A measurement, and of what.
  struct Row {
    nlohmann::ordered_json about;
    bench::Setting setting;
    bench::Measurement measurement;
  };

  /// A model opened anew, so that memory and times are its own.
  std::vector<Row> measure_with_cache(const std::string& size) {
    reset_peak_resident_memory();
    bar_.set_cache(size);
    engine::RunnerOptions options = c_.runner;
    options.cache_mib = size;

    const auto start = std::chrono::steady_clock::now();
    const model::Model model(c_.model);
    const engine::OpenRunner open = open_runner(model, options, static_cast<int>(context()));
    const model::Token first = 0;
    open.runner->forward({&first, 1}, model::LogitsFor::Last);
    bench::Setting setting = describe_setting(open, model, options);
    setting.threads = open.cpu ? open.cpu->threads() : 1;
    setting.first_token_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (open.cpu) open.cpu->wait_for_weight_pages();  // what is measured is how it goes on
    measure_disk(model, setting);

    const bench::Traffic traffic(model, options.kv == "f16" ? 2 : 4);
    bench::Subject subject{*open.runner, model.config().n_vocab, traffic};
    if (open.cpu) subject.counters = [&open] { return bench::counters_of(*open.cpu); };
    if (open.gpu) subject.counters = [&open] { return bench::counters_of(*open.gpu); };
    std::optional<bench::Replay> replay;
    if (open.cpu) {
      const auto find = [&open](int layer, int expert) { return open.cpu->expert_in_memory(layer, expert); };
      subject.replay = &replay.emplace(model, find, open.cpu->threads());
    }
    const nlohmann::ordered_json about = bench::describe_run(model, machine::describe());
    std::vector<Row> rows;
    for (const int at : c_.depth) {
      const std::vector<bench::Measurement> measurements = bench_.run(subject, c_.tests_at(at));
      setting.peak_memory_bytes = peak_resident_memory();
      if (open.gpu) setting.device_memory_bytes = open.gpu->device_use().total();
      for (const bench::Measurement& m : measurements) rows.push_back({about, setting, m});
    }
    return rows;
  }

  static bench::Setting describe_setting(const engine::OpenRunner& open, const model::Model& model,
                                         const engine::RunnerOptions& options) {
    bench::Setting setting;
    setting.backend = options.backend;
    setting.prefetch = options.prefetch == "on";
    setting.kv = options.kv;
    setting.batch = options.batch;
    if (open.gpu) {
      setting.device = open.gpu->device().info().name;
      setting.residency = gpu::residency_name(open.gpu->residency());
      if (open.gpu->residency() != gpu::Residency::full)
        setting.cache_mib = open.gpu->device_use().cache >> 20;
    }
    if (!open.cpu) return setting;
    setting.kernels = open.cpu->kernels();
    setting.io = open.cpu->cache_io();
    if (open.budget.cache < experts::ExpertCache::full_bytes(model))
      setting.cache_mib = open.budget.cache >> 20;
    return setting;
  }

  /// What the disk could give, if this setting reads from it.
  void measure_disk(const model::Model& model, bench::Setting& setting) {
    if (!setting.cache_mib || setting.residency == gpu::residency_name(gpu::Residency::device)) return;
    constexpr int kDepth = 32;
    setting.disk_block = experts::read_size(model);
    if (!disk_) {
      const uint32_t shard = model.experts().front().gate.shard;
      disk_ =
          machine::random_read_speed(model.file().shards()[shard].file().path(), setting.disk_block, kDepth,
                                     /*seconds=*/0.5);
    }
    setting.disk = disk_;
  }

  void print(const Row& of) {
    nlohmann::ordered_json row = bench::describe(of.measurement, of.setting, rival_.get());
    if (c_.json) {
      row.update(of.about);
      fmt::print("{}\n", row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    } else {
      if (!printed_)
        fmt::print("{}\n{}", bench::heading(of.about, of.setting), bench::table_head(rival_ != nullptr));
      fmt::print("{}", bench::table_row(row));
    }
    printed_ = true;
    std::fflush(stdout);
  }

  const BenchCommand& c_;
  std::unique_ptr<bench::Rival> rival_;
  Bar bar_;
  bench::Bench bench_;
  double bandwidth_ = 0;
  std::optional<machine::DiskSpeed> disk_;
  bool printed_ = false;
};

/// Each value once, in the order given; 0 stands for none in lists of lengths.
void tidy(std::vector<int>& values, bool zero_is_none) {
  std::vector<int> out;
  for (const int value : values) {
    if ((zero_is_none && value == 0) || std::ranges::find(out, value) != out.end()) continue;
    out.push_back(value);
  }
  values = std::move(out);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto c = std::make_shared<BenchCommand>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure prefill and decode at several cache sizes, against what the memory allows");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->type_name("MODEL");
  const auto list = [&](const char* name, auto& values, const char* what, const CLI::Validator& check) {
    command->add_option(name, values, what)
        ->delimiter(',')
        ->type_name("N,...")
        ->check(check)
        ->default_str(fmt::format("{}", fmt::join(values, ",")));
  };
  list("--prefill", c->prefill, "prompt lengths; 0: none", in_range(0, 1 << 22));
  list("--decode", c->decode, "numbers of tokens to decode; 0: none", in_range(0, 1 << 22));
  list("--depth", c->depth, "tokens already in the sequence, which are really read first",
       in_range(0, 1 << 22));
  command->add_option("--repetitions", c->repetitions, "timed, after one that only warms up")
      ->type_name("N")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--against", c->against,
                   "run this command (llama-bench -o json ...) after each repetition, and print the ratio")
      ->type_name("COMMAND");
  command->add_flag("--json", c->json, "one JSON object a measurement, each on a line of its own");
  add_runner_options(*command, c->runner);
  // Here the cache's size is an axis, and the context follows from the tests.
  command->remove_option(command->get_option("--cache-mib"));
  command->remove_option(command->get_option("--context"));
  list("--cache-mib", c->cache_mib, "memory for routed experts: MiB, full or auto", cache_size());
  command->callback([c] {
    tidy(c->prefill, true);
    tidy(c->decode, true);
    tidy(c->depth, false);
    if (c->prefill.empty() && c->decode.empty())
      throw CLI::ValidationError("nothing to measure: give --prefill or --decode");
    BenchRun(*c).run();
  });
}

}  // namespace redlite::cli
