#include "bench/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <variant>
#include <vector>

#include "base/memory.h"
#include "base/quote.h"
#include "bench/version.h"
#include "quant/type.h"

namespace redlite::bench {
namespace {

using nlohmann::ordered_json;

double mib(double bytes) {
  return bytes / (1 << 20);
}

/// Types by the bytes they take, largest first, without those of less than a twentieth.
std::string types_by_bytes(const std::map<quant::Type, uint64_t>& bytes) {
  std::vector<std::pair<uint64_t, quant::Type>> order;
  uint64_t total = 0;
  for (const auto& [type, n] : bytes) {
    order.emplace_back(n, type);
    total += n;
  }
  std::ranges::sort(order, std::greater<>());
  std::vector<std::string_view> names;
  for (const auto& [n, type] : order) {
    if (n * 20 >= total) names.push_back(quant::name(type));
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

ordered_json types_json(const model::Model& model) {
  std::map<quant::Type, uint64_t> experts, dense;
  for (const model::ExpertLayer& layer : model.experts()) {
    for (const model::ExpertTensor* tensor : {&layer.gate, &layer.up, &layer.down})
      experts[tensor->type] += tensor->expert_bytes;
  }
  for (const model::Matrix& matrix : dense_matrices(model.weights())) dense[matrix.type] += matrix.bytes();
  return {{"experts", types_by_bytes(experts)}, {"dense", types_by_bytes(dense)}};
}

std::string model_name(const model::Model& model) {
  const gguf::Value* value = model.file().find_value("general.name");
  const auto* name = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return name != nullptr ? *name : model.config().architecture;
}

struct Rates {
  double median = 0, min = 0, max = 0;
  explicit Rates(const std::vector<double>& rates)
      : median(bench::median(rates)), min(std::ranges::min(rates)), max(std::ranges::max(rates)) {}
};

double per_token(double amount, const Measurement& m) {
  return amount / (static_cast<double>(m.seconds.size()) * m.test.tokens);
}

ordered_json setting_json(const Setting& s) {
  ordered_json json = {{"backend", s.backend}};
  if (s.device.empty()) {
    json.update({{"kernels", s.kernels}, {"threads", s.threads}, {"io", s.io}});
  } else {
    json.update({{"device", s.device},
                 {"residency", s.residency},
                 {"device_memory_mib", mib(static_cast<double>(s.device_memory_bytes))}});
  }
  json.update(ordered_json{{"prefetch", s.prefetch},
                           {"kv", s.kv},
                           {"batch", s.batch},
                           {"first_token_seconds", s.first_token_seconds},
                           {"memory_bandwidth_gb_s", s.memory_bandwidth / 1e9}});
  if (s.disk) {
    json["disk_gb_s"] = s.disk->bytes_per_second / 1e9;
    json["disk_block_bytes"] = s.disk_block;
  }
  return json;
}

}  // namespace

ordered_json describe_run(const model::Model& model, const machine::Machine& machine) {
  uint64_t file_bytes = 0;
  for (const MappedFile& shard : model.file().shards()) file_bytes += shard.file().size();
  ordered_json json = {{"model", model_name(model)},
                       {"file", model.path()},
                       {"file_bytes", file_bytes},
                       {"architecture", model.config().architecture},
                       {"types", types_json(model)},
                       {"version", version()},
                       {"commit", commit()},
                       {"machine",
                        {{"processor", machine.processor},
                         {"cores", machine.cores},
                         {"memory_mib", machine.memory_bytes >> 20},
                         {"system", machine.system}}}};
  const std::optional<uint64_t> limit = memory_limit();
  json["machine"]["memory_limit_mib"] = limit ? ordered_json(*limit >> 20) : ordered_json(nullptr);
  return json;
}

ordered_json describe(const Measurement& m, const Setting& setting, const Rival* rival) {
  std::vector<double> samples;
  for (const double seconds : m.seconds) samples.push_back(m.test.tokens / seconds);
  const Rates rates(samples);
  const bool prefill = m.test.kind == TestKind::Prefill;
  const double floor_rate = setting.memory_bandwidth / m.floor_bytes;
  ordered_json json = {
      {"test", prefill ? "prefill" : "decode"},
      {"tokens", m.test.tokens},
      {"depth", m.test.depth},
      {"cache_mib", setting.cache_mib ? ordered_json(*setting.cache_mib) : ordered_json("full")},
      {prefill ? "prefill_tok_s" : "decode_tok_s", rates.median},
      {"min", rates.min},
      {"max", rates.max},
      {"samples", samples},
      {"floor_bytes_per_token", m.floor_bytes},
      {"floor_tok_s", floor_rate},
      {"floor_fraction", rates.median / floor_rate},
      {"peak_memory_mib", mib(static_cast<double>(setting.peak_memory_bytes))},
      {"logits", fmt::format("{:016x}", m.fingerprint)}};
  if (!m.replay_seconds.empty()) {
    const double replay_rate = m.test.tokens / median(m.replay_seconds);
    json["replay_tok_s"] = replay_rate;
    json["replay_fraction"] = rates.median / replay_rate;
  }
  const Counters& c = m.counters;
  if (c.selections > 0) {
    const double bytes_read = per_token(static_cast<double>(c.bytes_read), m);
    json["hit_rate"] = static_cast<double>(c.hits) / static_cast<double>(c.selections);
    json["bytes_read_per_token"] = bytes_read;
    json["stall_seconds_per_token"] = per_token(c.stall_seconds, m);
    // How much of the time the disk must have been busy at least.
    if (setting.disk) json["disk_fraction"] = bytes_read * rates.median / setting.disk->bytes_per_second;
    for (const auto& [stage, seconds] : c.stage_seconds)
      json["stage_seconds_per_token"][stage] = per_token(seconds, m);
  }
  if (rival != nullptr) {
    json["against"] = {{"command", rival->command()}};
    if (const std::vector<double> theirs = rival->rates(m.test); !theirs.empty()) {
      const Rates them(theirs);
      json["against"].update({{"tok_s", them.median},
                              {"min", them.min},
                              {"max", them.max},
                              {"samples", theirs},
                              {"ratio", rates.median / them.median}});
    }
  }
  json.update(setting_json(setting));
  return json;
}

std::string heading(const ordered_json& run, const Setting& setting) {
  const auto text = [](const ordered_json& value) {
    const std::string quoted = quote(value.get<std::string>());
    return quoted.substr(1, quoted.size() - 2);  // a file's name for itself, made fit for a terminal
  };
  const ordered_json& machine = run["machine"];
  return fmt::format("{} ({}): {:.2f} GiB, experts {}, dense {}\n", text(run["model"]),
                     text(run["architecture"]), mib(run["file_bytes"].get<double>()) / 1024,
                     text(run["types"]["experts"]), text(run["types"]["dense"])) +
         fmt::format("{}, memory {:.1f} GB/s; redlite {} ({})\n",
                     setting.device.empty()
                         ? fmt::format("{}, {} threads, {} kernels", text(machine["processor"]),
                                       setting.threads, setting.kernels)
                         : setting.device,
                     setting.memory_bandwidth / 1e9, text(run["version"]), text(run["commit"]));
}

std::string table_head(bool rival) {
  return fmt::format("{:<13}{:>7}  {:<14}{:>9}  {:<19}{:>9}{:>10}{:>8}{:>12}{:>11}{}\n", "cache MiB", "depth",
                     "test", "tok/s", "min - max", "of floor", "of reads", "hits", "read/token", "memory",
                     rival ? fmt::format("{:>10}{:>9}", "rival", "ratio") : "");
}

std::string table_row(const ordered_json& m) {
  const bool prefill = m["test"] == "prefill";
  const auto rate = [](double tok_s) { return fmt::format("{:.{}f}", tok_s, tok_s < 100 ? 2 : 0); };
  std::string cache = m["cache_mib"].is_string() ? "full" : m["cache_mib"].dump();
  if (m.contains("residency") && m["residency"] != "full") cache += " " + m["residency"].get<std::string>();
  std::string row =
      fmt::format("{:<13}{:>7}  {:<14}{:>9}  {:<19}{:>7.1f} %", cache, m["depth"].get<int>(),
                  fmt::format("{} {}", m["test"].get<std::string>(), m["tokens"].get<int>()),
                  rate(m[prefill ? "prefill_tok_s" : "decode_tok_s"]),
                  rate(m["min"]) + " - " + rate(m["max"]), 100 * m["floor_fraction"].get<double>());
  row += m.contains("replay_fraction") ? fmt::format("{:>8.1f} %", 100 * m["replay_fraction"].get<double>())
                                       : fmt::format("{:>10}", "-");
  if (m.contains("hit_rate")) {
    row += fmt::format("{:>6.1f} %{:>8.2f} MiB", 100 * m["hit_rate"].get<double>(),
                       mib(m["bytes_read_per_token"].get<double>()));
  } else {
    row += fmt::format("{:>8}{:>12}", "-", "-");
  }
  row +=
      fmt::format("{:>7.0f} MiB",
                  m[m.contains("device_memory_mib") ? "device_memory_mib" : "peak_memory_mib"].get<double>());
  if (m.contains("against")) {
    const ordered_json& against = m["against"];
    row += against.contains("ratio")
               ? fmt::format("{:>10} {:>7.2f}x", rate(against["tok_s"]), against["ratio"].get<double>())
               : fmt::format("{:>10}{:>9}", "-", "-");
  }
  return row + "\n";
}

}  // namespace redlite::bench
