#include "server/metrics.h"

#include <fmt/format.h>

namespace redlite::server {
namespace {

class Writer {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += fmt::format("# HELP redlite_{} {}\n# TYPE redlite_{} {}\n", name, help, name, type);
  }
  template <typename Value>
  void sample(Value value, std::string_view labels = "") {
    text_ += fmt::format("redlite_{}{} {}\n", name_, labels, value);
  }
  template <typename Value>
  void counter(std::string_view name, std::string_view help, Value value) {
    family(name, "counter", help);
    sample(value);
  }
  template <typename Value>
  void gauge(std::string_view name, std::string_view help, Value value) {
    family(name, "gauge", help);
    sample(value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_, text_;
};

}  // namespace

void Metrics::count_request(std::string_view api) {
  const std::lock_guard lock(mutex_);
  ++requests_[std::string(api)];
}

void Metrics::count_error(int status) {
  const std::lock_guard lock(mutex_);
  ++errors_[status];
}

std::string Metrics::text(const session::Statistics& s) const {
  Writer w;
  {
    const std::lock_guard lock(mutex_);
    w.family("requests_total", "counter", "Requests accepted, by API.");
    for (const auto& [api, n] : requests_) w.sample(n, fmt::format("{{api=\"{}\"}}", api));
    w.family("errors_total", "counter", "Requests answered with an error, by status.");
    for (const auto& [status, n] : errors_) w.sample(n, fmt::format("{{status=\"{}\"}}", status));
  }
  w.gauge("uptime_seconds", "Since the model was loaded.", s.uptime_seconds);
  w.gauge("requests_queued", "Requests waiting.", s.queued);
  w.gauge("requests_active", "Requests being answered.", s.active);
  w.gauge("parallel", "Most requests answered at a time.", s.parallel);
  w.counter("answers_finished_total", "Answers that came to their end.", s.finished);
  w.counter("answers_cancelled_total", "Answers that were cancelled, mostly by clients that left.",
            s.cancelled);
  w.counter("answers_failed_total", "Answers that could not be computed.", s.failed);
  w.counter("requests_refused_total", "Requests refused because the queue was full.", s.refused);
  w.counter("prompt_tokens_total", "Tokens of prompts.", s.prompt_tokens);
  w.counter("prompt_tokens_cached_total", "Tokens of prompts whose state was kept.", s.cached_tokens);
  w.counter("prompt_tokens_read_total", "Tokens of prompts that were computed.", s.read_tokens);
  w.counter("answer_tokens_total", "Tokens generated.", s.answer_tokens);
  w.counter("decode_passes_total", "Passes, each of one token of one or more answers.", s.decode_passes);
  w.counter("prefill_seconds_total", "Time spent on prompts.", s.prefill_seconds);
  w.counter("decode_seconds_total", "Time spent on answers.", s.decode_seconds);
  w.gauge("prefill_tokens_per_second", "Lately.", s.prefill_rate);
  w.gauge("decode_tokens_per_second", "Lately, all answers together.", s.decode_rate);

  const experts::CacheStats& c = s.runner.cache;
  const uint64_t selections = c.hits + c.misses + c.prefetch_late;
  w.counter("expert_hits_total", "Experts that were in memory when needed.", c.hits);
  w.counter("expert_misses_total", "Experts the computation waited for.", c.misses);
  w.counter("expert_late_total", "Experts still on their way from a prefetch when needed.", c.prefetch_late);
  w.counter("expert_prefetches_total", "Experts read ahead of time.", c.prefetched);
  w.counter("expert_prefetches_wasted_total", "... that were not needed.", c.prefetch_wasted);
  w.gauge("expert_hit_rate", "Of all selections since the start; 1 if there were none.",
          selections == 0 ? 1.0 : static_cast<double>(c.hits) / static_cast<double>(selections));
  w.counter("expert_bytes_read_total", "Bytes of experts read from the file.", c.bytes_read);
  w.counter("expert_stall_seconds_total", "Time the computation waited for reads.", c.stall_seconds);
  w.family("stage_seconds_total", "counter", "Where the time of the passes went.");
  for (const auto& [stage, seconds] : s.runner.stage_seconds)
    w.sample(seconds, fmt::format("{{stage=\"{}\"}}", stage));

  w.family("states", "gauge", "States kept of conversations.");
  w.sample(s.states_in_memory, "{place=\"memory\"}");
  w.sample(s.states_on_disk, "{place=\"disk\"}");
  w.family("state_bytes", "gauge", "... and their bytes.");
  w.sample(s.state_bytes_in_memory, "{place=\"memory\"}");
  w.sample(s.state_bytes_on_disk, "{place=\"disk\"}");
  w.gauge("resident_memory_bytes", "Memory of the process, mapped weights included.", s.resident_bytes);
  w.gauge("peak_resident_memory_bytes", "... and its peak.", s.peak_resident_bytes);
  return w.take();
}

}  // namespace redlite::server
