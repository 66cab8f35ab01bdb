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

Codebooks make_codebooks() {
  Codebooks c;
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
  return c;
}

}  // namespace

Buffer upload_codebooks(Device& device, Stream& stream) {
  static const Codebooks codebooks = make_codebooks();
  Buffer buffer = device.allocate(sizeof codebooks, "the codebooks");
  stream.copy(buffer.as(), &codebooks, sizeof codebooks);
  return buffer;
}

}  // namespace redlite::gpu
