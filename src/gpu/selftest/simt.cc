#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/half.h"
#include "gpu/kernels/simt_check.h"
#include "gpu/selftest/selftest.h"

namespace redlite::gpu {
namespace {

constexpr int kThreads = SimtCheck::kThreads;
using Words = std::array<uint32_t, 12>;

/// The element [row][k] of A and [k][column] of B as `per_word` values of a word: what mma.m16n8k32 and
/// m16n8k16 of the PTX manual say about fragments, written from the matrices' side.
uint32_t part(uint32_t word, int i, int per_word) {
  return word >> (32 / per_word * i);
}
uint32_t a_element(const Words* warp, int row, int k, int per_word) {
  const int word = k / per_word;  // of 8 in a row
  return part(warp[(row % 8) * 4 + word % 4][static_cast<size_t>(row / 8 + word / 4 * 2)], k % per_word,
              per_word);
}
uint32_t b_element(const Words* warp, int k, int column, int per_word) {
  const int word = k / per_word;
  return part(warp[column * 4 + word % 4][static_cast<size_t>(4 + word / 4)], k % per_word, per_word);
}

int byte_of(uint32_t word, int i) {
  return static_cast<int8_t>(word >> (8 * i));
}
int int_of(float f) {
  return std::bit_cast<int>(f);
}

/// What thread `t` puts into `out`.
std::vector<int32_t> expected_of(const std::vector<Words>& in, int t) {
  const int lane = t % 32;
  const Words* warp = &in[static_cast<size_t>(t - lane)];
  const auto x = [&](int i) { return static_cast<int>(warp[i][6]); };
  const auto sum = [&](int first, int n) {
    uint32_t s = 0;
    for (int i = first; i < first + n; ++i) s += warp[i][6];
    return static_cast<int>(s);
  };
  const Words& w = warp[lane];
  std::vector<int32_t> out(SimtCheck::kResults);
  out[0] = x(5);
  out[1] = x(lane ^ 9);
  out[2] = x(lane + 3 < 32 ? lane + 3 : lane);
  out[3] = x(lane >= 3 ? lane - 3 : lane);
  uint32_t odd = 0;
  for (int i = 0; i < 32; ++i) odd |= static_cast<uint32_t>(x(i) % 2 != 0) << i;
  out[4] = static_cast<int>(odd);
  out[5] = 1;
  out[6] = 0;
  out[7] = sum(0, 32);
  out[8] = sum(lane / 4 * 4, 4);
  out[9] = x(0);
  for (int i = 0; i < 32; ++i) out[9] = std::max(out[9], x(i));
  out[10] = x(lane / 8 * 8);
  for (int i = 0; i < 8; ++i) out[10] = std::min(out[10], x(lane / 8 * 8 + i));
  out[11] = sum(lane / 16 * 16, 16);
  uint32_t dot = w[6];
  uint32_t permuted = 0, difference = 0;
  for (int i = 0; i < 4; ++i) {
    dot += static_cast<uint32_t>(byte_of(w[6], i) * byte_of(w[7], i));
    const int selected = static_cast<int>((w[8] >> (4 * i)) & 7);
    permuted |= (static_cast<uint32_t>(byte_of(w[selected < 4 ? 6 : 7], selected % 4)) & 0xff) << (8 * i);
    difference |= (static_cast<uint32_t>(byte_of(w[6], i) - byte_of(w[7], i)) & 0xff) << (8 * i);
  }
  out[12] = static_cast<int>(dot);
  out[13] = static_cast<int>(permuted);
  out[14] = static_cast<int>(difference);
  for (uint32_t bits = w[6]; bits != 0; bits >>= 1) out[15] += static_cast<int>(bits & 1);
  out[16] = 0;
  while (out[16] < 32 && ((w[6] & w[7] & w[8]) >> out[16]) % 2 == 0) ++out[16];
  const auto f = [&](int i) { return static_cast<float>(x(i)) * 0x1p-27f; };
  const double halved = (x(lane) % 2001) * 0.5;
  out[17] = static_cast<int>(std::nearbyint(halved));
  out[18] = f32_to_f16(f(lane));
  out[19] = int_of(f16_to_f32(static_cast<uint16_t>(w[8] & 0x7bff)));
  out[20] = f32_to_bf16(f(lane));
  out[21] = int_of(std::fmaf(f(lane), f(lane), 1.0f));
  out[22] = int_of(1.0f / std::sqrt(1.0f + f(lane) * f(lane)));
  out[23] = t;
  out[24] = kThreads;
  out[25] = 1;
  std::array<float, 32> fold;
  for (int i = 0; i < 32; ++i) fold[static_cast<size_t>(i)] = f(i);
  for (size_t half = 16; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) fold[i] += fold[i + half];
  }
  out[26] = int_of(fold[0]);
  for (int m = 0; m < 4; ++m) {
    out[static_cast<size_t>(27 + m)] =
        static_cast<int>(warp[8 * m + lane / 4][static_cast<size_t>(lane % 4)]);
  }
  out[31] = static_cast<int>(in[static_cast<size_t>(t ^ 32)][0]);
  for (size_t i = 0; i < 6; ++i) out[32 + i] = static_cast<int>(w[i]);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    int d = i + 1;
    for (int k = 0; k < 32; ++k) {
      d += static_cast<int8_t>(a_element(warp, row, k, 4)) *
           static_cast<int8_t>(b_element(warp, k, column, 4));
    }
    out[static_cast<size_t>(38 + i)] = d;
    d = 5;
    for (int k = 0; k < 16; ++k) {
      d += static_cast<int8_t>(a_element(warp, row, k, 4)) *
           static_cast<int8_t>(b_element(warp, k, column, 4));
    }
    out[static_cast<size_t>(42 + i)] = d;
  }
  out[46] = static_cast<int>(in[static_cast<size_t>(t ^ 32)][8]);
  // Word 1 of each row has become word 8 of the thread's input.
  for (int m = 0; m < 4; ++m) {
    const auto half = [&](int row) {
      const int word = lane / 8;
      const uint32_t both = warp[8 * m + row][static_cast<size_t>(word == 1 ? 8 : word)];
      return (lane / 4 % 2 != 0 ? both >> 16 : both) & 0xffffu;
    };
    const int first = 2 * (lane % 4);
    out[static_cast<size_t>(47 + m)] = static_cast<int>(half(first) | half(first + 1) << 16);
  }
  for (size_t i = 0; i < 2; ++i) out[51 + i] = static_cast<int>(in[static_cast<size_t>(t ^ 32)][10 + i]);
  return out;
}

