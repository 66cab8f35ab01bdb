#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "gpu/kernels/best.h"
#include "gpu/kernels/embed.h"
#include "gpu/kernels/route.h"
#include "gpu/selftest/matrix_values.h"
#include "gpu/selftest/selftest.h"
#include "model/router.h"
#include "model/runner.h"

/// What begins a token, chooses its experts and ends it, against plain mathematics.
namespace redlite::gpu {
namespace {

size_t size(auto... factors) {
  return (size_t{1} * ... * static_cast<size_t>(factors));
}

template <typename T>
void check_values(Selftest& test, const std::string& label, const T* output, const std::vector<T>& expected) {
  test.check_bytes(label, output, std::as_bytes(std::span(expected)));
}

void test_embed(Selftest& test) {
  struct Case {
    int n_tokens, n_embd, rope_dims, position;
  };
  for (const Case& c : std::vector<Case>{{1, 2048, 64, 131071}, {3, 260, 12, 0}, {1, 4, 600, 77}}) {
    const std::vector<float> x = test.normal(size(c.n_tokens, c.n_embd));
    std::vector<double> frequencies;
    for (int i = 0; i < c.rope_dims / 2; ++i)
      frequencies.push_back(std::pow(1e6, -2.0 * i / c.rope_dims) / (2 * std::numbers::pi));
    const std::vector<Step> step = {{.position = c.position, .number = 5, .flip = 1}};
    Step* step_out = test.output<Step>(1);
    float* x_out = test.output<float>(x.size());
    float* rope = test.output<float>(size(c.n_tokens, c.rope_dims));
    uint32_t* stop = test.output<uint32_t>(1);  // up
    test.stream().launch<Embed>({.grid = {static_cast<uint32_t>(c.n_tokens)}, .threads = kStepThreads},
                                {.host_step = test.upload(step),
                                 .host_x = test.upload(x),
                                 .step = step_out,
                                 .x = x_out,
                                 .rope = rope,
                                 .rope_frequencies = test.upload(frequencies),
                                 .stop = stop,
                                 .n_embd = c.n_embd,
                                 .rope_dims = c.rope_dims});
    Expected rotations;
    for (int t = 0; t < c.n_tokens; ++t) {
      for (int i = 0; i < c.rope_dims; ++i) {
        const double turns = (c.position + t) * frequencies[static_cast<size_t>(i % (c.rope_dims / 2))];
        const double angle = (turns - std::floor(turns)) * 2 * std::numbers::pi;
        rotations.values.push_back(i < c.rope_dims / 2 ? std::cos(angle) : std::sin(angle));
        rotations.bounds.push_back(1e-6);
      }
    }
    const std::string label = fmt::format("{} tokens of {} at {}", c.n_tokens, c.n_embd, c.position);
    check_values(test, label + ", x", x_out, x);
    check_values(test, label + ", step", step_out, step);
    check_values(test, label + ", flag", stop, {0u});
    test.check(label + ", rotations", rope, rotations);
  }
}

/// The table of slots of a device that manages its cache, with its rules written anew.
struct Slots {
  Slots(Selftest& test, int n_experts, int n_slots, int n_used)
      : slot_of(size(n_experts), -1), expert_of(size(n_slots), -1), last_used(size(n_slots), 0) {
    table = {.slot_of = test.copied(slot_of),
             .expert_of = test.copied(expert_of),
             .last_used = test.copied(last_used),
             .tick = test.copied<uint32_t>({0}),
             .n_copies = test.copied<uint32_t>({0}),
             .copies = test.output<SlotCopy>(size(n_used)),
             .hits = test.copied<uint32_t>(std::vector<uint32_t>(size(n_experts))),
             .misses = test.copied<uint32_t>(std::vector<uint32_t>(size(n_experts))),
             .n_slots = n_slots};
    hits.resize(size(n_experts));
    misses.resize(size(n_experts));
    prefetches.resize(size(n_experts));
    ahead = table;
    ahead.n_copies = test.copied<uint32_t>({0});
    ahead.copies = test.output<SlotCopy>(size(n_used));
    ahead.hits = nullptr;
    ahead.misses = test.copied<uint32_t>(prefetches);
  }

