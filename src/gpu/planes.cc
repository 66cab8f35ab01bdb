#include "gpu/planes.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/error.h"

namespace redlite::gpu {
namespace {

using quant::Type;
constexpr PlaneOrder kTwoBits = PlaneOrder::two_bits;
constexpr PlaneOrder kOneBit = PlaneOrder::one_bit;
constexpr PlaneOrder kFourBits = PlaneOrder::four_bits_q6;

PlaneFormat format(Type type, std::initializer_list<Plane> planes) {
  PlaneFormat out;
  int bytes = 0;
  for (const Plane& plane : planes) {
    out.planes[out.n_planes++] = plane;
    bytes += plane.bytes;
  }
  const quant::TypeInfo& info = quant::info(type);
  out.block_bytes = static_cast<int>(info.block_bytes);
  out.block_values = static_cast<int>(info.block_values);
  RL_CHECK(bytes == out.block_bytes, "planes of {}", info.name);
  return out;
}

PlaneFormat make_format(Type type) {
  // Fields as {bytes, offset in the block}: quant/blocks.h.
  switch (type) {
    case Type::F32:
      return format(type, {{4, 0}});
    case Type::F16:
    case Type::BF16:
      return format(type, {{2, 0}});
    case Type::Q4_0:
    case Type::IQ4_NL:
      return format(type, {{16, 2}, {2, 0}});
    case Type::Q4_1:
      return format(type, {{16, 4}, {4, 0}});
    case Type::Q5_0:
      return format(type, {{16, 6}, {4, 2}, {2, 0}});
    case Type::Q5_1:
      return format(type, {{16, 8}, {4, 4}, {4, 0}});
    case Type::Q8_0:
      return format(type, {{32, 2}, {2, 0}});
    case Type::MXFP4:
      return format(type, {{16, 1}, {1, 0}});
    case Type::Q2_K:
      return format(type, {{64, 16, kTwoBits}, {16, 0}, {4, 80}});
    case Type::Q3_K:
      return format(type, {{64, 32, kTwoBits}, {32, 0, kOneBit}, {12, 96}, {2, 108}});
    case Type::Q4_K:
      return format(type, {{128, 16}, {16, 0}});
    case Type::Q5_K:
      return format(type, {{128, 48}, {32, 16, kOneBit}, {16, 0}});
    case Type::Q6_K:
      return format(type, {{128, 0, kFourBits}, {64, 128, kTwoBits}, {16, 192}, {2, 208}});
    case Type::IQ2_XXS:
      return format(type, {{64, 2}, {2, 0}});
    case Type::IQ2_XS:
      return format(type, {{64, 2}, {8, 66}, {2, 0}});
    case Type::IQ2_S:
      return format(type, {{64, 2}, {8, 66}, {8, 74}, {2, 0}});
    case Type::IQ3_XXS:
      return format(type, {{64, 2}, {32, 66}, {2, 0}});
    case Type::IQ3_S:
      return format(type, {{64, 2}, {40, 66}, {4, 106}, {2, 0}});
    case Type::IQ1_S:
      return format(type, {{32, 2}, {16, 34}, {2, 0}});
    case Type::IQ1_M:
      return format(type, {{32, 0}, {16, 32}, {8, 48}});
    case Type::IQ4_XS:
      return format(type, {{128, 8}, {8, 0}});
  }
  RL_CHECK(false, "type {}", static_cast<uint32_t>(type));
}

constexpr size_t round16(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

size_t n_blocks(const PlaneFormat& format, int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols / format.block_values);
}

}  // namespace

const PlaneFormat& plane_format(Type type) {
  static const auto formats = [] {
    std::array<PlaneFormat, 64> all{};
    for (const quant::TypeInfo& info : quant::all_types()) {
      all.at(static_cast<size_t>(info.type)) = make_format(info.type);
    }
    return all;
  }();
  return formats.at(static_cast<size_t>(type));
}

PlaneMatrix plane_matrix(Type type, int rows, int cols, const std::byte* data) {
  const PlaneFormat& format = plane_format(type);
  PlaneMatrix out{.data = data, .rows = rows, .cols = cols};
  size_t at = 0;
  for (int p = 0; p < format.n_planes; ++p) {
    out.plane[p] = at;
    at += round16(n_blocks(format, rows, cols) * format.planes[p].bytes);
  }
  return out;
}

size_t plane_bytes(Type type, int rows, int cols) {
  const PlaneFormat& format = plane_format(type);
  size_t bytes = 0;
  for (int p = 0; p < format.n_planes; ++p) {
    bytes += round16(n_blocks(format, rows, cols) * format.planes[p].bytes);
  }
  return bytes;
}

void repack(Type type, int rows, int cols, const std::byte* from, std::byte* to) {
  const PlaneFormat& format = plane_format(type);
  const PlaneMatrix matrix = plane_matrix(type, rows, cols, to);
  const size_t blocks = n_blocks(format, rows, cols);
  std::fill_n(to, plane_bytes(type, rows, cols), std::byte{0});
  for (int p = 0; p < format.n_planes; ++p) {
    const Plane& plane = format.planes[p];
    std::byte* out = to + matrix.plane[p];
    for (size_t b = 0; b < blocks; ++b) {
      const auto* block =
          reinterpret_cast<const uint8_t*>(from) + b * static_cast<size_t>(format.block_bytes);
      for (int i = 0; i < plane.bytes; ++i) *out++ = static_cast<std::byte>(plane_byte(plane, i, block));
    }
  }
}

}  // namespace redlite::gpu
