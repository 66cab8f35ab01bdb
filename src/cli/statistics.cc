#include "cli/statistics.h"

#include <fmt/format.h>

#include "base/memory.h"

namespace redlite::cli {
namespace {

double rate(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}
double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}
double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

double hit_rate(const experts::CacheStats& s) {
  const auto hits = static_cast<double>(s.hits);
  return rate(hits, hits + static_cast<double>(s.misses + s.prefetch_late));
}

/// How weights came into huge pages.
std::string why(const cpu::WeightPages::Report& pages) {
  std::string text;
  if (pages.read_again > 0) text += fmt::format(", {:.0f} of them read again for it", mib(pages.read_again));
  if (pages.copied > 0) text += fmt::format(", {:.0f} of them copied", mib(pages.copied));
  if (pages.seen < pages.total) text += fmt::format(", {:.0f} not yet seen", mib(pages.total - pages.seen));
  return text;
}

/// Selections that need not be waited for.
double hit_rate(const gpu::HostWalkStatistics& s) {
  return rate(static_cast<double>(s.hits), static_cast<double>(s.hits + s.late + s.misses));
}

nlohmann::ordered_json host_cache_json(const engine::OpenRunner& open) {
  const gpu::HostDecode& host = *open.gpu->host_decode();
  const gpu::HostWalkStatistics s = host.statistics();
  const experts::CacheStats tier = host.tier_statistics();
  return {{"description", open.gpu->description()},
          {"hit_rate", hit_rate(s)},
          {"hits", s.hits},
          {"late", s.late},
          {"misses", s.misses},
          {"bytes_copied", host.loaded_bytes()},
          {"prefetched", s.prefetched},
          {"prefetch_useful", s.prefetch_useful},
          {"prefetch_refused", s.prefetch_refused},
          {"windows", s.windows},
          {"stops", s.stops},
          {"skipped_layers", s.skipped_layers},
          {"host_hits", tier.hits},
          {"host_misses", tier.misses},
          {"bytes_read", tier.bytes_read},
          {"stall_seconds", tier.stall_seconds}};
}

}  // namespace

nlohmann::ordered_json statistics_json(const engine::OpenRunner& open, const engine::GenerateResult& result) {
  nlohmann::ordered_json json;
  json["prompt_tokens"] = result.prompt_tokens;
  json["prefill_seconds"] = result.prefill_seconds;
  json["prefill_tok_s"] = rate(result.prompt_tokens, result.prefill_seconds);
  json["generated_tokens"] = result.tokens.size();
  json["decode_seconds"] = result.decode_seconds;
  json["decode_tok_s"] = rate(result.decode_tokens, result.decode_seconds);
  json["stop_reason"] = engine::stop_reason_name(result.reason);
  json["peak_memory_mib"] = mib(peak_resident_memory());
  if (open.gpu) {
    const gpu::SlotStatistics s = open.gpu->slot_statistics();
    const gpu::MemoryUse& memory = open.gpu->device().memory();
    json["device"] = open.gpu->device().info().name;
    json["graph_kernels"] = open.gpu->graph_kernels();
    const gpu::GpuRunner::GraphTime graphs = open.gpu->graph_time();
    json["graph_seconds"] = graphs.seconds;
    json["graph_tokens"] = graphs.tokens;
    json["cache"] = {{"description", open.cache_description},
                     {"hits", s.hits},
                     {"misses", s.misses},
                     {"hit_rate", rate(static_cast<double>(s.hits), static_cast<double>(s.hits + s.misses))},
                     {"prefetched", s.prefetched},
                     {"bytes_copied", s.bytes_copied}};
    json["residency"] = gpu::residency_name(open.gpu->residency());
    json["cache"]["description"] = open.gpu->description();
    if (open.gpu->host_decode() != nullptr) json["cache"] = host_cache_json(open);
    json["cache"]["prompt_bytes_copied"] = open.gpu->prompt_bytes();
    if (const gpu::Profile* profile = open.gpu->profile()) {
      for (const auto& [name, stage] : profile->stages())
        json["profile"][name] = {{"milliseconds", stage.milliseconds}, {"launches", stage.launches}};
    }
    const gpu::DeviceUse use = open.gpu->device_use();
    json["device_memory_mib"] = mib(memory.device);
    json["device_use_mib"] = {{"cache", mib(use.cache)},
                              {"dense", mib(use.dense)},
                              {"state", mib(use.state)},
                              {"scratch", mib(use.scratch)}};
    json["early_starts"] = open.gpu->early_starts();
    json["registered_memory_mib"] = mib(memory.registered);
    json["page_locked_memory_mib"] = mib(memory.host);
  }
  if (!open.cpu) return json;

  json["backend"] = "cpu";
  json["kernels"] = open.cpu->kernels();
  json["threads"] = open.cpu->threads();
  const experts::CacheStats s = open.cpu->cache_stats();
  json["cache"] = {{"description", open.cache_description},
                   {"hit_rate", hit_rate(s)},
                   {"hits", s.hits},
                   {"misses", s.misses},
                   {"prefetched", s.prefetched},
                   {"prefetch_useful", s.prefetch_useful},
                   {"prefetch_late", s.prefetch_late},
                   {"prefetch_wasted", s.prefetch_wasted},
                   {"bytes_read", s.bytes_read},
                   {"stall_seconds", s.stall_seconds}};
  const cpu::StageTimes t = open.cpu->stage_times();
  json["stage_seconds"] = {{"embedding", t.embedding}, {"attention", t.attention}, {"delta_net", t.delta_net},
                           {"router", t.router},       {"experts", t.experts},     {"output", t.output}};
  const cpu::WeightPages::Report pages = open.cpu->weight_pages();
  json["huge_pages_mib"] = {{"total", mib(pages.total)},
                            {"seen", mib(pages.seen)},
                            {"huge", mib(pages.huge)},
                            {"read_again", mib(pages.read_again)},
                            {"copied", mib(pages.copied)}};
  json["memory_budget_mib"] = {{"cache", mib(open.budget.cache)},
                               {"dense", mib(open.budget.dense)},
                               {"state", mib(open.budget.state)},
                               {"scratch", mib(open.budget.scratch)},
                               {"program", mib(engine::MemoryBudget::kProgram)},
                               {"total", mib(open.budget.total())}};
  return json;
}

