#include "quant/type.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace redlite::quant {
namespace {

// Block sizes as ggml-common.h defines them (ggml v0.9 and later; they have not changed since each type
// appeared).
constexpr auto kTypes = std::to_array<TypeInfo>({
    {Type::F32, "F32", 1, 4},
    {Type::F16, "F16", 1, 2},
    {Type::Q4_0, "Q4_0", 32, 18},
    {Type::Q4_1, "Q4_1", 32, 20},
    {Type::Q5_0, "Q5_0", 32, 22},
    {Type::Q5_1, "Q5_1", 32, 24},
    {Type::Q8_0, "Q8_0", 32, 34},
    {Type::Q2_K, "Q2_K", 256, 84},
    {Type::Q3_K, "Q3_K", 256, 110},
    {Type::Q4_K, "Q4_K", 256, 144},
    {Type::Q5_K, "Q5_K", 256, 176},
    {Type::Q6_K, "Q6_K", 256, 210},
    {Type::IQ2_XXS, "IQ2_XXS", 256, 66},
    {Type::IQ2_XS, "IQ2_XS", 256, 74},
    {Type::IQ3_XXS, "IQ3_XXS", 256, 98},
    {Type::IQ1_S, "IQ1_S", 256, 50},
    {Type::IQ4_NL, "IQ4_NL", 32, 18},
    {Type::IQ3_S, "IQ3_S", 256, 110},
    {Type::IQ2_S, "IQ2_S", 256, 82},
    {Type::IQ4_XS, "IQ4_XS", 256, 136},
    {Type::IQ1_M, "IQ1_M", 256, 56},
    {Type::BF16, "BF16", 1, 2},
    {Type::MXFP4, "MXFP4", 32, 17},
});

/// Types that GGUF files may name but that no model we run needs; known only so that a refusal can name them.
struct ForeignType {
  uint32_t id;
  std::string_view name;
};
constexpr auto kForeignTypes = std::to_array<ForeignType>({
    {4, "Q4_2 (removed from the format)"},
    {5, "Q4_3 (removed from the format)"},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {31, "Q4_0_4_4 (removed from the format)"},
    {32, "Q4_0_4_8 (removed from the format)"},
    {33, "Q4_0_8_8 (removed from the format)"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {36, "IQ4_NL_4_4 (removed from the format)"},
    {37, "IQ4_NL_4_8 (removed from the format)"},
    {38, "IQ4_NL_8_8 (removed from the format)"},
    {40, "NVFP4"},
    {41, "Q1_0"},
    {42, "Q2_0"},
});

constexpr uint32_t kMaxId = 39;

constexpr auto kById = [] {
  std::array<const TypeInfo*, kMaxId + 1> table{};
  for (const TypeInfo& t : kTypes) table[static_cast<uint32_t>(t.type)] = &t;
  return table;
}();

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::span<const TypeInfo> all_types() {
  return kTypes;
}

const TypeInfo* find_type(uint32_t id) {
  return id <= kMaxId ? kById[id] : nullptr;
}

const TypeInfo* find_type(std::string_view name) {
  for (const TypeInfo& t : kTypes) {
    if (std::ranges::equal(t.name, name, {}, lower, lower)) return &t;
  }
  return nullptr;
}

const TypeInfo& info(Type type) {
  const TypeInfo* found = find_type(static_cast<uint32_t>(type));
  RL_CHECK(found != nullptr, "type {}", static_cast<uint32_t>(type));
  return *found;
}

std::string describe_type(uint32_t id) {
  if (const TypeInfo* t = find_type(id)) return std::string(t->name);
  for (const ForeignType& t : kForeignTypes) {
    if (t.id == id) return std::string(t.name);
  }
  return fmt::format("number {}, unknown to this version", id);
}

std::string supported_types() {
  std::string text;
  for (const TypeInfo& t : kTypes) {
    if (!text.empty()) text += ", ";
    text += t.name;
  }
  return text;
}

}  // namespace redlite::quant