  /// The slots of these experts; `copies`: what has to be brought.
  std::vector<int32_t> use(std::span<const int32_t> ids, std::vector<SlotCopy>& copies,
                           bool predicted = false) {
    ++tick;
    for (const int32_t id : ids) {
      const int32_t slot = slot_of[size(id)];
      if (slot >= 0) last_used[size(slot)] = tick;
      if (slot >= 0 && predicted) continue;
      ++(predicted ? prefetches : slot >= 0 ? hits : misses)[size(id)];
    }
    std::vector<int32_t> slots;
    for (const int32_t id : ids) {
      if (slot_of[size(id)] < 0) {
        const auto victim = static_cast<int32_t>(std::ranges::min_element(last_used) - last_used.begin());
        if (expert_of[size(victim)] >= 0) slot_of[size(expert_of[size(victim)])] = -1;
        slot_of[size(id)] = victim;
        expert_of[size(victim)] = id;
        last_used[size(victim)] = tick;
        copies.push_back({id, victim});
      }
      slots.push_back(slot_of[size(id)]);
    }
    return slots;
  }

  static void check_copies(Selftest& test, const std::string& label, const SlotTable& table,
                           const std::vector<SlotCopy>& copies) {
    check_values(test, label + ", copies", table.n_copies, {static_cast<uint32_t>(copies.size())});
    const std::vector<SlotCopy> listed = test.download(table.copies, copies.size());
    std::vector<float> ours;
    Expected right;
    for (size_t i = 0; i < copies.size(); ++i) {
      ours.push_back(static_cast<float>(listed[i].expert * 4096 + listed[i].slot));
      right.values.push_back(copies[i].expert * 4096 + copies[i].slot);
      right.bounds.push_back(0);
    }
    if (!copies.empty()) test.compare(label + ", what is copied", ours, right);
  }
  void check(Selftest& test, const std::string& label) const {
    check_values(test, label + ", table", table.slot_of, slot_of);
    check_values(test, label + ", experts of slots", table.expert_of, expert_of);
    check_values(test, label + ", last use", table.last_used, last_used);
    check_values(test, label + ", hits", table.hits, hits);
    check_values(test, label + ", misses", table.misses, misses);
    check_values(test, label + ", prefetches", ahead.misses, prefetches);
  }

