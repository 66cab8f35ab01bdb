#include "server/cache_view.h"

#include "server/json.h"

namespace redlite::server {
namespace {

Json rows(const session::ExpertMap& now, const session::ExpertMap& before) {
  Json out = Json::array();
  const bool comparable = now.cells.size() == before.cells.size();
  const size_t width = static_cast<size_t>(now.n_experts);
  for (size_t begin = 0; begin + width <= now.cells.size() && width > 0; begin += width) {
    std::string row(width, '.');
    for (size_t i = 0; i < width; ++i) {
      const experts::ExpertUse& cell = now.cells[begin + i];
      const experts::ExpertUse old = comparable ? before.cells[begin + i] : cell;
      if (cell.misses != old.misses) {
        row[i] = 'm';
      } else if (cell.hits != old.hits) {
        row[i] = 'h';
      } else if (cell.prefetches != old.prefetches) {
        row[i] = 'p';
      } else if (cell.resident) {
        row[i] = 'r';
      }
    }
    out.push_back(std::move(row));
  }
  return out;
}

Json counts(const session::Statistics& now, const session::Statistics& before) {
  const experts::CacheStats &a = now.runner.cache, &b = before.runner.cache;
  return {{"hits", a.hits - b.hits},
          {"misses", a.misses - b.misses},
          {"late", a.prefetch_late - b.prefetch_late},
          {"prefetched", a.prefetched - b.prefetched},
          {"bytes_read", a.bytes_read - b.bytes_read},
          {"stall_seconds", a.stall_seconds - b.stall_seconds},
          {"answer_tokens", now.answer_tokens - before.answer_tokens},
          {"read_tokens", now.read_tokens - before.read_tokens},
          {"prefill_seconds", now.prefill_seconds - before.prefill_seconds},
          {"decode_seconds", now.decode_seconds - before.decode_seconds}};
}

Json stages(const session::RunnerReport& now, const session::RunnerReport& before) {
  Json out = Json::object();
  for (size_t i = 0; i < now.stage_seconds.size(); ++i) {
    const auto& [name, seconds] = now.stage_seconds[i];
    out[name] = i < before.stage_seconds.size() ? seconds - before.stage_seconds[i].second : seconds;
  }
  return out;
}

}  // namespace

std::string CacheView::write(const session::Statistics& s, const session::ExpertMap& map,
                             double seconds) const {
  Json out = {{"frame", frame_.number + 1},
              {"seconds", seconds},
              {"layers", map.n_layers},
              {"experts", map.n_experts},
              {"rows", rows(map, map_)}};
  out.update(counts(s, {}));
  Json recent = counts(s, statistics_);
  const uint64_t hits = recent["hits"],
                 all = hits + recent["misses"].get<uint64_t>() + recent["late"].get<uint64_t>();
  out["hit_rate"] = all == 0 ? Json() : Json(static_cast<double>(hits) / static_cast<double>(all));
  out["recent"] = std::move(recent);
  out["stages"] = stages(s.runner, statistics_.runner);
  out["prefill_rate"] = s.prefill_rate;
  out["decode_rate"] = s.decode_rate;
  out["active"] = s.active;
  out["queued"] = s.queued;
  out["resident_bytes"] = s.resident_bytes;
  return to_text(out);
}

CacheView::Frame CacheView::frame() {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (frame_.number > 0 && now - taken_ < kPeriod) return frame_;
  session::Statistics statistics = engine_.statistics();
  session::ExpertMap map = engine_.expert_map();
  const double seconds = frame_.number == 0 ? 0 : std::chrono::duration<double>(now - taken_).count();
  frame_.text = write(statistics, map, seconds);
  ++frame_.number;
  taken_ = now;
  statistics_ = std::move(statistics);
  map_ = std::move(map);
  return frame_;
}

}  // namespace redlite::server
