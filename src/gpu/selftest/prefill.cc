#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "gpu/kernels/prefill_attend.h"
#include "gpu/kernels/prefill_delta.h"
#include "gpu/kernels/prefill_inputs.h"
#include "gpu/kernels/prefill_route.h"
#include "gpu/selftest/selftest.h"
#include "model/router.h"

/// The kernels of a chunk of tokens but the products against plain mathematics.
namespace redlite::gpu {
namespace {

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Everything may be off by a share of its size: sums of n terms of `magnitude` together.
double bound_of(double magnitude, double n) {
  return magnitude * 0x1p-23 * (8 + n / 4) + 1e-30;
}

void test_select(Selftest& test) {
  struct Case {
    int n_tokens, n_experts, n_used;
    bool with_shared;
  };
  for (const Case& c :
       std::vector<Case>{{5, 512, 10, true}, {9, 33, 3, false}, {1, 4, 4, true}, {17, 64, 31, true}}) {
    const int n_tokens = c.n_tokens, n_experts = c.n_experts, n_used = c.n_used;
    const bool with_shared = c.with_shared;
    const int n_rows = n_experts + (with_shared ? 1 : 0), n_shares = n_used + (with_shared ? 1 : 0);
    std::vector<float> logits = test.normal(static_cast<size_t>(n_tokens * n_rows));
    logits[1] = logits[0];  // a tie
    std::vector<int32_t> ids;
    std::vector<float> shares, gates;
    for (int t = 0; t < n_tokens; ++t) {
      std::vector<int32_t> id(static_cast<size_t>(n_used));
      std::vector<float> share(static_cast<size_t>(n_used));
      const float* row = &logits[static_cast<size_t>(t * n_rows)];
      model::select_experts({row, static_cast<size_t>(n_experts)}, 1.5f, id, share);
      ids.insert(ids.end(), id.begin(), id.end());
      shares.insert(shares.end(), share.begin(), share.end());
      if (with_shared) shares.push_back(static_cast<float>(sigmoid_of(row[n_experts])));
    }
    auto* ids_out = test.output<int32_t>(ids.size());
    auto* shares_out = test.output<float>(shares.size());
    test.stream().launch<PrefillSelect>({.grid = {PrefillSelect::blocks(n_tokens)},
                                         .threads = 256,
                                         .dynamic_shared = PrefillSelect::dynamic_shared(n_experts)},
                                        {.logits = test.upload(logits),
                                         .ids = ids_out,
                                         .shares = shares_out,
                                         .scale = 1.5f,
                                         .n_tokens = n_tokens,
                                         .n_experts = n_experts,
                                         .n_used = n_used,
                                         .n_rows = n_rows});
    const std::string label = fmt::format("{} of {} experts", n_used, n_experts);
    test.check_bytes(label + ", ids", ids_out, std::as_bytes(std::span(ids)));
    Expected expected;
    for (size_t i = 0; i < shares.size(); ++i) {
      expected.values.push_back(shares[i]);
      // The experts' shares are defined to the bit, the gate is not.
      expected.bounds.push_back(static_cast<int>(i) % n_shares < n_used ? 0 : 1e-6);
    }
    test.check(label + ", shares", shares_out, expected);
  }
}

void test_sort(Selftest& test) {
  struct Case {
    int n_tokens, n_used, n_experts;
  };
  for (const Case& c : std::vector<Case>{{100, 2, 3}, {1, 10, 512}, {300, 4, 33}, {65, 1, 1}}) {
    const int n_tokens = c.n_tokens, n_used = c.n_used, n_experts = c.n_experts;
    const int n = n_tokens * n_used;
    std::vector<int32_t> ids(static_cast<size_t>(n));
    // Few tokens take the last experts, some experts nobody.
    for (int32_t& id : ids)
      id = static_cast<int32_t>(std::min(test.random()() % static_cast<unsigned>(n_experts),
                                         test.random()() % static_cast<unsigned>(n_experts)));
    const auto bytes = [](int count) { return static_cast<size_t>(count) * sizeof(int32_t); };
    auto* token = test.output<int32_t>(static_cast<size_t>(n));
    auto* selection = test.output<int32_t>(static_cast<size_t>(n));
    auto* first_tile = test.output<int32_t>(static_cast<size_t>(n_experts + 1));
    const int most = PrefillSort::most_tiles(n, n_experts);
    auto* tiles = test.output<ExpertTile>(static_cast<size_t>(most));
    test.stream().launch<PrefillSort>({.grid = {1}, .threads = PrefillSort::kThreads},
                                      {.ids = test.upload(ids),
                                       .token = token,
                                       .selection = selection,
                                       .tiles = tiles,
                                       .first_tile = first_tile,
                                       .n_tokens = n_tokens,
                                       .n_used = n_used,
                                       .n_experts = n_experts});
    // Within an expert the order is free: it is sorted before it is compared.
    std::vector<int32_t> got = test.download(selection, static_cast<size_t>(n)),
                         tokens = test.download(token, static_cast<size_t>(n));
    std::vector<int32_t> expected(static_cast<size_t>(n)), expected_tokens;
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::stable_sort(expected, {}, [&](int32_t i) { return ids[static_cast<size_t>(i)]; });
    for (const int32_t i : got) expected_tokens.push_back(i / n_used);
    std::vector<ExpertTile> expected_tiles;
    std::vector<int32_t> expected_first;
    int place = 0;
    for (int e = 0; e < n_experts; ++e) {
      expected_first.push_back(static_cast<int32_t>(expected_tiles.size()));
      const int end = place + static_cast<int>(std::ranges::count(ids, e));
      std::ranges::sort(got.begin() + place, got.begin() + end);
      for (; place < end; place += std::min(kTileTokens, end - place))
        expected_tiles.push_back({e, place, std::min(kTileTokens, end - place)});
    }
    expected_first.push_back(static_cast<int32_t>(expected_tiles.size()));
    const std::string label = fmt::format("{} x {} of {} experts", n_tokens, n_used, n_experts);
    auto* sorted = test.output<int32_t>(static_cast<size_t>(n));
    test.stream().copy(sorted, got.data(), bytes(n));
    test.stream().synchronize();
    test.check_bytes(label + ", list", sorted, std::as_bytes(std::span(expected)));
    test.check_bytes(label + ", tokens", token, std::as_bytes(std::span(expected_tokens)));
    test.check_bytes(label + ", first tiles", first_tile, std::as_bytes(std::span(expected_first)));
    // Behind the last tile nothing is written.
    std::vector<std::byte> tile_bytes(static_cast<size_t>(most) * sizeof(ExpertTile), std::byte{0xff});
    std::memcpy(tile_bytes.data(), expected_tiles.data(), expected_tiles.size() * sizeof(ExpertTile));
    test.check_bytes(label + ", tiles", tiles, tile_bytes);
  }
}

void test_sum(Selftest& test) {
  struct Case {
    int n_tokens, n_used, n;
    bool with_shared;
  };
  for (const Case& c : std::vector<Case>{{3, 10, 300, true}, {2, 1, 64, false}}) {
    const int n_tokens = c.n_tokens, n_used = c.n_used, n = c.n;
    const bool with_shared = c.with_shared;
    const auto size = [](auto... factors) { return (size_t{1} * ... * static_cast<size_t>(factors)); };
    const std::vector<float> parts = test.normal(size(n_tokens, n_used, n)),
                             shared = test.normal(size(n_tokens, n));
    const std::vector<float> shares = test.normal(size(n_tokens, n_used + (with_shared ? 1 : 0)));
    const std::vector<float> before = test.normal(size(n_tokens, n));
    float* residual = test.output<float>(before.size());
    test.stream().copy(residual, before.data(), before.size() * sizeof(float));
    test.stream().synchronize();
    float* shown = test.output<float>(before.size());
    test.stream().launch<PrefillSum>({.grid = {static_cast<uint32_t>(n_tokens)}, .threads = 256},
                                     {.parts = test.upload(parts),
                                      .shared_parts = with_shared ? test.upload(shared) : nullptr,
                                      .shares = test.upload(shares),
                                      .residual = residual,
                                      .shown = shown,
                                      .n_used = n_used,
                                      .n = n});
    Expected added, after;
    const int n_shares = n_used + (with_shared ? 1 : 0);
    for (int i = 0; i < n_tokens * n; ++i) {
      const int t = i / n;
      double sum = 0, magnitude = 0;
      for (int e = 0; e < n_shares; ++e) {
        const double part = e < n_used ? parts[size(t * n_used + e, n) + static_cast<size_t>(i % n)]
                                       : shared[static_cast<size_t>(i)];
        const double term = part * shares[static_cast<size_t>(t * n_shares + e)];
        sum += term;
        magnitude += std::fabs(term);
      }
      added.values.push_back(sum);
      added.bounds.push_back(bound_of(magnitude, n_shares));
      after.values.push_back(sum + before[static_cast<size_t>(i)]);
      after.bounds.push_back(bound_of(magnitude + std::fabs(before[static_cast<size_t>(i)]), n_shares));
    }
    test.check(fmt::format("{} experts, what is added", n_used), shown, added);
    test.check(fmt::format("{} experts, the sum", n_used), residual, after);
  }
}

void test_delta(Selftest& test) {
  struct Case {
    int n_tokens, dim, n_k_heads, per_k, taps;
  };
  for (const Case& c : std::vector<Case>{{37, 128, 2, 2, 4}, {3, 40, 1, 3, 4}, {1, 128, 1, 1, 2}}) {
    const int n_tokens = c.n_tokens, dim = c.dim, n_k_heads = c.n_k_heads, per_k = c.per_k, taps = c.taps;
    const auto size = [](auto... factors) { return (size_t{1} * ... * static_cast<size_t>(factors)); };
    const int n_v_heads = n_k_heads * per_k, key_dim = n_k_heads * dim,
              conv_dim = 2 * key_dim + n_v_heads * dim;
    const int width = conv_dim + 2 * n_v_heads;  // q, k, v, beta, alpha
    const double eps = 1e-6;
    std::vector<DeltaHead> heads;
    for (int h = 0; h < n_v_heads; ++h) {
      const int k_head = h / per_k;
      heads.push_back({k_head, k_head * dim, key_dim + k_head * dim, 2 * key_dim + h * dim, 0, conv_dim + h,
                       conv_dim + n_v_heads + h, h % per_k == 0 ? 1 : 0});
    }
    const std::vector<float> proj = test.normal(size(n_tokens, width)),
                             conv = test.normal(size(taps, conv_dim));
    const std::vector<float> dt = test.normal(size(n_v_heads)),
                             history = test.normal(size(taps - 1, conv_dim));
    std::vector<float> a = test.normal(size(n_v_heads)), state = test.normal(size(n_v_heads, dim, dim));
    for (float& x : a) x = -std::fabs(x);
    for (float& x : state) x *= 0.1f;

    std::vector<float> histories(2 * history.size(), std::numeric_limits<float>::quiet_NaN());
    std::ranges::copy(history, histories.begin() + static_cast<std::ptrdiff_t>(history.size()));  // half 1
    float* history_out = test.output<float>(histories.size());
    float* state_out = test.output<float>(state.size());
    test.stream().copy(history_out, histories.data(), histories.size() * sizeof(float));
    test.stream().copy(state_out, state.data(), state.size() * sizeof(float));
    test.stream().synchronize();
    float* q = test.output<float>(size(n_tokens, n_k_heads, DeltaLayout::kHead));
    float* k = test.output<float>(size(n_tokens, n_k_heads, DeltaLayout::kHead));
    float* v = test.output<float>(size(n_tokens, n_v_heads, dim));
    float* lengths = test.output<float>(size(n_tokens, n_k_heads, 2));
    float* decays = test.output<float>(size(n_tokens, n_v_heads, 2));
    float* core = test.output<float>(size(n_tokens, n_v_heads, dim));
    const DeltaHead* heads_in = test.upload(heads);
    test.stream().launch<PrefillConvolve>(
        {.grid = {PrefillConvolve::token_blocks(n_tokens), PrefillConvolve::head_blocks(n_v_heads)},
         .threads = 256},
        {.proj = test.upload(proj),
         .heads = heads_in,
         .conv = test.upload(conv),
         .dt = test.upload(dt),
         .a = test.upload(a),
         .history = history_out,
         .q = q,
         .k = k,
         .v = v,
         .lengths = lengths,
         .decays = decays,
         .flip = 1,
         .proj_stride = width,
         .n_tokens = n_tokens,
         .n_v_heads = n_v_heads,
         .n_k_heads = n_k_heads,
         .taps = taps,
         .conv_dim = conv_dim,
         .key_dim = key_dim,
         .dim = dim,
         .eps = static_cast<float>(eps)});
    test.stream().launch<PrefillScan>({.grid = {static_cast<uint32_t>(n_v_heads), PrefillScan::slices(dim)},
                                       .threads = PrefillScan::kThreads},
                                      {.heads = heads_in,
                                       .q = q,
                                       .k = k,
                                       .v = v,
                                       .lengths = lengths,
                                       .decays = decays,
                                       .state = state_out,
                                       .core = core,
                                       .n_tokens = n_tokens,
                                       .n_v_heads = n_v_heads,
                                       .n_k_heads = n_k_heads,
                                       .dim = dim});

    // The same in double precision.
    const auto input = [&](int channel, int i) -> double {  // i = 0: taps - 1 tokens before the first
      return i < taps - 1 ? history[size(i, conv_dim) + static_cast<size_t>(channel)]
                          : proj[size(i - taps + 1, width) + static_cast<size_t>(channel)];
    };
    const auto convolved = [&](int channel, int t) {
      double sum = 0;
      for (int i = 0; i < taps; ++i)
        sum += conv[size(i, conv_dim) + static_cast<size_t>(channel)] * input(channel, t + i);
      return sum * sigmoid_of(sum);
    };
    Expected answers, states, next;
    answers.values.resize(size(n_tokens, n_v_heads, dim));
    std::vector<double> s(state.begin(), state.end());
    double largest = 0, largest_state = 0;
    for (int h = 0; h < n_v_heads; ++h) {
      const DeltaHead& head = heads[static_cast<size_t>(h)];
      for (int t = 0; t < n_tokens; ++t) {
        std::vector<double> qs, ks;
        double q_squares = 0, k_squares = 0;
        for (int i = 0; i < dim; ++i) {
          qs.push_back(convolved(head.q + i, t));
          ks.push_back(convolved(head.k + i, t));
          q_squares += qs.back() * qs.back();
          k_squares += ks.back() * ks.back();
        }
        for (double& x : qs) x /= std::sqrt(q_squares + eps) * std::sqrt(dim);
        for (double& x : ks) x /= std::sqrt(k_squares + eps);
        const float* row = &proj[size(t, width)];
        const double decay =
            std::exp(std::log1p(std::exp(static_cast<double>(row[head.alpha]) + dt[static_cast<size_t>(h)])) *
                     a[static_cast<size_t>(h)]);
        for (int column = 0; column < dim; ++column) {
          const auto at = [&](int i) -> double& {
            return s[size(h, dim, dim) + static_cast<size_t>(i * dim + column)];
          };
          double read = 0, answer = 0;
          for (int i = 0; i < dim; ++i) read += at(i) * ks[static_cast<size_t>(i)];
          const double delta = (convolved(head.v + column, t) - decay * read) * sigmoid_of(row[head.beta]);
          for (int i = 0; i < dim; ++i) {
            at(i) = decay * at(i) + ks[static_cast<size_t>(i)] * delta;
            answer += at(i) * qs[static_cast<size_t>(i)];
          }
          answers.values[size(t * n_v_heads + h, dim) + static_cast<size_t>(column)] = answer;
          largest = std::max(largest, std::fabs(answer));
        }
      }
    }
    for (const double x : s) largest_state = std::max(largest_state, std::fabs(x));
    answers.bounds.assign(answers.values.size(), 1e-4 * largest);
    states.values = s;
    states.bounds.assign(s.size(), 1e-4 * largest_state);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < (taps - 1) * conv_dim; ++i) {
        const double value = input(i % conv_dim, i / conv_dim + (half == 0 ? n_tokens : 0));
        next.values.push_back(value);
        next.bounds.push_back(0);
      }
    }
    const std::string label = fmt::format("{} tokens, {} heads of {}", n_tokens, n_v_heads, dim);
    test.check(label + ", answers", core, answers);
    test.check(label + ", states", state_out, states);
    test.check(label + ", histories", history_out, next);
  }
}

