#include "gpu/prefill_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu/kernels/prefill_inputs.h"
#include "gpu/kernels/prefill_route.h"
#include "gpu/selftest/selftest.h"
#include "quant/decode.h"
#include "quant/random_blocks.h"

namespace redlite::gpu {
namespace {

/// x as weights of `type` are multiplied with it: rounded to 8 bits, with a scale for 16 values.
std::vector<double> seen_by_weights(quant::Type type, std::span<const float> x) {
  std::vector<double> out(x.begin(), x.end());
  for (size_t first = 0; first < x.size() && quant::info(type).block_values > 1; first += 16) {
    const size_t end = std::min(first + 16, x.size());
    float largest = 0;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
    const bool zero = largest < 0x1p-100f;
    for (size_t i = first; i < end; ++i) {
      const float steps = zero ? 0.0f : std::nearbyint(x[i] * (127.0f / largest));
      out[i] = static_cast<double>(zero ? 0.0f : largest / 127.0f) * static_cast<double>(steps);
    }
  }
  return out;
}

/// Products of each type: dense, and with experts whose tokens are strewn over the input and the output.
void test_product(Selftest& test, quant::Type type) {
  const auto block = static_cast<int>(quant::info(type).block_values);
  struct Case {
    int rows, cols, tokens, experts;  // experts 0: dense
  };
  std::vector<Case> cases = {
      {150, 256, 9, 0}, {33, 2048, 66, 0}, {5, 4096, 3, 0}, {9, 768, 1, 0}, {40, 512, 40, 3}};
  if (block <= 32) {
    for (const int cols : {32, 64, 96, 288, 800}) cases.push_back({3, cols, 2, 0});
  }
  if (block == 1) {
    for (const int cols : {1, 7, 100}) cases.push_back({34, cols, 5, 0});
  }
  for (const Case& c : cases) {
    const auto size = [](auto... factors) { return (size_t{1} * ... * static_cast<size_t>(factors)); };
    const int n_matrices = std::max(1, c.experts), per_token = c.experts == 0 ? 1 : 2,
              n_results = c.tokens * per_token;
    std::vector<std::byte> planes(plane_bytes(type, c.rows, c.cols) * size(n_matrices));
    std::vector<float> weights;
    for (int e = 0; e < n_matrices; ++e) {
      const size_t n = size(c.rows, c.cols);
      const std::vector<std::byte> blocks = quant::random_blocks(type, n / size(block), test.random());
      weights.resize(weights.size() + n);
      quant::decode(type, blocks.data(), &*(weights.end() - static_cast<std::ptrdiff_t>(n)), n);
      repack(type, c.rows, c.cols, blocks.data(),
             planes.data() + plane_bytes(type, c.rows, c.cols) * size(e));
    }
    std::vector<float> x = test.normal(size(c.tokens, c.cols));
    if (c.cols >= 64) std::fill_n(x.begin() + 16, 16, 0.0f);  // a strip of zeros
    const float* x_in = test.upload(x);

    ProductInput input{.floats = test.output<float>(x.size()), .stride = c.cols, .rounded = {}};
    input.rounded.strips = (c.cols + 63) / 64 * 4;
    const size_t strips = size(c.tokens, input.rounded.strips);
    input.rounded.q = test.output<uint32_t>(4 * strips);
    input.rounded.scale = test.output<float>(strips);
    input.rounded.sum = test.output<float>(strips);
    input.rounded.pair_sum = test.output<float>(strips / 2);
    const Launcher launcher{.stream = test.stream()};
    launcher.launch<PrefillInput>({.grid = {static_cast<uint32_t>(c.tokens)},
                                   .threads = 256,
                                   .dynamic_shared = PrefillInput::dynamic_shared(c.cols)},
                                  {.input = {.x = x_in, .n = c.cols},
                                   .floats = const_cast<float*>(input.floats),
                                   .rounded = input.rounded});

    TokenTiles tokens;
    tokens.n = c.tokens;
    int n_tiles = (c.tokens + kTileTokens - 1) / kTileTokens;
    std::vector<int32_t> ids;  // the expert of each result
    for (int i = 0; i < n_results; ++i)
      ids.push_back(c.experts == 0 ? 0 : static_cast<int32_t>(test.random()() % 4) % c.experts);
    if (c.experts > 0) {
      n_tiles = PrefillSort::most_tiles(n_results, c.experts);
      auto* token = test.output<int32_t>(size(n_results));
      auto* selection = test.output<int32_t>(size(n_results));
      auto* tiles = test.output<ExpertTile>(size(n_tiles));
      auto* first_tile = test.output<int32_t>(size(c.experts + 1));
      launcher.launch<PrefillSort>({.grid = {1}, .threads = PrefillSort::kThreads}, {.ids = test.upload(ids),
                                                                                     .token = token,
                                                                                     .selection = selection,
                                                                                     .tiles = tiles,
                                                                                     .first_tile = first_tile,
                                                                                     .n_tokens = c.tokens,
                                                                                     .n_used = per_token,
                                                                                     .n_experts = c.experts});
      tokens = {.n = 0,
                .tiles = tiles,
                .first_tile = first_tile,
                .first_expert = 0,
                .end_expert = c.experts,
                .input_row = token,
                .output_row = selection,
                .slot_bytes = plane_bytes(type, c.rows, c.cols)};
    }
    float* y = test.output<float>(size(n_results, c.rows));
    const std::vector<float> before = test.normal(size(n_results, c.rows));
    float* sum = test.copied(before);
    const DeviceMatrix matrix = device_matrix(type, c.rows, c.cols, test.upload(planes));
    prefill_product(launcher, matrix, input, tokens, n_tiles, {y, sum, c.rows}, test.codebooks());
    const bool groups = can_have_row_groups(type);
    float* in_groups = groups ? test.output<float>(size(n_results, c.rows)) : nullptr;
    if (groups) {
      // As with many tiles of short rows: a block has rows of several groups, one after another.
      PrefillProductParams params = product_params(matrix, input.rounded, tokens, n_tiles,
                                                   {in_groups, nullptr, c.rows}, test.codebooks());
      params.row_groups = 3;
      launch_product(launcher, params, n_tiles);
    }

    Expected products, sums;
    for (int i = 0; i < n_results; ++i) {
      const std::vector<double> seen =
          seen_by_weights(type, std::span(x).subspan(size(i / per_token, c.cols), size(c.cols)));
      for (int r = 0; r < c.rows; ++r) {
        const float* w = &weights[size(ids[static_cast<size_t>(i)] * c.rows + r, c.cols)];
        double product = 0, magnitude = 0;
        for (int first = 0; first < c.cols; first += 32) {
          // A value may be a small difference of its scale's part and its min.
          double largest = 0;
          for (int k = first; k < std::min(first + 32, c.cols); ++k)
            largest = std::max(largest, std::fabs(static_cast<double>(w[k])));
          for (int k = first; k < std::min(first + 32, c.cols); ++k) {
            product += w[k] * seen[static_cast<size_t>(k)];
            magnitude += 3 * largest * std::fabs(seen[static_cast<size_t>(k)]);
          }
        }
        const double old = before[size(i, c.rows) + static_cast<size_t>(r)];
        products.values.push_back(product);
        products.bounds.push_back(magnitude * 0x1p-25 * (c.cols / 32.0 + 16) + 1e-30);
        sums.values.push_back(product + old);
        sums.bounds.push_back(products.bounds.back() + std::fabs(product + old) * 0x1p-23);
      }
    }
    const std::string label =
        fmt::format("{} x {} for {} tokens{}", c.rows, c.cols, c.tokens, c.experts > 0 ? " of experts" : "");
    test.check(label, y, products);
    if (groups)
      test.check_bytes(label + ", in groups", in_groups,
                       test.download<std::byte>(reinterpret_cast<const std::byte*>(y),
                                                sizeof(float) * size(n_results, c.rows)));
    test.check(label + ", added", sum, sums);
  }
}

}  // namespace

void add_prefill_product_groups(SelftestGroups& groups) {
  for (const quant::TypeInfo& info : quant::all_types()) {
    groups.emplace_back(fmt::format("prefill product {}", info.name),
                        [type = info.type](Selftest& test) { test_product(test, type); });
  }
}

}  // namespace redlite::gpu
