#include <gmock/gmock.h>

#include <functional>

#include "base/error.h"
#include "gguf/gguf.h"
#include "raw_gguf.h"

namespace redlite::gguf {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RawGguf values() {
  RawGguf raw(3, 0, 12);
  raw.key("u8", ValueType::U8).num(uint8_t{200});
  raw.key("i64", ValueType::I64).num(int64_t{1} << 40);
  raw.key("negative", ValueType::I32).num(int32_t{-1});
  raw.key("f32", ValueType::F32).num(0.5f);
  raw.key("f64", ValueType::F64).num(0.25);
  raw.key("bool", ValueType::Bool).num(uint8_t{1});
  raw.key("string", ValueType::String).string("s");
  raw.key("i32s", ValueType::Array).num(uint32_t{5}).num(uint64_t{2}).num(int32_t{7}).num(int32_t{8});
  raw.key("negatives", ValueType::Array).num(uint32_t{1}).num(uint64_t{1}).num(int8_t{-7});
  raw.key("f32s", ValueType::Array).num(uint32_t{6}).num(uint64_t{1}).num(1.5f);
  raw.key("bools", ValueType::Array).num(uint32_t{7}).num(uint64_t{2}).num(uint8_t{0}).num(uint8_t{1});
  raw.key("strings", ValueType::Array).num(uint32_t{8}).num(uint64_t{1}).string("t");
  return raw;
}

TEST(Values, ConvertWhereNothingIsLost) {
  const RawGguf raw = values();
  const File file = raw.parse();
  EXPECT_EQ(file.get_uint("u8"), 200u);
  EXPECT_EQ(file.get_uint("i64"), uint64_t{1} << 40);
  EXPECT_EQ(file.get_float("f32"), 0.5);
  EXPECT_EQ(file.get_float("f64"), 0.25);
  EXPECT_EQ(file.get_bool("bool"), true);
  EXPECT_EQ(file.get_string("string"), "s");
  EXPECT_EQ(file.get_uints("i32s"), (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(file.get_floats("f32s"), (std::vector<double>{1.5}));
  EXPECT_EQ(file.get_bools("bools"), (std::vector<bool>{false, true}));
  EXPECT_EQ(file.get_strings("strings"), (std::vector<std::string>{"t"}));
}

TEST(Values, AbsentKeysGiveNothing) {
  const RawGguf raw = values();
  const File file = raw.parse();
  EXPECT_EQ(file.get_uint("x"), std::nullopt);
  EXPECT_EQ(file.get_float("x"), std::nullopt);
  EXPECT_EQ(file.get_bool("x"), std::nullopt);
  EXPECT_EQ(file.get_string("x"), std::nullopt);
  EXPECT_EQ(file.get_uints("x"), std::nullopt);
  EXPECT_EQ(file.get_floats("x"), std::nullopt);
  EXPECT_EQ(file.get_bools("x"), std::nullopt);
  EXPECT_EQ(file.get_strings("x"), std::nullopt);
}

TEST(Values, OtherKindsAreRefused) {
  const RawGguf raw = values();
  const File file = raw.parse();
  const auto refused = [](const std::function<void()>& get, const char* message) {
    EXPECT_THAT(get, ThrowsMessage<Error>(HasSubstr(message)));
  };
  refused([&] { file.get_uint("f32"); }, "metadata key 'f32' is of type f32, but an integer is wanted");
  refused([&] { file.get_uint("bool"); }, "of type bool, but an integer");
  refused([&] { file.get_uint("negative"); }, "'negative' is -1, but must not be negative");
  refused([&] { file.get_float("u8"); }, "of type u8, but a floating-point number");
  refused([&] { file.get_bool("u8"); }, "but a boolean");
  refused([&] { file.get_string("strings"); }, "of type array, but a string");
  refused([&] { file.get_uints("u8"); }, "of type u8, but an array of integers");
  refused([&] { file.get_uints("f32s"); }, "of type f32, but an array of integers");
  refused([&] { file.get_uints("negatives"); }, "is -7, but must not be negative");
  refused([&] { file.get_floats("i32s"); }, "but an array of floating-point numbers");
  refused([&] { file.get_bools("strings"); }, "but an array of booleans");
  refused([&] { file.get_strings("bools"); }, "but an array of strings");
}

}  // namespace
}  // namespace redlite::gguf
