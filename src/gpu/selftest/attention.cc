#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "gpu/kernels/attend.h"
#include "gpu/kernels/prefill_attend.h"
#include "gpu/selftest/matrix_values.h"
#include "gpu/selftest/selftest.h"

/// Attention, of a chunk of tokens and of one token, against plain mathematics.
namespace redlite::gpu {
namespace {

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
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
                                         {1, 0, 2, 8, 64, 16, 66},
                                         {1, 300, 2, 8, 256, 64, 3},
                                         {1, 64, 1, 16, 16, 8, 1},
                                         {1, 95, 1, 5, 48, 48, 1},
                                         {1, 2200, 1, 2, 16, 16, 256},
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
    const std::string label =
        fmt::format("{} tokens at {}, {} heads of {}", n_tokens, position, n_heads, dim);
    test.check(label, core, expected);
    if (n_tokens != 1 || dim % 16 != 0) continue;

    // The kernels of decode.
    const auto fresh = [&](const T* from) {
      T* to = test.output<T>(keys.size());
      test.stream().copy(to, from, keys.size() * sizeof(T));
      return to;
    };
    T* keys_step = fresh(upload(keys));
    T* values_step = fresh(upload(values));
    float* part_max = test.output<float>(size(n_heads, max_parts));
    float* part_sum = test.output<float>(size(n_heads, max_parts));
    float* part_values = test.output<float>(size(n_heads, max_parts, dim));
    float* core_step = test.output<float>(size(n_heads, dim));
    auto* rounded = test.output<std::byte>(rounded_bytes(n_heads * dim));
    const std::vector<Step> step = {{.position = position, .number = 1, .flip = 0}};
    const Step* step_in = test.upload(step);
    using One = Attend<T>;
    test.stream().launch<One>({.grid = {static_cast<uint32_t>(n_kv_heads), static_cast<uint32_t>(max_parts)},
                               .threads = kStepThreads,
                               .dynamic_shared = One::dynamic_shared(group, dim)},
                              {.proj = proj_in,
                               .q_norm = test.upload(q_norm),
                               .k_norm = test.upload(k_norm),
                               .rope = test.upload(rope),
                               .keys = keys_step,
                               .values = values_step,
                               .part_max = part_max,
                               .part_sum = part_sum,
                               .part_values = part_values,
                               .step = step_in,
                               .q_stride = q_stride,
                               .k_offset = k_offset,
                               .v_offset = v_offset,
                               .capacity = capacity,
                               .head_dim = dim,
                               .rope_dims = rope_dims,
                               .group = group,
                               .eps = static_cast<float>(eps)});
    test.stream().launch<AttendCombine>({.grid = {static_cast<uint32_t>(n_heads)}, .threads = kStepThreads},
                                        {.part_max = part_max,
                                         .part_sum = part_sum,
                                         .part_values = part_values,
                                         .gate = proj_in + dim,
                                         .core = core_step,
                                         .rounded = rounded,
                                         .step = step_in,
                                         .max_parts = max_parts,
                                         .gate_head_stride = q_stride,
                                         .head_dim = dim});
    test.check(label + ", decode", core_step, expected);
    check_rounded(test, label + ", decode, rounded", core_step, rounded, 1, n_heads * dim);
    // Not a bit of it may differ from what a chunk gives.
    const std::vector<float> of_chunk = test.download(core, size(n_heads, dim));
    test.check_bytes(label + ", decode and chunk", core_step, std::as_bytes(std::span(of_chunk)));
    const std::vector<T> cached_keys = test.download(keys_in, keys.size()),
                         cached_values = test.download(values_in, values.size());
    test.check_bytes(label + ", keys", keys_step, std::as_bytes(std::span(cached_keys)));
    test.check_bytes(label + ", values", values_step, std::as_bytes(std::span(cached_values)));
  }
}

}  // namespace

void add_attention_groups(SelftestGroups& groups) {
  groups.emplace_back("attention F32", test_attend<float>);
  groups.emplace_back("attention F16", test_attend<uint16_t>);
}

}  // namespace redlite::gpu
