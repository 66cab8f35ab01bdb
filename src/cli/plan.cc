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

namespace redlite::cli {
namespace {

using nlohmann::ordered_json;

struct PlanCommand {
  std::string model, kv = "f16";
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

std::string command_line(const PlanCommand& c, const plan::Choice& choice) {
  std::string line =
      fmt::format("{} chat {} --context {} --cache-mib {}", shell_word(program_name()), shell_word(c.model),
                  c.options.context, choice.cache_mib ? std::to_string(*choice.cache_mib) : "full");
  if (c.kv != "f16") line += " --kv " + c.kv;
  if (c.options.threads > 0) line += fmt::format(" --threads {}", c.options.threads);
  return line;
}

/// The GPU and how fast host memory comes to it.
ordered_json gpu_json() {
  if (!gpu::built_with_cuda()) return nullptr;
  try {
    const auto device = gpu::open_cuda();
    constexpr size_t kBytes = size_t{64} << 20;
    const gpu::Buffer to = device->allocate(kBytes, "a measurement");
    const gpu::HostBuffer from = device->allocate_host(kBytes, "a measurement");
    const auto stream = device->create_stream();
    const auto start = device->create_event(), end = device->create_event();
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      stream->record(*start);
      stream->copy(to.as(), from.host(), kBytes);
      stream->record(*end);
      stream->synchronize();
      best = std::max(best, kBytes / (end->milliseconds_since(*start) / 1000));
    }
    return {{"name", device->info().name},
            {"memory_mib", device->info().total_memory / kMiB},
            {"free_mib", device->free_memory() / kMiB},
            {"pcie_gb_s", best / 1e9}};
  } catch (const Error& e) {
    return {{"error", e.what()}};
  }
}

ordered_json plan_json(const PlanCommand& c, const plan::Plan& p) {
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
  return {{"model", c.model},
          {"context", c.options.context},
          {"prompt", c.options.prompt},
          {"memory_free_mib", p.available / kMiB},
          {"memory_bandwidth_gb_s", p.memory_bandwidth / 1e9},
          {"disk_gb_s", p.disk.bytes_per_second / 1e9},
          {"disk_block_bytes", p.disk_block},
          {"threads", p.threads},
          {"kernels", p.kernels},
          {"gpu", gpu_json()},
          {"kv_bytes_per_position", p.kv_per_position},
          {"how", p.measured ? "measured" : "predicted from a probe"},
          {"choices", choices},
          {"recommended", p.recommendation ? ordered_json(command_line(c, p.choices[*p.recommendation]))
                                           : ordered_json(nullptr)}};
}

void print_plan(const PlanCommand& c, const plan::Plan& p, const ordered_json& json) {
  fmt::print("Machine    {:.1f} GiB of memory free, {:.1f} GB/s with {} threads ({} kernels)\n",
             static_cast<double>(p.available) / (1024.0 * kMiB), p.memory_bandwidth / 1e9, p.threads,
             p.kernels);
  fmt::print("Disk       {:.2f} GB/s in random {} reads of {} KiB\n", p.disk.bytes_per_second / 1e9,
             p.disk.direct ? "direct" : "buffered", p.disk_block >> 10);
  if (const ordered_json& gpu = json["gpu"]; gpu.is_null()) {
    fmt::print("GPU        none in this build\n");
  } else if (gpu.contains("error")) {
    fmt::print("GPU        {}\n", gpu["error"].get<std::string>());
  } else {
    fmt::print(
        "GPU        {}, {} of {} MiB free, {:.1f} GB/s from host memory; its speeds are not predicted\n",
        gpu["name"].get<std::string>(), gpu["free_mib"].get<uint64_t>(), gpu["memory_mib"].get<uint64_t>(),
        gpu["pcie_gb_s"].get<double>());
  }
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
                 p.recommendation == i ? "  <- recommended" : "");
    } else {
      fmt::print("{:>11} {:>6} MiB  does not fit into the memory that is free\n", size,
                 choice.total() / kMiB);
    }
  }
  if (!p.recommendation)
    fail(
        "{}: no size of the cache fits into the {} MiB of memory that are free; end other programs or use a "
        "shorter "
        "--context",
        c.model, p.available / kMiB);
  fmt::print("\n{}\n", command_line(c, p.choices[*p.recommendation]));
}

void run_plan(PlanCommand& c) {
  c.options.kv = c.kv == "f32" ? cpu::KvType::F32 : cpu::KvType::F16;
  const model::Model model(c.model);
  plan::Plan result;
  {
    Progress bar("planning", 1000, ProgressUnit::Parts);
    result = plan::make_plan(model, c.options, [&](const std::string& what, double part) {
      bar.set_label(what);
      bar.reach(1000 * part);
    });
  }
  const ordered_json json = plan_json(c, result);
  if (c.json) {
    fmt::print("{}\n", json.dump(2, ' ', false, ordered_json::error_handler_t::replace));
  } else {
    print_plan(c, result, json);
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
  const auto number = [&](const char* name, int& value, const char* what, int low) {
    command->add_option(name, value, what)
        ->type_name("N")
        ->check(in_range(low, 1 << 24))
        ->capture_default_str();
  };
  number("--context", c->options.context, "most tokens of a conversation", 16);
  number("--prompt", c->options.prompt, "tokens of the prompt whose speed is predicted", 1);
  number("--threads", c->options.threads, "0: one for each core", 0);
  command->add_option("--kv", c->kv, "type of the attention cache: f32 or f16")
      ->type_name("f32|f16")
      ->check(one_of({"f32", "f16"}))
      ->capture_default_str();
  command->add_flag("--json", c->json, "print it as JSON");
  command->callback([c] { run_plan(*c); });
}

}  // namespace redlite::cli