  SlotTable table{}, ahead{};
  std::vector<int32_t> slot_of, expert_of;
  std::vector<uint32_t> last_used, hits, misses, prefetches;
  uint32_t tick = 0;
};

void test_route(Selftest& test) {
  enum class Where { all, device, host };
  struct Case {
    int n, n_experts, n_used;
    bool with_shared;
    Where where;
  };
  const std::vector<Case> cases = {{2048, 512, 10, true, Where::all}, {68, 33, 3, false, Where::device},
                                   {4, 4, 4, true, Where::device},    {5004, 19, 2, true, Where::all},
                                   {260, 64, 31, true, Where::host},  {132, 1023, 8, false, Where::host},
                                   {20, 7, 3, true, Where::device}};
  constexpr float kEps = 1e-6f;
  for (const Case& c : cases) {
    const int n_rows = c.n_experts + (c.with_shared ? 1 : 0), n_scores = c.n_used + (c.with_shared ? 1 : 0);
    const std::vector<float> weight = test.normal(size(c.n));
    std::vector<float> router = test.normal(size(n_rows, c.n));
    if (c.where == Where::device) {
      // Expert e looks at value e.
      for (float& value : router) value *= 0.01f;
      for (int e = 0; e < c.n_experts; ++e) router[size(e, c.n) + size(e)] = 1;
    }
    const float* weight_in = test.upload(weight);
    const float* router_in = test.upload(router);
    uint32_t* tickets = test.copied<uint32_t>({0});
    Slots slots(test, c.n_experts, std::min(c.n_experts, 2 * c.n_used), c.n_used);
    for (uint32_t pass = 1; pass <= (c.where == Where::device ? 9u : 2u); ++pass) {
      std::vector<float> x = test.normal(size(c.n));
      if (c.where == Where::device) {
        // So chosen that one third of 3 n_used experts is used after another: each is given away and comes
        // back.
        for (int j = 0; j < c.n; ++j) {
          const int cycle = std::min(3 * c.n_used, c.n_experts);
          const int turn = (j - static_cast<int>(pass - 1) * c.n_used % cycle + cycle) % cycle;
          const float wanted = j < cycle && turn < c.n_used ? 3 : 0;
          x[size(j)] = (wanted + 0.01f * x[size(j)]) / weight[size(j)];
        }
      }
      const std::string label =
          fmt::format("{} of {} experts, {} wide, pass {}", c.n_used, c.n_experts, c.n, pass);
      float* input = test.output<float>(size(c.n));
      auto* rounded = test.output<std::byte>(rounded_bytes(c.n));
      float* logits = test.output<float>(size(n_rows));
      int32_t* ids = test.output<int32_t>(size(c.n_used));
      float* scores = test.output<float>(size(n_scores));
      int32_t* slots_out = test.output<int32_t>(size(c.n_used));
      // Of the host's experts every third is missing in the first pass.
      std::vector<uint64_t> entries;
      for (int e = 0; e < c.n_experts; ++e)
        entries.push_back(pass == 1 && e % 3 == 0 ? 0 : slot_entry(e + 5, static_cast<uint32_t>(100 + e)));
      RouteRecord* record = test.output<RouteRecord>(1);
      uint32_t* stop = test.copied<uint32_t>({0});
      const std::vector<Step> step = {{.position = 0, .number = pass, .flip = 0}};
      test.stream().launch<Route>(
          {.grid = {Route::blocks(n_rows), 1},
           .threads = kStepThreads,
           .dynamic_shared = Route::dynamic_shared(c.n)},
          {.x = test.upload(x),
           .weight = weight_in,
           .router = router_in,
           .input = input,
           .rounded = rounded,
           .logits = logits,
           .ids = ids,
           .scores = scores,
           .slots = c.where == Where::all ? nullptr : slots_out,
           .table = c.where == Where::device ? slots.table : SlotTable{},
           .host = c.where == Where::host ? HostSlots{test.upload(entries), record, stop} : HostSlots{},
           .step = test.upload(step),
           .tickets = tickets,
           .eps = kEps,
           .n = c.n,
           .n_experts = c.n_experts,
           .n_used = c.n_used,
           .n_rows = n_rows});

      double squares = 0;
      for (const float value : x) squares += static_cast<double>(value) * value;
      const double norm = 1 / std::sqrt(squares / c.n + static_cast<double>(kEps));
      Expected inputs, sums;
      for (size_t i = 0; i < x.size(); ++i) {
        inputs.values.push_back(x[i] * norm * weight[i]);
        inputs.bounds.push_back(std::fabs(inputs.values.back()) * 0x1p-20 + 1e-30);
      }
      for (int row = 0; row < n_rows; ++row) {
        double sum = 0, magnitude = 0;
        for (int i = 0; i < c.n; ++i) {
          const double term = inputs.values[size(i)] * router[size(row, c.n) + size(i)];
          sum += term;
          magnitude += std::fabs(term);
        }
        sums.values.push_back(sum);
        sums.bounds.push_back(magnitude * 0x1p-19 + 1e-30);
      }
      test.check(label + ", input", input, inputs);
      check_rounded(test, label + ", rounded", input, rounded, 1, c.n);
      test.check(label + ", logits", logits, sums);
      check_values(test, label + ", tickets", tickets, {0u});

      // From here on everything is defined to the bit, but for the shared expert's gate.
      const std::vector<float> h = test.download(input, size(c.n)), got = test.download(logits, size(n_rows));
      std::vector<float> exact;
      for (int row = 0; row < n_rows; ++row)
        exact.push_back(model::router_logit(&router[size(row, c.n)], h.data(), c.n));
      check_values(test, label + ", logits to the bit", logits, exact);
      std::vector<int32_t> best(size(c.n_used));
      std::vector<float> share(size(c.n_used)), expected;
      model::select_experts({got.data(), size(c.n_experts)}, 1, best, share);
      check_values(test, label + ", ids", ids, best);
      for (const int32_t id : best) expected.push_back(got[size(id)]);
      if (c.with_shared) expected.push_back(got.back());
      check_values(test, label + ", scores", scores, expected);

      if (c.where == Where::device) {
        std::vector<SlotCopy> copies;
        check_values(test, label + ", slots", slots_out, slots.use(best, copies));
        Slots::check_copies(test, label, slots.table, copies);
        slots.check(test, label);
      } else if (c.where == Where::host) {
        std::vector<int32_t> found;
        RouteRecord told;
        std::fill_n(reinterpret_cast<uint8_t*>(&told), sizeof told, uint8_t{0xff});
        told.number = pass;
        bool missing = false;
        for (size_t i = 0; i < best.size(); ++i) {
          told.ids[i] = best[i];
          told.entries[i] = entries[size(best[i])];
          missing |= told.entries[i] == 0;
          found.push_back(told.entries[i] == 0 ? 0 : best[i] + 5);
        }
        check_values(test, label + ", slots", slots_out, found);
        check_values(test, label + ", what the host is told", record, {told});
        check_values(test, label + ", flag", stop, {missing ? 1u : 0u});
      }
    }
    if (c.where == Where::device && c.n_experts > 2 * c.n_used)
      RL_CHECK(slots.misses[0] > 1, "expert 0 was never given away");
  }
}

// Layer after layer: each router also looks up what the next one will probably select, or tells the host what
// the next ones will. A table that a prediction has changed is the next router's; what is being loaded for
// the prediction is never given away by it.
void test_route_ahead(Selftest& test) {
  struct Case {
    int n, n_experts, n_used;
    bool host;
  };
  const std::vector<Case> cases = {{2048, 512, 10, false},
                                   {68, 33, 3, false},
                                   {260, 64, 16, false},
                                   {20, 7, 3, false},
                                   {132, 90, 8, true}};
  constexpr int kLayers = 5;
  for (const Case& c : cases) {
    const int n_rows = c.n_experts + 1, most_ahead = c.host ? Route::kMostAhead : 1;
    const float* weight = test.upload(std::vector<float>(size(c.n), 1.0f));
    std::vector<std::vector<float>> routers;
    std::vector<const float*> routers_in;
    std::vector<Slots> slots;
    for (int l = 0; l < kLayers; ++l) {
      routers.push_back(test.normal(size(n_rows, c.n)));
      routers_in.push_back(test.upload(routers.back()));
      slots.emplace_back(test, c.n_experts, std::min(c.n_experts, 2 * c.n_used), c.n_used);
    }
    uint32_t* tickets = test.copied<uint32_t>({0});
    const std::vector<uint32_t> no_tickets(Route::kMostAhead);
    uint32_t* next_tickets = test.copied<uint32_t>(no_tickets);
    size_t overlaps = 0;
    for (uint32_t pass = 1; pass <= 4; ++pass) {
      const Step* step = test.upload(std::vector<Step>{{.position = 0, .number = pass, .flip = 0}});
      std::vector<SlotCopy> ahead;  // of this layer, by the one before
      for (int l = 0; l < kLayers; ++l) {
        const std::string label =
            fmt::format("{} of {} experts, pass {}, layer {}", c.n_used, c.n_experts, pass, l);
        const auto layer = size(l);
        const int n_ahead = std::min(most_ahead, kLayers - 1 - l);
        float* input = test.output<float>(size(c.n));
        int32_t* ids = test.output<int32_t>(size(c.n_used));
        int32_t* slots_out = test.output<int32_t>(size(c.n_used));
        std::vector<float*> next_logits;
        std::vector<RouteRecord*> next_records;
        float* logits = test.output<float>(size(n_rows));
        Route::Params p{.x = test.upload(test.normal(size(c.n))),
                        .weight = weight,
                        .router = routers_in[layer],
                        .input = input,
                        .rounded = test.output<std::byte>(rounded_bytes(c.n)),
                        .logits = logits,
                        .ids = ids,
                        .scores = test.output<float>(size(c.n_used + 1)),
                        .slots = slots_out,
                        .table = c.host ? SlotTable{} : slots[layer].table,
                        .host = {},
                        .step = step,
                        .tickets = tickets,
                        .eps = 1e-6f,
                        .n = c.n,
                        .n_experts = c.n_experts,
                        .n_used = c.n_used,
                        .n_rows = n_rows};
        for (int i = 0; i < n_ahead; ++i) {
          const size_t after = layer + 1 + size(i);
          next_logits.push_back(test.output<float>(size(c.n_experts)));
          next_records.push_back(test.output<RouteRecord>(1));
          p.next[i] = {.router = routers_in[after],
                       .logits = next_logits.back(),
                       .table = c.host ? SlotTable{} : slots[after].ahead,
                       .host = c.host ? HostSlots{nullptr, next_records.back(), nullptr} : HostSlots{},
                       .ticket = next_tickets + i};
        }
        test.stream().launch<Route>(
            {.grid = {Route::blocks(n_rows) + static_cast<uint32_t>(n_ahead) * Route::blocks(c.n_experts), 1},
             .threads = kStepThreads,
             .dynamic_shared = Route::dynamic_shared(c.n)},
            p);
        const std::vector<float> h = test.download(input, size(c.n));
        const auto selection = [&](const std::vector<float>& router, int rows, const float* ours) {
          std::vector<float> exact;
          for (int row = 0; row < rows; ++row)
            exact.push_back(model::router_logit(&router[size(row, c.n)], h.data(), c.n));
          check_values(test, label + ", logits", ours, exact);
          std::vector<int32_t> best(size(c.n_used));
          std::vector<float> share(size(c.n_used));
          model::select_experts({exact.data(), size(c.n_experts)}, 1, best, share);
          return best;
        };
        const std::vector<int32_t> best = selection(routers[layer], n_rows, logits);
        check_values(test, label + ", ids", ids, best);
        check_values(test, label + ", tickets", tickets, {0u});
        check_values(test, label + ", the predictions' tickets", next_tickets, no_tickets);
        if (!c.host) {
          std::vector<SlotCopy> copies;
          check_values(test, label + ", slots", slots_out, slots[layer].use(best, copies));
          Slots::check_copies(test, label, slots[layer].table, copies);
          slots[layer].check(test, label);
          for (const SlotCopy& copy : copies) {
            for (const SlotCopy& loading : ahead) RL_CHECK(copy.slot != loading.slot, "{}: two loads", label);
          }
          overlaps += copies.empty() || ahead.empty() ? 0 : 1;
        }
        ahead.clear();
        for (int i = 0; i < n_ahead; ++i) {
          const size_t after = layer + 1 + size(i);
          const std::vector<int32_t> next = selection(routers[after], c.n_experts, next_logits[size(i)]);
          if (c.host) {
            RouteRecord told;
            std::fill_n(reinterpret_cast<uint8_t*>(&told), sizeof told, uint8_t{0xff});
            told.number = pass;
            for (size_t at = 0; at < next.size(); ++at) {
              told.ids[at] = next[at];
              told.entries[at] = 0;
            }
            check_values(test, label + ", what the host is told", next_records[size(i)], {told});
          } else {
            slots[after].use(next, ahead, true);
            Slots::check_copies(test, label + ", ahead", slots[after].ahead, ahead);
            slots[after].check(test, label + ", ahead");
          }
        }
      }
    }
    RL_CHECK(c.host || overlaps > 0, "nothing was missed beside a prediction");
  }
}

void test_best(Selftest& test) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::pair<std::string, std::vector<float>>> rows;
  for (const int n : {1, 2, 31, 4096, 4097, 151936, 13001})
    rows.emplace_back(fmt::format("{} logits", n), test.normal(size(n)));
  for (const auto& [first, second] :
       std::vector<std::pair<size_t, size_t>>{{100, 101}, {7, 9000}, {4095, 4096}}) {
    std::vector<float> tie = test.normal(9001);
    tie[first] = tie[second] = 1000;
    rows.emplace_back(fmt::format("a tie of {} and {}", first, second), tie);
  }
  rows.emplace_back("0 and -0", std::vector<float>{-1, -0.0f, 0.0f});
  rows.emplace_back("all less than 0", std::vector<float>{-3, -kInfinity, -2, -2});
  rows.emplace_back("NaN", std::vector<float>{kNaN, -5, -kNaN, -4});
  uint64_t* best = test.copied<uint64_t>({0});
  uint32_t* ticket = test.copied<uint32_t>({0});
  for (const auto& [label, logits] : rows) {
    uint64_t* told = test.output<uint64_t>(1);
    const int n = static_cast<int>(logits.size());
    test.stream().launch<Best>(
        {.grid = {Best::blocks(n)}, .threads = kStepThreads},
        {.logits = test.upload(logits), .best = best, .ticket = ticket, .host = told, .n = n});
    const std::vector<float> ours = {static_cast<float>(best_of(test.download(told, 1)[0]))};
    test.compare(label, ours, {{static_cast<double>(model::best_token(logits))}, {0}});
    check_values(test, label + ", what is left", best, {uint64_t{0}});
    check_values(test, label + ", ticket", ticket, {0u});
  }
}

}  // namespace

void add_decode_groups(SelftestGroups& groups) {
  groups.emplace_back("embed", test_embed);
  groups.emplace_back("route", test_route);
  groups.emplace_back("route, with a prediction", test_route_ahead);
  groups.emplace_back("best", test_best);
}

}  // namespace redlite::gpu
