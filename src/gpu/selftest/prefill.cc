#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gpu/kernels/prefill_inputs.h"
#include "gpu/kernels/prefill_route.h"
#include "gpu/selftest/selftest.h"
#include "model/router.h"

/// The kernels of a chunk of tokens but mixers and products against plain mathematics.
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
    test.stream().launch<PrefillSelect>({.grid = {static_cast<uint32_t>(n_tokens)}, .threads = 256},
                                        {.logits = test.upload(logits),
                                         .ids = ids_out,
                                         .shares = shares_out,
                                         .scale = 1.5f,
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
    auto* sorted = test.copied(got);
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
    float* residual = test.copied(before);
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

}  // namespace

void add_prefill_groups(SelftestGroups& groups) {
  groups.emplace_back("prefill select", test_select);
  groups.emplace_back("prefill sort", test_sort);
  groups.emplace_back("prefill sum", test_sum);
}

}  // namespace redlite::gpu
