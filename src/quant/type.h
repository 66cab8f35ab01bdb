#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// clang-format off
/// X(name) for every type, for code that needs each one as a constant.
#define RL_FOR_EACH_TYPE(X) \
  X(F32) X(F16) X(BF16) \
  X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) \
  X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) \
  X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S) X(IQ1_S) X(IQ1_M) \
  X(IQ4_NL) X(IQ4_XS) X(MXFP4)
// clang-format on

namespace redlite::quant {

/// The tensor types we read, with GGUF's ids (ggml_type).
enum class Type : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  IQ1_M = 29,
  BF16 = 30,
  MXFP4 = 39,
};

/// A type's name as GGUF tools print it, and its block: `block_values` consecutive values of a row are stored
/// in `block_bytes` bytes.
struct TypeInfo {
  Type type;
  std::string_view name;
  uint32_t block_values;
  uint32_t block_bytes;
};

/// All supported types, by id.
std::span<const TypeInfo> all_types();

/// The type with this GGUF id, or nullptr if it is not one we read.
const TypeInfo* find_type(uint32_t id);

/// The type with this name (case ignored), or nullptr.
const TypeInfo* find_type(std::string_view name);

/// What to call a GGUF type id in a message: its name, also when it is one that we do not read.
std::string describe_type(uint32_t id);

const TypeInfo& info(Type type);
inline std::string_view name(Type type) {
  return info(type).name;
}

/// Bytes of a row of `values` values; `values` must be a multiple of the block.
inline size_t row_bytes(Type type, size_t values) {
  const TypeInfo& t = info(type);
  return values / t.block_values * t.block_bytes;
}

/// "F32, F16, Q4_0, ...": for error messages.
std::string supported_types();

}  // namespace redlite::quant
