#include "plan/plan.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "gpu/device.h"
#include "plan/gpu_plan.h"

namespace redlite::cli {
namespace {

using nlohmann::ordered_json;

struct PlanCommand {
  std::string model, backend = "auto", kv = "f16";
  plan::Options options;
  bool json = false;
};

/// A word that a shell reads as it is.
std::string shell_word(const std::string& text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,@%:=") ==
          std::string::npos)
    return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// This program as it was called.
std::string program_name() {
  std::ifstream in("/proc/self/cmdline");
  std::string name;
  std::getline(in, name, '\0');
  return name.empty() ? "redlite" : name;
}

/// The command that a plan recommends, but for where the experts are.
std::string command_line(const PlanCommand& c, const std::string& place) {
  std::string line = fmt::format("{} chat {} --context {} {}", shell_word(program_name()),
                                 shell_word(c.model), c.options.context, place);
  if (c.kv != "f16") line += " --kv " + c.kv;
  if (c.options.threads > 0) line += fmt::format(" --threads {}", c.options.threads);
  return line;
}
std::string place_of(const plan::Choice& choice) {
  return fmt::format("--cache-mib {}", choice.cache_mib ? std::to_string(*choice.cache_mib) : "full");
}
std::string place_of(const plan::GpuChoice& choice, const std::string& backend) {
  std::string place =
      fmt::format("--backend {} --residency {}", backend, gpu::residency_name(choice.residency));
  if (choice.residency != gpu::Residency::full) place += fmt::format(" --cache-mib {}", choice.cache / kMiB);
  return place;
}

/// What was asked about, and found out; a part that was not asked about is left out.
struct Findings {
  std::optional<plan::Plan> cpu;
  std::optional<plan::GpuPlan> gpu;
  std::string gpu_backend;
  std::string no_gpu;  ///< why there is none

