// What a header may claim and what is refused; every case is one field of an otherwise good file.

#include <gmock/gmock.h>

#include <limits>

#include "base/error.h"
#include "gguf/gguf.h"
#include "raw_gguf.h"

namespace redlite::gguf {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8_0 = 8;
constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

/// A small good file of every structure: scalars, arrays, nested arrays, two tensors.
RawGguf good_file(uint32_t version = 3) {
  RawGguf raw(version, 2, 5);
  raw.key("general.architecture", ValueType::String).string("qwen3next");
  raw.key("general.alignment", ValueType::U32).num(uint32_t{64});
  raw.key("flag", ValueType::Bool).num(uint8_t{1});
  raw.key("tokens", ValueType::Array).num(uint32_t{8}).num(uint64_t{2}).string("a").string("bc");
  raw.key("nested", ValueType::Array).num(uint32_t{9}).num(uint64_t{1});
  raw.num(uint32_t{6}).num(uint64_t{1}).num(1.5f);
  raw.tensor("a", {4, 2}, kF32, 0).tensor("b", {32}, kQ8_0, 64);
  return raw.pad(64).zeros(64 + 34);
}

std::string error_of(const RawGguf& raw) {
  try {
    raw.parse();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// The error of a file with one tensor entry and 64 bytes of data.
std::string tensor_error(std::string_view name, std::initializer_list<uint64_t> shape, uint32_t type,
                         uint64_t offset) {
  return error_of(RawGguf(3, 1, 0).tensor(name, shape, type, offset).pad(32).zeros(64));
}

/// The error of a file with one metadata value of which `raw` puts down type and bytes.
std::string value_error(const RawGguf& value) {
  return error_of(RawGguf(3, 0, 1).string("some.key").text(RawGguf(value).data()));
}

TEST(Header, GoodFilesOfBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    const RawGguf raw = good_file(version);
    const File file = raw.parse();
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.path(), "m.gguf");
    EXPECT_EQ(file.get_string("general.architecture"), "qwen3next");
    EXPECT_EQ(file.get_bool("flag"), true);
    EXPECT_EQ(file.get_strings("tokens"), (std::vector<std::string>{"a", "bc"}));
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.tensors()[0].bytes, 32u);
    EXPECT_EQ(file.tensors()[1].bytes, 34u);
    EXPECT_EQ(file.tensors()[1].offset - file.tensors()[0].offset, 64u);
    EXPECT_EQ(file.data(file.tensors()[1]).data() + 34, raw.bytes().data() + raw.size());
  }
}

TEST(Header, EveryTruncationIsRefused) {
  const std::string whole = good_file().data();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THAT(error_of(RawGguf().text(whole.substr(0, n))), StartsWith("m.gguf: ")) << n << " bytes";
  }
}

