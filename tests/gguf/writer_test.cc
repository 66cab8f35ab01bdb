#include "gguf/writer.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>

#include "../support/temporary_folder.h"
#include "base/error.h"

namespace redlite::gguf {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::byte> counting_bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

/// Deep equality; shared pointers by what they point to.
bool equal(const Value& a, const Value& b);
bool equal(const Array& a, const Array& b) {
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (const auto* arrays = std::get_if<std::vector<std::shared_ptr<const Array>>>(&a.values)) {
    const auto& others = std::get<std::vector<std::shared_ptr<const Array>>>(b.values);
    for (size_t i = 0; i < arrays->size(); ++i) {
      if (!equal(*(*arrays)[i], *others[i])) return false;
    }
    return true;
  }
  return a.values == b.values;
}
bool equal(const Value& a, const Value& b) {
  if (a.index() != b.index()) return false;
  if (const auto* array = std::get_if<std::shared_ptr<const Array>>(&a)) {
    return equal(**array, *std::get<std::shared_ptr<const Array>>(b));
  }
  return a == b;
}

/// One of each type, with the values that a wrong width or sign would change.
std::vector<std::pair<std::string, Value>> every_kind_of_value() {
  const auto inner =
      std::make_shared<const Array>(Array{std::vector<std::string>{"", "a", std::string(1, '\0')}});
  const auto nested = std::make_shared<const Array>(
      Array{std::vector<std::shared_ptr<const Array>>{inner, std::make_shared<const Array>(), inner}});
  return {
      {"u8", uint8_t{255}},
      {"i8", int8_t{-128}},
      {"u16", uint16_t{65535}},
      {"i16", int16_t{-32768}},
      {"u32", std::numeric_limits<uint32_t>::max()},
      {"i32", std::numeric_limits<int32_t>::min()},
      {"f32", -0.1f},
      {"true", true},
      {"false", false},
      {"string", std::string("caf\xc3\xa9 \xf0\x9f\x98\x80")},
      {"empty", std::string()},
      {"u64", std::numeric_limits<uint64_t>::max()},
      {"i64", std::numeric_limits<int64_t>::min()},
      {"f64", -1e-300},
      {"u8s", make_array(std::vector<uint8_t>{0, 255})},
      {"i8s", make_array(std::vector<int8_t>{-128, 127})},
      {"u16s", make_array(std::vector<uint16_t>{65535})},
      {"i16s", make_array(std::vector<int16_t>{-32768})},
      {"u32s", make_array(std::vector<uint32_t>{4294967295u})},
      {"i32s", make_array(std::vector<int32_t>{-2147483647})},
      {"f32s", make_array(std::vector<float>{1.5f, -0.0f})},
      {"bools", make_array(std::vector<bool>{true, false, true})},
      {"strings", make_array(std::vector<std::string>{"\xc4\xa0the", "", "\n"})},
      {"u64s", make_array(std::vector<uint64_t>{1, std::numeric_limits<uint64_t>::max()})},
      {"i64s", make_array(std::vector<int64_t>{-1})},
      {"f64s", make_array(std::vector<double>{0.1})},
      {"none", make_array(std::vector<int32_t>{})},
      {"nested", nested},
  };
}

TEST(Writer, RoundTripsEveryKindOfValue) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "values.gguf";
  const auto values = every_kind_of_value();
  {
    Writer writer(path);
    for (const auto& [key, value] : values) writer.add(key, value);
    writer.begin_data();
    writer.finish();
  }
  const File file(path);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().size(), values.size());
  for (const auto& [key, value] : values) {
    const Value* read = file.find_value(key);
    ASSERT_NE(read, nullptr) << key;
    EXPECT_TRUE(equal(*read, value)) << key;
  }
}

TEST(Writer, RoundTripsTensorsOfEveryTypeWhateverThePieces) {
  const testing::TemporaryFolder folder;
  for (const uint32_t alignment : {32u, 8u, 4096u}) {
    const std::string path = folder / "tensors.gguf";
    std::vector<std::vector<std::byte>> contents;
    Writer writer(path, alignment);
    for (const quant::TypeInfo& type : quant::all_types()) {
      const std::vector<uint64_t> shape = {3 * type.block_values, 5, 2};
      writer.add_tensor(std::string(type.name), shape, type.type);
      contents.push_back(counting_bytes(30 * type.block_bytes));
    }
    writer.add_tensor("large", {1000, 1000}, quant::Type::F32);
    contents.push_back(counting_bytes(4'000'000));
    writer.begin_data();
    std::vector<std::byte> all;
    for (const auto& bytes : contents) all.insert(all.end(), bytes.begin(), bytes.end());
    std::span<const std::byte> rest = all;
    for (size_t piece = 1; !rest.empty(); piece = piece * 3 + 1) {  // pieces ignore tensor boundaries
      const auto part = rest.first(std::min(piece, rest.size()));
      writer.write(part);
      rest = rest.subspan(part.size());
    }
    const uint64_t total = writer.total_bytes();
    writer.finish();
    EXPECT_EQ(std::filesystem::file_size(path), total);

    const File file(path);
    ASSERT_EQ(file.tensors().size(), contents.size());
    for (size_t i = 0; i < contents.size(); ++i) {
      const TensorInfo& tensor = file.tensors()[i];
      EXPECT_EQ(tensor.offset % alignment, 0u);
      const auto data = file.data(tensor);
      ASSERT_EQ(data.size(), contents[i].size()) << tensor.name;
      EXPECT_EQ(std::memcmp(data.data(), contents[i].data(), data.size()), 0) << tensor.name;
    }
    EXPECT_EQ(file.find("large")->shape, (std::vector<uint64_t>{1000, 1000}));
    EXPECT_EQ(file.find("Q4_K")->type, quant::Type::Q4_K);
  }
}

TEST(Writer, LeavesNothingUnderTheNameUnlessFinished) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  {
    Writer writer(path);
    writer.add_tensor("a", {4}, quant::Type::F32);
    writer.begin_data();
    writer.write(counting_bytes(8));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Writer, KeepsTheOldFileUntilFinished) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "old.gguf";
  const auto write = [&](uint32_t version) {
    Writer writer(path);
    writer.add("n", version);
    writer.begin_data();
    EXPECT_TRUE(version == 1 || File(path).get_uint("n") == 1u);
    writer.finish();
  };
  write(1);
  write(2);
  EXPECT_EQ(File(path).get_uint("n"), 2u);
}

TEST(Writer, NamesWhatTheSystemRefuses) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT([] { Writer("/no/such/folder/m.gguf"); },
              ThrowsMessage<Error>(HasSubstr("/no/such/folder/m.gguf")));
  Writer writer(folder / "huge.gguf");
  writer.add_tensor("a", {uint64_t{1} << 50}, quant::Type::F32);
  EXPECT_THAT([&] { writer.begin_data(); }, ThrowsMessage<Error>(HasSubstr("are free there")));
}

TEST(WriterDeathTest, AbortsOnBytesThatWereNotDeclared) {
  const testing::TemporaryFolder folder;
  EXPECT_DEATH(
      {
        Writer writer(folder / "death.gguf");
        writer.add_tensor("a", {4}, quant::Type::F32);
        writer.begin_data();
        writer.write(counting_bytes(17));
      },
      "1 bytes more than declared");
}

}  // namespace
}  // namespace redlite::gguf