  /// Nullopt: nothing fits.
  std::optional<std::string> recommended(const PlanCommand& c) const {
    const plan::Choice* on_cpu = cpu && cpu->recommendation ? &cpu->choices[*cpu->recommendation] : nullptr;
    const plan::GpuChoice* on_gpu =
        gpu && gpu->recommendation ? &gpu->choices[*gpu->recommendation] : nullptr;
    if (on_gpu && (!on_cpu || on_gpu->decode_tok_s > on_cpu->decode_tok_s))
      return command_line(c, place_of(*on_gpu, gpu_backend));
    if (on_cpu) return command_line(c, place_of(*on_cpu));
    return std::nullopt;
  }
};

ordered_json probe_json(const std::optional<plan::GpuProbe>& probe) {
  if (!probe) return nullptr;
  return {
      {"cache_mib", probe->cache / kMiB},         {"token_ms", 1e3 * probe->token_seconds},
      {"miss_us", 1e6 * probe->miss_seconds},     {"misses_left_by_prefetch", probe->kept},
      {"prompt_ms", 1e3 * probe->prompt_seconds}, {"prompt_kernels_ms", 1e3 * probe->prompt_kernel_seconds}};
}

ordered_json gpu_json(const Findings& f) {
  if (!f.gpu) return {{"error", f.no_gpu}};
  const plan::GpuPlan& p = *f.gpu;
  ordered_json choices = ordered_json::array();
  for (const plan::GpuChoice& choice : p.choices) {
    ordered_json row = {{"residency", gpu::residency_name(choice.residency)},
                        {"cache_mib", choice.cache / kMiB},
                        {"memory_mib", choice.memory / kMiB},
                        {"fits", choice.fits}};
    if (choice.decode_tok_s > 0) {
      row["prefill_tok_s"] = choice.prefill_tok_s;
      row["decode_tok_s"] = choice.decode_tok_s;
      row["hit_rate"] = choice.hit_rate;
    }
    choices.push_back(std::move(row));
  }
  return {{"name", p.device.name},
          {"memory_mib", p.device.total_memory / kMiB},
          {"free_mib", p.free / kMiB},
          {"pcie_gb_s", p.bus / 1e9},
          {"memory_bandwidth_gb_s", p.bandwidth / 1e9},
          {"how", p.measured ? "measured" : "predicted from probes"},
          {"probe_device", probe_json(p.from_device)},
          {"probe_host", probe_json(p.from_host)},
          {"choices", choices}};
}

ordered_json plan_json(const PlanCommand& c, const Findings& f) {
  ordered_json json = {{"model", c.model}, {"context", c.options.context}, {"prompt", c.options.prompt}};
  if (f.cpu) {
    const plan::Plan& p = *f.cpu;
    ordered_json choices = ordered_json::array();
    for (const plan::Choice& choice : p.choices) {
      ordered_json row = {
          {"cache_mib", choice.cache_mib ? ordered_json(*choice.cache_mib) : ordered_json("full")},
          {"fits", choice.fits},
          {"memory_mib",
           {{"total", choice.total() / kMiB},
            {"cache", choice.cache / kMiB},
            {"dense", choice.dense / kMiB},
            {"state", choice.state / kMiB},
            {"scratch", choice.scratch / kMiB},
            {"program", choice.program / kMiB}}}};
      if (choice.decode_tok_s > 0) {
        row["prefill_tok_s"] = choice.prefill_tok_s;
        row["decode_tok_s"] = choice.decode_tok_s;
        row["hit_rate"] = choice.hit_rate;
      }
      choices.push_back(std::move(row));
    }
    json.update({{"memory_free_mib", p.available / kMiB},
                 {"memory_bandwidth_gb_s", p.memory_bandwidth / 1e9},
                 {"disk_gb_s", p.disk.bytes_per_second / 1e9},
                 {"disk_block_bytes", p.disk_block},
                 {"threads", p.threads},
                 {"kernels", p.kernels},
                 {"kv_bytes_per_position", p.kv_per_position},
                 {"how", p.measured ? "measured" : "predicted from probes"},
                 {"choices", choices}});
  }
  if (f.gpu || !f.no_gpu.empty()) json["gpu"] = gpu_json(f);
  const std::optional<std::string> recommended = f.recommended(c);
  json["recommended"] = recommended ? ordered_json(*recommended) : ordered_json(nullptr);
  return json;
}

void print_cpu(const PlanCommand& c, const plan::Plan& p) {
  fmt::print("Machine    {:.1f} GiB of memory free, {:.1f} GB/s with {} threads ({} kernels)\n",
             static_cast<double>(p.available) / (1024.0 * kMiB), p.memory_bandwidth / 1e9, p.threads,
             p.kernels);
  fmt::print("Disk       {:.2f} GB/s in random {} reads of {} KiB\n", p.disk.bytes_per_second / 1e9,
             p.disk.direct ? "direct" : "buffered", p.disk_block >> 10);
  fmt::print("Context    {} tokens: {:.1f} MiB; each further 1,000 {:.1f} MiB\n\n", c.options.context,
             static_cast<double>(p.choices.front().state) / kMiB,
             1000 * static_cast<double>(p.kv_per_position) / kMiB);
  fmt::print("--cache-mib    memory    hits   prompt of {:<5} decode\n", c.options.prompt);
  for (size_t i = 0; i < p.choices.size(); ++i) {
    const plan::Choice& choice = p.choices[i];
    const std::string size = choice.cache_mib ? std::to_string(*choice.cache_mib) : "full";
    if (choice.decode_tok_s > 0) {
      fmt::print("{:>11} {:>6} MiB {:>5.1f} % {:>8.1f} tok/s {:>8.1f} tok/s{}\n", size, choice.total() / kMiB,
                 100 * choice.hit_rate, choice.prefill_tok_s, choice.decode_tok_s,
                 p.recommendation == i ? "  <- best" : "");
    } else {
      fmt::print("{:>11} {:>6} MiB  does not fit into the memory that is free\n", size,
                 choice.total() / kMiB);
    }
  }
  fmt::print("\n");
}

void print_gpu(const PlanCommand& c, const plan::GpuPlan& p) {
  fmt::print("GPU        {}, {:.1f} of {:.1f} GiB free at {:.0f} GB/s, {:.1f} GB/s from host memory\n\n",
             p.device.name, static_cast<double>(p.free) / (1024.0 * kMiB),
             static_cast<double>(p.device.total_memory) / (1024.0 * kMiB), p.bandwidth / 1e9, p.bus / 1e9);
  fmt::print("--residency  --cache-mib  GPU memory    hits   prompt of {:<5} decode\n", c.options.prompt);
  for (size_t i = 0; i < p.choices.size(); ++i) {
    const plan::GpuChoice& choice = p.choices[i];
    const bool full = choice.residency == gpu::Residency::full;
    fmt::print("{:>11} {:>12} {:>7} MiB", gpu::residency_name(choice.residency),
               full ? "-" : std::to_string(choice.cache / kMiB), choice.memory / kMiB);
    if (choice.decode_tok_s > 0) {
      fmt::print(" {:>5.1f} % {:>8.1f} tok/s {:>8.1f} tok/s{}\n", 100 * choice.hit_rate, choice.prefill_tok_s,
                 choice.decode_tok_s, p.recommendation == i ? "  <- best" : "");
    } else {
      fmt::print("  does not fit\n");
    }
  }
  fmt::print("\n");
}

void print_plan(const PlanCommand& c, const Findings& f) {
  if (f.cpu) print_cpu(c, *f.cpu);
  if (f.gpu) {
    print_gpu(c, *f.gpu);
  } else if (!f.no_gpu.empty()) {
    fmt::print("GPU        {}\n\n", f.no_gpu);
  }
  const std::optional<std::string> recommended = f.recommended(c);
  if (!recommended)
    fail(
        "{}: no size of the cache fits into the memory that is free ({} MiB); end other programs or use a "
        "shorter --context",
        c.model, available_memory() / kMiB);
  fmt::print("{}\n", *recommended);
}

/// Looks at the GPU; where none was asked for by name it is no error that there is none.
void look_at_gpu(const PlanCommand& c, const model::Model& model, const plan::Report& report, Findings& f) {
  const bool emulated = c.backend == "emulator";
  f.gpu_backend = emulated ? "emulator" : "cuda";
  if (c.backend == "auto" && !gpu::built_with_cuda()) {
    f.no_gpu = "none in this build";
    return;
  }
  try {
    f.gpu = plan::make_gpu_plan(
        model, c.options,
        [&] { return emulated ? gpu::open_emulator({.threads = c.options.threads}) : gpu::open_cuda(); },
        emulated, report);
  } catch (const Error& e) {
    if (c.backend != "auto") throw;
    f.no_gpu = e.what();
  }
}

void run_plan(PlanCommand& c) {
  c.options.kv = c.kv == "f32" ? cpu::KvType::F32 : cpu::KvType::F16;
  const model::Model model(c.model);
  plan::check(model, c.options);
  Findings findings;
  {
    Progress bar("planning", 1000, ProgressUnit::Parts);
    const plan::Report report = [&](const std::string& what, double part) {
      bar.set_label(what);
      bar.reach(1000 * part);
    };
    if (c.backend == "auto" || c.backend == "cpu") findings.cpu = plan::make_plan(model, c.options, report);
    if (c.backend != "cpu") look_at_gpu(c, model, report, findings);
  }
  if (c.json) {
    fmt::print("{}\n", plan_json(c, findings).dump(2, ' ', false, ordered_json::error_handler_t::replace));
  } else {
    print_plan(c, findings);
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  auto c = std::make_shared<PlanCommand>();
  CLI::App* command = app.add_subcommand(
      "plan", "What fits into this machine, how fast it will be, and the command line for it");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->type_name("MODEL");
  command
      ->add_option("--backend", c->backend,
                   "where to run: cpu, cuda, the emulator of a GPU (to try it), or what there is (auto)")
      ->type_name("auto|cpu|cuda|emulator")
      ->check(one_of({"auto", "cpu", "cuda", "emulator"}))
      ->capture_default_str();
  const auto number = [&](const char* name, int& value, const char* what, int low, int high = 1 << 24) {
    command->add_option(name, value, what)->type_name("N")->check(in_range(low, high))->capture_default_str();
  };
  number("--context", c->options.context, "most tokens of a conversation", 16);
  number("--prompt", c->options.prompt, "tokens of the prompt whose speed is predicted", 1);
  number("--threads", c->options.threads, "0: one for each core", 0, 1024);
  command->add_option("--kv", c->kv, "type of the attention cache: f32 or f16")
      ->type_name("f32|f16")
      ->check(one_of({"f32", "f16"}))
      ->capture_default_str();
  command->add_flag("--json", c->json, "print it as JSON");
  command->callback([c] { run_plan(*c); });
}

}  // namespace redlite::cli
