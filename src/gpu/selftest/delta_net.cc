#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu/kernels/delta_step.h"
#include "gpu/kernels/prefill_delta.h"
#include "gpu/selftest/matrix_values.h"
#include "gpu/selftest/selftest.h"

/// The recurrence of DeltaNet layers, of a chunk of tokens and of tokens one by one, against plain
/// mathematics.
namespace redlite::gpu {
namespace {

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

void test_delta(Selftest& test) {
  struct Case {
    int n_tokens, dim, n_k_heads, per_k, taps;
  };
  for (const Case& c :
       std::vector<Case>{{37, 128, 2, 2, 4}, {3, 40, 1, 3, 4}, {1, 128, 1, 1, 2}, {2, 48, 1, 2, 3}}) {
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
    float* history_out = test.copied(histories);
    float* state_out = test.copied(state);
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

    // The kernel of decode, which also gates.
    std::vector<DeltaHead> gated = heads;
    for (size_t h = 0; h < gated.size(); ++h)
      gated[h].z = conv_dim + 2 * n_v_heads + static_cast<int>(h) * dim;
    const std::vector<float> weight = test.normal(size(dim));
    std::vector<float> wide;
    for (int t = 0; t < n_tokens; ++t) {
      wide.insert(wide.end(), &proj[size(t, width)], &proj[size(t, width)] + width);
      const std::vector<float> z = test.normal(size(n_v_heads, dim));
      wide.insert(wide.end(), z.begin(), z.end());
    }
    const int wide_width = width + n_v_heads * dim, slices = DeltaStep::slices(dim),
              core_width = n_v_heads * dim;
    float* history_step = test.copied(histories);
    float* state_step = test.copied(state);
    float* core_step = test.output<float>(size(n_tokens, core_width));
    float* squares = test.output<float>(size(n_tokens, n_v_heads, slices));
    const size_t rounded_size = rounded_bytes(core_width);
    auto* rounded = test.output<std::byte>(size(n_tokens) * rounded_size);
    const std::vector<Step> step = {{.position = 3, .number = 1, .flip = 1}};
    test.stream().launch<DeltaStep>({.grid = DeltaStep::grid(n_v_heads, dim), .threads = kStepThreads},
                                    {.proj = test.upload(wide),
                                     .heads = test.upload(gated),
                                     .conv = test.upload(conv),
                                     .dt = test.upload(dt),
                                     .a = test.upload(a),
                                     .history = history_step,
                                     .state = state_step,
                                     .weight = test.upload(weight),
                                     .core = core_step,
                                     .rounded = dim % 16 == 0 ? rounded : nullptr,
                                     .squares = squares,
                                     .step = test.upload(step),
                                     .proj_stride = wide_width,
                                     .n_tokens = n_tokens,
                                     .taps = taps,
                                     .conv_dim = conv_dim,
                                     .key_dim = key_dim,
                                     .dim = dim,
                                     .eps = static_cast<float>(eps)});
    Expected gates, sums;
    sums.values.resize(size(n_tokens, n_v_heads, slices));
    for (int i = 0; i < n_tokens * core_width; ++i) {
      const int t = i / core_width, h = i % core_width / dim, column = i % dim;
      const double z =
          wide[size(t, wide_width) + static_cast<size_t>(gated[static_cast<size_t>(h)].z + column)];
      const double answer = answers.values[static_cast<size_t>(i)];
      const double factor = weight[static_cast<size_t>(column)] * z * sigmoid_of(z);
      gates.values.push_back(answer * factor);
      gates.bounds.push_back(1e-4 * largest * std::fabs(factor) + 1e-20);
      sums.values[size(t * n_v_heads + h, slices) + static_cast<size_t>(column / DeltaStep::kColumns)] +=
          answer * answer;
    }
    sums.bounds.assign(sums.values.size(), 1e-3 * largest * largest);
    test.check(label + ", one by one, gated answers", core_step, gates);
    test.check(label + ", one by one, squares", squares, sums);
    test.check(label + ", one by one, states", state_step, states);
    test.check(label + ", one by one, histories", history_step, next);
    if (dim % 16 == 0)
      check_rounded(test, label + ", one by one, rounded", core_step, rounded, n_tokens, core_width);
  }
}

}  // namespace

void add_delta_net_groups(SelftestGroups& groups) {
  groups.emplace_back("deltanet", test_delta);
}

}  // namespace redlite::gpu