/// What it puts into `out_f`.
void expect_products(const std::vector<Words>& in, int t, Expected& out) {
  const int lane = t % 32;
  const Words* warp = &in[static_cast<size_t>(t - lane)];
  for (const bool half : {true, false}) {
    const auto value = [&](uint32_t bits) -> double {
      return half ? f16_to_f32(static_cast<uint16_t>((bits & 0x83ff) | 0x3800))
                  : bf16_to_f32(static_cast<uint16_t>((bits & 0x807f) | 0x3f00));
    };
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      double d = i + 1;
      for (int k = 0; k < 16; ++k)
        d += value(a_element(warp, row, k, 2)) * value(b_element(warp, k, column, 2));
      out.values.push_back(d);
      out.bounds.push_back(1e-4);
    }
  }
}

void test_simt(Selftest& test) {
  std::vector<Words> in(kThreads);
  for (Words& words : in) {
    for (uint32_t& word : words) word = static_cast<uint32_t>(test.random()());
  }
  SimtCheck::Params params{};
  params.in = test.upload(std::span(std::as_const(in)))->data();
  params.out = test.output<int32_t>(size_t{kThreads} * SimtCheck::kResults);
  params.out_f = test.output<float>(size_t{kThreads} * 8);
  params.counters = test.output<uint32_t>(4);
  test.stream().fill(params.counters, 0, 12);
  test.stream().launch<SimtCheck>({.threads = kThreads}, params);

  std::vector<int32_t> out;
  Expected products;
  std::array<uint32_t, 4> counters{kThreads, 0xffffffffu, 0, 0xffffffffu};
  for (int t = 0; t < kThreads; ++t) {
    const std::vector<int32_t> of_thread = expected_of(in, t);
    out.insert(out.end(), of_thread.begin(), of_thread.end());
    expect_products(in, t, products);
    counters[2] = std::max(counters[2], in[static_cast<size_t>(t)][6]);
    counters[3] = std::min(counters[3], in[static_cast<size_t>(t)][6]);
  }
  test.check_bytes("operations (53 words a thread)", params.out, std::as_bytes(std::span(out)));
  test.check("matrix products", params.out_f, products);
  test.check_bytes("atomics", params.counters, std::as_bytes(std::span(counters)));
}

}  // namespace

void add_simt_groups(SelftestGroups& groups) {
  groups.emplace_back("simt operations", test_simt);
}

}  // namespace redlite::gpu
