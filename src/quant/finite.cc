#include "quant/finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/blocks.h"
#include "quant/decode.h"

namespace redlite::quant {
namespace {

constexpr bool finite_f16(uint16_t h) {
  return (h & 0x7c00u) != 0x7c00u;
}

/// Blocks with scales in binary16.
template <typename Block>
constexpr bool is_finite(const Block& block) {
  bool finite = finite_f16(block.d);
  if constexpr (requires { block.m; }) finite = finite && finite_f16(block.m);
  if constexpr (requires { block.dmin; }) finite = finite && finite_f16(block.dmin);
  return finite;
}

template <typename Block, typename Finite>
std::optional<size_t> find(std::span<const std::byte> blocks, const Finite& finite) {
  for (size_t i = 0; (i + 1) * sizeof(Block) <= blocks.size(); ++i) {
    Block block;
    std::memcpy(&block, blocks.data() + i * sizeof(Block), sizeof(Block));
    if (!finite(block)) return i;
  }
  return std::nullopt;
}

template <typename Block>
std::optional<size_t> find(std::span<const std::byte> blocks) {
  return find<Block>(blocks, [](const Block& block) { return is_finite(block); });
}

/// Blocks whose scale is no field of its own.
std::optional<size_t> find_decoded(const TypeInfo& type, std::span<const std::byte> blocks) {
  float values[256];
  for (size_t i = 0; (i + 1) * type.block_bytes <= blocks.size(); ++i) {
    decode(type.type, blocks.data() + i * type.block_bytes, values, type.block_values);
    if (!std::all_of(values, values + type.block_values, [](float v) { return std::isfinite(v); })) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> first_not_finite(Type type, std::span<const std::byte> blocks) {
  switch (type) {
    case Type::F32:
      return find<uint32_t>(blocks, [](uint32_t bits) { return (bits & 0x7f800000u) != 0x7f800000u; });
    case Type::F16:
      return find<uint16_t>(blocks, finite_f16);
    case Type::BF16:
      return find<uint16_t>(blocks, [](uint16_t bits) { return (bits & 0x7f80u) != 0x7f80u; });
    case Type::Q4_0:
      return find<BlockQ4_0>(blocks);
    case Type::Q4_1:
      return find<BlockQ4_1>(blocks);
    case Type::Q5_0:
      return find<BlockQ5_0>(blocks);
    case Type::Q5_1:
      return find<BlockQ5_1>(blocks);
    case Type::Q8_0:
      return find<BlockQ8_0>(blocks);
    case Type::Q2_K:
      return find<BlockQ2_K>(blocks);
    case Type::Q3_K:
      return find<BlockQ3_K>(blocks);
    case Type::Q4_K:
      return find<BlockQ4_K>(blocks);
    case Type::Q5_K:
      return find<BlockQ5_K>(blocks);
    case Type::Q6_K:
      return find<BlockQ6_K>(blocks);
    case Type::IQ2_XXS:
      return find<BlockIQ2_XXS>(blocks);
    case Type::IQ2_XS:
      return find<BlockIQ2_XS>(blocks);
    case Type::IQ2_S:
      return find<BlockIQ2_S>(blocks);
    case Type::IQ3_XXS:
      return find<BlockIQ3_XXS>(blocks);
    case Type::IQ3_S:
      return find<BlockIQ3_S>(blocks);
    case Type::IQ1_S:
      return find<BlockIQ1_S>(blocks);
    case Type::IQ4_NL:
      return find<BlockIQ4_NL>(blocks);
    case Type::IQ4_XS:
      return find<BlockIQ4_XS>(blocks);
    case Type::IQ1_M:
    case Type::MXFP4:
      return find_decoded(info(type), blocks);
  }
  return std::nullopt;
}

}  // namespace redlite::quant
