#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/kernel.h"
#include "quant/type.h"

/// How weights lie in device memory.
///
/// A GGUF block's size suits no GPU (66, 98, 110, 210 bytes). A matrix is therefore stored as up to four
/// planes, one for each field of its blocks: plane p holds that field's bytes of all blocks, in the order of
/// the blocks, and starts at a multiple of 16. A thread takes a *unit* of 64 values (32 in types whose block
/// has 32) with loads of up to 16 bytes. The size stays that of the GGUF data, but for the rounding of each
/// plane up to 16 bytes.
namespace redlite::gpu {

inline constexpr int kMaxPlanes = 4;

/// How the bytes of a field are arranged. Fields whose bits are strewn over the whole block in GGUF are
/// sorted, so that a unit's bits lie together; v is the value's number in its unit of 64.
enum class PlaneOrder : uint8_t {
  as_is,
  two_bits,      ///< 16 bytes a unit: v in bits 2 (v / 16) of byte v % 16
  one_bit,       ///< 8 bytes a unit: v in bit 4 (v / 16 % 2) + v % 16 / 4 of byte 4 (v / 32) + v % 4
  four_bits_q6,  ///< 32 bytes a unit: v in nibble v / 32 of byte v % 32; the source is Q6_K's ql
};

struct Plane {
  uint16_t bytes = 0;   ///< of a block
  uint16_t offset = 0;  ///< of the field in the GGUF block
  PlaneOrder order = PlaneOrder::as_is;
};

/// The planes of a type, and its GGUF block.
struct PlaneFormat {
  Plane planes[kMaxPlanes];
  int n_planes = 0;
  int block_bytes = 0;
  int block_values = 0;
};

const PlaneFormat& plane_format(quant::Type type);

/// A matrix in device memory, as kernels get it.
struct PlaneMatrix {
  const std::byte* data = nullptr;
  uint64_t plane[kMaxPlanes] = {};  ///< where each plane starts
  int rows = 0;
  int cols = 0;

  template <typename T>
  RL_HOST_DEVICE const T* at(int p) const {
    return reinterpret_cast<const T*>(data + plane[p]);
  }
};

/// The layout of a matrix whose bytes start at `data` (16-byte aligned; nullptr where only offsets are
/// wanted).
PlaneMatrix plane_matrix(quant::Type type, int rows, int cols, const std::byte* data);
/// Bytes it takes, a multiple of 16.
size_t plane_bytes(quant::Type type, int rows, int cols);

/// Byte `i` (of Plane::bytes) of a block's part of `plane`: the definition of the layout. `block` is the GGUF
/// block.
RL_HOST_DEVICE inline uint8_t plane_byte(const Plane& plane, int i, const uint8_t* block) {
  const uint8_t* field = block + plane.offset;
  switch (plane.order) {
    case PlaneOrder::as_is:
      return field[i];
    case PlaneOrder::two_bits: {
      int byte = 0;
      for (int strip = 0; strip < 4; ++strip) {
        const int value = 64 * (i / 16) + 16 * strip + i % 16;
        byte |= ((field[32 * (value / 128) + value % 32] >> (2 * (value % 128 / 32))) & 3) << (2 * strip);
      }
      return static_cast<uint8_t>(byte);
    }
    case PlaneOrder::one_bit: {
      int byte = 0;
      for (int bit = 0; bit < 8; ++bit) {
        const int value = 64 * (i / 8) + 32 * (i % 8 / 4) + 16 * (bit / 4) + 4 * (bit % 4) + i % 4;
        byte |= ((field[value % 32] >> (value / 32)) & 1) << bit;
      }
      return static_cast<uint8_t>(byte);
    }
    case PlaneOrder::four_bits_q6: {
      int byte = 0;
      for (int half = 0; half < 2; ++half) {
        const int value = 64 * (i / 32) + 32 * half + i % 32;
        const int k = value % 128 / 32;
        const int nibble = field[64 * (value / 128) + 32 * (k % 2) + value % 32] >> (4 * (k / 2));
        byte |= (nibble & 15) << (4 * half);
      }
      return static_cast<uint8_t>(byte);
    }
  }
  return 0;
}

/// Lays out a matrix on the host, as the kernel Repack does on the device; `to` has plane_bytes().
void repack(quant::Type type, int rows, int cols, const std::byte* from, std::byte* to);

}  // namespace redlite::gpu