TEST(Header, EveryFlippedBitIsReadOrRefused) {
  const std::string whole = good_file().data();
  int refused = 0;
  for (size_t i = 0; i < whole.size() * 8; ++i) {
    std::string damaged = whole;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
    const RawGguf raw = RawGguf().text(damaged);
    try {
      const File file = raw.parse();
      for (const TensorInfo& t : file.tensors()) {
        ASSERT_LE(t.offset + t.bytes, whole.size());
        ASSERT_EQ(file.data(t).size(), t.bytes);
      }
    } catch (const Error& e) {
      ++refused;
      EXPECT_THAT(e.what(), AllOf(StartsWith("m.gguf: "), Not(HasSubstr("\n"))));
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(Header, EveryByteAtItsExtremesIsReadOrRefused) {
  const std::string whole = good_file().data();
  for (size_t i = 0; i + 8 <= whole.size(); ++i) {
    for (const uint64_t value :
         {uint64_t{0}, kHuge, kHuge / 2, kHuge / 2 + 1, uint64_t{1} << 32, kHuge - 31}) {
      std::string damaged = whole;
      std::memcpy(damaged.data() + i, &value, 8);
      error_of(RawGguf().text(damaged));  // must not crash, hang or allocate what the value says
    }
  }
}

TEST(Header, ForeignFilesAreNamed) {
  const auto error = [](std::string_view bytes) { return error_of(RawGguf().text(bytes)); };
  EXPECT_THAT(error(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error("GG"), HasSubstr("truncated"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\noid"), HasSubstr("git lfs pull"));
  EXPECT_THAT(error("<!DOCTYPE html><html>"), HasSubstr("HTML"));
  EXPECT_THAT(error("tjgg\x03"), HasSubstr("before GGUF"));
  EXPECT_THAT(error("\x1b[2J"), HasSubstr(R"(begins with '\x1b[2J' instead of 'GGUF')"));
}

TEST(Header, OtherVersionsAreNamed) {
  EXPECT_THAT(error_of(RawGguf(1, 0, 0)), HasSubstr("GGUF version 1 at offset 4 is not supported"));
  EXPECT_THAT(error_of(RawGguf(4, 0, 0)), HasSubstr("GGUF version 4 at offset 4 is not supported"));
  EXPECT_THAT(error_of(RawGguf(0, 0, 0)), HasSubstr("GGUF version 0"));
  EXPECT_THAT(error_of(RawGguf(0x03000000u, 0, 0)), HasSubstr("big-endian"));
}

TEST(Header, HostileCountsAreRefusedBeforeAnythingIsReserved) {
  EXPECT_THAT(error_of(RawGguf(3, kHuge, 0)),
              HasSubstr("the tensor count at offset 8 claims 18446744073709551615"));
  EXPECT_THAT(error_of(RawGguf(3, 0, kHuge)), HasSubstr("the metadata count at offset 16 claims"));
  RawGguf little_left(3, 3, 1);  // enough for three entries before the metadata, not behind it
  little_left.key("k", ValueType::String).string(std::string(100, 'x')).zeros(64);
  EXPECT_THAT(error_of(little_left), HasSubstr("claims 3 tensors, but only 64 bytes follow"));
  EXPECT_THAT(error_of(RawGguf(3, 0, 1).num(kHuge).zeros(100)), HasSubstr("inside metadata key 0"));
  for (uint32_t type = 0; type <= 12; ++type) {
    for (const uint64_t count : {kHuge, kHuge / 8 + 1, uint64_t{1} << 40, uint64_t{101}}) {
      EXPECT_THAT(value_error(RawGguf().num(uint32_t{9}).num(type).num(count).zeros(100)),
                  HasSubstr(fmt::format("claims {} elements, but only 100 bytes follow", count)))
          << "type " << type;
    }
  }
}

TEST(Header, MetadataMustBeSound) {
  EXPECT_THAT(value_error(RawGguf().num(uint32_t{13})),
              HasSubstr("the value of 'some.key' at offset 40 has type 13, but GGUF knows 0 to 12 only"));
  EXPECT_THAT(value_error(RawGguf().num(uint32_t{9}).num(uint32_t{13}).num(uint64_t{0})),
              HasSubstr("type 13"));
  EXPECT_THAT(value_error(RawGguf().num(uint32_t{7}).num(uint8_t{2})), HasSubstr("boolean 2"));
  EXPECT_THAT(value_error(RawGguf().num(uint32_t{8}).num(uint64_t{9}).text("12345678")),
              HasSubstr("9 bytes needed, 8 left"));
  EXPECT_THAT(error_of(RawGguf(3, 0, 1).string("").num(uint32_t{0}).num(uint8_t{0}).zeros(9)),
              HasSubstr("has 0 bytes, outside 1 to 65535"));
  EXPECT_THAT(error_of(RawGguf(3, 0, 1).string(std::string(65536, 'k')).num(uint32_t{0}).num(uint8_t{0})),
              HasSubstr("has 65536 bytes"));
  RawGguf twice(3, 0, 2);
  twice.key("k", ValueType::U8).num(uint8_t{0}).key("k", ValueType::U8).num(uint8_t{0});
  EXPECT_THAT(error_of(twice), HasSubstr("metadata key 'k' at offset 38 is there twice"));
}

TEST(Header, ArraysNestOnlySoDeep) {
  const auto nested = [](int depth) {
    RawGguf raw = RawGguf().num(uint32_t{9});
    for (int i = 1; i < depth; ++i) raw.num(uint32_t{9}).num(uint64_t{1});
    return raw.num(uint32_t{0}).num(uint64_t{0});
  };
  EXPECT_EQ(value_error(nested(8)), "no error");
  EXPECT_THAT(value_error(nested(9)), HasSubstr("nests arrays deeper than 8"));
  EXPECT_THAT(value_error(nested(100'000)), HasSubstr("nests arrays deeper than 8"));
}

TEST(Header, AlignmentMustBeSound) {
  const auto aligned = [](const RawGguf& value) {
    return error_of(RawGguf(3, 0, 1).string("general.alignment").text(RawGguf(value).data()));
  };
  for (const uint32_t good : {8u, 32u, 4096u, 1u << 31}) {
    EXPECT_EQ(aligned(RawGguf().num(uint32_t{4}).num(good)), "no error");
  }
  for (const uint32_t bad : {0u, 1u, 4u, 24u, 33u, 4294967295u}) {
    EXPECT_THAT(aligned(RawGguf().num(uint32_t{4}).num(bad)),
                HasSubstr("must be a power of two of at least 8"));
  }
  EXPECT_THAT(aligned(RawGguf().num(uint32_t{10}).num(uint64_t{32})), HasSubstr("must be a u32, not u64"));
}

TEST(Header, TensorEntriesMustBeSound) {
  EXPECT_EQ(tensor_error("t", {16}, kF32, 0), "no error");
  EXPECT_EQ(tensor_error("t", {2, 2, 2, 2}, kF32, 0), "no error");
  EXPECT_THAT(tensor_error("", {16}, kF32, 0), HasSubstr("has a name of 0 bytes"));
  EXPECT_THAT(tensor_error(std::string(65, 'n'), {16}, kF32, 0), HasSubstr("has a name of 65 bytes"));
  EXPECT_THAT(tensor_error("t", {}, kF32, 0), HasSubstr("tensor 't' at offset 24 has 0 dimensions"));
  EXPECT_THAT(tensor_error("t", {1, 1, 1, 1, 1}, kF32, 0), HasSubstr("has 5 dimensions, outside 1 to 4"));
  EXPECT_THAT(tensor_error("t", {16, 0}, kF32, 0), HasSubstr("has a dimension of length 0"));
  EXPECT_THAT(tensor_error("t", {kHuge, 2}, kF32, 0), HasSubstr("more than 2^63 values"));
  EXPECT_THAT(tensor_error("t", {uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0),
              HasSubstr("more than 2^63"));
  EXPECT_THAT(tensor_error("t", {uint64_t{1} << 62}, kF32, 0), HasSubstr("more than 2^64 bytes"));
  EXPECT_THAT(tensor_error("t", {33}, kQ8_0, 0),
              HasSubstr("rows of 33 values, not a multiple of the 32 that a block of Q8_0 holds"));
  EXPECT_THAT(tensor_error("t", {17}, kF32, 0),
              HasSubstr("tensor 't' needs 68 bytes from offset 64, but the file has only 128 bytes"));
  EXPECT_THAT(tensor_error("t", {1}, kF32, 31),
              HasSubstr("has offset 31, not a multiple of the file's alignment"));
  EXPECT_THAT(tensor_error("t", {1}, kF32, kHuge - 31), HasSubstr("needs 4 bytes"));
  EXPECT_THAT(tensor_error("\x1b]0;x\x07", {1}, kF32, 31), HasSubstr(R"('\x1b]0;x\x07')"));
}

TEST(Header, UnreadableTypesAreNamedWithTheSupportedOnes) {
  EXPECT_THAT(
      tensor_error("t", {1}, 9, 0),
      HasSubstr("tensor 't' at offset 24 has type Q8_1, which is not supported; supported are F32, F16, "));
  EXPECT_THAT(tensor_error("t", {1}, 26, 0), HasSubstr("has type I32,"));
  EXPECT_THAT(tensor_error("t", {1}, 40, 0), HasSubstr("has type NVFP4,"));
  EXPECT_THAT(tensor_error("t", {1}, 4, 0), HasSubstr("has type Q4_2 (removed from the format),"));
  EXPECT_THAT(tensor_error("t", {1}, 99, 0), HasSubstr("has type number 99, unknown to this version,"));
}

TEST(Header, TensorsMustNotOverlapOrRepeat) {
  const auto two = [](std::string_view second, uint64_t offset) {
    return error_of(
        RawGguf(3, 2, 0).tensor("a", {9}, kF32, 0).tensor(second, {1}, kF32, offset).pad(32).zeros(128));
  };
  EXPECT_EQ(two("b", 64), "no error");
  EXPECT_THAT(two("b", 32), HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(two("b", 0), HasSubstr("overlap"));
  EXPECT_THAT(two("a", 64), HasSubstr("two tensors named 'a'"));
  // Any order in the file will do.
  EXPECT_EQ(
      error_of(RawGguf(3, 2, 0).tensor("a", {9}, kF32, 64).tensor("b", {9}, kF32, 0).pad(32).zeros(128)),
      "no error");
}

TEST(Header, PartsOfSplitModelsAreNotReadFromMemory) {
  RawGguf raw(3, 0, 2);
  raw.key("split.no", ValueType::U16).num(uint16_t{0}).key("split.count", ValueType::U16).num(uint16_t{2});
  EXPECT_THAT(error_of(raw), HasSubstr("part of a split model"));
}

}  // namespace
}  // namespace redlite::gguf