std::string statistics_table(const engine::OpenRunner& open, const engine::GenerateResult& result) {
  std::string table;
  const auto row = [&](std::string_view name, const std::string& text) {
    table += fmt::format("  {:<15}{}\n", name, text);
  };
  row("prompt", fmt::format("{} tokens in {:.2f} s, {:.1f} tok/s", result.prompt_tokens,
                            result.prefill_seconds, rate(result.prompt_tokens, result.prefill_seconds)));
  row("decode", fmt::format("{} tokens in {:.2f} s, {:.1f} tok/s (ended by {})", result.decode_tokens,
                            result.decode_seconds, rate(result.decode_tokens, result.decode_seconds),
                            engine::stop_reason_name(result.reason)));
  if (open.gpu) {
    const gpu::SlotStatistics s = open.gpu->slot_statistics();
    const gpu::MemoryUse& memory = open.gpu->device().memory();
    row("device", fmt::format("{}, {} kernels in a token's graph", open.gpu->device().info().name,
                              open.gpu->graph_kernels()));
    row("expert cache", open.gpu->description());
    if (const gpu::GpuRunner::GraphTime graphs = open.gpu->graph_time(); graphs.tokens > 0) {
      const double token = result.decode_seconds / result.decode_tokens,
                   on_gpu = graphs.seconds / static_cast<double>(graphs.tokens);
      row("a token", fmt::format("{:.3f} ms on the GPU, {:.3f} ms beside it", 1e3 * on_gpu,
                                 1e3 * std::max(token - on_gpu, 0.0)));
    }
    if (const gpu::HostDecode* host = open.gpu->host_decode()) {
      const gpu::HostWalkStatistics w = host->statistics();
      const experts::CacheStats tier = host->tier_statistics();
      const auto tokens = static_cast<double>(w.tokens);
      row("selections", fmt::format("{:.1f} % hits: {} hits, {} misses, {} late, {:.1f} MiB copied",
                                    100 * hit_rate(w), w.hits, w.misses, w.late, mib(host->loaded_bytes())));
      row("a token", fmt::format("{:.1f} decisions, {:.1f} stops, {:.1f} layers skipped",
                                 rate(static_cast<double>(w.windows), tokens),
                                 rate(static_cast<double>(w.stops), tokens),
                                 rate(static_cast<double>(w.skipped_layers), tokens)));
      if (w.prefetched > 0)
        row("prefetch", fmt::format("{} loads: {} useful; {} refused, the slot was in flight", w.prefetched,
                                    w.prefetch_useful, w.prefetch_refused));
      if (tier.bytes_read > 0)
        row("read", fmt::format("{:.1f} MiB from the file, {:.2f} s waiting for it; {:.1f} % of loads from "
                                "host memory",
                                mib(tier.bytes_read), tier.stall_seconds,
                                percent(static_cast<double>(tier.hits),
                                        static_cast<double>(tier.hits + tier.misses))));
    } else if (s.hits + s.misses > 0) {
      row("selections",
          fmt::format("{:.1f} % hits: {} hits, {} misses, {:.1f} MiB copied",
                      percent(static_cast<double>(s.hits), static_cast<double>(s.hits + s.misses)), s.hits,
                      s.misses, mib(s.bytes_copied)));
      if (s.prefetched > 0) row("prefetch", fmt::format("{} loads", s.prefetched));
    }
    if (const uint64_t bytes = open.gpu->prompt_bytes(); bytes > 0)
      row("prompt experts", fmt::format("{:.1f} MiB copied", mib(bytes)));
    const gpu::DeviceUse use = open.gpu->device_use();
    row("device memory",
        fmt::format("{:.0f} MiB = cache {:.0f} + dense {:.0f} + state {:.0f} + scratch {:.0f}; {:.0f} MiB of "
                    "host memory page-locked, {:.0f} registered",
                    mib(memory.device), mib(use.cache), mib(use.dense), mib(use.state), mib(use.scratch),
                    mib(memory.host), mib(memory.registered)));
    if (const gpu::Profile* profile = open.gpu->profile()) {
      for (const auto& [name, stage] : profile->stages())
        row("", fmt::format("{:<16} {:>9.3f} ms in {:>6} launches, {:>7.1f} us each", name,
                            stage.milliseconds, stage.launches, 1000 * stage.milliseconds / stage.launches));
    }
  }
  if (!open.cpu) {
    row("memory", fmt::format("peak {:.0f} MiB", mib(peak_resident_memory())));
    return table;
  }

  const experts::CacheStats s = open.cpu->cache_stats();
  row("expert cache", open.cache_description);
  row("selections", fmt::format("{:.1f} % hits: {} hits, {} misses, {} still loading", 100 * hit_rate(s),
                                s.hits, s.misses, s.prefetch_late));
  if (s.prefetched > 0) {
    row("prefetch", fmt::format("{} loads: {} useful, {} late, {} wasted", s.prefetched, s.prefetch_useful,
                                s.prefetch_late, s.prefetch_wasted));
  }
  row("read",
      fmt::format("{:.1f} MiB from the file, {:.2f} s waiting for it", mib(s.bytes_read), s.stall_seconds));

  const cpu::StageTimes t = open.cpu->stage_times();
  const std::pair<const char*, double> stages[] = {{"experts", t.experts},    {"router", t.router},
                                                   {"DeltaNet", t.delta_net}, {"attention", t.attention},
                                                   {"output", t.output},      {"embedding", t.embedding}};
  double total = 0;
  for (const auto& [name, seconds] : stages) total += seconds;
  std::string times;
  for (const auto& [name, seconds] : stages) {
    if (percent(seconds, total) >= 0.5)
      times += fmt::format("{}{} {:.0f} %", times.empty() ? "" : ", ", name, percent(seconds, total));
  }
  row("time", times);
  row("memory", fmt::format("peak {:.0f} MiB; budget {:.0f} = cache {:.0f} + dense {:.0f} + state {:.0f} + "
                            "scratch {:.0f} + program {:.0f}",
                            mib(peak_resident_memory()), mib(open.budget.total()), mib(open.budget.cache),
                            mib(open.budget.dense), mib(open.budget.state), mib(open.budget.scratch),
                            mib(engine::MemoryBudget::kProgram)));
  const cpu::WeightPages::Report pages = open.cpu->weight_pages();
  row("huge pages", fmt::format("{:.0f} of {:.0f} MiB of mapped weights{}", mib(pages.huge + pages.copied),
                                mib(pages.total), why(pages)));
  row("machine", fmt::format("{} threads, {} kernels", open.cpu->threads(), open.cpu->kernels()));
  return table;
}

}  // namespace redlite::cli
