#include "gpu/codebooks.h"

#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace redlite::gpu {
namespace {

/// `n` codes of `bits` bits each, in nibbles.
constexpr uint32_t in_nibbles(uint32_t codes, int bits, int n) {
  uint32_t out = 0;
  for (int i = 0; i < n; ++i) out |= ((codes >> (bits * i)) & ((1u << bits) - 1)) << (4 * i);
  return out;
}

/// Word `i` of a codebook and the signs behind it.
uint32_t entry(const Codebooks& c, quant::Type type, uint32_t i) {
  using quant::Type;
  const uint32_t entries = book_shape(type).entries;
  if (i >= entries) return c.even_signs[i - entries];
  switch (type) {
    case Type::IQ2_XXS:
      return c.iq2_xxs[i];
    case Type::IQ2_XS:
      return c.iq2_xs[i];
    case Type::IQ2_S:
      return c.iq2_s[i];
    case Type::IQ3_XXS:
      return c.iq3_xxs[i];
    case Type::IQ3_S:
      return c.iq3_s[i];
    default:
      return c.iq1[i];
  }
}

DeviceCodebooks make_codebooks() {
  DeviceCodebooks c{};
  for (int i = 0; i < 256; ++i) {
    c.iq2_xxs[i] = in_nibbles(quant::kIq2XxsCodes[i], 2, 8);
    c.iq3_xxs[i] = static_cast<uint16_t>(in_nibbles(quant::kIq3XxsCodes[i], 3, 4));
  }
  for (int i = 0; i < 512; ++i) {
    c.iq2_xs[i] = in_nibbles(quant::kIq2XsCodes[i], 2, 8);
    c.iq3_s[i] = static_cast<uint16_t>(in_nibbles(quant::kIq3SCodes[i], 3, 4));
  }
  for (int i = 0; i < 1024; ++i) c.iq2_s[i] = in_nibbles(quant::kIq2SCodes[i], 2, 8);
  for (int i = 0; i < 2048; ++i) c.iq1[i] = in_nibbles(quant::kIq1Codes[i], 2, 8);
  for (uint32_t i = 0; i < 128; ++i) c.even_signs[i] = in_nibbles(quant::even_signs(i), 1, 8) << 2;
  using quant::Type;
  for (const Type type :
       {Type::IQ2_XXS, Type::IQ2_XS, Type::IQ2_S, Type::IQ3_XXS, Type::IQ3_S, Type::IQ1_S}) {
    const uint32_t copies = book_shape(type).copies;
    for (uint32_t i = 0; i < book_shape(type).words(); ++i)
      c.staged[DeviceCodebooks::at(type) + i] = entry(c, type, i / copies);
  }
  return c;
}

}  // namespace

Buffer upload_codebooks(Device& device, Stream& stream) {
  static const DeviceCodebooks codebooks = make_codebooks();
  Buffer buffer = device.allocate(sizeof codebooks, "the codebooks");
  stream.copy(buffer.as(), &codebooks, sizeof codebooks);
  return buffer;
}

}  // namespace redlite::gpu
