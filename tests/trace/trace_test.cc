#include "trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace redlite::trace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Trace random_trace(int n_layers, int n_experts, int n_used, int n_predicted, std::vector<uint32_t> chunks) {
  Trace t;
  t.model = "a model";
  t.n_layers = n_layers;
  t.n_experts = n_experts;
  t.n_used = n_used;
  t.n_predicted = n_predicted;
  t.dense_bytes = 123456789012;
  for (int l = 0; l < n_layers; ++l) t.layers.push_back({4000u + static_cast<uint64_t>(l), 8192});
  t.chunks = std::move(chunks);
  std::mt19937 random(1);
  std::vector<uint16_t> ids(static_cast<size_t>(n_experts));
  std::iota(ids.begin(), ids.end(), uint16_t{0});
  const auto choose = [&](std::vector<uint16_t>& out, int n) {
    std::shuffle(ids.begin(), ids.end(), random);
    out.insert(out.end(), ids.begin(), ids.begin() + n);
  };
  for (uint32_t i = 0; i < std::accumulate(t.chunks.begin(), t.chunks.end(), 0u); ++i) {
    t.tokens.push_back(static_cast<int32_t>(random() % 1000));
    for (int l = 0; l < n_layers; ++l) {
      choose(t.selected, n_used);
      if (l > 0) choose(t.predicted, n_predicted);
    }
  }
  return t;
}

std::string error_of(std::span<const std::byte> bytes) {
  try {
    decode("t.trace", bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// With the checksum of what is there now.
std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  uint32_t crc = ~uint32_t{0};
  for (size_t i = 0; i + 4 < bytes.size(); ++i) {
    crc ^= static_cast<uint32_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  for (size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(~crc >> (8 * i));
  return bytes;
}

TEST(Trace, ComesBackAsItWas) {
  const Trace traces[] = {random_trace(4, 16, 4, 8, {7, 1, 1}), random_trace(1, 3, 2, 3, {1}),
                          random_trace(2, 1, 1, 1, {5}),        random_trace(3, 512, 10, 20, {100, 1, 1, 1}),
                          random_trace(2, 16384, 1, 0, {2, 2}), random_trace(2, 8, 8, 8, {})};
  const redlite::testing::TemporaryFolder folder;
  for (const Trace& trace : traces) {
    write_trace(folder / "t", trace);
    EXPECT_EQ(read_trace(folder / "t"), trace) << trace.n_experts;
  }
  const Trace& t = traces[3];
  EXPECT_EQ(t.experts(2, 1)[0], t.selected[(2 * 3 + 1) * 10]);
  EXPECT_EQ(t.prediction(2, 1)[0], t.predicted[2 * 2 * 20]);
  // 9 bits an id: 3 x 10 selections and 2 x 20 predictions a token, and the token.
  EXPECT_LT(encode(t).size(), 103 * (70 * 9 / 8 + 5) + 200);
}

TEST(Trace, EveryCutIsNoticed) {
  const std::vector<std::byte> bytes = encode(random_trace(3, 20, 4, 6, {3, 1}));
  EXPECT_EQ(error_of(bytes), "no error");
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_THAT(error_of(std::span(bytes).first(n)), StartsWith("t.trace: ")) << n;
    // The reader itself holds out, too, without the checksum's help.
    std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    if (n < 16) continue;
    EXPECT_THAT(error_of(sealed(cut)), StartsWith("t.trace: not a valid trace: ")) << n;
  }
}

TEST(Trace, EveryFlippedBitIsNoticed) {
  std::vector<std::byte> bytes = encode(random_trace(2, 20, 4, 6, {2, 1}));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_THAT(error_of(bytes), StartsWith("t.trace: ")) << i;
      if (i >= 12) {
        EXPECT_THAT(error_of(bytes), HasSubstr("checksum"));
      }
      error_of(sealed(bytes));  // a trace or an error, whatever it says
      bytes[i] ^= static_cast<std::byte>(1 << bit);
    }
  }
}

TEST(Trace, EveryClaimIsChecked) {
  const Trace good = random_trace(2, 20, 4, 6, {2, 1});
  const auto with = [&](size_t offset, uint64_t value, size_t size = 4) {
    std::vector<std::byte> bytes = encode(good);
    for (size_t i = 0; i < size; ++i) bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
    return error_of(sealed(bytes));
  };
  constexpr size_t kLayers = 12, kExperts = 16, kUsed = 20, kPredicted = 24, kTokens = 28, kChunks = 32,
                   kName = 36;
  EXPECT_THAT(with(0, 'x', 1), HasSubstr("not a trace"));
  EXPECT_THAT(with(8, 2), HasSubstr("version 2; this program reads version 1"));
  EXPECT_THAT(with(kLayers, 0), HasSubstr("number of layers is 0"));
  EXPECT_THAT(with(kLayers, 1u << 31), HasSubstr("number of layers is 2147483648"));
  EXPECT_THAT(with(kExperts, 0), HasSubstr("number of experts is 0"));
  EXPECT_THAT(with(kExperts, 1 << 20), HasSubstr("number of experts is 1048576"));
  EXPECT_THAT(with(kUsed, 21), HasSubstr("experts used is 21"));
  EXPECT_THAT(with(kPredicted, 21), HasSubstr("predictions is 21"));
  EXPECT_THAT(with(kTokens, 0xffffffff), HasSubstr("4294967295 tokens"));
  EXPECT_THAT(with(kChunks, 0xffffffff), HasSubstr("the chunks need 17179869180 bytes"));
  EXPECT_THAT(with(kName, 5000), HasSubstr("length of the name is 5000"));
  const size_t sizes = kName + 4 + good.model.size() + 8;
  EXPECT_THAT(with(sizes, 0, 8), HasSubstr("layer 0 takes 0 bytes"));
  EXPECT_THAT(with(sizes + 8, 100, 8), HasSubstr("in a slot of 100"));
  EXPECT_THAT(with(sizes + 8, 4097, 8), HasSubstr("in a slot of 4097"));
  EXPECT_THAT(with(sizes + 8, uint64_t{1} << 63, 8), HasSubstr("in a slot of 9223372036854775808"));
  const size_t chunks = sizes + 32;
  EXPECT_THAT(with(chunks, 0), HasSubstr("chunk 0 has no tokens"));
  EXPECT_THAT(with(chunks, 3), HasSubstr("chunks of 4 tokens together, but 3"));
  const size_t selected = chunks + 8 + 12;  // 5 bits a number
  EXPECT_THAT(with(selected, 31, 1), HasSubstr("the selections name expert 31 of 20"));
  EXPECT_THAT(with(selected, 0, 2), HasSubstr("the selections name expert 0 twice"));
  EXPECT_THAT(with(selected + 15, 0, 2), HasSubstr("the predictions name expert 0 twice"));
  std::vector<std::byte> longer = encode(good);
  longer.resize(longer.size() + 3);
  EXPECT_THAT(error_of(sealed(longer)), HasSubstr("3 bytes follow its end"));
}

}  // namespace
}  // namespace redlite::trace
