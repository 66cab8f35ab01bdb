#include "cpu/router_copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "cpu/kernels.h"

namespace redlite::cpu {
namespace {

constexpr int kExperts = 24, kCols = 320;

/// Layers with a router each of values that BF16 has, too.
class RouterCopiesTest : public ::testing::Test {
 protected:
  RouterCopiesTest() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (std::vector<float>& router : values_) {
      router.resize(size_t{kExperts} * kCols);
      for (float& v : router) v = bf16_to_f32(f32_to_bf16(normal(random)));
      model::LayerWeights layer;
      layer.ffn.router = {reinterpret_cast<const std::byte*>(router.data()), quant::Type::F32, kExperts,
                          kCols};
      weights_.layers.push_back(layer);
    }
  }

  const model::Matrix& in_file(int layer) const {
    return weights_.layers[static_cast<size_t>(layer)].ffn.router;
  }

  static std::vector<float> logits(const Kernels& kernels, const model::Matrix& router, int n) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(n) * kCols), out(static_cast<size_t>(n) * kExperts);
    for (float& v : x) v = normal(random);
    kernels.router(router, 0, kExperts, x.data(), kCols, n, out.data(), kExperts);
    return out;
  }

  std::vector<float> values_[3];
  model::Weights weights_;
  ThreadPool pool_{2};
};

TEST_F(RouterCopiesTest, HalfTheBytesAndTheSameBits) {
  RouterCopies copies(weights_, quant::Type::BF16, RouterCopies::Loss::None);
  for (const int layer : {2, 0, 1, 2}) {
    const model::Matrix copy = copies.of(layer, pool_);
    EXPECT_EQ(copy.bytes(), in_file(layer).bytes() / 2);
    for (const std::string_view name : available_kernels()) {
      for (const int n : {1, 7}) {
        EXPECT_EQ(logits(*find_kernels(name), copy, n), logits(*find_kernels(name), in_file(layer), n))
            << name << ", layer " << layer << ", " << n << " tokens";
      }
    }
  }
}

TEST_F(RouterCopiesTest, OneValueMoreServesItself) {
  values_[1].back() = std::nextafter(1.0f, 2.0f);
  RouterCopies copies(weights_, quant::Type::BF16, RouterCopies::Loss::None);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(copies.of(1, pool_).data, in_file(1).data);
    EXPECT_NE(copies.of(0, pool_).data, in_file(0).data);
    EXPECT_NE(copies.of(2, pool_).data, in_file(2).data);
  }
  const model::Matrix rough =
      RouterCopies(weights_, quant::Type::Q8_0, RouterCopies::Loss::Allowed).of(1, pool_);
  EXPECT_EQ(rough.type, quant::Type::Q8_0) << "a prediction may be inexact";
}

/// An odd width, and a type that has no fewer bytes.
TEST_F(RouterCopiesTest, WhatDoesNotFitServesItself) {
  weights_.layers[0].ffn.router.cols = 300;
  RouterCopies rough(weights_, quant::Type::Q8_0, RouterCopies::Loss::Allowed);
  EXPECT_EQ(rough.of(0, pool_).data, in_file(0).data);
  EXPECT_NE(rough.of(1, pool_).data, in_file(1).data);
  weights_.layers[1].ffn.router.type = quant::Type::F16;
  RouterCopies copies(weights_, quant::Type::BF16, RouterCopies::Loss::None);
  EXPECT_EQ(copies.of(1, pool_).data, in_file(1).data);
  EXPECT_EQ(RouterCopies::bytes_needed(weights_, quant::Type::BF16),
            2 * (size_t{kExperts} * kCols) + 2 * (size_t{kExperts} * 300));
}

}  // namespace
}  // namespace redlite::cpu