template <typename T>
void test_attend(Selftest& test) {
  constexpr bool kHalf = sizeof(T) == 2;
  struct Case {
    int n_tokens, position, n_kv_heads, group, dim, rope_dims, max_parts;
  };
  for (const Case& c : std::vector<Case>{{21, 0, 2, 8, 64, 16, 66},
                                         {9, 150, 1, 3, 256, 64, 2},
                                         {1, 40, 1, 16, 12, 12, 1},
                                         {70, 5, 1, 1, 128, 128, 3}}) {
    const int n_tokens = c.n_tokens, position = c.position, n_kv_heads = c.n_kv_heads, group = c.group,
              dim = c.dim, rope_dims = c.rope_dims, max_parts = c.max_parts;
    const auto size = [](auto... factors) { return (size_t{1} * ... * static_cast<size_t>(factors)); };
    const int n_heads = n_kv_heads * group, capacity = position + n_tokens + 3, q_stride = 2 * dim;
    const int k_offset = n_heads * q_stride, v_offset = k_offset + n_kv_heads * dim,
              width = v_offset + n_kv_heads * dim;
    const double eps = 1e-6;
    const auto stored = [](float x) { return kHalf ? f16_to_f32(f32_to_f16(x)) : x; };
    std::vector<float> proj = test.normal(size(n_tokens, width));
    const std::vector<float> q_norm = test.normal(size(dim)), k_norm = test.normal(size(dim));
    std::vector<float> rope;
    for (int t = 0; t < n_tokens; ++t) {
      for (int i = 0; i < rope_dims; ++i) {
        const double angle =
            (position + t) / std::pow(100.0, (i % (rope_dims / 2)) / static_cast<double>(rope_dims));
        rope.push_back(static_cast<float>(i < rope_dims / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
    // Keys and values before the chunk; behind it nothing may be read.
    std::vector<float> keys = test.normal(size(n_kv_heads, capacity, dim)), values = test.normal(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool before = static_cast<int>(i) / dim % capacity < position;
      keys[i] = before ? stored(keys[i]) : std::numeric_limits<float>::quiet_NaN();
      values[i] = before ? stored(values[i]) : std::numeric_limits<float>::quiet_NaN();
    }
    const auto upload = [&](const std::vector<float>& from) {
      std::vector<T> out;
      for (const float x : from) {
        if constexpr (kHalf) {
          out.push_back(f32_to_f16(x));
        } else {
          out.push_back(x);
        }
      }
      return test.upload(out);
    };
    T* keys_in = upload(keys);
    T* values_in = upload(values);
    const float* proj_in = test.upload(proj);
    float* q = test.output<float>(size(n_tokens, n_heads, dim));
    float* core = test.output<float>(size(n_tokens, n_heads, dim));
    test.stream().launch<PrefillHeads>({.grid = {static_cast<uint32_t>(n_tokens)}, .threads = 256},
                                       {.proj = proj_in,
                                        .q_norm = test.upload(q_norm),
                                        .k_norm = test.upload(k_norm),
                                        .rope = test.upload(rope),
                                        .q = q,
                                        .keys = keys_in,
                                        .values = values_in,
                                        .position = position,
                                        .proj_stride = width,
                                        .q_stride = q_stride,
                                        .k_offset = k_offset,
                                        .v_offset = v_offset,
                                        .capacity = capacity,
                                        .n_heads = n_heads,
                                        .n_kv_heads = n_kv_heads,
                                        .head_dim = dim,
                                        .rope_dims = rope_dims,
                                        .half_kv = kHalf,
                                        .eps = static_cast<float>(eps)});
    using K = PrefillAttend<T>;
    test.stream().launch<K>({.grid = {K::token_blocks(n_tokens, group), static_cast<uint32_t>(n_kv_heads)},
                             .threads = K::kThreads,
                             .dynamic_shared = K::dynamic_shared(dim)},
                            {.q = q,
                             .keys = keys_in,
                             .values = values_in,
                             .gate = proj_in + dim,
                             .core = core,
                             .position = position,
                             .n_tokens = n_tokens,
                             .capacity = capacity,
                             .max_parts = max_parts,
                             .gate_stride = width,
                             .gate_head_stride = q_stride,
                             .n_heads = n_heads,
                             .group = group,
                             .head_dim = dim});

    const auto normed = [&](const float* x, const std::vector<float>& weight, int t) {
      double squares = 0;
      for (int i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
      std::vector<double> out;
      for (int i = 0; i < dim; ++i)
        out.push_back(x[i] / std::sqrt(squares / dim + eps) * weight[static_cast<size_t>(i)]);
      for (int i = 0; i < rope_dims / 2; ++i) {
        const size_t a = static_cast<size_t>(i), b = static_cast<size_t>(rope_dims / 2 + i);
        const double cosine = rope[size(t, rope_dims) + a], sine = rope[size(t, rope_dims) + b], x0 = out[a],
                     x1 = out[b];
        out[a] = x0 * cosine - x1 * sine;
        out[b] = x0 * sine + x1 * cosine;
      }
      return out;
    };
    Expected expected;
    for (int t = 0; t < n_tokens; ++t) {
      const float* row = &proj[size(t, width)];
      for (int h = 0; h < n_heads; ++h) {
        const int kv_head = h / group;
        const std::vector<double> query = normed(row + h * q_stride, q_norm, t);
        std::vector<double> weights;  // scores at first
        double total = 0;
        for (int p = 0; p <= position + t; ++p) {
          double score = 0;
          std::vector<double> key;
          if (p < position) {
            const float* from = &keys[size(kv_head * capacity + p, dim)];
            key.assign(from, from + dim);
          } else {
            key = normed(&proj[size(p - position, width)] + k_offset + kv_head * dim, k_norm, p - position);
            for (double& x : key) x = stored(static_cast<float>(x));
          }
          for (int i = 0; i < dim; ++i) score += query[static_cast<size_t>(i)] * key[static_cast<size_t>(i)];
          weights.push_back(score / std::sqrt(dim));
        }
        const double most = *std::ranges::max_element(weights);
        for (double& weight : weights) total += weight = std::exp(weight - most);
        for (int i = 0; i < dim; ++i) {
          double sum = 0, magnitude = 0;
          for (int p = 0; p <= position + t; ++p) {
            const float v = p < position ? values[size(kv_head * capacity + p, dim) + static_cast<size_t>(i)]
                                         : stored(proj[size(p - position, width) +
                                                       static_cast<size_t>(v_offset + kv_head * dim + i)]);
            sum += weights[static_cast<size_t>(p)] / total * v;
            magnitude += weights[static_cast<size_t>(p)] / total * std::fabs(v);
          }
          expected.values.push_back(sum * sigmoid_of(row[h * q_stride + dim + i]));
          // Scores are off by roundings of q and k; of binary16 some may have gone the other way.
          expected.bounds.push_back(magnitude * (kHalf ? 4e-3 : 2e-4) + 1e-20);
        }
      }
    }
    test.check(fmt::format("{} tokens at {}, {} heads of {}", n_tokens, position, n_heads, dim), core,
               expected);
  }
}

}  // namespace

void add_prefill_groups(SelftestGroups& groups) {
  groups.emplace_back("prefill select", test_select);
  groups.emplace_back("prefill sort", test_sort);
  groups.emplace_back("prefill sum", test_sum);
  groups.emplace_back("prefill deltanet", test_delta);
  groups.emplace_back("prefill attention F32", test_attend<float>);
  groups.emplace_back("prefill attention F16", test_attend<uint16_t>);
}

}  // namespace redlite::gpu
