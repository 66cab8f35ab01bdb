// The experts of one layer: route, group the tokens by expert, compute what is in memory while the rest is
// read, sum in router order.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "cpu/runner_impl.h"
#include "model/router.h"

namespace redlite::cpu {

using Reads = experts::ExpertCache::Reads;

void CpuRunner::Impl::route(int layer, int n) {
  const model::Config& c = config;
  const int used = c.n_experts_used;
  const model::Matrix router = routers.of(layer, pool);

  // router_logits[n][n_experts]; and what the next layer's router makes of the same input, a good guess at
  // what that layer will need
  const bool predict = layer + 1 < c.n_layers && cache.prefetching();
  const int step = (n + kPredictTokens - 1) / kPredictTokens;
  const int n_predict = routing.n_predict = predict ? (n + step - 1) / step : 0;
  const model::Matrix predictor = predict ? predictors.of(layer + 1, pool) : model::Matrix();
  const Activations* predictor_input = &scratch.embd_rows;
  if (n_predict > 0 && step > 1) {
    std::vector<int32_t>& sample = routing.token_of;
    sample.clear();
    for (int t = 0; t < n; t += step) sample.push_back(t);
    scratch.pair_inputs.resize(n_predict, c.n_embd);
    scratch.pair_inputs.gather(scratch.embd_rows, sample, 0);
    predictor_input = &scratch.pair_inputs;
  }
  const int grain = std::max(16, c.n_experts / (16 * pool.size()));
  pool.run(c.n_experts, grain, [&](int first, int last, int) {
    kernels.router(router, first, last, scratch.h, c.n_embd, n, scratch.router_logits, c.n_experts);
    if (predict) {
      kernels.multiply(predictor, first, last, *predictor_input, 0, n_predict, scratch.predicted_logits,
                       c.n_experts);
    }
  });
  show(model::Stage::RouterLogits, layer, 0, c.n_experts, n, scratch.router_logits);

  routing.ids.resize(static_cast<size_t>(n) * used);
  routing.weights.resize(routing.ids.size());
  for_tokens(n, [&](int t) {
    const size_t at = static_cast<size_t>(t) * used;
    model::select_experts({scratch.router_logits + static_cast<size_t>(t) * c.n_experts, size_t(c.n_experts)},
                          c.expert_weights_scale, {routing.ids.data() + at, size_t(used)},
                          {routing.weights.data() + at, size_t(used)});
  });
  if (*tap) {
    const std::vector<float> ids(routing.ids.begin(), routing.ids.end());
    show(model::Stage::ExpertIds, layer, 0, used, n, ids.data());
    show(model::Stage::ExpertWeights, layer, 0, used, n, routing.weights.data());
  }
}

/// The experts that the next layer will probably need, from its logits for n tokens.
void CpuRunner::Impl::predict_experts() {
  Routing& r = routing;
  const int n = r.n_predict;
  r.predicted.clear();
  if (n == 0) return;
  const size_t used = config.n_experts_used;
  const size_t n_experts = config.n_experts;
  r.predicted_ids.resize(n * used);
  r.predicted_weights.resize(n * used);
  for_tokens(n, [&](int t) {
    model::select_experts({scratch.predicted_logits + t * n_experts, n_experts}, 1,
                          {r.predicted_ids.data() + t * used, used},
                          {r.predicted_weights.data() + t * used, used});
  });
  if (n == 1) {
    r.predicted = r.predicted_ids;
    return;
  }
  r.count.assign(n_experts, 0);
  for (const int32_t id : r.predicted_ids) {
    if (r.count[id]++ == 0) r.predicted.push_back(id);
  }
  std::sort(r.predicted.begin(), r.predicted.end(),
            [&](int32_t a, int32_t b) { return r.count[a] != r.count[b] ? r.count[a] > r.count[b] : a < b; });
}

/// Sorts the chunk's (token, rank) pairs by expert.
void CpuRunner::Impl::group_by_expert(int layer) {
  Routing& r = routing;
  const size_t pairs = r.ids.size();
  r.count.assign(config.n_experts, 0);
  for (const int32_t id : r.ids) ++r.count[id];
  r.experts.clear();
  for (int e = 0; e < config.n_experts; ++e) {
    if (r.count[e] > 0) r.experts.push_back(e);
  }
  // In several waves, what is in memory comes first, before the misses of a wave evict it.
  if (r.experts.size() > static_cast<size_t>(cache.max_lease(layer))) {
    std::stable_partition(r.experts.begin(), r.experts.end(),
                          [&](int32_t e) { return cache.resident(layer, e); });
  }
  r.first.clear();
  int first = 0;
  for (const int32_t e : r.experts) {
    r.first.push_back(first);
    first += std::exchange(r.count[e], first);  // from now on: where its next pair goes
  }
  r.first.push_back(first);
  r.token_of.resize(pairs);
  r.pair_of.resize(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const int pair = r.count[r.ids[i]]++;
    r.pair_of[i] = pair;
    r.token_of[pair] = static_cast<int32_t>(i / config.n_experts_used);
  }
}

/// Of a chunk's experts the cache keeps those that its last tokens used most; they are the likeliest to be
/// used again.
void CpuRunner::Impl::retire_experts(int layer, int n) {
  constexpr double kHalfLife = 32;  // tokens
  Routing& r = routing;
  r.retired.clear();
  const size_t keep = cache.worth_keeping(layer, static_cast<int>(r.experts.size()));
  if (n == 1 || keep >= r.experts.size()) return;
  std::vector<double> score(r.experts.size());
  std::vector<size_t> order(r.experts.size());
  for (size_t group = 0; group < r.experts.size(); ++group) {
    order[group] = group;
    for (const int32_t t : r.tokens(static_cast<int>(group))) score[group] += std::exp2((t - n) / kHalfLife);
  }
  const auto first_retired = order.begin() + static_cast<std::ptrdiff_t>(keep);
  std::nth_element(order.begin(), first_retired, order.end(), [&](size_t a, size_t b) {
    return score[a] != score[b] ? score[a] > score[b] : r.experts[a] < r.experts[b];
  });
  r.retired.assign(r.experts.size(), 0);
  for (auto group = first_retired; group != order.end(); ++group) r.retired[*group] = 1;
}

/// Pins a wave of the chunk's experts. Of several tokens' it begins to read what is missing and, with the
/// last wave, for the next layer.
experts::ExpertCache::Lease CpuRunner::Impl::acquire_wave(int layer, int n, size_t first, size_t count) {
  const std::span<const int32_t> all = routing.experts;
  experts::ExpertCache::Lease lease =
      cache.acquire(layer, all.subspan(first, count), n == 1 ? Reads::Later : Reads::Now);
  for (size_t i = 0; i < count && !routing.retired.empty(); ++i) {
    if (routing.retired[first + i] != 0) lease.retire(static_cast<int>(i));
  }
  if (n > 1 && first + count == all.size()) {
    predict_experts();
    if (!routing.predicted.empty()) cache.read_ahead(layer + 1, routing.predicted);
  }
  return lease;
}

void CpuRunner::Impl::experts_ffn(int layer, int n) {
  const model::Config& c = config;
  const model::FfnWeights& w = weights.layers[layer].ffn;
  group_by_expert(layer);
  retire_experts(layer, n);

  // The experts in equal waves of what the cache can hold at once; the reads of a wave's missing experts fly
  // while the wave before, the shared expert and the wave's present ones are computed.
  const size_t n_distinct = routing.experts.size();
  const size_t most = cache.max_lease(layer);
  const size_t waves = (n_distinct + most - 1) / most;
  const size_t per_wave = (n_distinct + waves - 1) / waves;
  const auto acquire = [&](size_t first) {
    return acquire_wave(layer, n, first, std::min(per_wave, n_distinct - first));
  };
  // Of one token: what is in memory is computed by the other threads meanwhile.
  const std::function<void()> begin_reads = [&] {
    predict_experts();
    if (routing.predicted.empty())
      cache.begin_reads();
    else
      cache.prefetch(layer + 1, routing.predicted);
  };
  std::optional<experts::ExpertCache::Lease> lease(acquire(0));
  bool shared_left = c.shared_ff > 0;
  for (size_t first = 0; first < n_distinct;) {
    const size_t count = std::min(per_wave, n_distinct - first);
    const size_t next_first = first + count;
    std::optional<experts::ExpertCache::Lease> next;
    if (next_first < n_distinct && cache.two_leases_fit(layer)) next.emplace(acquire(next_first));

    size_t left = count;
    ready.clear();
    const auto take = [&](std::optional<int> index) {
      if (index) ready.push_back({&lease->expert(*index), static_cast<int>(first) + *index}), --left;
      return index.has_value();
    };
    while (take(lease->next_present())) continue;
    compute_experts(layer, n, shared_left, n == 1 ? begin_reads : nullptr);
    shared_left = false;
    while (left > 0) {
      // Wait for an expert, then take those that are there.
      ready.clear();
      take(lease->next());
      while (left > 0 && take(lease->try_next())) continue;
      compute_experts(layer, n, false, nullptr);
    }
    lease.reset();
    first = next_first;
    if (next)
      lease.emplace(std::move(*next));
    else if (first < n_distinct)
      lease.emplace(acquire(first));
  }

  // y[n][n_embd]: the shared expert, then the routed ones, best first
  for_tokens(n, [&](int t) {
    float* y = scratch.y + static_cast<size_t>(t) * c.n_embd;
    if (c.shared_ff > 0) {
      const float gate = w.shared_gate_inp ? 1 / (1 + std::exp(-scratch.shared_gate[t])) : 1.0f;
      for (int i = 0; i < c.n_embd; ++i) y[i] *= gate;
    } else {
      std::fill(y, y + c.n_embd, 0.0f);
    }
    for (int k = 0; k < c.n_experts_used; ++k) {
      const size_t at = static_cast<size_t>(t) * c.n_experts_used + k;
      const float* result = scratch.results + static_cast<size_t>(routing.pair_of[at]) * c.n_embd;
      mixers.add_scaled(result, routing.weights[at], c.n_embd, y);
    }
  });
}

/// Computes the `ready` experts for all their pairs into scratch.results, in regions of bounded size, and
/// with the first the shared expert for all tokens into scratch.y. Calls `beside` once.
void CpuRunner::Impl::compute_experts(int layer, int n, bool with_shared,
                                      const std::function<void()>& beside) {
  const model::Config& c = config;
  const model::FfnWeights& w = weights.layers[layer].ffn;
  const size_t ff = c.expert_ff, shared_ff = c.shared_ff, n_embd = c.n_embd;
  const bool gathered = n > 1;  // a single token is every expert's input as it is
  if (ready.empty() && !with_shared && beside) beside();

  for (size_t begin = 0; begin < ready.size() || with_shared;) {
    int rows = 0;
    size_t end = begin;
    for (; end < ready.size(); ++end) {
      const int pairs = routing.n_pairs(ready[end].group);
      if (rows + pairs > scratch.pair_rows) break;
      ready[end].row = rows;
      rows += pairs;
    }
    const std::span<const ReadyExpert> batch =
        std::span<const ReadyExpert>(ready).subspan(begin, end - begin);

    if (gathered) {
      scratch.pair_inputs.resize(rows, c.n_embd);
      pool.run(static_cast<int>(batch.size()), 1, [&](int first, int last, int) {
        for (int i = first; i < last; ++i)
          scratch.pair_inputs.gather(scratch.embd_rows, routing.tokens(batch[i].group), batch[i].row);
      });
    }

    // gate_up[rows][gate: ff, up: ff]
    products.clear();
    if (with_shared) {
      products.push_back({w.shared_gate, &scratch.embd_rows, 0, n, scratch.shared_gate_up, 2 * shared_ff});
      products.push_back(
          {w.shared_up, &scratch.embd_rows, 0, n, scratch.shared_gate_up + shared_ff, 2 * shared_ff});
      if (w.shared_gate_inp)
        products.push_back({w.shared_gate_inp, &scratch.embd_rows, 0, n, scratch.shared_gate, 1});
    }
    for (const ReadyExpert& e : batch) {
      const Activations& x = gathered ? scratch.pair_inputs : scratch.embd_rows;
      const int t_first = gathered ? e.row : 0;
      const int t_last = t_first + routing.n_pairs(e.group);
      float* out = scratch.gate_up + 2 * ff * e.row;
      products.push_back({e.expert->gate, &x, t_first, t_last, out, 2 * ff});
      products.push_back({e.expert->up, &x, t_first, t_last, out + ff, 2 * ff});
    }
    multiply(products, begin == 0 ? beside : nullptr);

    // hidden[rows][ff] = silu(gate) * up, in place
    const int shared_rows = with_shared ? n : 0;
    scratch.pair_hidden.resize(rows, c.expert_ff);
    if (with_shared) scratch.shared_rows.resize(n, c.shared_ff);
    const int all_rows = rows + shared_rows;
    const int grain = std::max(1 + static_cast<int>(4096 / ff), all_rows / (4 * pool.size()));
    pool.run(all_rows, grain, [&](int first, int last, int) {
      for (int i = first; i < last; ++i) {
        const bool shared = i >= rows;
        const int row = shared ? i - rows : i;
        const size_t width = shared ? shared_ff : ff;
        float* buffer = shared ? scratch.shared_gate_up : scratch.gate_up;
        float* gate = buffer + 2 * width * row;
        kernels.silu_multiply(gate, gate + width, static_cast<int>(width), gate);
        kernels.quantize(buffer, 2 * width, row, row + 1, shared ? scratch.shared_rows : scratch.pair_hidden);
      }
    });

    // results[pairs][n_embd]; y[n][n_embd] of the shared expert
    products.clear();
    if (with_shared) products.push_back({w.shared_down, &scratch.shared_rows, 0, n, scratch.y, n_embd});
    for (const ReadyExpert& e : batch) {
      products.push_back({e.expert->down, &scratch.pair_hidden, e.row, e.row + routing.n_pairs(e.group),
                          scratch.results + n_embd * routing.first[e.group], n_embd});
    }
    multiply(products);

    begin = end;
    with_shared = false;
  }
}

}  // namespace redlite::cpu
